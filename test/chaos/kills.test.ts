import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as ClientDriver from "./ClientDriver.ts"
import * as Kills from "./kills.ts"
import { report } from "./report.ts"

const options = { rounds: 200, seed: 20_261 }

describe("a bridge that's killed in the middle of a turn", () => {
  it.live("loses nothing that was read, and nothing that its agent finished, 200 times", () =>
    Effect.gen(function*() {
      const counts = yield* Kills.run(options)
      console.log(report(options, counts))
      assert.deepStrictEqual(counts.problems, [])
      assert.isAtLeast(counts.kills, options.rounds)
      for (const kind of Kills.kinds) assert.isAtLeast(counts.byKind.get(kind) ?? 0, options.rounds / 10, kind)
    }).pipe(Effect.provide(ClientDriver.layer)), 600_000)
})
