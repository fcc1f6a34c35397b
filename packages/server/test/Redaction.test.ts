import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import * as Redaction from "@gangway/server/Redaction"
import { Redacted, Schema } from "effect"

const make = (secrets: Record<string, string>) =>
  Redaction.make(Object.entries(secrets).map(([name, value]) => [name, Redacted.make(value)] as const))

const delta = (text: string, id = "1"): Bridge.KnownPart => ({ type: "text-delta", id, delta: text })

/** Applies the deltas one by one; what's put together of them, and how much of it came before the end. */
const stream = (redaction: Redaction.Redaction, deltas: ReadonlyArray<string>) => {
  const parts = [
    ...deltas.flatMap((text) => redaction.apply(delta(text))),
    ...redaction.apply({ type: "text-end", id: "1" })
  ]
  return parts.map((part) => part.type === "text-delta" ? part.delta : "").join("")
}

// Few letters, so that secrets overlap, begin alike and nearly occur.
const letters = Schema.Literals(["a", "b", "aa", "ab", "aaaa", "bbbb", "\"", "😀", "\ud83d", "\ude00"])
const text = (min: number, max: number) => Schema.Array(letters).check(Schema.isMinLength(min), Schema.isMaxLength(max))

/** Leftmost, then longest: the plainest way to say it. */
const redactPlainly = (secrets: Record<string, string>, text: string): string => {
  const forms = Object.entries(secrets)
    .flatMap(([name, value]) => [[name, value], [name, JSON.stringify(value).slice(1, -1)]] as const)
    .filter(([, value]) => value.length >= Redaction.minSecretLength)
    .toSorted(([, a], [, b]) => b.length - a.length)
  let redacted = ""
  let i = 0
  while (i < text.length) {
    const found = forms.find(([, value]) => text.startsWith(value, i))
    redacted += found === undefined ? text[i] : `[redacted:${found[0]}]`
    i += found === undefined ? 1 : found[1].length
  }
  return redacted
}

const plainLetters = Schema.Literals(["a", "b", "aa", "\"", "😀"])
const plain = (min: number, max: number) =>
  Schema.Array(plainLetters).check(Schema.isMinLength(min), Schema.isMaxLength(max))

describe("Redaction", () => {
  it.prop(
    "knows its texts again by what it made of them",
    { whole: plain(0, 30), secrets: Schema.Array(plain(1, 4)).check(Schema.isMaxLength(3)), other: plain(0, 30) },
    ({ other, secrets, whole }) => {
      const redaction = make(Object.fromEntries(secrets.map((secret, i) => [`S${i}`, secret.join("").repeat(4)])))
      const made = redaction.text(whole.join(""))
      assert.isTrue(Redaction.mayComeFrom(made, whole.join("")))
      if (made === whole.join("")) {
        assert.strictEqual(Redaction.mayComeFrom(made, other.join("")), made === other.join(""))
      }
    }
  )

  it("knows JSON again by what it made of it, and nothing else", () => {
    const made = { a: ["[redacted:KEY], and [redacted:KEY].", 1], b: null, c: { d: true } }
    assert.isTrue(Redaction.mayComeFrom(made, { c: { d: true }, a: ["x, and , and .", 1], b: null }))
    for (
      const other of [
        { ...made, a: ["x, and y", 1] },
        { ...made, a: ["x and y.", 1] },
        { ...made, a: ["x, and y.", 2] },
        { ...made, a: ["x, and y."] },
        { ...made, b: {} },
        { ...made, c: { e: true } },
        { ...made, c: [true] },
        { a: made.a, b: null },
        { ...made, more: null }
      ]
    ) assert.isFalse(Redaction.mayComeFrom(made, other), JSON.stringify(other))
    // Both ends are there once.
    assert.isFalse(Redaction.mayComeFrom("ab[redacted:KEY]ba", "aba"))
  })

  it.prop(
    "makes of deltas, however they are split, what it makes of the whole text",
    {
      values: Schema.Array(text(3, 14)).check(Schema.isMinLength(1), Schema.isMaxLength(3)),
      before: text(0, 20),
      after: text(0, 20),
      which: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 })),
      cuts: Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 80 }))).check(Schema.isMaxLength(12))
    },
    ({ after, before, cuts, values, which }) => {
      // A secret is a well-formed string, as JSON and an environment can hold it.
      const secrets = Object.fromEntries(values.map((value, i) => [`S${i}`, value.join("").toWellFormed()]))
      const whole = [...before, secrets[`S${which % values.length}`], ...after].join("")
      const expected = redactPlainly(secrets, whole)
      const redaction = make(secrets)
      assert.strictEqual(redaction.text(whole), expected)
      const ends = [...cuts.filter((cut) => cut <= whole.length), whole.length].toSorted((a, b) => a - b)
      const deltas = ends.map((end, i) => whole.slice(ends[i - 1] ?? 0, end))
      assert.strictEqual(stream(redaction, deltas), expected)
      assert.strictEqual(stream(redaction, whole.split("")), expected)
      assert.deepStrictEqual(redaction.flush(), [])
    },
    { arbitrary: { runs: 3000 } }
  )

  it("holds back no more than what may be the beginning of a secret", () => {
    const redaction = make({ KEY: "sk-12345678" })
    assert.deepStrictEqual(redaction.apply(delta("the key is sk-1234")), [delta("the key is ")])
    assert.deepStrictEqual(redaction.apply(delta("5678, or sk-1")), [delta("[redacted:KEY], or ")])
    assert.deepStrictEqual(redaction.apply(delta("999")), [delta("sk-1999")])
    assert.deepStrictEqual(redaction.apply(delta("sk-12345678")), [delta("[redacted:KEY]")])
    const plain = delta("nothing")
    assert.strictEqual(redaction.apply(plain)[0], plain)
    assert.deepStrictEqual(redaction.apply(delta("sk-")), [])
    assert.deepStrictEqual(redaction.flush(), [delta("sk-")])
    assert.deepStrictEqual(redaction.flush(), [])
  })

  it("keeps the deltas of each id and kind apart, and gives what it held before any other part of the id", () => {
    const redaction = make({ KEY: "sk-12345678" })
    const params = (text: string): Bridge.KnownPart => ({ type: "tool-params-delta", id: "2", delta: text })
    assert.deepStrictEqual(redaction.apply(delta("sk-1")), [])
    assert.deepStrictEqual(redaction.apply(params("sk-12")), [])
    assert.deepStrictEqual(redaction.apply(delta("2345678")), [delta("[redacted:KEY]")])
    const call: Bridge.KnownPart = { type: "tool-call", id: "2", name: "f", params: {} }
    assert.deepStrictEqual(redaction.apply({ ...call, id: "3" }), [{ ...call, id: "3" }])
    assert.deepStrictEqual(redaction.apply(call), [params("sk-12"), call])
    const reasoning: Bridge.KnownPart = { type: "reasoning-delta", id: "1", delta: "345678" }
    assert.deepStrictEqual(redaction.apply(delta("sk-12")), [])
    assert.deepStrictEqual(redaction.apply(reasoning), [delta("sk-12"), reasoning])
  })

  it("keeps the parent of what it held", () => {
    const redaction = make({ KEY: "sk-12345678" })
    const part: Bridge.KnownPart = { type: "text-delta", id: "1", delta: "sk-", parent: "call" }
    redaction.apply(part)
    assert.deepStrictEqual(redaction.apply({ type: "text-end", id: "1" }), [part, { type: "text-end", id: "1" }])
  })

  it("replaces secrets in every string of a part, keys and escaped forms too", () => {
    const redaction = make({ KEY: "sk-12345678", PEM: "-----\nabc\"def\n-----", LONG: "sk-12345678-and-more" })
    const part: Bridge.KnownPart = {
      type: "tool-result",
      id: "1",
      name: "f",
      isFailure: false,
      result: {
        "sk-12345678": ["a sk-12345678 b", { text: "sk-12345678-and-more" }],
        pem: "-----\nabc\"def\n-----",
        n: 1
      }
    }
    assert.deepStrictEqual(redaction.apply(part), [{
      ...part,
      result: {
        "[redacted:KEY]": ["a [redacted:KEY] b", { text: "[redacted:LONG]" }],
        pem: "[redacted:PEM]",
        n: 1
      }
    }])
    const params: Bridge.KnownPart = { type: "tool-params-delta", id: "2", delta: `{"k":"-----\\nabc\\"def\\n-----"}` }
    assert.deepStrictEqual(redaction.apply(params), [{ ...params, delta: `{"k":"[redacted:PEM]"}` }])
    const plain: Bridge.KnownPart = { type: "tool-call", id: "1", name: "f", params: { a: [1, "x", null] } }
    assert.strictEqual(redaction.apply(plain)[0], plain)
  })

  it("leaves values alone that are too short to be secrets", () => {
    const redaction = make({ DEBUG: "true", PORT: "8080", EMPTY: "" })
    assert.strictEqual(redaction.text("true, on 8080"), "true, on 8080")
    assert.deepStrictEqual(redaction.apply(delta("it is t")), [delta("it is t")])
  })

  it("holds a high surrogate for its other half", () => {
    const redaction = make({})
    const [high, low] = "😀".split("")
    assert.deepStrictEqual(redaction.apply(delta(`a${high}`)), [delta("a")])
    assert.deepStrictEqual(redaction.apply(delta(`${low}b`)), [delta("😀b")])
    assert.deepStrictEqual(redaction.apply(delta(high!)), [])
    assert.deepStrictEqual(redaction.apply({ type: "text-end", id: "1" }), [delta(high!), {
      type: "text-end",
      id: "1"
    }])
  })
})
