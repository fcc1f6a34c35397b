import { BunServices } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Disks from "./disks.ts"

// Seconds of a quiet machine.
const timeout = 300_000

const seed = 20_261

const cases = Disks.kinds.map((kind) => ({ kind }))

describe("a session on a disk", () => {
  it.live.each(cases)(
    "keeps what its hosts were told, whichever of its bridge's steps there is the one at which $kind",
    ({ kind }) =>
      Effect.gen(function*() {
        const counts = yield* Disks.run(kind, seed)
        assert.isUndefined(counts.problem)
        assert.isAtLeast(counts.steps, 120)
        assert.strictEqual(counts.died, kind === "the disk fails" ? 0 : counts.steps)
        // Only what wasn't synced is ever lost, and only with the power.
        if (kind !== "the power fails") assert.strictEqual(counts.lost, 0)
        else assert.isAbove(counts.lost, 0)
      }).pipe(Effect.provide(BunServices.layer)),
    timeout
  )
})
