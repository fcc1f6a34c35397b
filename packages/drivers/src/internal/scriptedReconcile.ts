/**
 * Compares what the scripted agent's conversation holds of a turn with what the log holds of it.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { ConversationUnreadable, partsFrom, read } from "./scriptedConversation.ts"
import { joinSurrogates } from "./surrogates.ts"

// A running digest of parts, so that a long step needs no memory: equal parts in the same order give an equal one.
const digest = () => {
  let a = 0x811c9dc5
  let b = 0x2545f491
  const text = (value: string) => {
    for (let i = 0; i < value.length; i++) {
      const unit = value.charCodeAt(i)
      a = Math.imul(a ^ unit, 0x01000193)
      b = Math.imul(b, 31) + unit | 0
    }
  }
  const json = (value: unknown): void => {
    if (typeof value === "string") text(`"${value.toWellFormed()}"`)
    else if (Array.isArray(value)) {
      text("[")
      value.forEach(json)
      text("]")
    } else if (typeof value === "object" && value !== null) {
      text("{")
      for (const key of Object.keys(value).sort()) {
        const field = (value as Record<string, unknown>)[key]
        if (field === undefined || key === "recovered" || key === "replaces") continue
        text(`${key}:`)
        json(field)
      }
      text("}")
    } else text(String(value))
  }
  return { add: json, value: () => `${a} ${b}` }
}

// Whether a part of the log came from the agent, and not from the bridge.
const isAgents = (part: Bridge.Part): part is Bridge.KnownPart => {
  if (!Bridge.isKnown(part)) return false
  switch (part.type) {
    case "tool-approval-request":
    case "tool-approval-response":
    case "question":
    case "question-answer":
    case "turn-continued":
    case "part-fragment":
      return false
    case "tool-result":
      return part.providerExecuted === true
    case "notice":
      return part.metadata?.["step"] !== undefined
    default:
      return true
  }
}

export const reconcile = Effect.fnUntraced(function*(path: string, previous: PreviousAttempts) {
  // The log: the last number of each finished step, and the agent's parts of the one that was cut.
  const finished: Array<number> = []
  let cut = { count: 0, last: 0, digest: digest() }
  yield* Stream.runForEachArray(previous.parts, (parts) =>
    Effect.sync(() => {
      for (const { n, part } of parts) {
        if (part.type === "step-finished") {
          finished.push(n)
          cut = { count: 0, last: n, digest: digest() }
        } else {
          cut.last = n
          if (!isAgents(part)) continue
          cut.count++
          cut.digest.add(part)
        }
      }
    }))
  const lastNumber = (steps: number) => steps === 0 ? 0 : finished[steps - 1]

  const record = (yield* read(path)).turns.get(previous.turn)
  if (record === undefined) {
    if (finished.length === 0) return { keep: 0, recovered: [], prompted: false } satisfies Reconciled
    return yield* new ConversationUnreadable({
      problem: `it holds nothing of turn ${previous.turn}, which has ${finished.length} finished steps`
    })
  }

  // Steps that both hold finished. The conversation of a real agent could lack some too.
  let common = 0
  while (common < finished.length && record.steps.has(common)) common++
  if (common < finished.length || !record.steps.has(common)) {
    return { keep: lastNumber(common), recovered: [], prompted: true } satisfies Reconciled
  }

  const parts = yield* partsFrom(path, record, common)
  const recovered: Array<Bridge.KnownPart> = []
  let keep = lastNumber(common)
  let lost = 0
  for (let step = common; record.steps.has(step); step++) {
    const held = parts.get(step) ?? []
    if (held.length !== record.steps.get(step)!.parts) {
      lost++
      continue
    }
    const whole = held.flatMap(joinSurrogates())
    if (step > common || cut.count === 0 || cut.count > whole.length) {
      for (const part of whole) recovered.push(part)
      continue
    }
    // The log may hold the step's beginning: then it lacks the rest only.
    const beginning = digest()
    for (let i = 0; i < cut.count; i++) beginning.add(whole[i])
    const fits = beginning.value() === cut.digest.value()
    if (fits) keep = cut.last
    for (const part of fits ? whole.slice(cut.count) : whole) recovered.push(part)
  }
  return {
    keep,
    recovered,
    prompted: true,
    ...(lost === 0
      ? {}
      : { notice: `The agent kept no parts of ${lost} steps that it finished: they are missing here.` })
  } satisfies Reconciled
})
