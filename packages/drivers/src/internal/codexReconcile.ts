/**
 * Compares what Codex's file holds of a turn with what the log holds of it.
 *
 * Both name the same things: a message or a reasoning by its item's id, a tool call and its result by the call's id, a
 * model call by what its thread had used when it was done, or by its first item where it was cut. The log counts as far
 * as the file holds all of it. What the file holds beyond is recovered.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import { entriesOf, type Entry } from "./codexEntries.ts"
import * as Items from "./codexItems.ts"
import * as Comparison from "./comparison.ts"

const thingOf = (part: Bridge.KnownPart): Comparison.Thing | undefined => {
  switch (part.type) {
    case "step-finished": {
      const id = part.metadata?.["threadTokens"] ?? part.metadata?.["item"]
      return Predicate.isNumber(id) || Predicate.isString(id) ? [`step ${id}`, true] : undefined
    }
    case "compaction": {
      const item = part.metadata?.["item"]
      return Predicate.isString(item) ? [`compaction ${item}`, true] : undefined
    }
    default:
      return Comparison.thingOf(part)
  }
}

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

export const reconcile = Effect.fnUntraced(function*(
  { directory, lines, previous, prompts, tools }: Options
): Effect.fn.Return<Reconciled | Comparison.Lost, Bridge.DriverError> {
  const log = yield* Comparison.readLog(previous, thingOf)
  const entries = entriesOf(lines, { prompts, tools, directory })
  if (entries === undefined) return Comparison.withoutPrompt(previous.turn, Comparison.stepsOf(log))
  const { keep, kept } = Comparison.compare(log, new Set(entries.flatMap(thingsOf)))
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
    case "Cut":
      return [`step ${entry.id}`]
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
      case "Cut":
        if (!kept(`step ${entry.id}`)) recovered.push(Items.stepCut(entry.id))
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
  for (const item of open.values()) {
    if (kept(`result ${item.id}`)) continue
    recovered.push({
      type: "tool-result",
      id: item.id,
      name: Items.called(item).name,
      result: Comparison.outcomeUnknown,
      isFailure: true,
      providerExecuted: item.type !== "dynamicToolCall"
    })
  }
  return recovered
}
