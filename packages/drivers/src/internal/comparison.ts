/**
 * Compares what the log holds of a turn with what the agent's conversation holds of it.
 *
 * Both are taken for a row of things, such as a block of text or a tool call, which have the same keys on both sides. The
 * log counts as far as the conversation holds all of it.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"

/** The thing of the conversation that a part is of, and whether the part ends it. */
export type Thing = readonly [key: string, ends: boolean]

/** The things that every conversation has: blocks by their ids, calls, results and changes by the call's. */
export const thingOf = (part: Bridge.KnownPart): Thing | undefined => {
  switch (part.type) {
    case "text-start":
    case "text-delta":
    case "reasoning-start":
    case "reasoning-delta":
      return [`block ${part.id}`, false]
    case "text-end":
    case "reasoning-end":
      return [`block ${part.id}`, true]
    case "tool-call":
      return [`call ${part.id}`, true]
    case "tool-result":
      return [`result ${part.id}`, true]
    case "file-change":
      return part.toolCallId === undefined ? undefined : [`change ${part.toolCallId}`, true]
    default:
      return undefined
  }
}

/** What the log says of a thing: the number of its first part, and whether it's there whole. */
interface Logged {
  readonly first: number
  whole: boolean
}

export interface Log {
  /** By their keys, in the order of their first parts. */
  readonly things: ReadonlyMap<string, Logged>
  /** The numbers of the ends of steps, also of steps that are no things. */
  readonly steps: ReadonlyArray<number>
  /** The number of the last part. */
  readonly last: number
}

/**
 * Reads the log of a turn. Parts of sub-agents are of no thing, and neither are those that `thingOf` has none for, such
 * as hosts' and the bridge's: they count wherever they stand.
 */
export const readLog = Effect.fnUntraced(function*(
  { parts }: PreviousAttempts,
  thingOf: (part: Bridge.KnownPart) => Thing | undefined
): Effect.fn.Return<Log, Bridge.DriverError> {
  const things = new Map<string, Logged>()
  const steps: Array<number> = []
  let last = 0
  yield* Stream.runForEachArray(parts, (parts) =>
    Effect.sync(() => {
      for (const { n, part } of parts) {
        last = n
        if (!Bridge.isKnown(part) || part.parent !== undefined) continue
        if (part.type === "step-finished") steps.push(n)
        const thing = thingOf(part)
        if (thing === undefined) continue
        const [key, ends] = thing
        const before = things.get(key)
        if (before === undefined) things.set(key, { first: n, whole: ends })
        else if (ends) before.whole = true
      }
    }))
  return { things, steps, last }
})

/** How far the log counts, where the conversation holds the things with these keys; and whether a thing is of that. */
export const compare = ({ last, things }: Log, held: ReadonlySet<string>): {
  readonly keep: number
  readonly kept: (key: string) => boolean
} => {
  // Up to the first thing that the conversation lacks, or that the log has only in part.
  const cut = [...things].find(([key, { whole }]) => !held.has(key) || !whole)
  const keep = cut === undefined ? last : cut[1].first - 1
  const kept = (key: string) => {
    const first = things.get(key)?.first
    return first !== undefined && first <= keep
  }
  return { keep, kept }
}

/** Why the conversation can't be carried on. */
export interface Lost {
  readonly lost: string
}

/** What it means that the conversation doesn't hold the turn's prompt, where so many of the turn's steps are finished. */
export const withoutPrompt = (turn: Bridge.TurnId, finished: number): Reconciled | Lost =>
  finished === 0
    ? { keep: 0, recovered: [], prompted: false }
    : { lost: `it holds nothing of turn ${turn}, which has ${finished} finished steps` }

/** The steps of a log that are things. */
export const stepsOf = ({ things }: Log): number => [...things.keys()].filter((key) => key.startsWith("step ")).length

/** The result of a call that has none. The agent is told the same when it carries on. */
export const outcomeUnknown = "The outcome of this call is unknown: the agent ended before it was recorded."
