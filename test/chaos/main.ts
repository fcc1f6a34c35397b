/**
 * Kills bridges in the middle of turns.
 *
 *   bun run test:chaos [--rounds 200] [--seed 1]
 */
import { Effect } from "effect"
import { parseArgs } from "node:util"
import * as ClientDriver from "./ClientDriver.ts"
import * as Kills from "./kills.ts"
import { report } from "./report.ts"

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "200" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) }
  }
})
const options = { rounds: Number(values.rounds), seed: Number(values.seed) }
const counts = await Effect.runPromise(Effect.provide(Kills.run(options), ClientDriver.layer))
console.log(report(options, counts))
process.exit(counts.problems.length === 0 ? 0 : 1)
