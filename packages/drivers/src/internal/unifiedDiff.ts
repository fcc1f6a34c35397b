/**
 * Changes of files as unified diffs.
 */
import * as Schema from "effect/Schema"

/** A stretch of a changed file; its lines begin with a space, `-`, `+`, or `\` where the line before lacks its end. */
export const Hunk = Schema.Struct({
  oldStart: Schema.Int,
  oldLines: Schema.Int,
  newStart: Schema.Int,
  newLines: Schema.Int,
  lines: Schema.Array(Schema.String)
})

export type Hunk = typeof Hunk.Type

/** The diff of a file; `created` where there was none. */
export const unifiedDiff = (path: string, created: boolean, hunks: ReadonlyArray<Hunk>): string =>
  [
    `--- ${created ? "/dev/null" : path}`,
    `+++ ${path}`,
    ...hunks.flatMap(({ lines, newLines, newStart, oldLines, oldStart }) => [
      `@@ -${oldStart},${oldLines} +${newStart},${newLines} @@`,
      ...lines
    ])
  ].join("\n") + "\n"

const noNewline = "\\ No newline at end of file"

/** The hunk that creates a file of that content. */
export const wholeFile = (content: string): ReadonlyArray<Hunk> => hunksOf("", content)

/** Unchanged lines around what changed. */
const around = 3

/** The most comparisons made; beyond it, what lies between the first and the last difference is replaced whole. */
const maxComparisons = 4_000_000

type Line = readonly [kind: " " | "-" | "+", text: string]

/** What differs between two texts. */
export const hunksOf = (before: string, after: string): ReadonlyArray<Hunk> => {
  const lines = compare(linesOf(before), linesOf(after))
  const changed = lines.flatMap(([kind], at) => kind === " " ? [] : [at])
  const hunks: Array<Hunk> = []
  let from = 0
  let oldLine = 1
  let newLine = 1
  for (let first = 0; first < changed.length;) {
    let last = first
    while (last + 1 < changed.length && changed[last + 1]! - changed[last]! <= 2 * around + 1) last++
    const start = Math.max(from, changed[first]! - around)
    const end = Math.min(lines.length, changed[last]! + around + 1)
    // What lies between two hunks is the same on both sides.
    oldLine += start - from
    newLine += start - from
    const piece = lines.slice(start, end)
    const oldLines = piece.filter(([kind]) => kind !== "+").length
    const newLines = piece.filter(([kind]) => kind !== "-").length
    hunks.push({
      oldStart: oldLines === 0 ? oldLine - 1 : oldLine,
      oldLines,
      newStart: newLines === 0 ? newLine - 1 : newLine,
      newLines,
      lines: piece.flatMap(([kind, text]) =>
        text.endsWith("\n") ? [kind + text.slice(0, -1)] : [kind + text, noNewline]
      )
    })
    oldLine += oldLines
    newLine += newLines
    from = end
    first = last + 1
  }
  return hunks
}

// Each with its end, so that a last line without one differs from one with it.
const linesOf = (text: string): ReadonlyArray<string> => text.match(/[^\n]*\n|[^\n]+$/g) ?? []

const compare = (before: ReadonlyArray<string>, after: ReadonlyArray<string>): ReadonlyArray<Line> => {
  let head = 0
  while (head < before.length && head < after.length && before[head] === after[head]) head++
  let tail = 0
  while (
    tail < before.length - head && tail < after.length - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  ) tail++
  const same = (text: string): Line => [" ", text]
  return [
    ...before.slice(0, head).map(same),
    ...middle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...before.slice(before.length - tail).map(same)
  ]
}

// By the longest common subsequence.
const middle = (before: ReadonlyArray<string>, after: ReadonlyArray<string>): ReadonlyArray<Line> => {
  const [n, m] = [before.length, after.length]
  if (n === 0 || m === 0 || n * m > maxComparisons) {
    return [...before.map((text): Line => ["-", text]), ...after.map((text): Line => ["+", text])]
  }
  const width = m + 1
  const common = new Uint32Array((n + 1) * width)
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      common[i * width + j] = before[i] === after[j]
        ? common[(i + 1) * width + j + 1]! + 1
        : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!)
    }
  }
  const lines: Array<Line> = []
  let [i, j] = [0, 0]
  while (i < n || j < m) {
    if (i < n && j < m && before[i] === after[j]) {
      lines.push([" ", before[i]!])
      i++
      j++
    } else if (j === m || (i < n && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) {
      lines.push(["-", before[i++]!])
    } else lines.push(["+", after[j++]!])
  }
  return lines
}
