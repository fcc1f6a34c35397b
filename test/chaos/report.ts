/**
 * What the kills hit, for people.
 */
import type * as Kills from "./kills.ts"

/** Some lines of text. */
export const report = ({ seed }: Kills.Options, counts: Kills.Counts): string => {
  const { attempts, kills, parts, problems, turns } = counts
  return [
    `seed ${seed}: ${kills} bridges killed in ${turns} turns, of ${attempts} attempts and ${parts} parts`,
    ...[...counts.byKind].sort(([a], [b]) => a < b ? -1 : 1).map(([kind, count]) =>
      `${String(count).padStart(6)} ${kind}`
    ),
    ...problems.map((problem) => `\nfailed: ${problem}`)
  ].join("\n")
}
