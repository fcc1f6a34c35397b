/**
 * The bridge program's port.
 *
 * @since 0.1.0
 */
import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import { Bridge, BridgeServer } from "@gangway/server"
import { freePort, PortTaken, type Probe } from "@gangway/server/Ownership"
import type { StateDirectory } from "@gangway/server/StateDirectory"
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
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
 * Where the bridge listens, and as whom.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  readonly hostname: string
  /** 0: the system chooses. */
  readonly port: number
  readonly bridge: Bridge.BridgeId
  readonly token: Redacted.Redacted<string>
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

// Says Hello to what has the port.
const probe = ({ bridge, hostname, port, token }: Options): Effect.Effect<Probe> =>
  Effect.callback((resume) => {
    const host = hostname === "0.0.0.0" || hostname === "::" ? "127.0.0.1" : hostname
    // Bun's constructor takes headers, which the types of the DOM don't know.
    const options = { headers: { "X-Bridge-Token": Redacted.value(token) } } as never
    const socket = new WebSocket(`ws://${host.includes(":") ? `[${host}]` : host}:${port}/`, options)
    const hello = {
      _tag: "Request",
      id: 1,
      tag: "Hello",
      payload: { host: { name: "gangway-bridge", version: "0" }, protocol: Bridge.protocolVersion }
    }
    socket.addEventListener("open", () => socket.send(JSON.stringify(hello)))
    socket.addEventListener("message", ({ data }) =>
      resume(Effect.sync(() => JSON.parse(String(data)).exit?.value?.bridge === bridge ? "ours" : "other")))
    socket.addEventListener("close", () =>
      resume(Effect.succeed("other")))
    return Effect.sync(() => socket.close())
  })
