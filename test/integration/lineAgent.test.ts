/**
 * The driver of docs/drivers.md, in a bridge program of its own, with a real process as its agent.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Launcher, type Session, TokenStore } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, FileSystem, Layer, Redacted, Schedule, Stream } from "effect"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { codeBlocks } from "../../scripts/codeBlocks.ts"
import { endBridge } from "./endBridge.ts"

const root = new URL("../..", import.meta.url).pathname

// What the agent does is what its prompt says. It doesn't wait for the end of its input, which the driver leaves open.
const agent = `
const { readSync } = require("node:fs")
const byte = Buffer.alloc(1)
let prompt = ""
while (readSync(0, byte) === 1 && byte[0] !== 10) prompt += String(byte)

const say = (line) => console.log(JSON.stringify(line))
say({ type: "text", text: "Heard: " + prompt })
if (prompt === "work") say({ type: "tool", name: "look", input: { at: 1 }, output: "seen" })
if (prompt === "break") { console.error("out of coffee"); process.exit(3) }
if (prompt === "babble") console.log("hm, let me see")
if (prompt === "fail") say({ type: "error", message: "no way" })
if (prompt === "hang") setInterval(() => {}, 1000)
else say({ type: "done" })
`

const program = `
import { BunHttpServer, BunRuntime, BunServices } from "@effect/platform-bun"
import { BridgeServer } from "@gangway/server"
import { Effect, Redacted, Runtime } from "effect"
import { lineAgent } from "./lineAgent.ts"

const program = Effect.gen(function*() {
  const { agentOptions, hostname = "0.0.0.0", port = 0, ...line } = yield* BridgeServer.readLaunchOptions
  const driver = lineAgent(agentOptions.program as string, agentOptions.script as string)
  yield* BridgeServer.serve(driver, { ...line, token: Redacted.make(line.token) }).pipe(
    Effect.provide(BunHttpServer.layer({ hostname, port, websocket: BridgeServer.webSocketOptions }))
  )
}).pipe(Effect.scoped, Effect.provide(BunServices.layer))

BunRuntime.runMain(program, { teardown: (exit) => Runtime.defaultTeardown(exit, process.exit) })
`

// Where the imports of the documentation are found.
const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const directory = mkdtempSync(`${root}/node_modules/.drivers-`)
    const blocks = codeBlocks(readFileSync(`${root}/docs/drivers.md`, "utf8"))
    writeFileSync(`${directory}/lineAgent.ts`, blocks.find(({ info }) => info === "ts check lineAgent.ts")!.text)
    writeFileSync(`${directory}/bridge.ts`, program)
    writeFileSync(`${directory}/agent.cjs`, agent)
    return directory
  }),
  (directory) => Effect.sync(() => rmSync(directory, { recursive: true }))
)

const world = Effect.fnUntraced(function*(options: { readonly program?: string } = {}) {
  const fs = yield* FileSystem.FileSystem
  const place = yield* directory
  const state = yield* fs.makeTempDirectoryScoped()
  const work = yield* fs.makeTempDirectoryScoped()
  const launcher = yield* Launcher.make({ command: [process.execPath, `${place}/bridge.ts`] })
  yield* Effect.addFinalizer(() => endBridge(`${state}/b`))
  const client = yield* launcher.connect({
    bridge: Bridge.BridgeId.make("b1"),
    stateDirectory: `${state}/b`,
    agentOptions: {
      agent: "line-agent",
      program: options.program ?? process.execPath,
      script: `${place}/agent.cjs`
    },
    idleTimeout: "1 minute"
  })
  return yield* client.startSession({ session: Bridge.SessionId.make("s1"), directory: work })
})

const play = Effect.fnUntraced(function*(session: Session.Session, prompt: string) {
  const turn = yield* session.startTurn({ turn: Bridge.TurnId.make(prompt), prompt })
  const parts = yield* Stream.runCollect(turn.parts())
  return { parts: parts.map(({ part }) => part), end: yield* turn.end }
})

const services = Layer.mergeAll(LocalSandbox.layer, TokenStore.layerToken(Redacted.make("t".repeat(40)))).pipe(
  Layer.provideMerge(BunServices.layer)
)

describe("the driver of a command-line agent in the documentation", () => {
  it.layer(services, { excludeTestServices: true, timeout: "1 minute" })((it) => {
    it.effect("turns what the agent prints into parts, turn after turn", () =>
      Effect.gen(function*() {
        const session = yield* world()
        const { end, parts } = yield* play(session, "work")
        assert.deepStrictEqual(parts, [
          { type: "text-start", id: "1-1" },
          { type: "text-delta", id: "1-1", delta: "Heard: work" },
          { type: "text-end", id: "1-1" },
          { type: "tool-call", id: "1-2", name: "look", providerExecuted: true, params: { at: 1 } },
          { type: "tool-result", id: "1-2", name: "look", providerExecuted: true, result: "seen", isFailure: false }
        ] as never)
        assert.deepInclude(end, { type: "finished", finishReason: "stop" })
        assert.strictEqual((yield* play(session, "again")).end.type, "finished")
      }))

    it.effect("says why a turn failed, in kinds that somebody can act on", () =>
      Effect.gen(function*() {
        const session = yield* world()
        const failures = yield* Effect.forEach(["break", "babble", "fail"], (prompt) =>
          Effect.map(play(session, prompt), ({ end }) => end.type === "failed" ? end.error : end))
        assert.deepStrictEqual(failures, [
          { kind: "agent-exit", message: "the agent ended with code 3: out of coffee" },
          { kind: "unknown", message: "the agent said what isn't known: hm, let me see" },
          { kind: "unknown", message: "no way" }
        ])
        const { end } = yield* play(yield* world({ program: "/nowhere/agent" }), "work")
        assert.deepInclude(end, { type: "failed" })
        assert.deepStrictEqual(end.type === "failed" ? end.error : end, {
          kind: "invalid-request",
          message: "line-agent: /nowhere/agent was not found"
        })
      }))

    it.effect("ends its agent where the turn is aborted", () =>
      Effect.gen(function*() {
        const session = yield* world()
        const turn = yield* session.startTurn({ turn: Bridge.TurnId.make("hang"), prompt: "hang" })
        const seen: Array<string> = []
        yield* turn.parts().pipe(
          Stream.runForEach(({ part }) => Effect.sync(() => void seen.push(part.type))),
          Effect.forkScoped
        )
        yield* Effect.sync(() => seen.length === 3).pipe(
          Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("10 millis") })
        )
        const { end, left } = yield* turn.abort()
        assert.deepInclude(end, { type: "aborted", reason: "host" })
        assert.deepStrictEqual(left, [])
        assert.strictEqual((yield* play(session, "after")).end.type, "finished")
      }))
  })
})
