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

  it.effect("refuses a known type with a field that doesn't fit", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(
        Schema.decodeEffect(Bridge.Part)({ type: "text-delta", id: "1", delta: 4 })
      )
      assert.include(error.message, "delta")
    }))
})
