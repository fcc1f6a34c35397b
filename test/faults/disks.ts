/**
 * The story of a session, told once for each step that its bridge makes on the disk, with a fault at that step.
 */
import { Cause, Effect, Exit } from "effect"
import * as Random from "../chaos/Random.ts"
import * as DiskStory from "./diskStory.ts"
import type { Fault, Step } from "./SimulatedDisk.ts"

/** What goes wrong. */
export type Kind = "the process dies" | "the power fails" | "the power fails, and all is synced" | "the disk fails"

export const kinds: ReadonlyArray<Kind> = [
  "the process dies",
  "the power fails",
  "the power fails, and all is synced",
  "the disk fails"
]

export interface Counts {
  /** How many steps had a fault. */
  readonly steps: number
  readonly died: number
  /** Parts that were lost with the power, as hosts were told. */
  readonly lost: number
  /** The first story that didn't end as it must, with what replays it. */
  readonly problem: string | undefined
}

/** Tells it for each step. */
export const run = Effect.fnUntraced(function*(kind: Kind, seed: number) {
  let [died, lost, steps] = [0, 0, 0]
  let problem: string | undefined
  while (problem === undefined) {
    const random = Random.make(seed + steps)
    const fault = faultOf(kind, random)
    let hit: Step | undefined
    const exit = yield* Effect.exit(DiskStory.play({
      random,
      ending: kind === "the process dies" ? "death" : kind === "the disk fails" ? "none" : "power cut",
      sync: kind === "the power fails, and all is synced",
      fault: (index, step) => {
        if (index !== steps) return undefined
        hit = step
        return fault
      }
    }))
    if (Exit.isSuccess(exit)) {
      died += exit.value.died ? 1 : 0
      lost += exit.value.lost
    } else {
      problem = `seed ${seed}, step ${steps}, ${JSON.stringify({ ...fault, ...hit })}: ${Cause.pretty(exit.cause)}`
    }
    if (hit === undefined) break
    steps++
  }
  return { steps, died, lost, problem } satisfies Counts
})

// A part of the bytes, and often none or all.
const some = (random: Random.Random) => {
  const fraction = random.pick([0, 1, random.next(), random.next()])
  return (length: number) => Math.round(fraction * length)
}

const faultOf = (kind: Kind, random: Random.Random): Fault => {
  const bytes = some(random)
  if (kind !== "the disk fails") return { _tag: "Torn", bytes }
  return random.pick<Fault>([
    { _tag: "Fail", code: "EIO", bytes },
    { _tag: "Fail", code: "ENOSPC", bytes },
    { _tag: "Short", bytes }
  ])
}
