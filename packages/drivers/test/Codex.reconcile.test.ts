import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import type { Reconciled } from "@gangway/server/Driver"
import { Effect, type Schema, Stream } from "effect"
import { reconcile } from "../src/internal/codexReconcile.ts"

// A conversation as Codex writes it, in what counts: a turn with a command, a change of a file, a host's tool, a tool of
// which Codex tells nothing, a compaction, and an end.
const event = (item: Schema.JsonObject) => ({ type: "event_msg", payload: { type: "item_completed", item } })
const prompt = (client_id: string | null) => event({ type: "UserMessage", id: `user-${client_id}`, client_id })
const said = (id: string, text: string) => event({ type: "AgentMessage", id, content: [{ type: "Text", text }] })
const called = (call_id: string, name: string, args: Schema.JsonObject) => ({
  type: "response_item",
  payload: { type: "function_call", id: `fc-${call_id}`, name, arguments: JSON.stringify(args), call_id }
})
const output = (call_id: string) => ({
  type: "response_item",
  payload: { type: "function_call_output", call_id, output: "…" }
})
const counted = (total_tokens: number) => ({
  type: "token_usage_record",
  payload: {
    thread_token_usage: {
      total_tokens,
      input_tokens: total_tokens - 10,
      cached_input_tokens: 0,
      cache_write_input_tokens: 0,
      output_tokens: 10,
      reasoning_output_tokens: 0
    }
  }
})

const lines: ReadonlyArray<Schema.JsonObject> = [
  { type: "session_meta", payload: { id: "thread", cwd: "/somewhere" } },
  prompt("an earlier one"),
  said("m0", "An earlier answer."),
  counted(100),
  prompt("prompt"),
  event({ type: "Reasoning", id: "r1", summary_text: ["Hm 🦆."], raw_content: [] }),
  said("m1", "First 🚢."),
  called("t1", "exec_command", { cmd: "echo one" }),
  counted(200),
  event({
    type: "CommandExecution",
    id: "t1",
    command: ["/bin/bash", "-lc", "echo one"],
    cwd: "file:///somewhere",
    status: "completed",
    aggregated_output: "ONE",
    exit_code: 0
  }),
  output("t1"),
  called("t2", "exec_command", { cmd: "apply_patch <<'P'" }),
  called("t3", "lookup", { word: "x" }),
  counted(300),
  event({
    type: "FileChange",
    id: "t2",
    changes: { "/somewhere/two.txt": { type: "add", content: "two\n" } },
    status: "completed"
  }),
  output("t2"),
  event({
    type: "DynamicToolCall",
    id: "t3",
    tool: "lookup",
    arguments: { word: "x" },
    status: "completed",
    content_items: [{ type: "inputText", text: "THREE" }]
  }),
  output("t3"),
  called("t4", "get_goal", {}),
  counted(400),
  output("t4"),
  { type: "compacted", payload: { message: "What follows is a summary:\nAll of it." } },
  event({ type: "ContextCompaction", id: "c1" }),
  said("m2", "Last."),
  counted(500)
]

const numbered = (parts: ReadonlyArray<Bridge.Part>) => parts.map((part, index) => ({ n: index + 1, part }))

const run = (
  held: ReadonlyArray<Schema.JsonObject>,
  log: ReadonlyArray<Bridge.NumberedPart>,
  prompts: ReadonlyArray<string> = ["prompt"]
) =>
  reconcile({
    lines: held,
    prompts: new Set(prompts),
    previous: { turn: "t" as Bridge.TurnId, attempt: 2, messages: [], parts: Stream.fromIterable(log) },
    tools: new Set(["lookup"]),
    directory: "/somewhere"
  })

const reconciled = (held: ReadonlyArray<Schema.JsonObject>, log: ReadonlyArray<Bridge.NumberedPart>) =>
  Effect.map(run(held, log), (outcome): Reconciled => {
    if ("lost" in outcome) throw new Error(outcome.lost)
    return outcome
  })

/** What the log says after the continuation. */
const after = (log: ReadonlyArray<Bridge.NumberedPart>, { keep, recovered }: Reconciled) =>
  [...log.filter(({ n }) => n <= keep).map(({ part }) => part), ...recovered] as Array<Bridge.KnownPart>

/** What a reader makes of parts, without the agent's pieces; Codex tells steps a little later than it writes them. */
const story = (parts: ReadonlyArray<Bridge.KnownPart>): ReadonlyArray<string> => {
  const blocks = new Map<string, string>()
  return parts.flatMap((part) => {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        blocks.set(part.id, (blocks.get(part.id) ?? "") + part.delta)
        return []
      case "text-end":
      case "reasoning-end":
        return [`${part.type} ${blocks.get(part.id)}`]
      case "tool-call":
        return [`call ${part.id} ${part.name}`]
      case "tool-result":
        return [`result ${part.id} ${part.isFailure ? "unknown" : part.result}`]
      case "file-change":
        return [`changed ${part.path}`]
      case "step-finished":
        return [
          part.usage.measured
            ? `step ${String(part.metadata?.["threadTokens"])} ${part.usage.inputTokens?.total}`
            : `cut ${String(part.metadata?.["item"])}`
        ]
      case "compaction":
        return [`compaction ${part.summary}`]
      default:
        return []
    }
  })
}

const wholeStory = [
  "reasoning-end Hm 🦆.",
  "text-end First 🚢.",
  "call t1 shell",
  "step 200 100",
  "result t1 ONE",
  "call t2 apply_patch",
  "call t3 lookup",
  "step 300 100",
  "result t2 The files were changed.",
  "changed /somewhere/two.txt",
  "result t3 THREE",
  "step 400 100",
  "compaction All of it.",
  "text-end Last.",
  "step 500 100"
]

const sorted = (told: ReadonlyArray<string>) => told.toSorted()

/** The parts as they came live: steps after the results of their calls, and parts that are nobody's. */
const live = Effect.map(reconciled(lines, []), ({ recovered }) => {
  const parts: Array<Bridge.Part> = []
  let step: Bridge.Part | undefined
  for (const part of recovered) {
    const begins = ["tool-call", "text-start", "compaction", "step-finished"].includes(part.type)
    if (step !== undefined && begins) {
      parts.push(step, { type: "notice", level: "info", message: "Nobody's." })
      step = undefined
    }
    if (part.type === "step-finished") step = part
    else parts.push(part)
  }
  return numbered(step === undefined ? parts : [...parts, step])
})

describe("what Codex's file and the log hold of a turn", () => {
  it.effect("is all recovered where the log has nothing", () =>
    Effect.gen(function*() {
      const outcome = yield* reconciled(lines, [])
      assert.strictEqual(outcome.keep, 0)
      assert.isTrue(outcome.prompted)
      assert.deepStrictEqual(story(outcome.recovered as Array<Bridge.KnownPart>), wholeStory)
    }))

  it.effect("is all kept where both have all", () =>
    Effect.gen(function*() {
      const log = yield* live
      assert.deepStrictEqual(yield* reconciled(lines, log), { keep: log.length, recovered: [], prompted: true })
    }))

  it.effect("fits together wherever the log was cut", () =>
    Effect.gen(function*() {
      const whole = yield* live
      for (let length = 0; length <= whole.length; length++) {
        const log = whole.slice(0, length)
        const outcome = yield* reconciled(lines, log)
        assert.deepStrictEqual(sorted(story(after(log, outcome))), sorted(wholeStory), `cut after ${length}`)
        // What is whole in the log isn't told again.
        assert.isAtLeast(outcome.keep, Math.max(0, length - 2))
      }
    }))

  it.effect("fits together wherever the file was cut, and the log knows more", () =>
    Effect.gen(function*() {
      const log = yield* live
      for (let length = 5; length <= lines.length; length++) {
        const held = lines.slice(0, length)
        const told = story(after(log, yield* reconciled(held, log)))
        assert.strictEqual(new Set(told).size, told.length, "nothing is told twice")
        const text = JSON.stringify(held)
        for (const id of ["t1", "t2", "t3"]) {
          const calls = told.filter((one) => one.startsWith(`call ${id}`))
          const results = told.filter((one) => one.startsWith(`result ${id} `))
          const isCalled = text.includes(`"call_id":"${id}"`)
          const isDone = held.some(({ payload }) => JSON.stringify(payload).includes(`"id":"${id}"`))
          assert.strictEqual(calls.length, isCalled ? 1 : 0, `${id} after ${length}`)
          assert.strictEqual(results.length, isCalled ? 1 : 0, `${id} after ${length}`)
          if (isCalled && !isDone) assert.include(results[0], "unknown")
          if (isDone) assert.notInclude(results[0], "unknown")
        }
        for (const total of [200, 300, 400, 500]) {
          const isHeld = text.includes(`"total_tokens":${total}`)
          assert.strictEqual(told.some((one) => one.startsWith(`step ${total}`)), isHeld)
        }
        // What the model said and was never counted is one more step.
        const uncounted = held.slice(held.findLastIndex(({ type }) => type === "token_usage_record") + 1)
        const said = uncounted.map(({ payload }) => JSON.stringify(payload)).find((item) =>
          /"(?:Reasoning|AgentMessage|function_call)"/.test(item)
        )
        const first = said === undefined ? [] : [`cut ${/"(?:id|call_id)":"([rmt]\d)"/.exec(said)![1]}`]
        assert.deepStrictEqual(told.filter((one) => one.startsWith("cut")), first, `after ${length}`)
      }
    }))

  it.effect("tells each step that was cut once, however often the turn is carried on", () =>
    Effect.gen(function*() {
      const begun = lines.slice(0, 5)
      const again = [prompt("prompt 2"), said("m8", "Again."), called("t8", "exec_command", { cmd: "echo" })]
      const held = [...begun, said("m7", "Cut."), ...again]
      const prompts = ["prompt", "prompt 2", "prompt 3"]
      const carryOn = Effect.fnUntraced(function*(
        held: ReadonlyArray<Schema.JsonObject>,
        log: ReadonlyArray<Bridge.NumberedPart>
      ) {
        const outcome = yield* run(held, log, prompts)
        if ("lost" in outcome) throw new Error(outcome.lost)
        return outcome
      })
      const first = numbered(after([], yield* carryOn(begun.concat(said("m7", "Cut.")), [])))
      const second = numbered(after(first, yield* carryOn(held, first)))
      const whole = [
        "text-end Cut.",
        "cut m7",
        "text-end Again.",
        "call t8 shell",
        "cut m8",
        "result t8 unknown"
      ]
      assert.deepStrictEqual(story(after(second, { keep: second.length, recovered: [], prompted: true })), whole)
      // The third attempt's prompt may have come there or not.
      for (const more of [[], [prompt("prompt 3")]]) {
        assert.deepStrictEqual(yield* carryOn([...held, output("t8"), ...more], second), {
          keep: second.length,
          recovered: [],
          prompted: true
        })
      }
      // A step that is counted after all is no cut one.
      assert.deepStrictEqual(
        story(after([], yield* carryOn([...begun, said("m7", "Cut."), counted(200), ...again, counted(300)], []))),
        ["text-end Cut.", "step 200 100", "text-end Again.", "call t8 shell", "step 300 100", "result t8 unknown"]
      )
    }))

  it.effect("keeps parts of calls that only their ids are known of", () =>
    Effect.gen(function*() {
      const held = [...lines.slice(0, 5), called("t9", "spawn_agent", {}), event({ type: "Novelty", id: "n1" })]
      const log = numbered([
        { type: "tool-call", id: "t9", name: "spawnAgent", params: {}, providerExecuted: true },
        { type: "tool-call", id: "n1", name: "novelty", params: {}, providerExecuted: true }
      ])
      const outcome = yield* reconciled(held, log)
      assert.strictEqual(outcome.keep, 2)
      assert.deepStrictEqual(story(outcome.recovered as Array<Bridge.KnownPart>), ["cut t9"])
    }))

  it.effect("doesn't fit where the file has nothing of a turn that has finished steps", () =>
    Effect.gen(function*() {
      const log = yield* live
      assert.include(yield* run(lines, log, ["another"]), {
        lost: "it holds nothing of turn t, which has 4 finished steps"
      })
      assert.deepStrictEqual(yield* run(lines, [], ["another"]), { keep: 0, recovered: [], prompted: false })
    }))
})
