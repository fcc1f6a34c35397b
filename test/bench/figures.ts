/**
 * What a run finds out, and what it's held against.
 */

/** How ours is held against the bare one of the same run: divided by it, less it, or not at all. */
export type Comparison = "ratio" | "added" | "itself"

/** What a figure is made of: one value a round, ours and the bare one measured one after the other. */
export interface Samples {
  readonly row: number
  readonly name: string
  readonly unit: string
  readonly ours: ReadonlyArray<number>
  readonly bare?: ReadonlyArray<number> | undefined
  readonly comparison: Comparison
  /** What the comparison must not be worse than. */
  readonly bound: number
  /** What it's to reach. */
  readonly goal: number
  /** Where a greater one is better. */
  readonly greater?: boolean | undefined
}

/** Medians over the rounds. */
export interface Figure extends Omit<Samples, "ours" | "bare"> {
  readonly ours: number
  readonly bare: number | undefined
  readonly compared: number
  /** The lowest and the highest comparison of a round. */
  readonly range: readonly [number, number]
  readonly holds: boolean
  readonly reached: boolean
}

/** The value that a share of the values doesn't exceed. */
export const percentile = (values: ReadonlyArray<number>, share: number): number => {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!
}

const median = (values: ReadonlyArray<number>): number => percentile(values, 0.5)

const compare = (comparison: Comparison, ours: number, bare: number): number => {
  switch (comparison) {
    case "ratio":
      return ours / bare
    case "added":
      return ours - bare
    case "itself":
      return ours
  }
}

/** Makes the figure of its samples. */
export const toFigure = ({ bare, ours, ...samples }: Samples): Figure => {
  const { bound, comparison, goal, greater = false } = samples
  const oursMedian = median(ours)
  const bareMedian = bare === undefined ? undefined : median(bare)
  const compared = compare(comparison, oursMedian, bareMedian ?? 0)
  const rounds = ours.map((value, i) => compare(comparison, value, bare?.[i] ?? 0))
  const isWithin = (limit: number) => greater ? compared >= limit : compared <= limit
  return {
    ...samples,
    ours: oursMedian,
    bare: bareMedian,
    compared,
    range: [Math.min(...rounds), Math.max(...rounds)],
    holds: isWithin(bound),
    reached: isWithin(goal)
  }
}
