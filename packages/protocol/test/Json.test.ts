import { assert, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"

const nested = (depth: number, inner: unknown = 1) => {
  let json = inner
  for (let i = 0; i < depth; i++) json = i % 2 === 0 ? [json, "x"] : { a: json, b: null }
  return json
}

it("JSON is too deep where what an object holds is nested more than 512 times, and what holds itself is, soon", () => {
  assert.isFalse(Bridge.isTooDeep({ json: nested(512), text: "[".repeat(10_000) }))
  assert.isTrue(Bridge.isTooDeep({ json: nested(513) }))
  assert.isTrue(Bridge.isTooDeep({ wide: [1, nested(10), nested(1_000_000)] }))
  for (const flat of [undefined, null, 1, "text", {}, [], Array.from({ length: 100_000 }, () => [])]) {
    assert.isFalse(Bridge.isTooDeep(flat))
  }
  const cyclic: Record<string, unknown> = {}
  cyclic.itself = [cyclic, { again: cyclic }, cyclic]
  assert.isTrue(Bridge.isTooDeep(cyclic))
})
