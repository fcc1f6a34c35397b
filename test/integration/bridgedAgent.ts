/**
 * A host, a bridge and a real agent with a scripted model: what the driver promises, through the whole house.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore, Turn } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, Fiber, FileSystem, Layer, Random, Redacted, Schedule, Schema, Stream } from "effect"
import { messagesOf } from "../conformance/driverWorld.ts"
import type { InstalledAgent } from "../installAgent.ts"
import * as LastWords from "../lastWords.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"
import { endBridge } from "./endBridge.ts"

/** An agent that a bridge program drives. */
export interface BridgedAgent {
  /** For people. */
  readonly name: string
  readonly agent: InstalledAgent
  /** The options of a bridge whose agent keeps its files in `home`, below `root`, and speaks to the model at `url`. */
  readonly options: (options: {
    readonly program: string
    readonly key: string
    readonly url: string
    readonly root: string
    readonly home: string
  }) => Bridge.AgentOptions
  /** The folder of its home in which it writes conversations down. */
  readonly conversations: string
  /** Whether a conversation's file tells of a command's call, and that the step that called it is finished. */
  readonly written: (content: string, command: string) => boolean
  /** The name by which its parts call the tool that runs commands. */
  readonly shell: string
  /** The name under which the model calls a host tool. */
  readonly hostTool: (name: string) => string
  /** The variable that holds the model's key. */
  readonly keyVariable: string
  /** The result of a command that prints a line. */
  readonly printed: (line: string) => string
  /** Whether it tells what was spent. */
  readonly tellsCost: boolean
}

/** What Claude Code says in the model's place where it was cut. */
const filler = "No response requested."

const session = Bridge.SessionId.make("s1")
const program = new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname

const launching = Launcher.layer({ command: [process.execPath, program] }).pipe(
  Layer.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make("a-token-that-has-32-characters-at-least"))]),
  Layer.provideMerge(BunServices.layer)
)

const makeWorld = Effect.fnUntraced(function*(bridged: BridgedAgent) {
  const fs = yield* FileSystem.FileSystem
  const { connect } = yield* Launcher.Launcher
  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-bridged-" }))
  const directory = `${root}/project`
  yield* fs.makeDirectory(directory)
  const server = yield* ModelServer.start
  const stateDirectory = (name: string) => `${root}/state-${name}`
  const pid = (name: string) =>
    fs.readFileString(Bridge.listeningFile(stateDirectory(name))).pipe(
      Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile))),
      Effect.map(({ pid }) => pid)
    )
  for (const name of ["b1", "b2"]) {
    yield* Effect.addFinalizer(() => endBridge(stateDirectory(name)))
  }
  const connectTo = (name: string) =>
    connect({
      bridge: Bridge.BridgeId.make(name),
      stateDirectory: stateDirectory(name),
      agentOptions: bridged.options({
        program: bridged.agent.program!,
        key: "sk-SECRET-of-the-model",
        url: server.url,
        root,
        home: `${root}/home-${name}`
      }),
      idleTimeout: "1 minute"
    })
  const read = (file: string) => Effect.orElseSucceed(fs.readFileString(`${directory}/${file}`), () => "")
  // What the bridge's agent wrote down.
  const conversation = (name: string) =>
    fs.readDirectory(`${root}/home-${name}/${bridged.conversations}`, { recursive: true }).pipe(
      Effect.flatMap((files) =>
        Effect.forEach(
          files.filter((file) => file.endsWith(".jsonl")),
          (file) => fs.readFileString(`${root}/home-${name}/${bridged.conversations}/${file}`)
        )
      ),
      Effect.map((texts) => texts.join("")),
      Effect.orElseSucceed(() => "")
    )
  yield* LastWords.tell({ root, server })
  return { root, directory, server, pid, connect: connectTo, read, conversation }
})

const eventually = <R>(condition: Effect.Effect<boolean, never, R>) =>
  Effect.repeat(condition, { until: (done) => done, schedule: Schedule.spaced("20 millis") })

// What a reader got, in order: nothing missing, nothing twice, and what a continuation voided left out.
const told = (parts: ReadonlyArray<Turn.TurnPart>) => {
  let next = 1
  for (const part of parts) {
    assert.strictEqual(part.n, next)
    next = Turn.nextNumber(part)
  }
  return Turn.counted(parts).map(({ part }) => part as Bridge.KnownPart)
}

const text = (parts: ReadonlyArray<Bridge.KnownPart>) =>
  parts.map((part) => part.type === "text-delta" ? part.delta : "").join("")

/** The cases, with an agent. */
export const suite = (bridged: BridgedAgent) => {
  const { agent, hostTool, keyVariable, name, printed, shell, tellsCost, written } = bridged
  const world = makeWorld(bridged)
  describe(
    `a host, a bridge and ${name}`,
    agent.skipped === undefined
      ? {}
      : { skip: true, meta: { skipped: agent.skipped } },
    () => {
      it.layer(launching, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
        it.effect(
          "carry a turn on when the bridge is killed in a tool call: no finished call runs again",
          () =>
            Effect.gen(function*() {
              const { connect, conversation, directory, pid, read, server } = yield* world
              const client = yield* connect("b1")
              const started = yield* client.startSession({ session, directory, permissions: "all" })
              const handle = yield* started.startTurn({
                turn: Bridge.TurnId.make("t1"),
                prompt: `Do it. ${
                  script(
                    { think: "Hm.", text: "First.", bash: "echo first >> done.txt" },
                    { text: "Second.", bash: "echo second >> done.txt; perl -e 'sleep 1000'" },
                    { text: "Third.", bash: "echo third >> done.txt" },
                    { text: "Done." }
                  )
                }`
              })
              const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
              yield* eventually(Effect.map(read("done.txt"), (content) => content.includes("second")))
              // The agent writes what it said a little later than it acts.
              yield* eventually(Effect.map(conversation("b1"), (content) => written(content, "echo second")))
              const before = (yield* server.calls("Do it.")).at(-1)!
              process.kill(yield* pid("b1"), "SIGKILL")
              const parts = told(yield* Fiber.join(reader))
              assert.strictEqual(text(parts), "First.Second.Third.Done.")
              assert.strictEqual(yield* read("done.txt"), "first\nsecond\nthird\n")
              const end = yield* handle.end
              assert.deepInclude(end, { type: "finished", finishReason: "stop" })
              // Its program may be several processes, of which the bridge started one; none was left by the turn.
              assert.notProperty(end, "background")
              // Four calls of the model, and each is told once.
              assert.strictEqual(parts.filter(({ type }) => type === "step-finished").length, 4)
              assert.strictEqual(end.usage.inputTokens?.total, 400)
              assert.strictEqual(end.usage.outputTokens?.total, 40)
              const [after] = (yield* server.calls("Do it.")).slice(2)
              const [seen, sees] = [messagesOf(before), messagesOf(after!)]
              assert.deepStrictEqual(sees.slice(0, seen.length), seen)
              assert.strictEqual(JSON.stringify(sees).split("Do it.").length, 2)
              yield* started.destroy
            }),
          120_000
        )

        it.effect(
          "carry a turn on however often the bridge is killed: everything is told once",
          () =>
            Effect.gen(function*() {
              const { connect, directory, pid, read, server } = yield* world
              const started = yield* (yield* connect("b1")).startSession({ session, directory, permissions: "all" })
              const steps = Array.from({ length: 12 }, (_, step) => step)
              const handle = yield* started.startTurn({
                turn: Bridge.TurnId.make("t1"),
                prompt: `Do it. ${
                  script(
                    ...steps.map((step) => ({
                      think: "Hm.",
                      text: `S${step}.`,
                      // So slowly that steps are cut in their middle too.
                      delay: 10,
                      bash: `echo ${step} >> done.txt; perl -e 'select undef, undef, undef, 0.05'`
                    })),
                    { text: "Done." }
                  )
                }`
              })
              const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
              const kills = [1, 4, 8]
              for (const calls of kills) {
                yield* eventually(Effect.map(server.calls("Do it."), ({ length }) => length >= calls))
                // At whatever it's just doing.
                yield* Effect.sleep(yield* Random.nextIntBetween(0, 200))
                process.kill(yield* pid("b1"), "SIGKILL")
              }
              const parts = told(yield* Fiber.join(reader))
              assert.strictEqual(text(parts), `${steps.map((step) => `S${step}.`).join("")}Done.`)
              // Each answer of the model that the agent kept, whole or cut, and the last one, which it's not sent.
              const [last] = (yield* server.calls("Do it.")).slice(-1)
              const answers = last!.conversation!.filter(({ role, text }) => role === "assistant" && text !== filler)
              assert.strictEqual(parts.filter(({ type }) => type === "step-finished").length, answers.length + 1)
              assert.isAtLeast(answers.length, steps.length)
              assert.isAtMost(answers.length, steps.length + kills.length)
              const calls = parts.filter((part) => part.type === "tool-call")
              const results = parts.filter((part) => part.type === "tool-result")
              assert.deepStrictEqual(results.map(({ id }) => id), calls.map(({ id }) => id))
              const called = calls.map(({ params }) => /echo (\d+) /.exec(JSON.stringify(params))![1]!)
              assert.deepStrictEqual(called, steps.map(String))
              // A call that was open when the agent ended may not have run, or may run once more; the agent may try one
              // more before it's gone, for which nobody gives it leave.
              const lines = (yield* read("done.txt")).trim().split("\n")
              const unknown = results.flatMap(({ isFailure }, at) => isFailure ? [called[at]!] : [])
              assert.isAtMost(
                unknown.length,
                2 * kills.length,
                JSON.stringify(results.filter(({ isFailure }) => isFailure))
              )
              for (const step of called) {
                if (!unknown.includes(step)) assert.include(lines, step)
              }
              assert.isAtMost(lines.length, steps.length + kills.length)
              assert.strictEqual((yield* handle.end).type, "finished")
              yield* started.destroy
            }),
          120_000
        )

        it.effect(
          "end together: the agent of a killed bridge acts no more, and calls no model",
          () =>
            Effect.gen(function*() {
              const { connect, directory, pid, read, server } = yield* world
              yield* Effect.scoped(Effect.gen(function*() {
                const started = yield* (yield* connect("b1")).startSession({ session, directory, permissions: "all" })
                yield* started.startTurn({
                  turn: Bridge.TurnId.make("t1"),
                  prompt: `Do it. ${
                    script(
                      { bash: "echo $$ > pid.txt; perl -e 'sleep 1000'" },
                      ...Array.from({ length: 20 }, (_, step) => ({ bash: `echo ${step} > step-${step}.txt` }))
                    )
                  }`
                })
                yield* eventually(Effect.map(read("pid.txt"), (content) => content.endsWith("\n")))
              }))
              // Nobody is there to launch another.
              const pidOfShell = Number((yield* read("pid.txt")).trim())
              process.kill(yield* pid("b1"), "SIGKILL")
              yield* eventually(Effect.sync(() => {
                try {
                  return process.kill(pidOfShell, 0) && false
                } catch {
                  return true
                }
              }))
              const calls = (yield* server.calls("Do it.")).length
              // It may be about to call its model once more when it ends.
              assert.isAtMost(calls, 2)
              yield* Effect.sleep("1 second")
              assert.isAtMost((yield* server.calls("Do it.")).length, 2)
              assert.strictEqual(yield* read("step-0.txt"), "")
            }),
          120_000
        )

        it.effect("stop at an abort, leave nothing running, and tell what was used", () =>
          Effect.gen(function*() {
            const { connect, directory, read } = yield* world
            const client = yield* connect("b1")
            const started = yield* client.startSession({ session, directory, permissions: "all" })
            const handle = yield* started.startTurn({
              turn: Bridge.TurnId.make("t1"),
              prompt: script(
                { bash: "echo one", usage: { input: 10, output: 20 } },
                { bash: "echo $$ > pid.txt; perl -e 'sleep 1000'", usage: { input: 30, output: 40 } },
                { text: "three" }
              )
            })
            yield* eventually(Effect.map(read("pid.txt"), (content) => content.endsWith("\n")))
            const { end, left } = yield* handle.abort({ reason: "enough" })
            assert.deepInclude(end, { type: "aborted", reason: "host", message: "enough" })
            assert.deepStrictEqual(left, [])
            assert.strictEqual(end.usage.inputTokens?.total, 40)
            assert.strictEqual(end.usage.outputTokens?.total, 60)
            const pidOfShell = Number((yield* read("pid.txt")).trim())
            assert.throws(() => process.kill(pidOfShell, 0))
            const again = yield* started.startTurn({
              turn: Bridge.TurnId.make("t2"),
              prompt: script({ text: "Fine." })
            })
            assert.strictEqual(yield* again.text, "Fine.")
            const finished = yield* again.end
            assert.notProperty(finished, "background")
            assert.isTrue(finished.usage.measured)
            if (tellsCost) assert.isAbove(finished.usage.cost!, 0)
            yield* started.destroy
          }), 120_000)

        it.effect(
          "ask the host, keep its rules, and allow edits where edits are allowed",
          () =>
            Effect.gen(function*() {
              const { connect, directory, read, root } = yield* world
              const client = yield* connect("b1")
              const asked: Array<string> = []
              const started = yield* client.startSession({
                session,
                directory,
                permissions: "edits",
                tools: {
                  tools: [{ name: "lookup", description: "Looks up", parameters: { type: "object" } }],
                  handle: ({ params }) => Effect.succeed({ result: { found: params }, isFailure: false })
                },
                onApproval: ({ name, params }) =>
                  Effect.sync(() => {
                    asked.push(`${name} ${String((params as { command?: string }).command)}`)
                    return { decision: "allow-always" as const }
                  })
              })
              const handle = yield* started.startTurn({
                turn: Bridge.TurnId.make("t1"),
                prompt: script(
                  { write: [`${directory}/a.txt`, "free\n"] },
                  { bash: "touch b.txt" },
                  { bash: "touch b.txt" },
                  { bash: `touch ${root}/c.txt` },
                  { tool: [hostTool("lookup"), { word: "x" }] },
                  { text: "Done." }
                )
              })
              assert.strictEqual(yield* handle.text, "Done.")
              assert.strictEqual(yield* read("a.txt"), "free\n")
              assert.deepStrictEqual(asked, [`${shell} touch b.txt`, `${shell} touch ${root}/c.txt`])
              const parts = told(yield* Stream.runCollect(handle.parts()))
              assert.deepInclude(parts.filter((part) => part.type === "tool-result").at(-1), {
                name: "lookup",
                result: { found: { word: "x" } }
              })
              yield* started.destroy
            }),
          120_000
        )

        it.effect(
          "carry a conversation to another bridge, and keep the model's key out of every file",
          () =>
            Effect.gen(function*() {
              const fs = yield* FileSystem.FileSystem
              const { connect, directory, root, server } = yield* world
              const one = yield* (yield* connect("b1")).startSession({ session, directory, permissions: "all" })
              // A turn that begins with a command.
              const zeroth = yield* one.startTurn({
                turn: Bridge.TurnId.make("t0"),
                prompt: `REMEMBER ${script({ bash: "echo zero" }, { text: "Zero." })}`
              })
              assert.notProperty(yield* zeroth.end, "background")
              const first = yield* one.startTurn({
                turn: Bridge.TurnId.make("t1"),
                prompt: `REMEMBER ${script({ text: "First.", bash: `echo $${keyVariable}` }, { text: "Told." })}`
              })
              assert.strictEqual(yield* first.text, "First.\n\nTold.")
              const parts = told(yield* Stream.runCollect(first.parts()))
              assert.deepInclude(parts.find((part) => part.type === "tool-result"), {
                result: printed(`[redacted:${keyVariable}]`)
              })
              const { state } = yield* one.stop
              const elsewhere = `${root}/elsewhere`
              yield* fs.makeDirectory(elsewhere)
              const other = yield* (yield* connect("b2")).startSession({
                session,
                directory: elsewhere,
                permissions: "all",
                state
              })
              const second = yield* other.startTurn({
                turn: Bridge.TurnId.make("t1"),
                prompt: `GO ON ${script({ text: "Second." })}`
              })
              assert.strictEqual(yield* second.text, "Second.")
              assert.include(JSON.stringify((yield* server.calls("GO ON"))[0]!.body), "REMEMBER")
              for (const file of yield* fs.readDirectory(root, { recursive: true })) {
                if (!file.startsWith("state-")) continue
                const content = yield* Effect.orElseSucceed(fs.readFileString(`${root}/${file}`), () => "")
                assert.notInclude(content, "sk-SECRET", file)
              }
              yield* other.destroy
              yield* one.destroy
            }),
          120_000
        )
      })
    }
  )
}
