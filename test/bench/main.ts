/**
 * What Gangway costs beside a bare WebSocket.
 *
 *   bun run bench [--json] [--quick] [--rows 1,2]
 *
 * Writes docs/benchmarks.md, unless one of the options is given. See there for what is measured.
 */
import { writeFileSync } from "node:fs"
import { resolve } from "node:path"
import { parseArgs } from "node:util"
import type { Figure } from "./figures.ts"
import { machine, type Report, toMarkdown, toText } from "./report.ts"
import { type Extent, rows } from "./rows.ts"
import { World } from "./World.ts"

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    quick: { type: "boolean", default: false },
    rows: { type: "string" }
  }
})

const whole: Extent = {
  rounds: 5,
  replayed: 400_000,
  burst: 400_000,
  seconds: 3,
  stalled: 60,
  lengths: [100_000, 400_000, 1_000_000]
}

const quick: Extent = {
  rounds: 3,
  replayed: 100_000,
  burst: 100_000,
  seconds: 1,
  stalled: 5,
  lengths: [100_000]
}

const wanted = values.rows?.split(",").map(Number)
const figures: Array<Figure> = []
let world: World | undefined
process.once("SIGINT", () => void world?.close().then(() => process.exit(130)))

for (const row of rows) {
  if (wanted !== undefined && !row.rows.some((number) => wanted.includes(number))) continue
  // Rows start from processes of their own: nothing one has done is in another's memory.
  world = new World()
  try {
    const measured = await row.measure(world, values.quick ? quick : whole)
    if (!values.json) console.log(`${toText(measured)}\n`)
    figures.push(...measured)
  } finally {
    await world.close()
  }
}

const report: Report = { machine: machine(), date: new Date().toISOString().slice(0, 10), figures }
if (values.json) console.log(JSON.stringify(report, undefined, 2))
else if (!values.quick && wanted === undefined) {
  writeFileSync(resolve(import.meta.dirname, "../../docs/benchmarks.md"), toMarkdown(report))
  console.log("written to docs/benchmarks.md")
}
