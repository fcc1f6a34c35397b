/**
 * A host's connection to one bridge, which comes back by itself.
 *
 * @since 0.1.0
 */
import type { BridgeId, HelloReply, SessionId } from "@gangway/protocol/Bridge"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { BridgeUnavailable } from "./BridgeUnavailable.ts"
import * as Client from "./internal/client.ts"
import type { Session, SessionOptions } from "./Session.ts"
import type { Status } from "./Status.ts"
import type { StartSessionError } from "./Turn.ts"

/**
 * A bridge, as a host uses it. It connects where it's needed, and again where a connection was lost; commands that were
 * lost with one are repeated, which the bridge answers as it did the first time.
 *
 * @category services
 * @since 0.1.0
 */
export class BridgeClient extends Context.Service<BridgeClient, {
  readonly bridge: BridgeId
  /** Asks the bridge what it is, what its agent can do, and which sessions it has. */
  readonly hello: Effect.Effect<HelloReply, BridgeUnavailable>
  /** Starts a session, or resumes the one of that id. It's started again where another bridge follows this one. */
  readonly startSession: (options: SessionOptions) => Effect.Effect<Session, StartSessionError>
  /** A session that this host doesn't start: to read its turns and answer them by hand, to stop or destroy it. */
  readonly session: (session: SessionId) => Session
}>()("@gangway/client/BridgeClient") {}

/**
 * How a host connects.
 *
 * @category options
 * @since 0.1.0
 */
export interface ConnectOptions {
  readonly bridge: BridgeId
  /** How long a bridge that can't be reached is sought before `BridgeUnavailable`; 5 minutes. */
  readonly reconnectFor?: Duration.Input | undefined
  /**
   * Whether pings are sent, by which a connection that died without a word is noticed; true. Where an open socket costs
   * money, such as on a provider that stops idle sandboxes, `false` lets it be silent.
   */
  readonly pings?: boolean | undefined
  /** What the host says of itself. */
  readonly host?: { readonly name: string; readonly version: string } | undefined
  /**
   * Told of each `Status`, in order, from the first attempt to connect on; in a fiber of its own, which ends with the
   * client. It holds up nothing, and may use the client. Of more than 64 statuses that wait for it, the oldest are left
   * out.
   */
  readonly onStatus?: ((status: Status) => Effect.Effect<void>) | undefined
}

/**
 * Where a bridge is, and what opens it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Address {
  /** An `http:` or `https:` URL. */
  readonly url: URL
  readonly token: Redacted.Redacted<string>
  /** What a proxy in between asks for. */
  readonly headers?: Readonly<Record<string, Redacted.Redacted<string>>> | undefined
}

/**
 * Connects to a bridge at a known address, which is asked for anew for each connection. Closed with the scope. Bridges
 * in a sandbox are found and launched by a `Launcher`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (
  options: ConnectOptions & { readonly address: Effect.Effect<Address, BridgeUnavailable> }
): Effect.Effect<BridgeClient["Service"], BridgeUnavailable, Scope.Scope> =>
  Effect.map(Client.make(options, () => Client.fromAddress(options)), BridgeClient.of)

/**
 * A bridge at a known address.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (
  options: ConnectOptions & { readonly address: Effect.Effect<Address, BridgeUnavailable> }
): Layer.Layer<BridgeClient, BridgeUnavailable> => Layer.effect(BridgeClient, make(options))
