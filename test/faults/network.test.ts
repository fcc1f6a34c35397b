import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Networks from "./networks.ts"

describe("a turn of 100,000 parts", () => {
  it.live(
    "is read once by each of three hosts, whose networks cut, refuse and split what passes",
    () =>
      Effect.gen(function*() {
        const counts = yield* Networks.run({ seed: 20_261, hosts: 3, parts: 100_000 })
        assert.strictEqual(counts.end, "finished")
        assert.isAtLeast(counts.parts, 100_000)
        for (const connections of counts.connections) assert.isAtLeast(connections, 10)
      }).pipe(Effect.provide(Networks.layer)),
    240_000
  )
})
