import { assert, describe } from "@effect/vitest"
import { Scripted, ScriptedAgent } from "@gangway/drivers"
import { Effect, FileSystem, Redacted, Stream } from "effect"
import { agentParts, check, said } from "./fixtures/checker.ts"
import { find, openScripted, test } from "./fixtures/scripted.ts"
import { type Host, makeLog, partsOf, textOf } from "./fixtures/turns.ts"

describe("Scripted, continuing", () => {
  const steps: Scripted.Script["steps"] = [
    { actions: [{ type: "text", random: { length: 60, alphabet: "surrogates" }, chunk: 7 }] },
    { actions: [{ type: "host-tools", calls: [{ name: "add" }], echo: true }] },
    {
      actions: [
        { type: "reasoning", random: { length: 60 }, chunk: 20 },
        { type: "tool", name: "sh", approval: {}, command: ["echo", "hi"] },
        { type: "parts", parts: [{ type: "notice", level: "info", message: "halfway" }] }
      ]
    },
    { actions: [{ type: "file", path: "f.txt", random: { length: 20 } }, { type: "text", text: "done" }] }
  ]
  const answers = {
    tool: () => Effect.succeed({ result: 3, isFailure: false }),
    approval: () => Effect.succeed({ decision: "allow" as const })
  }

  for (
    const [at, step] of [["prompt", 0], [0, 0], [3, 0], [0, 2], [4, 2], ["recorded", 2], ["recorded", 3], [
      7,
      3
    ]] as const
  ) {
    test(`an agent that dies at ${at} of step ${step} goes on from the steps it finished`, () =>
      Effect.gen(function*() {
        const { home, host } = yield* openScripted()
        const log = makeLog("t1")
        const prompt = Scripted.toPrompt({ steps, crashes: [{ at, step }] })
        const error = yield* Effect.flip(host.run(log, prompt, answers))
        assert.deepInclude(error, { _tag: "TurnFailed", kind: "agent-exit" })
        yield* host.resume(log, prompt, answers)
        const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
        check(log, journal, { steps: 4, seed: `${at} ${step}` })
        const turns = journal.flatMap((entry) => entry.type === "turn" ? [entry.nudged] : [])
        assert.deepStrictEqual(turns, at === "prompt" ? [false, false] : [false, true])
      }))
  }

  test("whatever part of a turn the log lacks, it's recovered, and what the log has is kept", () =>
    Effect.gen(function*() {
      const { host } = yield* openScripted()
      // Deltas that end like a secret are held back and cut elsewhere.
      const log = makeLog("t1", { key: Redacted.make("e".repeat(20)), other: Redacted.make("result\\\\\\\\") })
      yield* host.run(log, Scripted.toPrompt({ steps }), answers)
      const whole = said(agentParts(partsOf(log)))
      for (let length = 0; length <= log.parts.length; length++) {
        const parts = log.parts.slice(0, length)
        const continued = yield* host.agent.reconcile!({
          turn: log.turn,
          attempt: 2,
          messages: [],
          parts: Stream.fromIterable(parts)
        })
        assert.isTrue(continued.prompted)
        assert.strictEqual(continued.keep, length, "nothing that fits is dropped")
        const kept = agentParts(parts.map(({ part }) => part))
        assert.deepStrictEqual(said([...kept, ...agentParts(continued.recovered)]), whole)
      }
    }))

  test("a step's beginning that doesn't fit is replaced", () =>
    Effect.gen(function*() {
      const { host } = yield* openScripted()
      const log = makeLog("t1")
      yield* host.run(log, Scripted.toPrompt({ steps }), answers)
      const end = log.parts.findIndex(({ part }) => part.type === "step-finished") + 1
      const foreign = { n: end + 1, part: { type: "text-start" as const, id: "of another attempt" } }
      const continued = yield* host.agent.reconcile!({
        turn: log.turn,
        attempt: 2,
        messages: [],
        parts: Stream.fromIterable([...log.parts.slice(0, end), foreign])
      })
      assert.strictEqual(continued.keep, end)
      assert.deepStrictEqual(said(agentParts(continued.recovered)), said(agentParts(partsOf(log).slice(end))))
    }))

  test("whatever a crash left of the conversation, the steps that it holds whole are kept", () =>
    Effect.gen(function*() {
      const { file, host } = yield* openScripted()
      const fs = yield* FileSystem.FileSystem
      const log = makeLog("t1")
      yield* host.run(log, Scripted.toPrompt({ steps }), answers)
      const whole = yield* fs.readFile(file)
      const text = new TextDecoder().decode(whole)
      const ends = log.parts.flatMap(({ n, part }) => part.type === "step-finished" ? [n] : [])
      let offset = 0
      const lengths = new Set<number>()
      for (const line of text.split("\n").slice(0, -1)) {
        const bytes = new TextEncoder().encode(line).length + 1
        for (const cut of [offset, offset + 1, offset + (bytes >> 1), offset + bytes - 1]) lengths.add(cut)
        offset += bytes
      }
      for (const length of lengths) {
        yield* fs.writeFile(file, whole.slice(0, length))
        const lines = new TextDecoder().decode(whole.slice(0, length)).split("\n").slice(0, -1)
        const previous = { turn: log.turn, attempt: 2, messages: [], parts: Stream.fromIterable(log.parts) }
        if (!lines.some((line) => line.startsWith(`{"type":"prompt"`))) {
          const error = yield* Effect.flip(host.agent.reconcile!(previous))
          assert.strictEqual(error._tag, "ContextLost")
          continue
        }
        const held = lines.filter((line) => line.startsWith(`{"type":"step"`)).length
        const continued = yield* host.agent.reconcile!(previous)
        const keep = held === 4 ? log.parts.length : held === 0 ? 0 : ends[held - 1]
        assert.deepStrictEqual(continued, { keep, recovered: [], prompted: true, messages: new Set<never>() })
      }
    }))

  test("torn ends of both files are cut, and what follows is whole", () =>
    Effect.gen(function*() {
      const { file, home, host } = yield* openScripted()
      const fs = yield* FileSystem.FileSystem
      const log = makeLog("t1")
      const prompt = Scripted.toPrompt({ steps, crashes: [{ at: 2, step: 2 }] })
      yield* Effect.flip(host.run(log, prompt, answers))
      const journalFile = `${home}/journal/${host.agent.conversation}.ndjson`
      yield* fs.writeFileString(file, `{"type":"step","turn":"t1","atte`, { flag: "a" })
      yield* fs.writeFileString(journalFile, `{"type":"emitted","turn":"t1","att`, { flag: "a" })
      yield* host.resume(log, prompt, answers)
      const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
      check(log, journal, { steps: 4, seed: "torn" })
    }))

  test("without a journal, what was lost of finished steps is told", () =>
    Effect.gen(function*() {
      const { home, host } = yield* openScripted({ journal: "off" })
      const fs = yield* FileSystem.FileSystem
      const log = makeLog("t1")
      const prompt = Scripted.toPrompt({ steps, crashes: [{ at: "recorded", step: 2 }] })
      yield* Effect.flip(host.run(log, prompt, answers))
      yield* host.resume(log, prompt, answers)
      assert.include(find(log, "notice").at(-1)!.message, "1 steps")
      assert.isFalse(yield* fs.exists(`${home}/journal`))
      assert.isTrue(textOf(partsOf(log)).endsWith("done"))
    }))

  test("a turn that had ended in the conversation ends at once", () =>
    Effect.gen(function*() {
      const { host } = yield* openScripted()
      const log = makeLog("t1")
      const prompt = Scripted.toPrompt({ steps })
      yield* host.run(log, prompt, answers)
      const before = log.parts.length
      const finished = yield* host.resume(log, prompt, answers)
      assert.strictEqual(finished.finishReason, "stop")
      assert.deepStrictEqual(log.parts.slice(before).map(({ part }) => part), [
        { type: "turn-continued", attempt: 2, keep: before }
      ])
    }))

  const rounds = Number(process.env["SCRIPTED_KILLS"] ?? 3)
  test(
    `${rounds} turns with SIGKILLs at random moments have every finished step once`,
    () =>
      Effect.gen(function*() {
        const base = Number(process.env["SEED"] ?? Math.floor(Math.random() * 1e9))
        for (let round = 0; round < rounds; round++) {
          const seed = base + round
          const random = seeded(seed)
          const { home, host } = yield* openScripted()
          const log = makeLog("t1")
          const script: Scripted.Script = {
            seed,
            steps: Array.from({ length: 8 }, () => steps[random(4)]).flatMap((step) => [
              step,
              {
                actions: [{
                  type: "text" as const,
                  random: { length: random(200), alphabet: "surrogates" as const },
                  chunk: 1 + random(30),
                  ...(random(2) === 0 ? {} : { delay: random(3) })
                }]
              }
            ])
          }
          const prompt = Scripted.toPrompt(script)
          // Kills after so many more parts, and a moment.
          const kill = (attempt: Effect.Effect<unknown, { readonly _tag: string }>) =>
            Effect.gen(function*() {
              const at = log.parts.length + random(60)
              const started = host.processes.length
              const moment = random(4)
              return yield* Effect.raceFirst(
                Effect.result(attempt),
                Effect.gen(function*() {
                  while (log.parts.length < at || host.processes.length === started) yield* Effect.sleep(1)
                  yield* Effect.sleep(moment)
                  yield* sigkill(host)
                  return yield* Effect.never
                })
              )
            })
          let outcome = yield* kill(host.run(log, prompt, answers))
          let kills = 0
          while (outcome._tag === "Failure") {
            assert.deepInclude(outcome.failure as any, { _tag: "TurnFailed", kind: "agent-exit" }, `seed ${seed}`)
            kills++
            const resumed = host.resume(log, prompt, answers)
            outcome = yield* kills < 8 ? kill(resumed) : Effect.result(resumed)
          }
          const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
          check(log, journal, { steps: script.steps.length, seed: `SEED=${seed}, ${kills} kills` })
          yield* host.close
        }
      }),
    600_000
  )
})

const sigkill = (host: Host) => Effect.sync(() => void process.kill(host.processes.at(-1)!.pid, "SIGKILL"))

const seeded = (seed: number) => {
  let state = seed | 0
  return (bound: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0
    return ((state >>> 8) % bound)
  }
}
