import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as Token from "../src/internal/token.ts"

const ascii = Schema.String.check(Schema.isPattern(/^[\x21-\x7e]*$/))

describe("Token", () => {
  it.effect.prop(
    "accepts a digest that is one of the accepted, and none that differs in a single bit or in length",
    { token: ascii, others: Schema.Array(ascii), bit: Schema.Int },
    ({ bit, others, token }) =>
      Effect.gen(function*() {
        const digest = yield* Token.digest(token)
        const accepted = yield* Effect.forEach(others.filter((other) => other !== token), Token.digest)
        assert.strictEqual(digest.length, 32)
        assert.isFalse(Token.isAccepted(digest, accepted))
        assert.isTrue(Token.isAccepted(digest, [...accepted, digest]))
        assert.isTrue(Token.isAccepted(digest, [digest, ...accepted]))
        const near = digest.slice()
        const at = Math.abs(bit) % 256
        near[at >> 3]! ^= 1 << (at & 7)
        assert.isFalse(Token.isAccepted(near, [digest]))
        assert.isFalse(Token.isAccepted(digest.slice(0, 31), [digest]))
        assert.isFalse(Token.isAccepted(digest, [digest.slice(0, 31)]))
        assert.isFalse(Token.isAccepted(digest, [new Uint8Array(0)]))
      })
  )
})
