/**
 * The report of a run, for people.
 */
import { readFileSync } from "node:fs"
import { cpus } from "node:os"
import type { Figure } from "./figures.ts"

/** A whole run. */
export interface Report {
  readonly machine: string
  readonly date: string
  readonly figures: ReadonlyArray<Figure>
}

/** The machine in general words, and how the run was scheduled on it. */
export const machine = (): string => {
  const words = `${cpus().length} cores, ${process.platform} ${process.arch}, Bun ${Bun.version}`
  return isAhead() ? `${words}, ahead of the machine's other work` : words
}

// Whether the system's policy for this process is one of the two of real time.
const isAhead = (): boolean => {
  if (process.platform !== "linux") return false
  const [, fields = ""] = readFileSync("/proc/self/stat", "utf8").split(") ")
  return ["1", "2"].includes(fields.split(" ")[38]!)
}

const digits = (value: number): string => {
  const size = Math.abs(value)
  const text = size.toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : 2 })
  return value < 0 ? `−${text}` : text
}

const measured = ({ unit }: Figure, value: number | undefined) => value === undefined ? "" : `${digits(value)} ${unit}`

const compared = ({ comparison, unit }: Figure, value: number): string => {
  switch (comparison) {
    case "ratio":
      return `${digits(value)} ×`
    case "added":
      return `${value < 0 ? "" : "+"}${digits(value)} ${unit}`
    case "itself":
      return digits(value)
  }
}

const limit = (figure: Figure, value: number): string =>
  `${figure.greater === true ? "≥" : "≤"} ${compared(figure, value)}`

const heads = ["#", "figure", "ours", "bare", "compared", "rounds", "bound", "goal", "holds"]

const cells = (figure: Figure): ReadonlyArray<string> => {
  const [lowest, highest] = figure.range
  return [
    String(figure.row),
    figure.name,
    measured(figure, figure.ours),
    measured(figure, figure.bare),
    compared(figure, figure.compared),
    lowest === highest ? "" : `${digits(lowest)} to ${digits(highest)}`,
    limit(figure, figure.bound),
    limit(figure, figure.goal),
    figure.reached ? "yes" : figure.holds ? "bound" : "no"
  ]
}

/** The table for a terminal. */
export const toText = (figures: ReadonlyArray<Figure>): string => {
  const table = [heads, ...figures.map(cells)]
  const widths = heads.map((_, i) => Math.max(...table.map((row) => row[i]!.length)))
  return table.map((row) => row.map((cell, i) => cell.padEnd(widths[i]!)).join("  ").trimEnd()).join("\n")
}

const table = (figures: ReadonlyArray<Figure>): string =>
  [heads, heads.map(() => "---"), ...figures.map(cells)].map((row) => `| ${row.join(" | ")} |`).join("\n")

/** The document. */
export const toMarkdown = ({ date, figures, machine }: Report): string =>
  `# Benchmarks

What Gangway costs beside a bare WebSocket. This page is written by \`bun run bench\`; \`--json\` prints the same as JSON,
\`--quick\` takes about a minute and says less, \`--rows 1,2\` measures some rows; these write nothing.

Made on ${date}: ${machine}.

Absolute figures move with the machine; how ours compares with the bare one moves less, because the two are measured
one after the other, round by round. On a machine that does other work at the time, the slowest percent says more of
that work than of either: \`chrt -r 1 bun run bench\` has Linux run the benchmark first.

${table(figures)}

*ours* and *bare* are medians over the rounds, *compared* holds them against each other, and *rounds* is the lowest and
the highest that a single round gave. *bound* is what must hold now, *goal* what is to be reached; *holds* says \`yes\`
where the goal is reached, \`bound\` where only the bound holds, and \`no\` where neither does.

## How it's measured

- **Bare** is Bun's WebSocket server and client in two processes, with \`JSON.stringify\`, \`JSON.parse\` and nothing
  else: no log, no resuming, no bound on what a slow client costs. The client parses each message and checks each part's
  number.
- **Ours** is a bridge and a host in two processes: \`BridgeServer.serve\` with the bridge program's files, locks and
  process table, and \`Turn.parts\` of \`@gangway/client\`, whose chunks' numbers are checked once more. The driver is
  one in the bridge's own process: the scripted agent speaks through a pipe, which is slower than what is measured.
- A part is 120 bytes as a line; its text differs from part to part. A part carries the time of its emission, so a
  latency is that from the driver's \`emit\`, or from before the bare server's \`JSON.stringify\`, to where the host has
  the part.
- Each comparison begins with rounds that don't count. Rounds alternate in which of the two goes first.

| row | what it is |
| --- | --- |
| 1 | Reading a turn that has ended, from the file, against messages of 256 parts that were encoded before. |
| 2 | A turn whose driver emits in a loop, from the first part's emission to the last one's arrival, against one message a part. |
| 3, 4 | Latency at a rate: each part is in the file before it's sent. Against one message a part. |
| 5 | The same through a proxy in a third process that hands each byte on 25 ms later, in each direction. |
| 7 | A host that takes one chunk of a turn and then nothing, while the driver emits 100 MB; it calls \`Hello\` ten times a second meanwhile, then takes the rest. And a host whose process is stopped by a signal for as long, after its first chunk, with a bridge of its own. Memory is the bridge's resident memory after a garbage collection, at most, over what it was before; a turn of that size went before. |
| 8 | The bridge's heap after a garbage collection with a running turn of so many parts, less what it was before, a part. |
| 10 | \`scripts/build.ts compile\` against the bare server compiled alike: from the start to where the file with the port is there; at a first start the program's file is on the disk alone, at a later one its pages are in the system's memory, where a bare start takes so little that what ours adds is told beside the ratio. Effect's RPC server alone is the bridge's procedures served by Effect as it comes, without a log, a lock or a driver, compiled alike: most of what ours adds. And the resident memory at that moment, most of which is the program file's own pages. |
`
