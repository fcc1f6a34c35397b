/**
 * Compares what the scripted agent's conversation holds of a turn with what the log holds of it.
 *
 * The log's deltas may be cut elsewhere than the agent's: the bridge looks for secrets and split characters in them.
 * So parts are compared, and the log's missing ones are counted, by what they say and not by how many they are.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { ConversationUnreadable, partsFrom, read } from "./scriptedConversation.ts"

type Delta = Extract<Bridge.AgentPart, { readonly delta: string }>

const isDelta = (part: Bridge.AgentPart): part is Delta => "delta" in part

// A running digest of what parts say, so that a long step needs no memory, and how much that is, in units.
const makeDigest = () => {
  let a = 0x811c9dc5
  let b = 0x2545f491
  let length = 0
  let block: string | undefined

  const text = (value: string) => {
    for (let i = 0; i < value.length; i++) {
      let unit = value.charCodeAt(i)
      // The log has U+FFFD for lone surrogates.
      if (unit >= 0xd800 && unit <= 0xdfff) unit = 0xfffd
      a = Math.imul(a ^ unit, 0x01000193)
      b = (Math.imul(b, 31) + unit) | 0
    }
    length += value.length
  }

  const json = (value: unknown): void => {
    if (Array.isArray(value)) {
      text("[")
      value.forEach(json)
      text("]")
    } else if (typeof value === "object" && value !== null) {
      text("{")
      for (const [key, field] of Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1)) {
        // What the bridge adds.
        if (field === undefined || key === "recovered" || key === "replaces") continue
        text(key)
        json(field)
      }
      text("}")
    } else text(JSON.stringify(value))
  }

  return {
    add: (part: Bridge.AgentPart) => {
      if (!isDelta(part)) {
        block = undefined
        return json(part)
      }
      const key = `${part.type} ${part.id} ${part.parent ?? ""}`
      if (key !== block) text(key)
      block = key
      text(part.delta)
    },
    length: () => length,
    value: () => `${a} ${b} ${length}`
  }
}

/** The parts after those that say what the digest says; `undefined` where the parts don't begin like that. */
const after = (parts: ReadonlyArray<Bridge.AgentPart>, digest: ReturnType<typeof makeDigest>) => {
  const beginning = makeDigest()
  for (let i = 0;; i++) {
    if (beginning.value() === digest.value()) return parts.slice(i)
    const part = parts[i]
    if (part === undefined || beginning.length() >= digest.length()) return undefined
    if (!isDelta(part)) {
      beginning.add(part)
      continue
    }
    beginning.add({ ...part, delta: "" })
    const rest = digest.length() - beginning.length()
    if (rest >= part.delta.length) {
      beginning.add(part)
      continue
    }
    beginning.add({ ...part, delta: part.delta.slice(0, rest) })
    return beginning.value() === digest.value()
      ? [{ ...part, delta: part.delta.slice(rest) }, ...parts.slice(i + 1)]
      : undefined
  }
}

// Whether a part of the log came from the agent, and not from the bridge.
const isAgents = (part: Bridge.Part): part is Bridge.AgentPart => {
  if (!Bridge.isKnown(part)) return false
  switch (part.type) {
    case "tool-approval-request":
    case "tool-approval-response":
    case "question":
    case "question-answer":
    case "user-message":
    case "user-message-delivered":
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
  let cut = { last: 0, digest: makeDigest() }
  yield* Stream.runForEachArray(previous.parts, (parts) =>
    Effect.sync(() => {
      for (const { n, part } of parts) {
        if (part.type === "step-finished") {
          finished.push(n)
          cut = { last: n, digest: makeDigest() }
        } else {
          cut.last = n
          if (isAgents(part)) cut.digest.add(part)
        }
      }
    }))
  const lastNumber = (steps: number) => steps === 0 ? 0 : finished[steps - 1]

  const record = (yield* read(path)).turns.get(previous.turn)
  if (record === undefined) {
    if (finished.length === 0) {
      return { keep: 0, recovered: [], prompted: false, messages: new Set() } satisfies Reconciled
    }
    return yield* new ConversationUnreadable({
      problem: `it holds nothing of turn ${previous.turn}, which has ${finished.length} finished steps`
    })
  }

  const messages = new Set(record.messages.map(({ id }) => Bridge.MessageId.make(id)))

  // Steps that both hold finished: the conversation lacks some of the log's where its file lost its end.
  let common = 0
  while (common < finished.length && record.steps.has(common)) common++
  if (common < finished.length || !record.steps.has(common)) {
    return { keep: lastNumber(common), recovered: [], prompted: true, messages } satisfies Reconciled
  }

  const parts = yield* partsFrom(path, record, common)
  const recovered: Array<Bridge.AgentPart> = []
  let keep = lastNumber(common)
  let lost = 0
  for (let step = common; record.steps.has(step); step++) {
    const whole = parts.get(step) ?? []
    if (whole.length !== record.steps.get(step)!.parts) {
      lost++
      continue
    }
    // The log may hold the step's beginning: then it lacks the rest only.
    const rest = step === common ? after(whole, cut.digest) : whole
    if (step === common && rest !== undefined) keep = cut.last
    for (const part of rest ?? whole) recovered.push(part)
  }
  return {
    keep,
    recovered,
    prompted: true,
    messages,
    ...(lost === 0
      ? {}
      : { notice: `The agent kept no parts of ${lost} steps that it finished: they are missing here.` })
  } satisfies Reconciled
})
