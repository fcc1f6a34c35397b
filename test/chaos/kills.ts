/**
 * Kills bridges in the middle of turns, as often as it's asked for, and counts what was hit.
 */
import { Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type * as Faults from "./Faults.ts"
import * as Random from "./Random.ts"
import * as Story from "./Story.ts"
import * as W from "./World.ts"

export interface Options {
  /** How many bridges are killed. */
  readonly rounds: number
  readonly seed: number
  /** How many turns run at once; 2. */
  readonly concurrency?: number | undefined
}

export interface Counts {
  readonly kills: number
  readonly turns: number
  readonly attempts: number
  readonly parts: number
  /** By what was hit. */
  readonly byKind: ReadonlyMap<string, number>
  readonly problems: ReadonlyArray<string>
}

/** A tenth of the rounds must be inside of each. */
export const kinds = ["write", "end", "rename"] as const

/** Runs turns until enough bridges were killed, and enough of them inside a write, an end and a rename. */
export const run = Effect.fnUntraced(function*({ concurrency = 2, rounds, seed }: Options) {
  const directory = mkdtempSync(join(tmpdir(), "gangway-programs-"))
  const programs = yield* Effect.promise(() => W.bundle(directory))
  const random = Random.make(seed)
  const byKind = new Map<string, number>()
  const problems: Array<string> = []
  const count = (kind: string) => byKind.set(kind, (byKind.get(kind) ?? 0) + 1)
  let [kills, turns, attempts, parts] = [0, 0, 0, 0]

  const wanted = Math.ceil(rounds / 10)
  const isEnough = () =>
    kills >= rounds && kinds.every((kind) => (byKind.get(kind) ?? 0) >= wanted) &&
    (byKind.get("signal") ?? 0) >= rounds / 2

  const next = (): Story.Options => {
    const faulty = random.chance(kills === 0 || (byKind.get("signal") ?? 0) < rounds / 2 ? 0.4 : 0.9)
    const lacking = kinds.filter((kind) => (byKind.get(kind) ?? 0) < wanted)
    const plans = Array.from({ length: random.integer(2, 7) }, (): Story.Plan =>
      faulty && random.chance(0.8)
        ? { by: "fault", fault: fault(random, lacking) }
        : {
          by: "signal",
          ...(random.chance(0.3) ? { after: "launch", delay: random.integer(0, 400) } : {
            after: "part",
            delay: random.integer(0, 400)
          })
        })
    return {
      seed: random.integer(1, 2 ** 31),
      // From its sources it's the very program, though slower to start.
      program: faulty ? programs.faulty : random.chance(0.1) ? W.source : programs.bridge,
      hosts: random.pick(["raw", "raw", "client", "client", "clients"]),
      hasPort: random.chance(0.2),
      isPortable: random.chance(0.3),
      plans
    }
  }

  const worker = Effect.gen(function*() {
    while (!isEnough() && problems.length === 0 && turns < rounds + 20) {
      turns++
      const told = yield* Story.play(next())
      attempts += told.attempts
      parts += told.parts
      for (const kill of told.kills) {
        kills++
        count(kill.by === "signal" ? kill.by : isInside(kill.hit) ? kill.hit.kind : "fault")
        count(kill.by === "fault" ? `${kill.hit.kind}, ${detail(kill.hit)}` : `signal, ${kill.moment}`)
        if (kill.by === "signal" && kill.torn) count("signal, in the middle of a line")
      }
      if (told.problem !== undefined) problems.push(told.problem)
    }
  })
  yield* Effect.all(Array.from({ length: concurrency }, () => worker), { concurrency: "unbounded", discard: true })
  rmSync(directory, { recursive: true, force: true })
  for (const kind of kinds) {
    const hits = byKind.get(kind) ?? 0
    if (hits < wanted && problems.length === 0) problems.push(`only ${hits} were inside a ${kind}, of ${turns} turns`)
  }
  return { kills, turns, attempts, parts, byKind, problems } satisfies Counts
})

/**
 * Whether it died in it: a write of which some bytes are in the file and some aren't; an end that isn't synced; a rename
 * that was prepared, and not made.
 */
const isInside = ({ kind, of = 0, stage, written = 0 }: Faults.Hit): boolean =>
  stage === "middle" ? written > 0 && (written < of || kind !== "write") : stage === "before"

const detail = ({ kind, of = 0, stage, target, written = 0 }: Faults.Hit): string => {
  const name = kind === "rename" ? ` (${target})` : ""
  if (stage !== "middle") return `${stage}${name}`
  return `${written === 0 ? "at the first byte" : written === of ? "after the last byte" : "in the middle"}${name}`
}

const fault = (random: Random.Random, lacking: ReadonlyArray<Faults.FaultKind>): Faults.Fault => {
  const kind: Faults.FaultKind = lacking.length > 0 && random.chance(0.8)
    ? random.pick(lacking as readonly [Faults.FaultKind, ...Array<Faults.FaultKind>])
    : random.pick(["write", "end", "continued", "header", "rename", "link", "remove"])
  // The first and the last byte are rarely met by chance.
  const fraction = random.chance(0.15) ? random.integer(0, 1) : random.next()
  switch (kind) {
    case "write":
      return { kind, skip: random.integer(0, 60), stage: "middle", fraction }
    case "end":
      return {
        kind,
        skip: random.pick([0, 0, 0, 1]),
        stage: random.pick(["middle", "middle", "before", "after"]),
        fraction
      }
    case "continued":
    case "header":
      return { kind, skip: 0, stage: random.pick(["middle", "before", "after"]), fraction }
    case "rename": {
      const file = random.pick([
        "session.json",
        "session.json",
        "session.json",
        "listening.json",
        "process.json",
        "any"
      ])
      const stage = random.pick<Faults.Fault["stage"]>(["middle", "before", "after"])
      if (file === "any") return { kind, skip: random.integer(0, 8), stage, fraction }
      return { kind, skip: file === "session.json" ? random.integer(0, 4) : 0, stage, fraction, file }
    }
    case "link":
    case "remove":
      return { kind, skip: random.integer(0, 2), stage: random.pick(["before", "after"]), fraction }
  }
}
