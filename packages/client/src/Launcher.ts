/**
 * Finds the bridge of a state directory in a sandbox, launches it where there's none, and again where it died.
 *
 * @since 0.1.0
 */
import { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Context from "effect/Context"
import * as Crypto from "effect/Crypto"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { BridgeClient, type ConnectOptions } from "./BridgeClient.ts"
import type { BridgeUnavailable } from "./BridgeUnavailable.ts"
import * as Client from "./internal/client.ts"
import * as Launch from "./internal/launch.ts"
import { TokenStore } from "./TokenStore.ts"

/**
 * A value of the agent's options: JSON, in which secrets are `Redacted`.
 *
 * @category models
 * @since 0.1.0
 */
export type AgentOption =
  | Schema.Json
  | Redacted.Redacted<string>
  | ReadonlyArray<AgentOption>
  | { readonly [key: string]: AgentOption }

/**
 * What a bridge is found and launched by. Only `bridge` and `stateDirectory` matter for one that runs already.
 *
 * @category options
 * @since 0.1.0
 */
export interface LaunchOptions extends ConnectOptions {
  /** Absolute path in the sandbox, on a local disk, outside every session's directory. */
  readonly stateDirectory: string
  /** `agent` names the driver, the rest is that driver's own. */
  readonly agentOptions: { readonly agent: string; readonly [key: string]: AgentOption }
  /** The port to listen on. By default the first one of the sandbox, or any where the sandbox reaches any. */
  readonly port?: number | undefined
  /** How long the bridge stays without work; 10 minutes. */
  readonly idleTimeout?: Duration.Input | undefined
  /** The web origins that may connect; none. */
  readonly allowedOrigins?: ReadonlyArray<string> | undefined
  /** Whether each batch of parts is synced to the disk before it's visible; false. */
  readonly sync?: boolean | undefined
  /** The largest turn file in bytes; 1 GiB. */
  readonly maxTurnBytes?: number | undefined
  /**
   * How often in a row a bridge is launched again that died before it answered or within 10 s of that; 5. The first
   * time at once, then after 0.5 s, 1 s, 2 s and 4 s, and every 4 s from then on; then `LaunchFailed`. One that ends
   * with an error before it answered isn't launched again: it would end so again. A bridge that was idle or replaced
   * has not died.
   */
  readonly maxRelaunches?: number | undefined
}

/**
 * Launches bridges in a sandbox.
 *
 * @category services
 * @since 0.1.0
 */
export class Launcher extends Context.Service<Launcher, {
  /**
   * Connects to a bridge, and launches one where the listening file is missing, nobody listens at its port, `Hello`
   * isn't answered within 10 s, or the bridge it names retires. A client launches again in the same cases later. Hosts
   * that do this at once end with one bridge. Closed with the scope; the bridge goes on.
   */
  readonly connect: (options: LaunchOptions) => Effect.Effect<BridgeClient["Service"], BridgeUnavailable, Scope.Scope>
}>()("@gangway/client/Launcher") {}

/**
 * The bridge program.
 *
 * @category options
 * @since 0.1.0
 */
export interface Program {
  /** The program in the sandbox, and its arguments. */
  readonly command: readonly [string, ...Array<string>]
  /** Added to the environment that programs in the sandbox have. Secrets don't belong here. */
  readonly env?: Readonly<Record<string, string>> | undefined
  readonly cwd?: string | undefined
}

/**
 * Makes the launcher of a bridge program.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (
  program: Program
): Effect.Effect<Launcher["Service"], never, Sandbox | TokenStore | Crypto.Crypto> =>
  Effect.gen(function*() {
    const services = {
      sandbox: yield* Sandbox,
      tokens: yield* TokenStore,
      crypto: yield* Crypto.Crypto
    }
    return {
      connect: (options) =>
        Effect.map(Client.make(options, (tell) => Launch.connector(services, program, options, tell)), BridgeClient.of)
    }
  })

/**
 * The launcher of a bridge program.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (program: Program): Layer.Layer<Launcher, never, Sandbox | TokenStore | Crypto.Crypto> =>
  Layer.effect(Launcher, make(program))
