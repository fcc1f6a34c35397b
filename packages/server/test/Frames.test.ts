import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, Schema } from "effect"
import { RpcSerialization } from "effect/unstable/rpc"
import * as Frames from "../src/internal/frames.ts"
import type { ReadEvent } from "../src/TurnLog.ts"

const { json } = RpcSerialization
const encodeParts = Schema.encodeEffect(json.codecFor(Schema.Array(Bridge.NumberedPart)))
const encodeChunk = Schema.encodeEffect(json.codecFor(Schema.NonEmptyArray(Bridge.ReadTurn.successSchema.success)))
const encodeEnd = Schema.encodeEffect(json.codecFor(Bridge.EndLine))

/** The event that a log makes of a stream's element. */
const toEvent = Effect.fnUntraced(
  function*(element: Bridge.TurnEvent): Effect.fn.Return<ReadEvent, Schema.SchemaError> {
    if ("end" in element) return { _tag: "End", line: JSON.stringify(yield* encodeEnd(element)) }
    const parts = (yield* encodeParts(element.parts)) as ReadonlyArray<unknown>
    const lines = parts.map((part) => JSON.stringify(part)).join(",")
    const { attempt } = element
    return { _tag: "Batch", attempt, first: 1, count: parts.length, lines, bytes: Buffer.byteLength(lines) }
  }
)

describe("Frames", () => {
  it.effect.prop(
    "pastes lines into the bytes that the stock encoder makes of their values",
    {
      requestId: Schema.Union([Schema.String, Schema.Int]),
      events: Schema.NonEmptyArray(Bridge.TurnEvent)
    },
    ({ events, requestId }) =>
      Effect.gen(function*() {
        const stock = json.makeUnsafe().encode({ _tag: "Chunk", requestId, values: yield* encodeChunk(events) })
        const ready = yield* Effect.forEach(events, toEvent)
        const ours = Frames.chunkStart(requestId) + ready.map(Frames.element).join(",") + Frames.chunkEnd
        assert.strictEqual(ours, stock)
        for (const event of ready) {
          assert.strictEqual(Frames.elementBytes(event), Buffer.byteLength(Frames.element(event)))
        }
      }),
    { arbitrary: { runs: 300 } }
  )

  it("writes exits as the stock encoder does", () => {
    const exit = { _tag: "Success", value: { a: ["ü", null] } } as const
    assert.strictEqual(Frames.exit("a\"", exit), json.makeUnsafe().encode({ _tag: "Exit", requestId: "a\"", exit }))
    assert.strictEqual(Frames.pong, json.makeUnsafe().encode({ _tag: "Pong" }))
  })

  it("counts bytes, not characters", () => {
    assert.isFalse(Frames.isLonger("ü".repeat(50), 100))
    assert.isTrue(Frames.isLonger("ü".repeat(50) + "x", 100))
    assert.isFalse(Frames.isLonger("x".repeat(100), 100))
    assert.isTrue(Frames.isLonger("x".repeat(101), 100))
    assert.isTrue(Frames.isLonger("😀".repeat(26), 100))
  })

  it("has no reason that's longer than a close frame can carry", () => {
    for (const { code, reason } of Object.values(Frames.closes)) {
      assert.isAtMost(Frames.byteLength(reason), 123)
      assert.isTrue(code >= 1000 && code < 1015)
    }
  })
})
