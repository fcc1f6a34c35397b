/**
 * The long runs: the same as in CI, again and again, with other seeds.
 *
 *   bun test/faults/main.ts [--rounds 10] [--seed 1]
 */
import { BunServices } from "@effect/platform-bun"
import { Effect } from "effect"
import { parseArgs } from "node:util"
import * as Disks from "./disks.ts"

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "10" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) }
  }
})

for (let round = 0; round < Number(values.rounds); round++) {
  for (const kind of Disks.kinds) {
    const seed = Number(values.seed) + round * 1000
    const { died, lost, problem, steps } = await Effect.runPromise(
      Effect.provide(Disks.run(kind, seed), BunServices.layer)
    )
    console.log(`seed ${seed}: ${kind} at each of ${steps} steps: ${died} bridges died, ${lost} parts were lost`)
    if (problem !== undefined) {
      console.log(`failed: ${problem}`)
      process.exit(1)
    }
  }
}
process.exit(0)
