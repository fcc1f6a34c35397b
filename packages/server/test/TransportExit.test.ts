import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import * as Canned from "./fixtures/cannedBridge.ts"
import * as RawHost from "./fixtures/rawHost.ts"

const start = (...args: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] })),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
const firstLine = (child: ChildProcess): Effect.Effect<string> =>
  Effect.callback((resume) => {
    child.stdout!.once("data", (data) => resume(Effect.succeed(String(data).trim())))
  })

describe("Transport exit", () => {
  it.live("ends its process within a second, with stopped, stalled and silent hosts, and standard input held open", () =>
    Effect.gen(function*() {
      const server = yield* start(fileURLToPath(new URL("fixtures/cannedServer.ts", import.meta.url)))
      const port = Number(yield* firstLine(server))
      const headers = { "x-bridge-token": Canned.token }
      const read = { _tag: "Request", id: 1, tag: "ReadTurn", payload: { session: "s", turn: "t", from: 1 } }
      const host = yield* RawHost.connect(`ws://127.0.0.1:${port}/`, { headers })
      host.send({ _tag: "Request", id: 1, tag: "Compact", payload: { session: "s" } })
      const silent = yield* RawHost.request(port, { headers: { ...RawHost.upgradeHeaders, ...headers } })
      assert.strictEqual(silent.answer.status, 101)
      const stalled = yield* RawHost.request(port, { headers: { ...RawHost.upgradeHeaders, ...headers } })
      stalled.socket.pause()
      for (let id = 0; id < 64; id++) stalled.socket.write(RawHost.maskedFrame(JSON.stringify({ ...read, id })))
      const stopped = yield* start(
        "-e",
        `const socket = new WebSocket("ws://127.0.0.1:${port}/", { headers: ${JSON.stringify(headers)} })
        socket.onopen = () => {
          for (let id = 0; id < 64; id++) socket.send(JSON.stringify({ ...${JSON.stringify(read)}, id }))
        }
        socket.onmessage = () => { console.log("reading"); process.kill(process.pid, "SIGSTOP") }`
      )
      yield* firstLine(stopped)
      const stoppedAt = performance.now()
      server.kill("SIGTERM")
      yield* RawHost.until(() => server.exitCode !== null || server.signalCode !== null)
      assert.isBelow(performance.now() - stoppedAt, 1000)
      assert.deepStrictEqual(yield* host.closed, { code: 1001, reason: "the bridge is closing" })
      assert.strictEqual(server.signalCode, null)
    }))
})
