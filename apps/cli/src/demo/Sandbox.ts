/**
 * The demo's sandbox and sockets: the local ones, with what it takes to cut and to clean up.
 */
import type { WebSocketConstructor } from "@gangway/client/WebSocketConstructor"
import { Bridge } from "@gangway/protocol"
import * as LocalSandbox from "@gangway/sandbox/LocalSandbox"
import { Sandbox, type Started } from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

/** The host's connections, which can be cut: without a word, as a cable is. */
export const makeSockets = () => {
  const open = new Set<WebSocket & { readonly terminate: () => void }>()
  let count = 0
  const constructor: WebSocketConstructor = ({ headers, protocols, url }) => {
    const Global = globalThis.WebSocket as unknown as new(
      url: string,
      options: object
    ) => WebSocket & { readonly terminate: () => void }
    const socket = new Global(url, { protocols, headers })
    socket.addEventListener("open", () => {
      count++
      open.add(socket)
    })
    socket.addEventListener("close", () => open.delete(socket))
    return socket
  }
  return {
    constructor,
    /** How many connections were made. */
    count: () => count,
    cut: () => {
      for (const socket of open) socket.terminate()
    }
  }
}

const decodeListeningFile = Schema.decodeUnknownEffect(Schema.fromJsonString(Bridge.ListeningFile))

/** The process of the bridge that a state directory's listening file names. */
export const bridgeProcess = (stateDirectory: string) =>
  FileSystem.FileSystem.use((fs) => fs.readFileString(Bridge.listeningFile(stateDirectory))).pipe(
    Effect.flatMap(decodeListeningFile),
    Effect.map(({ pid }) => pid)
  )

const kill = (pid: number, signal: NodeJS.Signals) =>
  Effect.sync(() => {
    try {
      process.kill(pid, signal)
    } catch {
      // It's gone.
    }
  })

/** Kills the bridge as a machine that's out of memory would. */
export const killBridge = Effect.fnUntraced(function*(stateDirectory: string) {
  const pid = yield* bridgeProcess(stateDirectory)
  yield* kill(pid, "SIGKILL")
  return pid
})

/** The local sandbox, whose bridges end with the scope. */
export const make = Effect.fnUntraced(function*(stateDirectory: string) {
  const local = yield* LocalSandbox.make
  const started: Array<Started> = []

  // A bridge that's being launched has no listening file yet.
  const endBridges = Effect.gen(function*() {
    for (let waited = 0; waited < 10_000; waited += 50) {
      const exitCodes = yield* Effect.forEach(started, ({ exitCode }) => exitCode)
      if (exitCodes.every(Option.isSome)) return
      const pid = yield* Effect.option(bridgeProcess(stateDirectory))
      if (Option.isSome(pid)) yield* kill(pid.value, waited < 5000 ? "SIGTERM" : "SIGKILL")
      yield* Effect.sleep("50 millis")
    }
  }).pipe(Effect.ignore)
  yield* Effect.addFinalizer(() => endBridges)

  return Sandbox.of({
    ...local,
    start: (options) => Effect.tap(local.start(options), (one) => Effect.sync(() => started.push(one)))
  })
})
