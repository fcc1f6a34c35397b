/**
 * The long runs: the same as in CI, again and again, with other seeds.
 *
 *   bun test/faults/main.ts [--rounds 10] [--seed 1]
 */
import { BunServices } from "@effect/platform-bun"
import { Effect } from "effect"
import { parseArgs } from "node:util"
import * as Disks from "./disks.ts"
import * as Networks from "./networks.ts"

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
  const seed = Number(values.seed) + round * 1000
  console.log(`seed ${seed}: five hosts read 300,000 parts over networks that cut`)
  const { connections } = await Effect.runPromise(
    Effect.provide(Networks.run({ seed, hosts: 5, parts: 300_000 }), Networks.layer)
  )
  console.log(`connections of each: ${connections.join(", ")}`)
}
process.exit(0)
