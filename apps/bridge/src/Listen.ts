/**
 * The bridge program's port.
 *
 * @since 0.1.0
 */
import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import { Bridge, BridgeServer } from "@gangway/server"
import { freePort, PortTaken, type Probe, readListening } from "@gangway/server/Ownership"
import type { StateDirectory } from "@gangway/server/StateDirectory"
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Runtime from "effect/Runtime"

/**
 * The address can't be listened on.
 *
 * @category errors
 * @since 0.1.0
 */
export class CannotListen extends Data.TaggedError("CannotListen")<{ readonly problem: string }> {
  /** What `runMain` exits with. */
  override readonly [Runtime.errorExitCode] = Bridge.ExitCode.launchLine
  override get message() {
    return `hostname: ${this.problem}`
  }
}

/**
 * Where the bridge listens, and as which.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  readonly hostname: string
  /** 0: the system chooses. */
  readonly port: number
  readonly bridge: Bridge.BridgeId
  readonly stateDirectory: StateDirectory
}

/**
 * Listens. Where a given port is taken by a bridge that doesn't answer any more, it is ended first.
 *
 * @category constructors
 * @since 0.1.0
 */
export const listen = (options: Options) =>
  Effect.catchTag(bind(options), "AddressInUse", () =>
    Effect.andThen(
      freePort({ ...options, probe: probe(options) }),
      Effect.catchTag(
        bind(options),
        "AddressInUse",
        () => Effect.fail(new PortTaken({ port: options.port, by: "other" }))
      )
    ))

class AddressInUse extends Data.TaggedError("AddressInUse") {}

// Bun throws where it can't listen.
const bind = ({ hostname, port }: Options) =>
  Effect.catchCause(
    BunHttpServer.make({ hostname, port, websocket: BridgeServer.webSocketOptions }),
    (cause): Effect.Effect<never, AddressInUse | CannotListen> => {
      const error = Cause.squash(cause)
      const code = typeof error === "object" && error !== null && "code" in error ? error.code : undefined
      return code === "EADDRINUSE" && port !== 0
        ? Effect.fail(new AddressInUse())
        : Effect.fail(new CannotListen({ problem: `can't listen on ${hostname}, port ${port}: ${String(error)}` }))
    }
  )

// Asks what has the port, and shows it no token: that may be a stranger. Only a bridge knows its launch, which the
// listening file names, and tells it to whoever has no token.
const probe = ({ bridge, hostname, port, stateDirectory }: Options) =>
  Effect.gen(function*() {
    const host = hostname === "0.0.0.0" || hostname === "::" ? "127.0.0.1" : hostname
    const response = yield* Effect.tryPromise((signal) =>
      // No proxy that the environment names is asked either: Bun's option, whose type lacks this value.
      fetch(
        `http://${host.includes(":") ? `[${host}]` : host}:${port}/`,
        { redirect: "manual", signal, proxy: false } as object
      )
    )
    const file = yield* readListening(stateDirectory)
    const isOurs = file?.bridge === bridge && file.launch === response.headers.get("x-bridge-launch")
    return isOurs ? "ours" as const : "other" as const
  }).pipe(Effect.orElseSucceed((): Probe => "other"))
