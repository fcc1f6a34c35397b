/**
 * Compares what Codex's file holds of a turn with what the log holds of it.
 *
 * Both name the same things: a message or a reasoning by its item's id, a tool call and its result by the call's id, a
 * model call by what its thread had used when it was done. The log counts as far as the file holds all of it. What the
 * file holds beyond is recovered.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { entriesOf, type Entry } from "./codexEntries.ts"
import * as Items from "./codexItems.ts"

/** What the log says of a thing of the conversation: the number of its first part, and whether it's there whole. */
interface Logged {
  readonly first: number
  whole: boolean
}

// Which thing of the conversation a part is of, and whether it ends that. Parts of sub-agents, of hosts and of the
// bridge are of none: they count wherever they stand.
const thingOf = (part: Bridge.KnownPart): readonly [key: string, ends: boolean] | undefined => {
  if (part.parent !== undefined) return undefined
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
    case "step-finished": {
      const tokens = part.metadata?.["threadTokens"]
      return Predicate.isNumber(tokens) ? [`step ${tokens}`, true] : undefined
    }
    case "compaction": {
      const item = part.metadata?.["item"]
      return Predicate.isString(item) ? [`compaction ${item}`, true] : undefined
    }
    default:
      return undefined
  }
}

const outcomeUnknown = "The outcome of this call is unknown: the agent ended before it was recorded."

export interface Options {
  readonly lines: ReadonlyArray<Schema.JsonObject>
  /** The ids of the messages that could have brought the turn's prompt. */
  readonly prompts: ReadonlySet<string>
  readonly previous: PreviousAttempts
  /** The host's tools, by their names. */
  readonly tools: ReadonlySet<string>
  /** The working directory. */
  readonly directory: string
}

/** Why the conversation can't be carried on. */
export interface Lost {
  readonly lost: string
}

export const reconcile = Effect.fnUntraced(function*(
  { directory, lines, previous, prompts, tools }: Options
): Effect.fn.Return<Reconciled | Lost, Bridge.DriverError> {
  const logged = new Map<string, Logged>()
  const order: Array<readonly [key: string, n: number]> = []
  let finished = 0
  let last = 0
  yield* Stream.runForEachArray(previous.parts, (parts) =>
    Effect.sync(() => {
      for (const { n, part } of parts) {
        last = n
        const thing = Bridge.isKnown(part) ? thingOf(part) : undefined
        if (thing === undefined) continue
        const [key, ends] = thing
        if (part.type === "step-finished") finished++
        const before = logged.get(key)
        if (before === undefined) {
          logged.set(key, { first: n, whole: ends })
          order.push([key, n])
        } else if (ends) before.whole = true
      }
    }))

  const entries = entriesOf(lines, { prompts, tools, directory })
  if (entries === undefined) {
    return finished === 0
      ? { keep: 0, recovered: [], prompted: false }
      : { lost: `it holds nothing of turn ${previous.turn}, which has ${finished} finished steps` }
  }
  const things = new Set(entries.flatMap(thingsOf))

  // The log counts up to the first thing that the conversation lacks, or that the log has only in part.
  const cut = order.find(([key]) => !things.has(key) || !logged.get(key)!.whole)
  const keep = cut === undefined ? last : cut[1] - 1
  const kept = (key: string) => {
    const first = logged.get(key)?.first
    return first !== undefined && first <= keep
  }
  return { keep, recovered: recover(entries, kept), prompted: true }
})

const thingsOf = (entry: Entry): ReadonlyArray<string> => {
  switch (entry._tag) {
    case "Block":
      return [`block ${entry.id}`]
    case "Call":
      return [`call ${entry.item.id}`]
    case "Result":
      // What else a result tells, such as a change of a file, is there with it.
      return [`result ${entry.item.id}`, `change ${entry.item.id}`]
    case "Step":
      return [`step ${entry.after.totalTokens}`]
    case "Compaction":
      return [`compaction ${entry.id}`]
    case "Other":
      return [`call ${entry.id}`, `block ${entry.id}`]
    case "Answered":
      return [`result ${entry.id}`]
  }
}

const recover = (entries: ReadonlyArray<Entry>, kept: (key: string) => boolean): Array<Bridge.AgentPart> => {
  const recovered: Array<Bridge.AgentPart> = []
  /** The calls without a result so far. */
  const open = new Map<string, Items.CallItem>()
  let calling = false
  for (const entry of entries) {
    switch (entry._tag) {
      case "Block":
        if (!kept(`block ${entry.id}`)) recovered.push(...Items.blockParts(entry.kind, entry.id, entry.text))
        break
      case "Call":
        calling = true
        open.set(entry.item.id, entry.item)
        if (!kept(`call ${entry.item.id}`)) recovered.push(Items.toolCall(entry.item))
        break
      case "Result":
        open.delete(entry.item.id)
        recovered.push(...Items.resultParts(entry.item).filter((part) => !kept(thingOf(part)![0])))
        break
      case "Step":
        if (!kept(`step ${entry.after.totalTokens}`)) {
          recovered.push(Items.stepFinished(entry.before, entry.after, calling ? "tool-calls" : "stop"))
        }
        calling = false
        break
      case "Compaction":
        if (kept(`compaction ${entry.id}`)) break
        recovered.push({
          type: "compaction",
          trigger: "auto",
          ...(entry.summary === undefined ? {} : { summary: entry.summary }),
          metadata: { item: entry.id }
        })
    }
  }
  // The agent is told the same of these calls when it carries on.
  for (const item of open.values()) {
    if (kept(`result ${item.id}`)) continue
    recovered.push({
      type: "tool-result",
      id: item.id,
      name: Items.called(item).name,
      result: outcomeUnknown,
      isFailure: true,
      providerExecuted: item.type !== "dynamicToolCall"
    })
  }
  return recovered
}
