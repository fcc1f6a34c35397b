/**
 * Compares what an agent tells again of its conversation, when it's loaded, with what the log holds of a turn.
 *
 * Both name the same things: a block of text by its message and place, a call and its result by the call's id. The log
 * counts as far as the conversation holds all of it. What the conversation holds beyond is recovered.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import { fingerprint, type Place } from "./acpConversation.ts"
import type { Update } from "./acpMessages.ts"
import { makeParts, type Options as PartsOptions, type Parts } from "./acpParts.ts"
import { textOf } from "./acpTools.ts"
import * as Comparison from "./comparison.ts"

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

// A call may change several files, and each is told by itself.
const thingOf = (part: Bridge.KnownPart): Comparison.Thing | undefined =>
  part.type === "file-change" && part.toolCallId !== undefined
    ? [`change ${part.toolCallId} ${part.path}`, true]
    : Comparison.thingOf(part)

export const reconcile = Effect.fnUntraced(function*(
  replay: Replay,
  place: Place | undefined,
  previous: PreviousAttempts
): Effect.fn.Return<Reconciled | Comparison.Lost, Bridge.DriverError> {
  const log = yield* Comparison.readLog(previous, thingOf)
  const held = heldOf(replay, place, previous.turn, log.things)
  if (held === undefined) {
    // Not every agent tells its conversation again: then it's taken for what it was.
    return log.steps.length === 0 || replay.count() > 0
      ? Comparison.withoutPrompt(previous.turn, log.steps.length)
      : {
        keep: log.last,
        recovered: [],
        prompted: true,
        notice: "The agent can't say what it kept of the turn: its last step may be missing from its conversation."
      }
  }

  const { keep, kept } = Comparison.compare(log, new Set(held.flatMap((part) => thingOf(part)?.[0] ?? [])))
  const isKept = (part: Bridge.KnownPart) => kept(thingOf(part)?.[0] ?? "")
  return { keep, recovered: recover(held, isKept, log.steps.filter((n) => n <= keep).length), prompted: true }
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
  for (const [id, name] of open) {
    const result = { type: "tool-result", id, name, result: Comparison.outcomeUnknown, isFailure: true } as const
    if (!isKept(result)) recovered.push({ ...result, providerExecuted: true })
  }
  return recovered
}
