/**
 * What the driver of every real agent must do, shown with the agent itself and a scripted model.
 */
import type * as BunServices from "@effect/platform-bun/BunServices"
import { assert } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import type { SessionOptions, Turn } from "@gangway/server/Driver"
import { Effect, Exit, Fiber, FileSystem, Redacted } from "effect"
import {
  type Answers,
  type Log,
  makeLog,
  openHost,
  partsOf,
  textOf
} from "../../packages/drivers/test/fixtures/turns.ts"
import { script, type Step } from "../model/Script.ts"
import {
  abort,
  allow,
  failure,
  fileOf,
  killIn,
  kinds,
  messagesOf,
  only,
  play,
  type Profile,
  suite,
  test,
  testOf,
  unpaired,
  until,
  type Untold,
  waitForFile,
  type World
} from "./driverWorld.ts"
import { messageConformance } from "./messages.ts"

const lookup: Bridge.HostTool = {
  name: "lookup",
  description: "Looks a word up.",
  parameters: { type: "object", properties: { word: { type: "string" } }, required: ["word"] }
}

/** An image of one pixel. */
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

/** A command that appends a word to a file and then works on for long. */
const appendAndWait = (word: string) => `echo ${word} >> done.txt; perl -e 'sleep 1000'`

/** The suite. Each case that needs a capability names it. */
export const driverConformance = (profile: Profile) => {
  const { capabilities, untold = new Set<Untold>() } = profile
  suite(profile, `the driver of ${profile.name}`, () => {
    test(profile, "says what its agent can do, and which version that is", (world) =>
      Effect.sync(() => {
        assert.deepStrictEqual(world.driver.capabilities, capabilities)
        assert.match(world.driver.version, /^\d+\.\d+\.\d+/)
      }))

    test(profile, "tells text, reasoning and the usage of a step", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { finished, log, parts } = yield* play(host, [{
          think: "Let me see.",
          text: "Good morning.",
          usage: { input: 70, output: 30, cacheRead: 200, cacheWrite: 10 }
        }])
        assert.strictEqual(finished.finishReason, "stop")
        assert.strictEqual(textOf(parts), "Good morning.")
        assert.strictEqual(
          only(parts, "reasoning-delta").map(({ delta }) => delta).join(""),
          capabilities.reasoning ? "Let me see." : ""
        )
        const [step, ...more] = only(parts, "step-finished")
        assert.deepStrictEqual(more, [])
        assert.strictEqual(log.parts.at(-1)!.part.type, "step-finished")
        assert.deepStrictEqual(
          step!.usage.inputTokens,
          untold.has("cache-writes")
            ? { total: 280, uncached: 80, cacheRead: 200, cacheWrite: 0 }
            : { total: 280, uncached: 70, cacheRead: 200, cacheWrite: 10 }
        )
        assert.strictEqual(step!.usage.outputTokens?.total, 30)
        assert.isTrue(step!.usage.measured)
      }))

    test(profile, "tells a tool's input, its call, and its result", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { parts } = yield* play(host, [{ bash: "echo made > made.txt; cat made.txt" }, { text: "Made." }])
        const [call] = only(parts, "tool-call")
        assert.strictEqual(call!.name, profile.shell)
        assert.isTrue(call!.providerExecuted)
        assert.include(JSON.stringify(call!.params), "cat made.txt")
        const pieces = only(parts, "tool-params-delta").filter(({ id }) => id === call!.id)
        if (capabilities.toolParams) {
          assert.isAbove(pieces.length, 1)
          assert.include(pieces.map(({ delta }) => delta).join(""), "cat made.txt")
          assert.isBelow(kinds(parts).indexOf("tool-params-end"), kinds(parts).indexOf("tool-call"))
        } else assert.deepStrictEqual(pieces, [])
        const [result] = only(parts, "tool-result")
        assert.strictEqual(result!.id, call!.id)
        assert.isFalse(result!.isFailure)
        assert.include(JSON.stringify(result!.result), "made")
        assert.strictEqual((yield* fileOf(`${world.directory}/made.txt`)).trim(), "made")
        assert.isBelow(kinds(parts).indexOf("tool-call"), kinds(parts).indexOf("tool-result"))
        assert.strictEqual(only(parts, "step-finished").length, 2)
      }))

    test(profile, "tells that a command failed, and how", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { finished, parts } = yield* play(host, [{ bash: "echo WENT-WRONG; exit 3" }, { text: "Well." }])
        const [result] = only(parts, "tool-result")
        assert.isTrue(result!.isFailure)
        assert.include(JSON.stringify(result), "WENT-WRONG")
        assert.include(JSON.stringify(result), "3")
        assert.strictEqual(finished.finishReason, "stop")
      }))

    test(profile, "remembers in a turn what was said in the one before", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        yield* play(host, [{ text: "First." }], { turn: "t1", words: "ONE" })
        yield* play(host, [{ text: "Second." }], { turn: "t2", words: "TWO" })
        const [call] = yield* world.server.calls("TWO")
        const said = JSON.stringify(messagesOf(call!))
        assert.isBelow(said.indexOf("ONE"), said.indexOf("TWO"))
        assert.isAtLeast(said.indexOf("ONE"), 0)
      }))

    testOf(profile, "fileChanges", "tells changes of files as unified diffs", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const file = `${world.directory}/poem.txt`
        const { parts } = yield* play(host, [
          { write: [file, "one\ntwo\n"] },
          { edit: [file, "two", "zwei"] },
          { text: "Written." }
        ])
        const [created, updated, ...more] = only(parts, "file-change")
        assert.deepStrictEqual(more, [])
        assert.deepInclude(created, { path: file, kind: "create" })
        assert.include(created!.diff, "@@ -0,0 +1,2 @@\n+one\n+two\n")
        assert.deepInclude(updated, { path: file, kind: "update" })
        assert.include(updated!.diff, "@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n")
        assert.deepStrictEqual(
          [created, updated].map((change) => change!.toolCallId),
          only(parts, "tool-call").map(({ id }) => id)
        )
      }))

    testOf(
      profile,
      "hostTools",
      "lets the host run the host's tools, long after the prompt",
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open({ tools: [lookup] })
          const asked: Array<unknown> = []
          const name = profile.hostTool("lookup")
          const { parts } = yield* play(host, [
            { tool: [name, { word: "first" }] },
            { tool: [name, { word: "second" }] },
            { text: "Looked up." }
          ], {
            tool: (name, params) =>
              Effect.gen(function*() {
                asked.push([name, params])
                if (asked.length > 1) return { result: "NO-MEANING-2", isFailure: true }
                yield* Effect.sleep("1500 millis")
                return { result: { meaning: "MEANING-1" }, isFailure: false }
              })
          })
          assert.deepStrictEqual(asked, [["lookup", { word: "first" }], ["lookup", { word: "second" }]])
          assert.deepStrictEqual(
            only(parts, "tool-call").map(({ name, params, providerExecuted }) => ({ name, params, providerExecuted })),
            [
              { name: "lookup", params: { word: "first" }, providerExecuted: false },
              { name: "lookup", params: { word: "second" }, providerExecuted: false }
            ]
          )
          // Each result once, as the host gave it, and the model got both.
          assert.deepStrictEqual(
            only(parts, "tool-result").map(({ isFailure, name, result }) => ({ isFailure, name, result })),
            [
              { name: "lookup", result: { meaning: "MEANING-1" }, isFailure: false },
              { name: "lookup", result: "NO-MEANING-2", isFailure: true }
            ]
          )
          const seen = JSON.stringify((yield* world.server.calls("Do it.")).at(-1)!.body)
          assert.include(seen, "MEANING-1")
          assert.include(seen, "NO-MEANING-2")
          assert.notInclude(kinds(parts), "tool-approval-request")
        })
    )

    testOf(
      profile,
      "approvals",
      "asks before it acts, and tells the model what the host denied",
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          const requests: Array<Parameters<Turn["requestApproval"]>[0]> = []
          const { parts } = yield* play(host, [
            { bash: "echo yes > yes.txt" },
            { bash: "echo no > no.txt" },
            { text: "Well." }
          ], {
            approval: (request) => {
              requests.push(request)
              return Effect.succeed(
                requests.length === 1
                  ? { decision: "allow" as const }
                  : { decision: "deny" as const, reason: "NOT-THIS-ONE" }
              )
            }
          })
          assert.strictEqual(requests.length, 2)
          const calls = only(parts, "tool-call")
          assert.deepStrictEqual(requests.map(({ toolCallId }) => toolCallId), calls.map(({ id }) => id))
          assert.strictEqual(new Set(requests.map(({ approvalId }) => approvalId)).size, 2)
          assert.isTrue(requests.every(({ edits, name }) => !edits && name === profile.shell))
          assert.strictEqual((yield* fileOf(`${world.directory}/yes.txt`)).trim(), "yes")
          assert.strictEqual(yield* fileOf(`${world.directory}/no.txt`), "")
          const [, denied] = only(parts, "tool-result")
          assert.isTrue(denied!.isFailure)
          assert.strictEqual(textOf(parts), "Well.")
          if (untold.has("denials")) return
          assert.include(JSON.stringify(denied!.result), "NOT-THIS-ONE")
          assert.include(JSON.stringify((yield* world.server.calls("Do it.")).at(-1)!.body), "NOT-THIS-ONE")
        })
    )

    testOf(
      profile,
      "approvals",
      "says which edits stay inside the working directory",
      (world) =>
        Effect.gen(function*() {
          const fs = yield* FileSystem.FileSystem
          const host = yield* world.open()
          const outside = `${world.root}/outside`
          yield* fs.makeDirectory(outside)
          yield* fs.symlink(outside, `${world.directory}/link`)
          const edits: Array<readonly [string, boolean]> = []
          yield* play(host, [
            { write: [`${world.directory}/inside.txt`, "x"] },
            { write: [`${outside}/a.txt`, "x"] },
            { write: [`${world.directory}/link/b.txt`, "x"] },
            { text: "Written." }
          ], {
            approval: (request) => {
              edits.push([profile.fileOf(request.params).slice(world.root.length), request.edits])
              return Effect.succeed({ decision: "deny" })
            }
          })
          assert.deepStrictEqual(edits, [
            ["/project/inside.txt", true],
            ["/outside/a.txt", false],
            ["/project/link/b.txt", false]
          ])
        })
    )

    testOf(
      profile,
      "effort",
      "switches model and effort from turn to turn in one process",
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          yield* play(host, [{ text: "Zero." }], { turn: "t0", words: "ZERO" })
          yield* play(host, [{ text: "One." }], { turn: "t1", words: "ONE", model: "model-one", effort: "low" })
          yield* play(host, [{ text: "Two." }], { turn: "t2", words: "TWO", model: "model-two", effort: "high" })
          const before = profile.effortOf((yield* world.server.calls("ZERO"))[0]!.body)
          const sent = (words: string) =>
            Effect.map(world.server.calls(words), (calls) => {
              const { body } = calls.at(-1)!
              return [(body as { model: string }).model, profile.effortOf(body)]
            })
          assert.deepStrictEqual(yield* sent("TWO"), ["model-two", "high"])
          const [first] = yield* world.server.calls("ONE")
          assert.deepInclude(first!.body as object, { model: "model-one" })
          // What a turn doesn't say isn't kept from the one before.
          yield* play(host, [{ text: "Three." }], { turn: "t4", words: "THREE" })
          assert.deepStrictEqual(yield* sent("THREE"), ["scripted-model", before])
          assert.strictEqual(host.processes.length, 1)
          const { effort } = yield* Effect.flip(
            play(host, [{ text: "x" }], { turn: "t3", effort: "enormous" })
          ).pipe(Effect.map((error) => ({ effort: (error as { kind: string }).kind })))
          assert.strictEqual(effort, "invalid-request")
        })
    )

    testOf(profile, "images", "shows the model the images of a prompt", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        yield* host.run(makeLog("t1"), [
          { type: "text", text: `What's this? ${script({ text: "A pixel." })}` },
          { type: "file", mediaType: "image/png", data: pixel },
          { type: "file", mediaType: "text/plain", data: btoa("FILE-CONTENT"), fileName: "notes.txt" }
        ])
        const [call] = yield* world.server.calls("What's this?")
        const body = JSON.stringify(call!.body)
        assert.include(body, pixel)
        assert.include(body, "FILE-CONTENT")
        const refused = yield* Effect.exit(
          host.run(makeLog("t2"), [{ type: "file", mediaType: "video/mp4", data: "AAAA" }])
        )
        assert.deepInclude(failure(refused), { _tag: "TurnFailed", kind: "invalid-request" })
      }))

    test(profile, "gives the host's instructions to the model, in no argument", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open({ instructions: "ALWAYS-RHYME" })
        yield* play(host, [{ text: "Sure." }])
        const [call] = yield* world.server.calls("Do it.")
        assert.include(JSON.stringify(call!.body), "ALWAYS-RHYME")
        assert.notInclude(yield* fileOf(`/proc/${host.processes[0]!.pid}/cmdline`), "ALWAYS-RHYME")
      }))

    test(profile, "passes characters of four bytes, whatever cuts them", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const text = "🦆🚢".repeat(300)
        const { parts } = yield* play(
          host,
          [
            { text },
            ...[1, 2, 3].map((n) => ({ write: [`${world.directory}/e${n}.txt`, `${"x".repeat(n)}${text}`] as const }))
          ].toReversed()
        )
        assert.strictEqual(textOf(parts), text)
        for (const delta of only(parts, "tool-params-delta")) assert.isTrue(delta.delta.isWellFormed())
        assert.strictEqual(only(parts, "tool-call").length, 3)
        for (const call of capabilities.toolParams ? only(parts, "tool-call") : []) {
          const input = only(parts, "tool-params-delta").filter(({ id }) => id === call.id)
          assert.deepInclude(call.params as object, JSON.parse(input.map(({ delta }) => delta).join("")))
        }
        assert.strictEqual((yield* fileOf(`${world.directory}/e2.txt`)).trimEnd(), `xx${text}`)
      }))

    test(profile, "carries results of a megabyte", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open({ tools: [lookup] })
        const big = "0123456789abcde\n".repeat(65_536)
        const { parts } = yield* play(host, [
          { tool: [profile.hostTool("lookup"), { word: "big" }] },
          { bash: "perl -e 'print \"0123456789abcde\\n\" x 65536'" },
          { text: "Big." }
        ], { tool: () => Effect.succeed({ result: big, isFailure: false }) })
        const [mine, shell] = only(parts, "tool-result")
        assert.strictEqual(mine!.result, big)
        assert.isFalse(shell!.isFailure)
        assert.include(JSON.stringify(shell!.result), "0123456789abcde")
        assert.strictEqual(textOf(parts), "Big.")
      }))

    test(profile, "gives no secret to anything but the agent's environment", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open({ env: { MY_TOKEN: Redacted.make("SESSION-SECRET") } })
        yield* play(host, [{ text: "Hi." }])
        const { pid } = host.processes[0]!
        assert.include(yield* fileOf(`/proc/${pid}/environ`), "SESSION-SECRET")
        assert.notInclude(yield* fileOf(`/proc/${pid}/cmdline`), "SECRET")
      }))

    const failures = [
      [401, "invalid x-api-key", "auth"],
      [429, "slow down", "rate-limit"],
      [529, "Overloaded", "overloaded"],
      [500, "oops", "overloaded"],
      [400, "that makes no sense", "invalid-request"],
      [400, "prompt is too long: 250000 tokens > 200000 maximum", "context-too-long"]
    ] as const
    for (const [err, message, kind] of failures) {
      if (untold.has("failures") && kind !== "auth") continue
      test(profile, `ends as '${kind}' where the model answers ${err} (${message})`, (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          const ended = yield* Effect.exit(play(host, [{ err, message }]))
          assert.deepInclude(failure(ended), { _tag: "TurnFailed", kind })
        }))
    }

    test(profile, "tells that a model call is tried again", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { finished, parts } = yield* play(host, [{ err: 529, message: "Overloaded", times: 1, text: "At last." }])
        const [retry] = only(parts, "retry")
        assert.strictEqual(retry === undefined, untold.has("retries"))
        if (retry !== undefined) {
          assert.strictEqual(retry.attempt, 1)
          assert.include(retry.message, "529")
        }
        assert.strictEqual(textOf(parts), "At last.")
        assert.strictEqual(finished.finishReason, "stop")
      }))

    test(profile, "survives a stream that breaks off", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { finished, parts } = yield* play(host, [
          { text: "Before.", bash: "echo once >> once.txt", cut: 9, times: 1 },
          { text: "After." }
        ])
        assert.strictEqual(finished.finishReason, "stop")
        assert.isTrue(textOf(parts).endsWith("After."))
        // The agent may ask again, or take what came whole for the answer; it never does both.
        assert.include(["", "once\n"], yield* fileOf(`${world.directory}/once.txt`))
        // What was begun is ended.
        assert.strictEqual(only(parts, "text-start").length, only(parts, "text-end").length)
      }))

    test(profile, "gives the agent's own events only where they're wanted", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const plain = yield* play(host, [{ text: "One." }], { turn: "t1" })
        assert.notInclude(kinds(plain.parts), "raw")
        const raw = yield* play(host, [{ text: "②" }], { turn: "t2", raw: true })
        assert.include(JSON.stringify(only(raw.parts, "raw").map(({ event }) => event)), "②")
      }))

    test(profile, "ends the turn with what is known where its agent dies", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const running = yield* Effect.forkChild(play(host, [{ bash: appendAndWait("x") }]))
        yield* waitForFile(`${world.directory}/done.txt`, "x")
        process.kill(host.processes[0]!.pid, "SIGKILL")
        const ended = failure(yield* Fiber.await(running))
        assert.deepInclude(ended, { _tag: "TurnFailed", kind: "agent-exit" })
        assert.include((ended as Error).message, "SIGKILL")
        // The next turn has another process and the same conversation.
        yield* host.supervisor.endAll
        const { parts } = yield* play(host, [{ text: "Back." }], { turn: "t2", words: "AGAIN" })
        assert.strictEqual(textOf(parts), "Back.")
        assert.include(JSON.stringify((yield* world.server.calls("AGAIN"))[0]!.body), "Do it.")
      }))

    test(
      profile,
      "says how to install an agent that is missing, or of a version that doesn't fit",
      (world) =>
        Effect.gen(function*() {
          const fs = yield* FileSystem.FileSystem
          const program = `${world.root}/agent`
          const make = Effect.flip(profile.make({ program, url: world.server.url, home: world.home }))
          const missing = yield* make
          assert.deepInclude(missing, { _tag: "DriverError", kind: "not-installed" })
          assert.include(missing.problem, "npm install --global ")
          yield* fs.writeFileString(program, "#!/bin/sh\necho 0.0.1\n")
          yield* fs.chmod(program, 0o755)
          const old = yield* make
          assert.deepInclude(old, { _tag: "DriverError", kind: "wrong-version" })
          assert.include(old.problem, "0.0.1")
          assert.include(old.problem, "npm install --global ")
        })
    )

    test(profile, "says how an agent ended that ends at its start", (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const program = `${world.root}/broken`
        yield* fs.writeFileString(
          program,
          `#!/bin/sh\nif [ "$1" = --version ]; then exec '${profile.agent.program}' --version; fi\necho IT-IS-BROKEN >&2\nexit 3\n`
        )
        yield* fs.chmod(program, 0o755)
        const driver = yield* profile.make({ program, url: world.server.url, home: world.home })
        const host = yield* openHost(driver, { directory: world.directory })
        const ended = failure(yield* Effect.exit(play(host, [{ text: "never" }])))
        assert.include(
          ["TurnFailed agent-exit", "DriverError exit"],
          `${ended!._tag} ${(ended as { kind: string }).kind}`
        )
        assert.include(ended!.message, "IT-IS-BROKEN")
        assert.include(ended!.message, "3")
      }))

    const phases: ReadonlyArray<{
      readonly phase: string
      readonly step: Step
      /** Whether the phase is reached. */
      readonly reached: (world: World, log: Log) => Effect.Effect<unknown, unknown, BunServices.BunServices>
      readonly answers?: Answers
      /** What there must be to reach it; to go on needs `continuation`. */
      readonly needs?: keyof Bridge.Capabilities
    }> = [
      {
        phase: "at once",
        step: { text: "never" },
        reached: () => Effect.void
      },
      {
        phase: "before the first part",
        step: { hang: 1, times: 1, text: "Here." },
        reached: (world) => world.server.waitForCalls("Do it.", 1)
      },
      {
        phase: "while it speaks",
        step: { words: 40, delay: 20, hang: 1, times: 1 },
        reached: (_, log) => until(() => textOf(partsOf(log)).includes("word5"))
      },
      {
        phase: "in a tool call",
        step: { bash: appendAndWait("x") },
        reached: (world) => waitForFile(`${world.directory}/done.txt`, "x"),
        answers: allow
      },
      {
        phase: "while it waits for an approval",
        step: { bash: "echo never > never.txt" },
        reached: (_, log) => until(() => kinds(partsOf(log)).includes("tool-approval-request")),
        answers: { approval: () => Effect.never },
        needs: "approvals"
      },
      {
        phase: "while it waits for a host tool",
        step: { tool: [profile.hostTool("lookup"), { word: "x" }] },
        reached: (_, log) => until(() => kinds(partsOf(log)).includes("tool-call")),
        answers: { tool: () => Effect.never },
        needs: "hostTools"
      }
    ]
    for (const { answers = {}, needs = "continuation", phase, reached, step } of phases) {
      testOf(
        profile,
        needs,
        `is aborted ${phase}, and goes on in the same conversation`,
        (world) =>
          Effect.gen(function*() {
            const host = yield* world.open({ tools: [lookup] })
            const log = makeLog("t1")
            const prompt = `Do it. ${script(step, { text: "Went on." })}`
            const running = yield* Effect.forkChild(host.run(log, prompt, answers), { startImmediately: true })
            yield* reached(world, log)
            assert.isTrue(yield* abort(host, running))
            assert.isTrue(Exit.isFailure(yield* Fiber.await(running)))
            assert.deepStrictEqual(yield* host.supervisor.background, [])
            const finished = yield* host.resume(log, prompt, { ...allow, ...answers })
            assert.strictEqual(finished.finishReason, "stop")
            const last = (yield* world.server.calls("Do it.")).at(-1)!
            const texts = JSON.stringify(messagesOf(last))
            assert.strictEqual(texts.split("Do it.").length, 2, "the prompt is there once")
            assert.deepStrictEqual(unpaired(messagesOf(last)), [])
            assert.strictEqual(yield* fileOf(`${world.directory}/never.txt`), "")
          })
      )
    }

    test(profile, "tells what was used up to an abort in the second step of three", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const log = makeLog("t1")
        const running = yield* Effect.forkChild(host.run(
          log,
          script(
            { bash: "echo one", usage: { input: 10, output: 20 } },
            { words: 2_000, delay: 20, usage: { input: 30, output: 40 } },
            { text: "three" }
          ),
          allow
        ))
        yield* until(() => textOf(partsOf(log)).includes("word5"))
        yield* abort(host, running)
        const [first, second, ...more] = only(partsOf(log), "step-finished")
        assert.deepStrictEqual(more, [])
        if (!capabilities.usage) return assert.deepStrictEqual(first!.usage, { measured: false })
        assert.strictEqual(second !== undefined, profile.tellsCutSteps)
        assert.deepInclude(first!.usage, { measured: true, outputTokens: { total: 20 } })
        assert.strictEqual(first!.usage.inputTokens?.total, 10)
        if (second === undefined) return
        // The model was cut before it said what it used: the input is known, the output at least in part.
        assert.isFalse(second.usage.measured)
        assert.strictEqual(second.usage.inputTokens?.total, 30)
        assert.isAtLeast(second.usage.outputTokens!.total!, 1)
      }))

    testOf(
      profile,
      "continuation",
      "carries on after it was killed in a command: no finished call runs again",
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          const log = makeLog("t1")
          const prompt = `Do it. ${
            script(
              { text: "First.", bash: "echo first >> done.txt" },
              { text: "Second.", bash: appendAndWait("second") },
              { text: "Third.", bash: "echo third >> done.txt" },
              { text: "Done." }
            )
          }`
          const running = yield* Effect.forkChild(host.run(log, prompt, allow))
          yield* killIn(world, host, "second")
          const before = (yield* world.server.calls("Do it.")).at(-1)!
          yield* Fiber.await(running)
          const cut = log.parts.length
          const finished = yield* host.resume(log, prompt, allow)
          assert.strictEqual(finished.finishReason, "stop")
          assert.strictEqual(yield* fileOf(`${world.directory}/done.txt`), "first\nsecond\nthird\n")
          // The log says everything once, and all of it is what the conversation holds.
          assert.strictEqual(textOf(partsOf(log)), "First.Second.Third.Done.")
          assert.strictEqual(only(partsOf(log), "step-finished").length, 4)
          const continued = log.parts[cut]!.part as typeof Bridge.TurnContinued.Type
          assert.strictEqual(continued.keep, cut)
          // The model saw what it had seen, then what it said, then a nudge; never the prompt again.
          const [after] = (yield* world.server.calls("Do it.")).slice(2)
          const [seen, sees] = [messagesOf(before), messagesOf(after!)]
          assert.deepStrictEqual(sees.slice(0, seen.length), seen)
          assert.strictEqual(JSON.stringify(sees).split("Do it.").length, 2)
          assert.include(JSON.stringify(sees.at(-1)), "Carry on")
          assert.deepStrictEqual(unpaired(sees), [])
          // What the agent couldn't tell about the open call is told.
          const open = only(partsOf(log), "tool-call")[1]!
          const [result, ...more] = only(partsOf(log), "tool-result").filter(({ id }) => id === open.id)
          assert.deepStrictEqual(more, [])
          assert.isTrue(result!.isFailure)
        })
    )

    testOf(
      profile,
      "continuation",
      "recovers from the conversation what the log lacks",
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          const log = makeLog("t1")
          const prompt = `Do it. ${
            script(
              { think: "Hm.", text: "First.", bash: "echo first >> done.txt" },
              { text: "Second.", write: [`${world.directory}/second.txt`, "2\n"] },
              { text: "Third.", bash: appendAndWait("third") },
              { text: "Done." }
            )
          }`
          const running = yield* Effect.forkChild(host.run(log, prompt, allow))
          yield* killIn(world, host, "third")
          yield* Fiber.await(running)
          // A bridge that died too, in the middle of the first step's text.
          const whole = partsOf(log)
          const lost = log.parts.findIndex(({ part }) => part.type === "text-delta") + 1
          log.parts.splice(lost)
          yield* host.resume(log, prompt, allow)
          const parts = partsOf(log)
          assert.strictEqual(textOf(parts), "First.Second.Third.Done.")
          assert.strictEqual(only(parts, "reasoning-delta").map(({ delta }) => delta).join(""), "Hm.")
          assert.deepStrictEqual(
            only(parts, "tool-call").map(({ id, name, params }) => ({ id, name, params })),
            only(whole, "tool-call").map(({ id, name, params }) => ({ id, name, params }))
          )
          for (const type of ["file-change", "step-finished"] as const) {
            const recovered = only(parts, type).filter((part) => part.recovered === true)
            const told = only(whole, type).map((part) => ({ ...part, recovered: true }))
            // An agent may tell only after a call that its model was done before it.
            assert.deepStrictEqual(recovered.slice(0, told.length), told as never)
          }
          assert.strictEqual(only(parts, "file-change").length, 1)
          assert.strictEqual(only(parts, "step-finished").length, 4)
          assert.strictEqual(yield* fileOf(`${world.directory}/done.txt`), "first\nthird\n")
        })
    )

    test(profile, "says so where the conversation is gone, or another directory's", (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const host = yield* world.open()
        const { log } = yield* play(host, [{ text: "Hi." }])
        const conversation = host.conversation()
        yield* host.close
        const other = `${world.root}/other`
        yield* fs.makeDirectory(other)
        const reopened = (options: Partial<SessionOptions>) =>
          Effect.exit(world.open({ conversation, established: true, ...options }))
        assert.isTrue(Exit.isSuccess(yield* reopened({})))
        assert.deepInclude(failure(yield* reopened({ directory: other })), { _tag: "ContextLost" })

        const again = yield* world.open({ conversation, established: true })
        yield* world.driver.forget!({ conversation, directory: world.directory })
        const lost = yield* Effect.exit(play(again, [{ text: "Hi." }], { turn: "t2" }))
        assert.deepInclude(failure(lost), { _tag: "ContextLost" })
        log.attempt = 1
        assert.deepInclude(failure(yield* Effect.exit(again.resume(log, "Hi."))), { _tag: "ContextLost" })
        assert.deepInclude(failure(yield* reopened({})), { _tag: "ContextLost" })
        // One that was only named never began: it's new, under that name.
        const unused = yield* world.open()
        yield* unused.close
        const fresh = yield* world.open({ conversation: unused.conversation(), established: false })
        yield* play(fresh, [{ text: "Hi." }], { turn: "t3" })
        // Forgetting what is gone is fine.
        yield* world.driver.forget!({ conversation, directory: other })
      }))

    test(profile, "leaves nothing of a conversation that is forgotten", (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const host = yield* world.open()
        yield* host.run(makeLog("t1"), [
          { type: "text", text: script({ text: "SOMETHING-PRIVATE", bash: "echo hi" }, { text: "Done." }) },
          { type: "file", mediaType: "image/png", data: pixel }
        ], allow)
        yield* host.close
        yield* world.driver.forget!({ conversation: host.conversation(), directory: world.directory })
        for (const file of yield* fs.readDirectory(world.home, { recursive: true })) {
          const content = yield* fileOf(`${world.home}/${file}`)
          if (profile.ownFiles.test(file)) continue
          assert.notInclude(content, "SOMETHING-PRIVATE", file)
          assert.notInclude(content, pixel, file)
          assert.notMatch(file, /\.png$/)
        }
      }))

    testOf(profile, "state", "carries a conversation into another sandbox", (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const host = yield* world.open()
        yield* play(host, [{ text: "First.", bash: "echo out-of-a-tool" }, { text: "Told." }], { words: "REMEMBER" })
        const state = JSON.parse(JSON.stringify(yield* host.agent.readState!))
        yield* host.close

        const elsewhere = { root: `${world.root}/b`, home: `${world.root}/b/home`, project: `${world.root}/b/project` }
        yield* fs.makeDirectory(elsewhere.project, { recursive: true })
        const driver = yield* profile.make({
          program: profile.agent.program!,
          url: world.server.url,
          home: elsewhere.home
        })
        const there = yield* openHost(driver, { directory: elsewhere.project, state, tools: [lookup] })
        assert.notStrictEqual(there.agent.conversation, host.agent.conversation)
        const { parts } = yield* play(there, [{ text: "Second.", bash: "pwd" }, { text: "Done." }], { words: "GO ON" })
        assert.include(JSON.stringify(only(parts, "tool-result")[0]!.result), elsewhere.project)
        const [before] = (yield* world.server.calls("REMEMBER")).slice(1)
        const [after] = yield* world.server.calls("GO ON")
        const [seen, sees] = [messagesOf(before!), messagesOf(after!)]
        assert.deepStrictEqual(sees.slice(0, seen.length), seen)
        // With the tools that its host has there.
        assert.strictEqual(JSON.stringify(after!.body).includes(lookup.description), capabilities.hostTools)
        // It goes on from there by its own means.
        yield* there.close
        const { conversation } = there.agent
        const reopened = yield* openHost(driver, { directory: elsewhere.project, conversation, established: true })
        yield* play(reopened, [{ text: "Third." }], { turn: "t2", words: "ONCE MORE" })
        assert.include(JSON.stringify((yield* world.server.calls("ONCE MORE"))[0]!.body), "out-of-a-tool")
        const refused = yield* Effect.exit(openHost(driver, { directory: elsewhere.project, state: { some: "thing" } }))
        assert.deepInclude(failure(refused), { _tag: "ContextLost" })
      }))

    testOf(profile, "compaction", "compacts its conversation", (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        assert.deepStrictEqual(yield* host.agent.compact!(undefined), {})
        yield* play(host, [{ text: "A long story." }])
        const told = yield* Effect.exit(host.agent.compact!("keep the names"))
        assert.strictEqual(Exit.isSuccess(told), profile.compactsAsTold)
        const { summary } = Exit.isSuccess(told) ? told.value : yield* host.agent.compact!(undefined)
        assert.include(summary, "what was said so far")
        const errand = (yield* world.server.requests).find(({ side }) => side)
        assert.strictEqual(JSON.stringify(errand!.body).includes("keep the names"), profile.compactsAsTold)
        yield* play(host, [{ text: "Next." }], { turn: "t2", words: "NEXT" })
        const body = JSON.stringify((yield* world.server.calls("NEXT"))[0]!.body)
        assert.include(body, "what was said so far")
      }))

    testOf(
      profile,
      "structuredOutput",
      "answers in the form that a turn asks for, and freely in the next",
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          const schema = { type: "object", properties: { answer: { type: "number" } }, required: ["answer"] }
          const { finished } = yield* play(host, [profile.structured.answer({ answer: 42 }), { text: "x" }], {
            responseFormat: { type: "json", schema }
          })
          assert.deepStrictEqual(finished, { finishReason: "stop", output: { answer: 42 } })
          const without = yield* Effect.exit(
            play(host, [], { turn: "t2", responseFormat: { type: "json", schema } })
          )
          assert.deepInclude(failure(without), { _tag: "TurnFailed" })
          yield* host.supervisor.endAll
          const free = yield* play(host, [{ text: "Free." }], { turn: "t3", words: "FREELY" })
          assert.deepStrictEqual(free.finished, { finishReason: "stop" })
          assert.isTrue(profile.structured.asks((yield* world.server.calls("Do it."))[0]!.body))
          assert.isFalse(profile.structured.asks((yield* world.server.calls("FREELY"))[0]!.body))
        })
    )

    messageConformance(profile)
  })
}
