import { assert, describe, it } from "@effect/vitest"
import * as Fs from "node:fs"
import { machine, type Report, toMarkdown } from "../bench/report.ts"
import { rows } from "../bench/rows.ts"

const root = new URL("../..", import.meta.url).pathname
const path = `${root}docs/benchmarks.md`
const page = Fs.readFileSync(path, "utf8")

/** The cells of the table's rows. */
const table = page.split("\n")
  .filter((line) => /^\| \d+ \|.*\|.*\|.*\|.*\|.*\|.*\|.*\|.*\|$/.test(line))
  .map((line) => line.slice(1, -1).split("|").map((cell) => cell.trim()))

/** The number of a cell, such as `≤ +0.36 ms`, `−0.05 ms` and `1,234 ×`. */
const toNumber = (cell: string) => Number(/[\d.,]+/.exec(cell)![0].replaceAll(",", "")) * (cell.includes("−") ? -1 : 1)

describe("docs/benchmarks.md", () => {
  it("is what the command writes, whatever was measured", () => {
    const [, date, on] = /^Made on (\S+): (.+)\.$/m.exec(page)!
    const without = page.split("\n").filter((line) =>
      !table.some(([row, name]) => line.startsWith(`| ${row} | ${name} |`))
    )
    assert.strictEqual(without.join("\n"), toMarkdown({ date: date!, machine: on!, figures: [] }))
  })

  it("has every row that the command measures, and says of each what its figures say", () => {
    assert.deepStrictEqual([...new Set(table.map(([row]) => Number(row)))], rows.flatMap(({ rows }) => rows))
    for (const [, name, ours, bare, compared, , bound, goal, holds] of table) {
      const value = toNumber(compared!)
      const isWithin = (limit: string) => limit.startsWith("≥") ? value >= toNumber(limit) : value <= toNumber(limit)
      const isAt = (limit: string) => value === toNumber(limit)
      // A comparison that reads as its limit may be on either side of it.
      const said = isAt(goal!) || isAt(bound!) ? holds : isWithin(goal!) ? "yes" : isWithin(bound!) ? "bound" : "no"
      assert.strictEqual(holds, said, name)
      if (compared!.endsWith("×")) {
        assert.approximately(toNumber(ours!) / toNumber(bare!), value, value * 0.15, name)
      }
    }
  })

  it("is left alone by a part of a run, whose report is JSON", () => {
    const { stdout, success } = Bun.spawnSync([
      process.execPath,
      `${root}test/bench/main.ts`,
      "--quick",
      "--rows",
      "1",
      "--json"
    ])
    assert.isTrue(success)
    const { date, figures, machine: on }: Report = JSON.parse(stdout.toString())
    assert.match(date, /^\d{4}-\d\d-\d\d$/)
    assert.include(on, machine().split(",")[0]!)
    assert.strictEqual(figures.length, 1)
    const [{ bare, compared, ours, range, row }] = figures as [Report["figures"][0]]
    assert.strictEqual(row, 1)
    assert.approximately(compared, ours / bare!, 1e-9)
    assert.isAtMost(range[0], range[1])
    assert.strictEqual(Fs.readFileSync(path, "utf8"), page)
  })
})
