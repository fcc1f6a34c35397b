import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, Schema } from "effect"

describe("Part", () => {
  it.effect("keeps a part of an unknown type as JSON", () =>
    Effect.gen(function*() {
      const line = { n: 7, part: { type: "hologram", depth: 3, of: ["a", null] } }
      const decoded = yield* Schema.decodeEffect(Bridge.NumberedPart)(line)
      assert.deepStrictEqual(decoded, line as never)
      assert.isFalse(Bridge.isKnown(decoded.part))
      assert.deepStrictEqual(yield* Schema.encodeEffect(Bridge.NumberedPart)(decoded), line as never)
    }))

  it.effect("is told by its type, though others may be unknown", () =>
    Effect.gen(function*() {
      const part = yield* Schema.decodeEffect(Bridge.Part)({ type: "text-delta", id: "1", delta: "abc" })
      // Compiles only if the type tells that there is a delta, and that it's text.
      assert.strictEqual(part.type === "text-delta" ? part.delta.length : 0, 3)
      // Only a type that there is can be asked for.
      // @ts-expect-error
      assert.isFalse(part.type === "text-dleta")
    }))

  it.effect("of a driver is none by which a turn is continued, asked or answered, or a part cut", () =>
    Effect.gen(function*() {
      const ofBridge: ReadonlyArray<Schema.Json> = [
        { type: "turn-continued", attempt: 2, keep: 0 },
        { type: "part-fragment", of: 1, index: 0, last: true, text: "{}" },
        { type: "tool-approval-request", approvalId: "a", toolCallId: "b", name: "Bash", params: {} },
        { type: "tool-approval-response", approvalId: "a", decision: "allow", by: "host" },
        { type: "question", questionId: "q", questions: [] },
        { type: "question-answer", questionId: "q", answer: {}, isFailure: false, by: "host" }
      ]
      for (const part of ofBridge) {
        assert.isTrue(Bridge.isKnown(yield* Schema.decodeUnknownEffect(Bridge.Part)(part)))
        assert.strictEqual((yield* Effect.result(Schema.decodeUnknownEffect(Bridge.AgentPart)(part)))._tag, "Failure")
      }
      const call: Bridge.AgentPart = { type: "tool-call", id: "c", name: "f", params: {} }
      assert.isTrue(Schema.is(Bridge.AgentPart)(call))
      // @ts-expect-error
      const continued: Bridge.AgentPart = { type: "turn-continued", attempt: 2, keep: 0 }
      assert.isFalse(Schema.is(Bridge.AgentPart)(continued))
    }))

  it.effect("refuses a known type with a field that doesn't fit", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(
        Schema.decodeEffect(Bridge.Part)({ type: "text-delta", id: "1", delta: 4 })
      )
      assert.include(error.message, "delta")
    }))
})
