/**
 * A host sends messages into a running turn, and bridges are killed before the agent has them.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore, Turn } from "@gangway/client"
import { Scripted, ScriptedAgent } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, Fiber, FileSystem, Layer, Redacted, Schedule, Schema, Stream } from "effect"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"

const claude = await installAgent("claude-code")
const session = Bridge.SessionId.make("s1")
const turn = Bridge.TurnId.make("t1")
const id = (name: string) => Bridge.MessageId.make(name)
const program = new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname

const launching = Launcher.layer({ command: [process.execPath, program] }).pipe(
  Layer.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make("a-token-that-has-32-characters-at-least"))]),
  Layer.provideMerge(BunServices.layer)
)

const world = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const { connect } = yield* Launcher.Launcher
  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-messages-" }))
  const directory = `${root}/work`
  const stateDirectory = `${root}/state`
  yield* fs.makeDirectory(directory)
  const kill = fs.readFileString(Bridge.listeningFile(stateDirectory)).pipe(
    Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile))),
    Effect.map(({ pid }) => process.kill(pid, "SIGKILL"))
  )
  yield* Effect.addFinalizer(() => Effect.ignore(Effect.catchDefect(kill, () => Effect.void)))
  return {
    root,
    directory,
    kill,
    start: Effect.fnUntraced(function*(agentOptions: Bridge.AgentOptions) {
      const bridge = Bridge.BridgeId.make("b1")
      const client = yield* connect({ bridge, stateDirectory, agentOptions, idleTimeout: "1 minute" })
      return yield* client.startSession({ session, directory, permissions: "all" })
    }),
    has: (file: string) => Effect.orElseSucceed(fs.exists(`${directory}/${file}`), () => false),
    write: (file: string) => fs.writeFileString(`${directory}/${file}`, "")
  }
})

const eventually = <R>(condition: Effect.Effect<boolean, never, R>) =>
  Effect.repeat(condition, { until: (done) => done, schedule: Schedule.spaced("20 millis") })

/** A command that says that it has begun, and ends once a file is there. */
const waitForGo = "touch begun; until [ -e go ]; do sleep 0.05; done"

/** What messages' parts say of those that count. */
const sent = (parts: ReadonlyArray<Turn.TurnPart>) =>
  Turn.counted(parts).flatMap(({ part }) =>
    part.type === "user-message" || part.type === "user-message-delivered" ? [`${part.type} ${part.messageId}`] : []
  )

const lines = (...names: ReadonlyArray<string>) =>
  names.flatMap((name) => [`user-message ${name}`, `user-message-delivered ${name}`]).sort()

describe("messages into a running turn", () => {
  it.layer(launching, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
    it.effect("reach the agent once, though the bridge is killed before it takes them", () =>
      Effect.gen(function*() {
        const { directory, has, kill, root, start, write } = yield* world
        const home = `${root}/agent`
        const started = yield* start({ agent: "scripted", home })
        const handle = yield* started.startTurn({
          turn,
          prompt: Scripted.toPrompt({
            steps: [
              { actions: [{ type: "text", text: "first " }] },
              { actions: [{ type: "tool", name: "sh", command: ["sh", "-c", waitForGo] }] },
              { actions: [{ type: "text", text: "last " }] }
            ]
          })
        })
        const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
        yield* eventually(has("begun"))
        assert.strictEqual(yield* handle.send("steered ", { messageId: id("m1") }), "steer")
        assert.strictEqual(yield* handle.send("queued ", { messageId: id("m2"), delivery: "queue" }), "queue")
        yield* kill
        yield* write("go")
        const parts = yield* Fiber.join(reader)
        const end = yield* handle.endLine
        assert.deepInclude(end, { attempt: 2 })
        assert.strictEqual(end.end.type, "finished")
        assert.deepStrictEqual(sent(parts).sort(), lines("m1", "m2"))
        assert.strictEqual(Turn.toText(parts).replaceAll("\n\n", ""), "first last steered queued ")
        // It's known afterwards, too.
        assert.strictEqual(yield* handle.send("steered ", { messageId: id("m1") }), "steer")
        assert.strictEqual((yield* Effect.flip(handle.send("late")))._tag, "TurnEnded")
        const [file] = yield* Effect.flatMap(FileSystem.FileSystem, (fs) => fs.readDirectory(`${home}/journal`))
        const journal = yield* ScriptedAgent.readJournal({ home, conversation: file!.replace(".ndjson", "") })
        const taken = journal.flatMap((entry) =>
          entry.type === "taken"
            ? [entry.id]
            : entry.type === "turn" && entry.message !== undefined
            ? [entry.message]
            : []
        )
        assert.deepStrictEqual(taken, ["m1", "m2"])
        assert.isTrue(directory.startsWith(root))
        yield* started.destroy
      }))

    it.effect("that the agent has aren't given to it again by the attempt that continues the turn", () =>
      Effect.gen(function*() {
        const { has, kill, root, start, write } = yield* world
        const started = yield* start({ agent: "scripted", home: `${root}/agent` })
        const handle = yield* started.startTurn({
          turn,
          prompt: Scripted.toPrompt({
            steps: [{ actions: [{ type: "tool", name: "sh", command: ["sh", "-c", waitForGo] }] }]
          })
        })
        const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
        yield* eventually(has("begun"))
        const slow = Scripted.toPrompt({
          steps: [{ actions: [{ type: "text", text: "steered" }] }, {
            actions: [{
              type: "tool",
              name: "sh",
              command: ["sh", "-c", "touch slow; until [ -e on ]; do sleep 0.05; done"]
            }]
          }]
        })
        yield* handle.send(slow)
        yield* write("go")
        yield* eventually(has("slow"))
        yield* kill
        yield* write("on")
        const parts = yield* Fiber.join(reader)
        assert.deepInclude(yield* handle.endLine, { attempt: 2 })
        assert.strictEqual(Turn.toText(parts), "steered")
        assert.strictEqual(sent(parts).length, 2)
        yield* started.destroy
      }))

    it.effect.skipIf(claude.skipped !== undefined)(
      "reach Claude Code while it works, and once where the bridge is killed before",
      () =>
        Effect.gen(function*() {
          const { has, kill, root, start, write } = yield* world
          const server = yield* ModelServer.start
          const started = yield* start({
            agent: "claude-code",
            command: claude.program!,
            apiKey: "sk-SECRET-of-the-model",
            baseUrl: server.url,
            model: "scripted-model",
            configDirectory: `${root}/home`,
            env: {
              CLAUDE_CODE_MAX_RETRIES: "1",
              CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
              CLAUDE_CODE_TMPDIR: `${root}/temporary`
            }
          })
          const handle = yield* started.startTurn({
            turn,
            prompt: `Do it. ${
              script(
                { text: "One.", bash: "touch one; until [ -e go-one ]; do sleep 0.05; done" },
                { text: "Two.", bash: "touch two; sleep 1000" },
                { text: "Three." },
                { text: "Four." }
              )
            }`
          })
          const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
          yield* eventually(has("one"))
          assert.strictEqual(yield* handle.send("STEERED-ONE"), "steer")
          yield* write("go-one")
          yield* eventually(has("two"))
          const [second] = (yield* server.calls("Do it.")).slice(1)
          assert.include(JSON.stringify(second!.body), "STEERED-ONE")
          assert.strictEqual(yield* handle.send("STEERED-TWO"), "steer")
          yield* kill
          const parts = yield* Fiber.join(reader)
          assert.deepInclude(yield* handle.endLine, { attempt: 2 })
          assert.strictEqual((yield* handle.end).type, "finished")
          const last = JSON.stringify((yield* server.calls("Do it.")).at(-1)!.body)
          assert.strictEqual(last.split("STEERED-ONE").length, 2)
          assert.strictEqual(last.split("STEERED-TWO").length, 2)
          assert.strictEqual(sent(parts).length, 4)
          yield* started.destroy
        })
    )
  })
})
