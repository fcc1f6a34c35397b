import { assert, describe } from "@effect/vitest"
import { Scripted, ScriptedAgent } from "@gangway/drivers"
import { Effect, Fiber, FileSystem, Redacted } from "effect"
import { pieces, randomText } from "../src/internal/scriptedRandom.ts"
import { agentParts, check } from "./fixtures/checker.ts"
import { find, makeDriver, openScripted, scratch, test } from "./fixtures/scripted.ts"
import { type Log, makeLog, openHost, partsOf, textOf } from "./fixtures/turns.ts"

// A turn of one step.
const play = (actions: Scripted.Script["steps"][number]["actions"], rest: Partial<Scripted.Script> = {}) =>
  Scripted.toPrompt({ steps: [{ actions }], ...rest })

const until = (condition: () => boolean) =>
  Effect.gen(function*() {
    while (!condition()) yield* Effect.sleep(5)
  }).pipe(Effect.timeout("10 seconds"), Effect.orDie)

const typesOf = (log: Log) => partsOf(log).map(({ type }) => type)
const alive = (pid: number) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

describe("Scripted", () => {
  describe("actions", () => {
    test("without a script, the prompt is repeated", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const finished = yield* host.run(log, "Good morning")
        assert.strictEqual(finished.finishReason, "stop")
        assert.strictEqual(textOf(partsOf(log)), "Good morning")
        assert.deepStrictEqual(typesOf(log), ["text-start", "text-delta", "text-end", "step-finished"])
        assert.deepStrictEqual(find(log, "step-finished")[0].usage, { measured: false })
      }))

    test("the script of the agent options is played where the prompt has none", () =>
      Effect.gen(function*() {
        const script: Scripted.Script = {
          steps: [{
            actions: [{ type: "reasoning", text: "hm" }],
            usage: { measured: true, inputTokens: { total: 12 }, cost: 0.5 },
            finishReason: "tool-calls",
            repeat: 2
          }],
          finishReason: "length",
          cost: 2,
          output: { answer: 42 }
        }
        const { host } = yield* openScripted({ script })
        const log = makeLog("t1")
        const finished = yield* host.run(log, "whatever", { responseFormat: { type: "json", schema: {} } })
        assert.deepStrictEqual(finished, { finishReason: "length", cost: 2, output: { answer: 42 } })
        const step = ["reasoning-start", "reasoning-delta", "reasoning-end", "step-finished"] as const
        assert.deepStrictEqual(typesOf(log), [...step, ...step])
        assert.deepStrictEqual(
          find(log, "step-finished").map(({ finishReason, metadata, usage }) => [finishReason, metadata, usage.cost]),
          [["tool-calls", { step: 0 }, 0.5], ["tool-calls", { step: 1 }, 0.5]]
        )
      }))

    test("random content follows from seed, turn, attempt, step and action, and is whole whatever deltas cut", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const random = { length: 3000, alphabet: "surrogates" } as const
        const log = makeLog("t1")
        yield* host.run(log, play([{ type: "wait", delay: 1 }, { type: "text", random, chunk: 1 }], { seed: 99 }))
        const expected = randomText({ seed: 99, turn: "t1", attempt: 1, step: 0, action: "1" }, random)
        assert.strictEqual(expected.length, 3000)
        assert.isFalse(expected.isWellFormed())
        assert.isAbove([...pieces(expected, 1)].filter((piece) => !piece.isWellFormed()).length, 100)
        assert.strictEqual(textOf(partsOf(log)), expected.toWellFormed())
        assert.isTrue(find(log, "text-delta").every(({ delta }) => delta.isWellFormed()))

        const other = makeLog("t2")
        yield* host.run(other, play([{ type: "wait", delay: 1 }, { type: "text", random }], { seed: 99 }))
        assert.notStrictEqual(textOf(partsOf(other)), textOf(partsOf(log)))
        assert.strictEqual(host.processes.length, 1)
      }))

    test("deltas have the size and the pace asked for", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const started = performance.now()
        yield* host.run(log, play([{ type: "text", random: { length: 100 }, chunk: 9, delay: 10 }]))
        const took = performance.now() - started
        assert.deepStrictEqual(find(log, "text-delta").map(({ delta }) => delta.length), [
          ...Array.from({ length: 11 }, () => 9),
          1
        ])
        assert.isAtLeast(took, 110)
      }))

    test("a burst has its parts in order", () =>
      Effect.gen(function*() {
        const { home, host } = yield* openScripted()
        const log = makeLog("t1")
        yield* host.run(log, play([{ type: "burst", parts: 5000, size: 10 }]))
        assert.strictEqual(find(log, "text-delta").length, 5000)
        assert.isTrue(find(log, "text-delta").every(({ delta }) => delta.length === 10))
        const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
        check(log, journal, { steps: 1, seed: "burst" })
      }))

    test("a tool has its input piece by piece, preliminary results and a result", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const params = { query: "🙂 where", deep: [1, null] }
        yield* host.run(
          log,
          play([{ type: "tool", name: "search", params, paramsChunk: 3, delay: 10, preliminary: 2, result: ["here"] }])
        )
        assert.deepStrictEqual(JSON.parse(find(log, "tool-params-delta").map(({ delta }) => delta).join("")), params)
        assert.deepStrictEqual(find(log, "tool-call")[0].params, params)
        assert.deepStrictEqual(
          find(log, "tool-result").map(({ isFailure, preliminary, result }) => [result, isFailure, preliminary]),
          [[{ preliminary: 0 }, false, true], [{ preliminary: 1 }, false, true], [["here"], false, undefined]]
        )
        assert.isTrue(find(log, "tool-result").every(({ id }) => id === find(log, "tool-call")[0].id))
      }))

    test("a command is really run, in the working directory and the session's environment", () =>
      Effect.gen(function*() {
        const { directory, home } = yield* scratch
        const driver = yield* makeDriver({ home })
        const host = yield* openHost(driver, { directory, env: { COLOUR: Redacted.make("mauve") } })
        const log = makeLog("t1")
        yield* host.run(
          log,
          play([
            { type: "tool", name: "sh", command: ["sh", "-c", "pwd; echo $COLOUR; echo oops >&2; exit 3"] },
            { type: "tool", name: "sh", command: ["sh", "-c", "kill -TERM $$"] }
          ])
        )
        const [exited, killed] = find(log, "tool-result")
        const result = exited.result as { output: string; exitCode: number }
        assert.deepStrictEqual(result.output.split("\n").sort(), ["", directory, "mauve", "oops"].sort())
        assert.deepStrictEqual([result.exitCode, exited.isFailure], [3, true])
        assert.deepStrictEqual(killed.result, { output: "", exitCode: null })
      }))

    test("a result that takes several lines passes", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const random = { length: 9 * 1024 * 1024 }
        yield* host.run(log, play([{ type: "tool", name: "read", random }]))
        const result = find(log, "tool-result")[0].result as string
        assert.strictEqual(result.length, random.length)
        assert.isTrue(result === randomText({ seed: 0, turn: "t1", attempt: 1, step: 0, action: "0" }, random))
      }))

    test("host tools are called together, and the agent hears each answer", () =>
      Effect.gen(function*() {
        const { home, host } = yield* openScripted()
        const log = makeLog("t1")
        const calls = [{ name: "add", params: { a: 1 } }, { name: "fail" }] as const
        let waiting = 0
        yield* host.run(log, play([{ type: "host-tools", calls, echo: true }]), {
          tool: (name, params) =>
            Effect.gen(function*() {
              waiting++
              yield* until(() => waiting === 2)
              return { result: { name, params }, isFailure: name === "fail" }
            })
        })
        const answers = [
          { result: { name: "add", params: { a: 1 } }, isFailure: false },
          { result: { name: "fail", params: {} }, isFailure: true }
        ]
        assert.deepStrictEqual(JSON.parse(textOf(partsOf(log))), answers)
        assert.deepStrictEqual(typesOf(log).slice(0, 4), ["tool-call", "tool-call", "tool-result", "tool-result"])
        assert.isTrue(find(log, "tool-call").every(({ providerExecuted }) => providerExecuted === false))

        const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
        check(log, journal, { steps: 1, seed: "host tools" })
        assert.deepStrictEqual(
          journal.flatMap((entry) => entry.type === "answered" ? [entry.answer] : []).sort(byJson),
          [...answers].sort(byJson)
        )
      }))

    test("an action is carried out when it's approved, and its result says why not when it's denied", () =>
      Effect.gen(function*() {
        const { directory, host } = yield* openScripted()
        const fs = yield* FileSystem.FileSystem
        yield* fs.symlink(`${directory}/..`, `${directory}/link`)
        const log = makeLog("t1")
        const asked: Array<any> = []
        yield* host.run(
          log,
          play([
            { type: "tool", name: "rm", params: { path: "/" }, approval: { reason: "risky", rule: "rm:*" }, result: 1 },
            { type: "tool", name: "ls", approval: {}, result: 2 },
            { type: "file", path: "in.txt", text: "x", approval: {} },
            { type: "file", path: "../out.txt", text: "x", approval: {} },
            { type: "file", path: "link/out.txt", text: "x", approval: {} }
          ]),
          {
            approval: (request) =>
              Effect.sync(() => {
                asked.push(request)
                return request.name === "ls"
                  ? { decision: "allow" as const }
                  : { decision: "deny" as const, reason: "no" }
              })
          }
        )
        const [rm, , inside, outside, linked] = asked
        assert.deepStrictEqual([rm.name, rm.params, rm.reason, rm.rule, rm.edits], [
          "rm",
          { path: "/" },
          "risky",
          { key: "rm:*", title: "rm:*" },
          false
        ])
        assert.deepStrictEqual([inside.edits, outside.edits, linked.edits], [true, false, false])
        assert.deepStrictEqual(asked.map(({ toolCallId }) => toolCallId), find(log, "tool-call").map(({ id }) => id))
        assert.strictEqual(new Set(asked.map(({ approvalId }) => approvalId)).size, 5)
        assert.deepStrictEqual(find(log, "tool-result").map(({ isFailure, result }) => [result, isFailure]), [
          ["denied: no", true],
          [2, false],
          ["denied: no", true],
          ["denied: no", true],
          ["denied: no", true]
        ])
        assert.isFalse(yield* fs.exists(`${directory}/in.txt`))
      }))

    test("a question is asked, and the agent hears the answer", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const questions = [{ question: "Which?", options: [{ label: "this" }, { label: "that" }], multiple: true }]
        yield* host.run(log, play([{ type: "question", questions, echo: true }]), {
          question: (asked) => Effect.succeed({ answer: { [asked.questions[0].question]: ["that"] }, isFailure: false })
        })
        assert.deepStrictEqual(find(log, "question")[0].questions, questions)
        assert.deepStrictEqual(JSON.parse(textOf(partsOf(log))), { answer: { "Which?": ["that"] }, isFailure: false })
      }))

    test("files are really written and removed, with their diffs", () =>
      Effect.gen(function*() {
        const { directory, host } = yield* openScripted()
        const fs = yield* FileSystem.FileSystem
        const log = makeLog("t1")
        yield* host.run(
          log,
          play([
            { type: "file", path: "a/b.txt", text: "one\ntwo\n" },
            { type: "file", path: "a/b.txt", text: "three\n" },
            { type: "file", path: "c.txt", random: { length: 50 } },
            { type: "file", path: "c.txt", remove: true }
          ])
        )
        assert.strictEqual(yield* fs.readFileString(`${directory}/a/b.txt`), "three\n")
        assert.isFalse(yield* fs.exists(`${directory}/c.txt`))
        const changes = find(log, "file-change")
        assert.deepStrictEqual(changes.map(({ kind }) => kind), ["create", "update", "create", "delete"])
        assert.strictEqual(changes[0].path, `${directory}/a/b.txt`)
        assert.strictEqual(
          changes[1].diff,
          "--- a/a/b.txt\n+++ b/a/b.txt\n@@ -1,2 +1,1 @@\n-one\n-two\n+three\n"
        )
      }))

    test("processes are started: one that is waited for, one in the background that outlives the agent's turn", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        yield* host.run(
          log,
          play([
            { type: "spawn", command: "exit 7" },
            { type: "spawn", command: "exec sleep 300", background: true, setsid: true },
            { type: "spawn", command: "sleep 301; true", background: true, ignoreTerm: true }
          ])
        )
        const [waited, ...background] = find(log, "tool-result").map(({ result }) => result as any)
        assert.deepStrictEqual(waited, { exitCode: 7 })
        const pids = background.map(({ pid }) => pid as number)
        assert.isTrue(pids.every(alive))
        const listed = yield* host.supervisor.background
        assert.includeMembers(listed.map(({ pid }) => pid), pids)
        assert.include(listed.map(({ command }) => command).join("; "), "sleep 300")

        const { ended, left } = yield* host.supervisor.endAll
        assert.includeMembers(ended.map(({ pid }) => pid), pids)
        assert.deepStrictEqual(left, [])
        assert.deepStrictEqual(yield* host.supervisor.background, [])
      }))

    test("parts are emitted as they are, events only in turns that ask for them", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const plan = { type: "plan", entries: [{ content: "think", status: "completed" }] } as const
        const retry = { type: "retry", attempt: 1, message: "busy", delay: 5 } as const
        const notice = { type: "notice", level: "info", message: "hello" } as const
        const prompt = play([{ type: "parts", parts: [plan, retry, notice] }, { type: "raw", event: { a: 1 } }])
        const log = makeLog("t1")
        yield* host.run(log, prompt)
        assert.deepStrictEqual(partsOf(log).slice(0, -1), [plan, retry, { ...notice, metadata: { step: 0 } }])
        const raw = makeLog("t2")
        yield* host.run(raw, prompt, { raw: true })
        assert.deepStrictEqual(find(raw, "raw").map(({ event }) => event), [{ a: 1 }])
      }))

    test("a sub-agent's parts name their parent", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const actions = [{ type: "text", text: "in here" }, { type: "tool", name: "look", result: 1 }] as const
        yield* host.run(log, play([{ type: "sub-agent", name: "helper", actions }, { type: "text", text: "out" }]))
        const [call, inner] = find(log, "tool-call")
        assert.deepStrictEqual([call.name, call.parent, inner.name, inner.parent], [
          "helper",
          undefined,
          "look",
          call.id
        ])
        assert.deepStrictEqual(
          partsOf(log).filter(({ parent }) => parent === call.id).map(({ type }) => type),
          ["text-start", "text-delta", "text-end", "tool-call", "tool-result"]
        )
      }))

    test("the agent says what it was told", () =>
      Effect.gen(function*() {
        const { directory, home } = yield* scratch
        const host = yield* openHost(yield* makeDriver({ home }), {
          directory,
          instructions: "be brief",
          tools: [{ name: "add", description: "", parameters: {} }],
          mcpServers: [{ type: "http", name: "docs", url: "http://127.0.0.1:9/" }],
          settings: "project",
          permissions: "edits",
          env: { KEY: Redacted.make("sesame") }
        })
        const log = makeLog("t1")
        yield* host.run(log, [
          { type: "text", text: play([{ type: "describe" }]) },
          { type: "file", mediaType: "image/png", data: "AAAA" }
        ], { model: "large", effort: "high" })
        const told = JSON.parse(textOf(partsOf(log)))
        assert.deepInclude(told, {
          session: "s1",
          directory,
          instructions: "be brief",
          tools: ["add"],
          mcpServers: ["docs"],
          settings: "project",
          permissions: "edits",
          env: ["KEY"],
          model: "large",
          effort: "high"
        })
        assert.strictEqual(told.turns[0].prompt[1], "[image/png]")
        assert.notInclude(textOf(partsOf(log)), "sesame")
      }))

    test("actions are played in the attempts that they name", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        yield* host.run(log, play([{ type: "hang", attempts: [2] }, { type: "text", text: "through", attempts: [1] }]))
        assert.strictEqual(textOf(partsOf(log)), "through")
      }))
  })

  describe("ends", () => {
    test("a failure is the turn's, and the next turn is played", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const error = yield* Effect.flip(
          host.run(log, play([{ type: "text", text: "so far" }, { type: "fail", kind: "rate-limit", message: "slow" }]))
        )
        assert.deepInclude(error, { _tag: "TurnFailed", kind: "rate-limit", message: "slow" })
        assert.strictEqual(textOf(partsOf(log)), "so far")
        const next = makeLog("t2")
        yield* host.run(next, "go on")
        assert.strictEqual(textOf(partsOf(next)), "go on")
      }))

    test("a script that is none fails the turn with the field's name", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const error = yield* Effect.flip(host.run(makeLog("t1"), `@@{"steps":[{"actions":[{"type":"dance"}]}]}@@`))
        assert.deepInclude(error, { _tag: "TurnFailed", kind: "invalid-request" })
        assert.include(error.message, "steps")
      }))

    for (const [how, exit, expected] of [["a code", 3, "with code 3"], ["SIGKILL", undefined, "by SIGKILL"]] as const) {
      test(`an agent that dies by ${how} fails the turn, with the end of its standard error`, () =>
        Effect.gen(function*() {
          const { home, host } = yield* openScripted()
          const log = makeLog("t1")
          const crashes = [{ at: 3, stderr: "out of cheese", ...(exit === undefined ? {} : { exit }) }]
          const error = yield* Effect.flip(
            host.run(log, play([{ type: "text", text: "abcdef", chunk: 1 }], { crashes }))
          )
          assert.deepInclude(error, { _tag: "TurnFailed", kind: "agent-exit" })
          assert.include(error.message, expected)
          assert.include(error.message, "out of cheese")
          assert.isAtMost(log.parts.length, 3)
          const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
          const emitted = journal.flatMap((entry) => entry.type === "emitted" ? entry.parts : [])
          assert.strictEqual(emitted.length, 3)
          assert.deepStrictEqual(agentParts(log.parts.map(({ part }) => part)), emitted.slice(0, log.parts.length))
        }))
    }

    test("a line that is no message is a driver's error", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const error = yield* Effect.flip(
          host.run(makeLog("t1"), play([{ type: "print", to: "stdout", text: "Segmentation fault" }, { type: "hang" }]))
        )
        assert.deepInclude(error, { _tag: "DriverError", kind: "protocol" })
        assert.include(error.message, "Segmentation fault")
      }))

    const phases: ReadonlyArray<[string, Scripted.Script["steps"][number]["actions"]]> = [
      ["before its first part", [{ type: "hang" }]],
      ["in a text", [{ type: "text", random: { length: 10_000 }, chunk: 1, delay: 5 }]],
      ["in a tool", [{ type: "tool", name: "sh", command: ["sleep", "300"] }]],
      ["while a host is asked", [{ type: "host-tools", calls: [{ name: "never" }] }]],
      ["while it hangs", [{ type: "text", text: "." }, { type: "hang" }]]
    ]
    for (const [phase, actions] of phases) {
      test(`an interrupt ${phase} ends the turn soon, and the conversation goes on`, () =>
        Effect.gen(function*() {
          const { home, host } = yield* openScripted()
          const log = makeLog("t1")
          const running = yield* Effect.forkScoped(Effect.flip(host.run(log, play(actions))))
          yield* until(() => phase === phases[0][0] ? host.processes.length > 0 : log.parts.length > 0)
          yield* host.agent.interrupt
          const error = yield* Effect.timeout(Fiber.join(running), "1800 millis")
          assert.include(error.message, "interrupted")
          yield* host.supervisor.endAll
          const next = makeLog("t2")
          yield* host.run(next, play([{ type: "describe" }]))
          const told = JSON.parse(textOf(partsOf(next)))
          // The prompt of a turn that was interrupted at once may not have been taken in.
          const turns = told.turns.map(({ turn }: any) => turn as string)
          assert.deepStrictEqual(turns.filter((turn: string) => turn !== "t1" || phase !== phases[0][0]), [
            ...(phase === phases[0][0] ? [] : ["t1"]),
            "t2"
          ])
          const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
          assert.deepInclude(journal as Array<any>, { type: "ended", turn: "t1", attempt: 1, how: "interrupted" })
        }))
    }

    test("a stubborn agent ignores interrupt and SIGTERM, and is ended by SIGKILL", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        const log = makeLog("t1")
        const running = yield* Effect.forkScoped(
          Effect.flip(host.run(log, play([{ type: "text", text: "." }, { type: "hang", stubborn: true }])))
        )
        yield* until(() => log.parts.length > 2)
        yield* host.agent.interrupt
        const { pid } = host.processes[0]
        const { ended } = yield* host.supervisor.endAll
        assert.include(ended.map(({ pid }) => pid), pid)
        const error = yield* Fiber.join(running)
        assert.include(error.message, "SIGKILL")
      }))

    test("the agent ends when its input does", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        yield* host.run(makeLog("t1"), "hello")
        const [agent] = host.processes
        assert.isTrue(alive(agent.pid))
        yield* agent.endInput
        assert.deepStrictEqual(yield* agent.exit, { code: 0, signal: undefined })
        const log = makeLog("t2")
        yield* host.run(log, "again")
        assert.strictEqual(textOf(partsOf(log)), "again")
        assert.strictEqual(host.processes.length, 2)
      }))
  })

  describe("conversations", () => {
    test("compaction is remembered", () =>
      Effect.gen(function*() {
        const { host } = yield* openScripted()
        yield* host.run(
          makeLog("t1"),
          play([{ type: "compaction", summary: "short", tokensBefore: 9, tokensAfter: 1 }])
        )
        const { summary } = yield* host.agent.compact!("keep names")
        assert.strictEqual(summary, "1 turns, keep names")
        const log = makeLog("t2")
        yield* host.run(log, play([{ type: "describe" }]))
        assert.strictEqual(JSON.parse(textOf(partsOf(log))).summary, summary)
      }))

    test("a conversation is carried on after a restart, and to another home", () =>
      Effect.gen(function*() {
        const { directory, driver, host } = yield* openScripted()
        const conversation = host.agent.conversation!
        yield* host.run(makeLog("t1"), play([{ type: "host-tools", calls: [{ name: "add" }] }]), {
          tool: () => Effect.succeed({ result: 5, isFailure: false })
        })
        const state = yield* host.agent.readState!
        yield* host.close

        const again = yield* openHost(driver, { directory, conversation, established: true })
        const log = makeLog("t2")
        yield* again.run(log, play([{ type: "describe" }]))
        const elsewhere = yield* scratch
        const other = yield* openHost(yield* makeDriver({ home: elsewhere.home }), {
          directory: elsewhere.directory,
          state: JSON.parse(JSON.stringify(state))
        })
        assert.notStrictEqual(other.agent.conversation, conversation)
        const carried = makeLog("t2")
        yield* other.run(carried, play([{ type: "describe" }]))
        for (const told of [log, carried].map((log) => JSON.parse(textOf(partsOf(log))))) {
          assert.deepInclude(told.turns[0], { turn: "t1", steps: 1, ended: true })
          assert.deepStrictEqual(told.turns[0].answers[0].answer, { result: 5, isFailure: false })
        }
      }))

    test("a conversation that is gone or isn't the agent's is a lost context", () =>
      Effect.gen(function*() {
        const { directory, driver, file, host } = yield* openScripted()
        const fs = yield* FileSystem.FileSystem
        const conversation = host.agent.conversation!
        const log = makeLog("t1")
        yield* host.run(log, "hello")
        const lost = (effect: Effect.Effect<unknown, any, any>) =>
          Effect.map(Effect.flip(effect), (error) => assert.deepInclude(error, { _tag: "ContextLost", session: "s1" }))

        yield* fs.writeFileString(file, `{"type":"opened"}\n`)
        yield* lost(openHost(driver, { directory, conversation, established: true }))
        yield* lost(openHost(driver, { directory, conversation, established: false }))
        yield* fs.remove(file)
        yield* lost(openHost(driver, { directory, conversation, established: true }))
        yield* lost(host.resume(log, "hello"))
        yield* lost(host.run(makeLog("t2"), "hello"))
        yield* lost(openHost(driver, { directory, state: { format: 99 } }))

        const fresh = yield* openHost(driver, { directory, conversation, established: false })
        assert.strictEqual(fresh.agent.conversation, conversation)
        yield* fresh.run(makeLog("t1"), "hello")
      }))

    test("a forgotten conversation is gone, twice without an error", () =>
      Effect.gen(function*() {
        const { directory, driver, file, host } = yield* openScripted()
        const fs = yield* FileSystem.FileSystem
        yield* host.run(makeLog("t1"), "hello")
        assert.isTrue(yield* fs.exists(file))
        const forget = driver.forget!({ conversation: host.agent.conversation!, directory })
        yield* forget
        yield* forget
        assert.isFalse(yield* fs.exists(file))
      }))

    test("files are the user's alone", () =>
      Effect.gen(function*() {
        const { file, home, host } = yield* openScripted()
        const fs = yield* FileSystem.FileSystem
        yield* host.run(makeLog("t1"), "hello")
        for (const path of [file, `${home}/journal/${host.agent.conversation}.ndjson`]) {
          assert.strictEqual((yield* fs.stat(path)).mode & 0o777, 0o600)
        }
        assert.strictEqual((yield* fs.stat(`${home}/journal`)).mode & 0o777, 0o700)
      }))

    test("without an agent's command there is no driver", () =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(Scripted.Scripted.make({}))
        assert.deepInclude(error, { _tag: "DriverError", kind: "not-installed" })
      }))
  })
})

const byJson = (a: unknown, b: unknown) => JSON.stringify(a) < JSON.stringify(b) ? -1 : 1
