/**
 * Compares what Claude Code's transcript holds of a turn with what the log holds of it.
 *
 * Both name the same things: a block of an answer by its message and place, a tool call and its result by the call's
 * id, a step by its message. The log counts as far as the transcript holds all of it. What the transcript holds beyond
 * is recovered.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import { blockId, blockParts, compaction, finishReason, resultParts, summaryOf, usageOf } from "./claudeBlocks.ts"
import { makePlan } from "./claudePlan.ts"
import type { Entry, Transcript } from "./claudeTranscript.ts"
import * as Comparison from "./comparison.ts"

const thingOf = (part: Bridge.KnownPart): Comparison.Thing | undefined => {
  switch (part.type) {
    case "response-metadata":
      return part.id === undefined ? undefined : [`message ${part.id}`, true]
    case "tool-params-start":
    case "tool-params-delta":
    case "tool-params-end":
      return [`call ${part.id}`, false]
    case "plan": {
      const call = part.metadata?.["toolCallId"]
      return Predicate.isString(call) ? [`plan ${call}`, true] : undefined
    }
    case "step-finished": {
      const message = part.metadata?.["message"]
      return Predicate.isString(message) ? [`step ${message}`, true] : undefined
    }
    case "compaction": {
      const uuid = part.metadata?.["uuid"]
      return Predicate.isString(uuid) ? [`compaction ${uuid}`, true] : undefined
    }
    default:
      return Comparison.thingOf(part)
  }
}

export interface Options {
  readonly transcript: Transcript | undefined
  /** The ids of the messages that could have brought the turn's prompt. */
  readonly prompts: ReadonlySet<string>
  readonly previous: PreviousAttempts
}

export const reconcile = Effect.fnUntraced(function*(
  { previous, prompts, transcript }: Options
): Effect.fn.Return<Reconciled | Comparison.Lost, Bridge.DriverError> {
  const log = yield* Comparison.readLog(previous, thingOf)
  const entries = transcript?.entries ?? []
  const start = entries.findIndex((entry) => entry._tag === "User" && prompts.has(entry.uuid))
  if (start < 0) return Comparison.withoutPrompt(previous.turn, Comparison.stepsOf(log))
  const held = entries.slice(start + 1)
  const { keep, kept } = Comparison.compare(log, new Set(held.flatMap(thingsOf)))
  return { keep, recovered: recover(held, kept), prompted: true }
})

// The things of the conversation that an entry holds; a step is finished by the last of its blocks.
const thingsOf = (entry: Entry): Array<string> => {
  switch (entry._tag) {
    case "Answer": {
      const { index = 0, message } = entry
      return [
        `message ${message.id}`,
        `step ${message.id}`,
        ...message.content.map((block, at) =>
          block.type === "tool_use" ? `call ${block.id}` : `block ${blockId(message.id, index + at)}`
        )
      ]
    }
    case "User":
      return Predicate.isString(entry.content)
        ? []
        // What else a result tells, such as a change of a file, is there with it.
        : entry.content.flatMap(({ tool_use_id: id, type }) =>
          type === "tool_result" ? [`result ${id}`, `change ${id}`, `plan ${id}`] : []
        )
    case "Compaction":
      return [`compaction ${entry.uuid}`]
  }
}

const recover = (entries: ReadonlyArray<Entry>, kept: (key: string) => boolean): Array<Bridge.AgentPart> => {
  const recovered: Array<Bridge.AgentPart> = []
  const planOf = makePlan()
  /** The calls without a result so far, by their tools' names. */
  const open = new Map<string, string>()
  const lastOf = new Map(entries.map((entry, at) => [entry._tag === "Answer" ? entry.message.id : "", at]))
  for (const [at, entry] of entries.entries()) {
    switch (entry._tag) {
      case "Answer": {
        const { index = 0, message } = entry
        for (const [offset, block] of message.content.entries()) {
          if (block.type === "tool_use") open.set(block.id ?? "", block.name ?? "")
          const key = block.type === "tool_use" ? `call ${block.id}` : `block ${blockId(message.id, index + offset)}`
          if (!kept(key)) recovered.push(...blockParts(message.id, index + offset, block))
        }
        if (lastOf.get(message.id) !== at || kept(`step ${message.id}`)) break
        const cut = !Predicate.isString(message.stop_reason)
        recovered.push({
          type: "step-finished",
          usage: { ...usageOf(message.usage), ...(cut ? { measured: false } : {}) },
          finishReason: cut ? "aborted" : finishReason(message.stop_reason),
          metadata: { message: message.id }
        })
        break
      }
      case "User": {
        if (Predicate.isString(entry.content)) break
        for (const block of entry.content) {
          if (block.type !== "tool_result") continue
          const id = block.tool_use_id ?? ""
          const name = open.get(id) ?? "unknown"
          open.delete(id)
          const plan = block.is_error === true ? undefined : planOf(name, entry.structured)
          const parts = resultParts(block, name, entry.structured)
          if (plan !== undefined) parts.push({ ...plan, metadata: { toolCallId: id } })
          recovered.push(...parts.filter((part) => !kept(thingOf(part)![0])))
        }
        break
      }
      case "Compaction": {
        if (kept(`compaction ${entry.uuid}`)) break
        const next = entries[at + 1]
        recovered.push(
          compaction(entry.uuid, entry.metadata, next?._tag === "User" ? summaryOf(next.content) : undefined)
        )
      }
    }
  }
  for (const [id, name] of open) {
    if (kept(`result ${id}`)) continue
    recovered.push(...resultParts(
      { type: "tool_result", tool_use_id: id, content: Comparison.outcomeUnknown, is_error: true },
      name,
      undefined
    ))
  }
  return recovered
}
