import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, Schema, Stream } from "effect"

const delta = (n: number, text: string): Bridge.NumberedPart => ({
  n,
  part: { type: "text-delta", id: "1", delta: text }
})

const split = ({ n, part }: Bridge.NumberedPart, lineBytes?: number): Array<Bridge.NumberedPart> =>
  Bridge.splitPart(JSON.stringify(part), n, lineBytes).map((fragment, i) => ({ n: n + i, part: fragment }))

const join = (parts: ReadonlyArray<Bridge.NumberedPart>, chunk = 3) =>
  Stream.runCollect(Bridge.joinFragments(Stream.rechunk(Stream.fromIterable(parts), chunk)))

describe("Fragment", () => {
  it.effect.prop(
    "puts together what was cut, in lines that are short enough, at whole code points",
    {
      texts: Schema.Array(Schema.Array(Schema.Literals(["😀", "ä", "\"", "\\", "\u0000", "x", "\u2028"])))
        .check(Schema.isMaxLength(4)),
      times: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 60 })),
      lineBytes: Schema.Int.check(Schema.isBetween({ minimum: 262, maximum: 600 })),
      chunk: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10 }))
    },
    ({ chunk, lineBytes, texts, times }) =>
      Effect.gen(function*() {
        const whole: Array<Bridge.NumberedPart> = []
        const cut: Array<Bridge.NumberedPart> = []
        for (const text of texts) {
          whole.push(delta(cut.length + 1, text.join("").repeat(times)))
          cut.push(...split(whole.at(-1)!, lineBytes))
          whole.push(delta(cut.length + 1, "short"))
          cut.push(whole.at(-1)!)
        }
        for (const line of cut) {
          const json = JSON.stringify(line)
          assert.isAtMost(Buffer.byteLength(json), lineBytes)
          assert.notMatch(json, /\\ud/)
          yield* Schema.decodeEffect(Bridge.NumberedPart)(line)
        }
        assert.deepStrictEqual(yield* join(cut, chunk), whole)
      }),
    { arbitrary: { runs: 200 } }
  )

  it.effect("leaves out runs without their beginning or their last piece", () =>
    Effect.gen(function*() {
      const long = (n: number) => split(delta(n, "x".repeat(400)), 300)
      const first = long(1)
      const n = first.length + 1
      assert.isAbove(first.length, 3)
      // Cut by another part, by the next attempt, by another run.
      assert.deepStrictEqual(yield* join([...first.slice(0, -1), delta(n - 1, "next")]), [delta(n - 1, "next")])
      const other = long(3)
      assert.deepStrictEqual(yield* join([...first.slice(0, 2), ...other]), [delta(3, "x".repeat(400))])
      assert.deepStrictEqual(yield* join([...first.slice(1), delta(n, "next")]), [delta(n, "next")])
      assert.deepStrictEqual(yield* join(first.slice(0, -1)), [])
    }))

  it("tells a reader that starts in the middle where to read again from", () => {
    const fragments = split(delta(7, "x".repeat(400)), 300)
    const joiner = Bridge.makeFragmentJoiner()
    const add = ({ n, part }: Bridge.NumberedPart) => Bridge.isFragment(part) ? joiner.add(n, part) : undefined
    assert.deepStrictEqual(add(fragments[2]!), { _tag: "Misplaced", of: 7 })
    const joined = fragments.map(add)
    assert.deepStrictEqual(joined.slice(0, -1), fragments.slice(1).map(() => ({ _tag: "Pending" })))
    assert.deepStrictEqual(joined.at(-1), { _tag: "Whole", n: 7, json: JSON.stringify(delta(7, "x".repeat(400)).part) })
    // A piece that doesn't follow makes its run void.
    assert.deepStrictEqual([fragments[0]!, fragments[2]!, fragments[1]!].map(add), [
      { _tag: "Pending" },
      { _tag: "Misplaced", of: 7 },
      { _tag: "Misplaced", of: 7 }
    ])
  })
})
