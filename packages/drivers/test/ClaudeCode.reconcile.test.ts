import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import type { Reconciled } from "@gangway/server/Driver"
import { Effect, FileSystem, Layer, Stream } from "effect"
import { reconcile } from "../src/internal/claudeReconcile.ts"
import * as Transcript from "../src/internal/claudeTranscript.ts"

// A transcript as the CLI writes it, in what counts: two steps with tools, one with two calls, one that ends.
const line = (json: object) => `${JSON.stringify({ sessionId: "c1", cwd: "/somewhere", ...json })}\n`
const user = (uuid: string, content: unknown, toolUseResult?: unknown) =>
  line({
    type: "user",
    uuid,
    message: { role: "user", content },
    ...(toolUseResult === undefined ? {} : { toolUseResult })
  })
const answer = (id: string, index: number, block: object, stop_reason: string | null = "tool_use") =>
  line({
    type: "assistant",
    uuid: `${id}-${index}`,
    apiBlockIndex: index,
    message: {
      id,
      model: "m",
      content: [block],
      stop_reason,
      usage: { input_tokens: 10, output_tokens: 5, cache_read_input_tokens: 1, cache_creation_input_tokens: 2 }
    }
  })
const call = (id: string, command: string) => ({ type: "tool_use", id, name: "Bash", input: { command } })
const result = (id: string, content: string) => [{ type: "tool_result", tool_use_id: id, content, is_error: false }]

const transcript = [
  line({ type: "queue-operation", operation: "enqueue" }),
  user("earlier", "An earlier prompt."),
  answer("m0", 0, { type: "text", text: "An earlier answer." }, "end_turn"),
  user("prompt", "The prompt 🦆."),
  line({ type: "attachment", uuid: "a1", attachment: { type: "date" } }),
  answer("m1", 0, { type: "thinking", thinking: "Hm 🦆." }),
  answer("m1", 1, { type: "text", text: "First 🚢." }),
  answer("m1", 2, call("t1", "one")),
  user("r1", result("t1", "ONE")),
  answer("m2", 0, call("t2", "two")),
  answer("m2", 1, { ...call("t3", "three"), name: "TodoWrite" }),
  user("r2", result("t2", "TWO"), { filePath: "/somewhere/two.txt", structuredPatch: [], type: "update" }),
  user("r3", result("t3", "THREE"), { newTodos: [{ content: "Rest", status: "pending" }] }),
  line({
    type: "system",
    subtype: "compact_boundary",
    uuid: "compacted",
    compactMetadata: { trigger: "auto", preTokens: 100, postTokens: 10 }
  }),
  user("summary", "It is continued.\nSummary:\nAll of it.\n\nIf you need specific details, look."),
  answer("m3", 0, { type: "text", text: "Last." }, "end_turn")
]

const numbered = (parts: ReadonlyArray<Bridge.Part>) => parts.map((part, index) => ({ n: index + 1, part }))

const run = (text: string, log: ReadonlyArray<Bridge.NumberedPart>, prompts: ReadonlyArray<string> = ["prompt"]) =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const file = yield* fs.makeTempFileScoped()
    yield* fs.writeFileString(file, text)
    return yield* reconcile({
      transcript: yield* Transcript.read(file),
      prompts: new Set(prompts),
      previous: { turn: "t" as Bridge.TurnId, attempt: 2, messages: [], parts: Stream.fromIterable(log) }
    })
  }).pipe(Effect.scoped)

const reconciled = (text: string, log: ReadonlyArray<Bridge.NumberedPart>) =>
  Effect.map(run(text, log), (outcome): Reconciled => {
    if ("lost" in outcome) throw new Error(outcome.lost)
    return outcome
  })

/** What the log says after the continuation. */
const after = (log: ReadonlyArray<Bridge.NumberedPart>, { keep, recovered }: Reconciled) =>
  [...log.filter(({ n }) => n <= keep).map(({ part }) => part), ...recovered] as Array<Bridge.KnownPart>

/** What a reader makes of parts, in order, without the agent's pieces. */
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
        return [`call ${part.id}`]
      case "tool-result":
        return [`result ${part.id} ${part.isFailure ? "unknown" : part.result}`]
      case "file-change":
        return [`changed ${part.path}`]
      case "step-finished":
        return [`step ${String(part.metadata?.["message"])}`]
      case "plan":
        return [`plan ${part.entries[0]!.content}`]
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
  "call t1",
  "step m1",
  "result t1 ONE",
  "call t2",
  "call t3",
  "step m2",
  "result t2 TWO",
  "changed /somewhere/two.txt",
  "result t3 THREE",
  "plan Rest",
  "compaction All of it.",
  "text-end Last.",
  "step m3"
]

/** The parts as they came live: with pieces, and with parts that are nobody's. */
const live = Effect.map(
  reconciled(transcript.join(""), []),
  ({ recovered }) =>
    numbered(recovered.flatMap((part): Array<Bridge.Part> => {
      switch (part.type) {
        case "tool-call":
          return [
            { type: "tool-params-start", id: String(part["id"]), name: "Bash" },
            { type: "tool-params-delta", id: String(part["id"]), delta: "{}" },
            { type: "tool-params-end", id: String(part["id"]) },
            part,
            { type: "notice", level: "info", message: "Nobody's." }
          ]
        case "reasoning-start":
        case "text-start":
          return [{ type: "response-metadata", id: String(part["id"]).split(":")[0]! }, part]
        default:
          return [part]
      }
    }))
)

const isJson = (line: string): boolean => {
  try {
    return JSON.parse(line) !== undefined
  } catch {
    return false
  }
}

describe("what Claude Code's transcript and the log hold of a turn", () => {
  it.layer(Layer.mergeAll(BunServices.layer))((it) => {
    it.effect("is all recovered where the log has nothing", () =>
      Effect.gen(function*() {
        const outcome = yield* reconciled(transcript.join(""), [])
        assert.strictEqual(outcome.keep, 0)
        assert.isTrue(outcome.prompted)
        assert.deepStrictEqual(story(outcome.recovered as Array<Bridge.KnownPart>), wholeStory)
      }))

    it.effect("is all kept where both have all", () =>
      Effect.gen(function*() {
        const log = yield* live
        assert.deepStrictEqual(yield* reconciled(transcript.join(""), log), {
          keep: log.length,
          recovered: [],
          prompted: true
        })
      }))

    it.effect("fits together wherever the log was cut", () =>
      Effect.gen(function*() {
        const whole = yield* live
        for (let length = 0; length <= whole.length; length++) {
          const log = whole.slice(0, length)
          const outcome = yield* reconciled(transcript.join(""), log)
          assert.deepStrictEqual(story(after(log, outcome)), wholeStory, `cut after ${length}`)
          // What is whole in the log isn't told again.
          assert.isAtLeast(outcome.keep, Math.max(0, length - 6))
        }
      }), 60_000)

    it.effect("fits together wherever the transcript was torn, and the log knows more", () =>
      Effect.gen(function*() {
        const log = yield* live
        const bytes = new TextEncoder().encode(transcript.join(""))
        const begins = new TextEncoder().encode(transcript.slice(0, 4).join("")).length
        const offsets = Array.from({ length: bytes.length - begins + 1 }, (_, at) => begins + at)
          .filter((at) => at % 7 === 0 || bytes[at - 1] === 0x0a || bytes[at] === 0x0a)
        for (const at of offsets) {
          const torn = new TextDecoder().decode(bytes.subarray(0, at))
          const outcome = yield* reconciled(torn, log)
          const told = story(after(log, outcome))
          // A last line may be whole without its newline.
          const held = torn.split("\n").filter((line) => line.endsWith("}") && isJson(line)).join("\n")
          // Everything that the conversation holds is told once, in its order; of calls that it holds open, that.
          const known = told.filter((one) => !one.endsWith("unknown"))
          assert.deepStrictEqual(known, wholeStory.filter((one) => known.includes(one)), `torn at ${at}`)
          for (const id of ["t1", "t2", "t3"]) {
            const called = held.includes(`"type":"tool_use","id":"${id}"`)
            const answered = held.includes(`"tool_use_id":"${id}"`)
            assert.strictEqual(told.includes(`call ${id}`), called, `${id}, torn at ${at}`)
            const results = told.filter((one) => one.startsWith(`result ${id} `))
            assert.strictEqual(results.length, called ? 1 : 0, `${id}, torn at ${at}`)
            if (called) assert.strictEqual(results[0]!.endsWith("unknown"), !answered, `${id}, torn at ${at}`)
          }
        }
      }), 60_000)

    it.effect("doesn't keep a step of which the conversation has only some blocks", () =>
      Effect.gen(function*() {
        const log = yield* live
        const outcome = yield* reconciled(transcript.slice(0, 10).join(""), log)
        assert.deepStrictEqual(story(after(log, outcome)).slice(5), ["call t2", "step m2", "result t2 unknown"])
      }))

    it.effect("marks a step that was interrupted as not measured", () =>
      Effect.gen(function*() {
        const text = [...transcript.slice(0, 4), answer("m1", 0, { type: "text", text: "Cut sh" }, null)].join("")
        const { recovered } = yield* reconciled(text, [])
        const [step] = recovered.filter(({ type }) => type === "step-finished")
        assert.deepInclude(step, { finishReason: "aborted" })
        assert.isFalse((step as typeof Bridge.StepFinished.Type).usage.measured)
      }))

    it.effect("is nothing where the prompt never reached the conversation", () =>
      Effect.gen(function*() {
        const nothing = { keep: 0, recovered: [], prompted: false }
        assert.deepStrictEqual(yield* run(transcript.slice(0, 3).join(""), []), nothing)
        assert.deepStrictEqual(yield* run("", []), nothing)
        const begun = numbered([{ type: "response-metadata", id: "m9" }, { type: "text-start", id: "m9:0" }])
        assert.deepStrictEqual(yield* run(transcript.slice(0, 3).join(""), begun), nothing)
      }))

    it.effect("is lost where the log has finished steps of which the conversation knows nothing", () =>
      Effect.gen(function*() {
        const log = yield* live
        assert.property(yield* run(transcript.slice(0, 3).join(""), log), "lost")
        assert.property(yield* run(transcript.join(""), log, ["another prompt"]), "lost")
      }))

    it.effect("lets parts of sub-agents count where they stand", () =>
      Effect.gen(function*() {
        const log = numbered((yield* live).flatMap(({ part }): Array<Bridge.Part> =>
          part.type === "tool-result"
            ? [{ type: "text-start", id: `sub-${String(part["id"])}`, parent: "t1" }, part]
            : [part]
        ))
        assert.deepStrictEqual(yield* reconciled(transcript.join(""), log), {
          keep: log.length,
          recovered: [],
          prompted: true
        })
      }))
  })
})
