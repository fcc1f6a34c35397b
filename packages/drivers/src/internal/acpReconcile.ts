/**
 * Compares what an agent tells again of its conversation, when it's loaded, with what the log holds of a turn.
 *
 * Both name the same things: a block of text by its message and place, a call and its result by the call's id. The log
 * counts as far as the conversation holds all of it. What the conversation holds beyond is recovered.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { fingerprint, type Place } from "./acpConversation.ts"
import type { Update } from "./acpMessages.ts"
import { makeParts, type Options as PartsOptions, type Parts } from "./acpParts.ts"
import { textOf } from "./acpTools.ts"

// ---------------------------------------------------------------------------
// What the agent tells again
// ---------------------------------------------------------------------------

/** A message of the user's, and what followed it. */
interface Told {
  readonly index: number
  texts: Array<number>
  readonly make: Parts
  readonly parts: Array<Bridge.AgentPart>
}

/**
 * Takes a conversation as it's told again. What followed earlier messages than the turn's is let go of.
 */
export const makeReplay = (options: Omit<PartsOptions, "prompt">, place: Place | undefined) => {
  let count = 0
  let message: string | undefined
  let inMessage = false
  let told: Array<Told> = []

  return {
    take: (update: Update) => {
      if (update.sessionUpdate !== "user_message_chunk") {
        inMessage = false
        const last = told.at(-1)
        last?.parts.push(...last.make.take(update))
        return
      }
      const id = update.messageId ?? undefined
      if (!inMessage || id !== message) {
        const index = count++
        const isOfTurn = place !== undefined && told.length > 0 && told[0]!.index >= place.before
        told = [
          ...(isOfTurn ? told : []),
          { index, texts: [], make: makeParts({ ...options, prompt: count }), parts: [] }
        ]
      }
      inMessage = true
      message = id
      told.at(-1)!.texts.push(fingerprint(textOf(update.content) ?? ""))
    },
    /** How many messages of the user's there were. */
    count: () => count,
    /** The last message's, and where a turn's place is known, those since. */
    told: (): ReadonlyArray<Told> => told
  }
}

export type Replay = ReturnType<typeof makeReplay>

// ---------------------------------------------------------------------------
// The comparison
// ---------------------------------------------------------------------------

// Which thing of the conversation a part is of, and whether it ends that. Steps, and what hosts and the bridge said, are
// of none: they count wherever they stand.
const thingOf = (part: Bridge.KnownPart): readonly [key: string, ends: boolean] | undefined => {
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
      return part.toolCallId === undefined ? undefined : [`change ${part.toolCallId} ${part.path}`, true]
    default:
      return undefined
  }
}

const outcomeUnknown = "The outcome of this call is unknown: the agent ended before it was recorded."

/** Why the conversation can't be carried on. */
export interface Lost {
  readonly lost: string
}

export const reconcile = Effect.fnUntraced(function*(
  replay: Replay,
  place: Place | undefined,
  previous: PreviousAttempts
): Effect.fn.Return<Reconciled | Lost, Bridge.DriverError> {
  const logged = new Map<string, { readonly first: number; whole: boolean }>()
  const order: Array<readonly [key: string, n: number]> = []
  const steps: Array<number> = []
  let last = 0
  yield* Stream.runForEachArray(previous.parts, (parts) =>
    Effect.sync(() => {
      for (const { n, part } of parts) {
        last = n
        const thing = Bridge.isKnown(part) ? thingOf(part) : undefined
        if (part.type === "step-finished") steps.push(n)
        if (thing === undefined) continue
        const [key, ends] = thing
        const before = logged.get(key)
        if (before === undefined) {
          logged.set(key, { first: n, whole: ends })
          order.push([key, n])
        } else if (ends) before.whole = true
      }
    }))

  const held = heldOf(replay, place, previous.turn, logged)
  if (held === undefined) {
    if (steps.length === 0) return { keep: 0, recovered: [], prompted: false }
    // Not every agent tells its conversation again: then it's taken for what it was.
    return replay.count() > 0
      ? { lost: `it holds nothing of turn ${previous.turn}, which has ${steps.length} finished steps` }
      : {
        keep: last,
        recovered: [],
        prompted: true,
        notice: "The agent can't say what it kept of the turn: its last step may be missing from its conversation."
      }
  }

  const things = new Set(held.flatMap((part) => thingOf(part)?.[0] ?? []))
  // The log counts up to the first thing that the conversation lacks, or that the log has only in part.
  const cut = order.find(([key]) => !things.has(key) || !logged.get(key)!.whole)
  const keep = cut === undefined ? last : cut[1] - 1
  const isKept = (part: Bridge.KnownPart) => {
    const key = thingOf(part)?.[0]
    const first = key === undefined ? undefined : logged.get(key)?.first
    return first !== undefined && first <= keep
  }
  return { keep, recovered: recover(held, isKept, steps.filter((n) => n <= keep).length), prompted: true }
})

// The parts since the turn's prompt, if the conversation holds that.
const heldOf = (
  replay: Replay,
  place: Place | undefined,
  turn: string,
  logged: ReadonlyMap<string, unknown>
): ReadonlyArray<Bridge.AgentPart> | undefined => {
  const told = replay.told()
  const since = place?.id === turn ? told.filter(({ index }) => index >= place.before) : []
  // An agent may have put messages of its own before it.
  const start = since.findIndex(({ texts }) => texts.includes(place!.text))
  const found = start < 0 ? since : since.slice(start)
  if (found.length > 0) return found.flatMap(partsOf)
  // It may have fewer messages than it was sent, after it has summed them up.
  const parts = told.slice(-1).flatMap(partsOf)
  return parts.some((part) => logged.has(thingOf(part)?.[0] ?? "")) ? parts : undefined
}

const partsOf = ({ make, parts }: Told): ReadonlyArray<Bridge.AgentPart> => [...parts, ...make.close(undefined)]

const recover = (
  held: ReadonlyArray<Bridge.AgentPart>,
  isKept: (part: Bridge.KnownPart) => boolean,
  steps: number
): Array<Bridge.AgentPart> => {
  /** The calls without a result, by their tools' names. */
  const open = new Map<string, string>()
  const recovered: Array<Bridge.AgentPart> = []
  let step = 0
  for (const part of held) {
    if (part.type === "tool-call") open.set(part.id, part.name)
    if (part.type === "tool-result") open.delete(part.id)
    if (part.type === "step-finished" ? step++ >= steps : thingOf(part) !== undefined && !isKept(part)) {
      recovered.push(part)
    }
  }
  // The agent is told the same of these calls when it carries on.
  for (const [id, name] of open) {
    const result = { type: "tool-result", id, name, result: outcomeUnknown, isFailure: true } as const
    if (!isKept(result)) recovered.push({ ...result, providerExecuted: true })
  }
  return recovered
}
