/**
 * What hosts sent into a turn: which messages were accepted, and which of them the agent has.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Semaphore from "effect/Semaphore"
import { mayComeFrom } from "../Redaction.ts"
import { canonicalJson, digestJson } from "./digest.ts"

/** A message as its host sent it. */
export interface Message {
  readonly messageId: Bridge.MessageId
  readonly prompt: Bridge.Prompt
  readonly delivery: Bridge.Delivery
}

interface Entry {
  readonly messageId: Bridge.MessageId
  readonly delivery: Bridge.Delivery
  /** As it's in the log; absent once the agent has it and its digest is known. */
  logged: Bridge.Prompt | undefined
  /** As it was given, with its secrets, while it waits; absent where only the log tells of it. */
  given: Bridge.Prompt | undefined
  /** Of what was given; in memory only, by which it's no way to find a secret. */
  digest: string | undefined
  /** How much waits, in UTF-16 units of JSON. */
  readonly size: number
  /** The number of its part, and of the one that says that the agent has it; absent where there's none that counts. */
  accepted: number | undefined
  delivered: number | undefined
  /** Whether it waits for the agent. */
  waits: boolean
}

export interface Messages {
  /** Takes note of the turn's next part, which is in the log. */
  readonly observe: (numbered: Bridge.NumberedPart) => void
  /** All that were accepted, in their order. */
  readonly ids: () => ReadonlyArray<Bridge.MessageId>
  /** How a message that's there already is delivered; absent for a new one. */
  readonly repeated: (
    message: Omit<Message, "delivery"> & { readonly delivery?: Bridge.Delivery | undefined }
  ) => Effect.Effect<Bridge.Delivery | undefined, Bridge.MessageConflict>
  /** Logs a new message; `false` where the agent takes none any more. */
  readonly accept: (message: Message) => Effect.Effect<boolean, Bridge.TooManyMessages | Bridge.LogUnavailable>
  /** Logs that the agent took a message, unless it's known. */
  readonly delivered: (
    messageId: Bridge.MessageId,
    log: (part: Bridge.KnownPart) => Effect.Effect<void>
  ) => Effect.Effect<void>
  /** The message that has waited longest, logged as delivered; where none waits, none is accepted from now on. */
  readonly next: Effect.Effect<Message | undefined, Bridge.LogUnavailable>
  /** None is accepted from now on. */
  readonly close: () => void
  /**
   * In an attempt that has just begun, given which ones the agent's conversation holds, where that's known: the parts
   * that say again what's void. Those that the agent doesn't have wait for it again.
   */
  readonly carriedOn: (held: ReadonlySet<Bridge.MessageId> | undefined) => ReadonlyArray<Bridge.KnownPart>
}

/** Makes the table of a turn. `append` logs a part, synced; `redact` replaces secrets in it. */
export const make = (options: {
  readonly turn: Bridge.TurnId
  readonly append: (part: Bridge.Part) => Effect.Effect<number, Bridge.LogUnavailable>
  readonly redact: (part: typeof Bridge.UserMessage.Type) => typeof Bridge.UserMessage.Type
}): Messages => {
  const { append, redact, turn } = options
  const entries = new Map<Bridge.MessageId, Entry>()
  const oneAtATime = Semaphore.makeUnsafe(1)
  let closed = false

  const waiting = () => Array.from(entries.values()).filter(({ waits }) => waits)

  const take = (entry: Entry) => {
    entry.waits = false
    entry.given = undefined
    // What remains of it is what tells it from others.
    if (entry.digest !== undefined) entry.logged = undefined
  }

  return {
    observe: ({ n, part }) => {
      if (!Bridge.isKnown(part)) return
      switch (part.type) {
        case "user-message": {
          const { delivery, messageId, prompt } = part
          const before = entries.get(messageId)
          if (before !== undefined) before.accepted = n
          else {
            entries.set(messageId, {
              messageId,
              delivery,
              logged: prompt,
              given: undefined,
              digest: undefined,
              size: 0,
              accepted: n,
              delivered: undefined,
              waits: true
            })
          }
          return
        }
        case "user-message-delivered": {
          const entry = entries.get(part.messageId)
          if (entry === undefined) return
          entry.delivered = n
          entry.waits = false
          return
        }
        case "turn-continued":
          for (const entry of entries.values()) {
            if (entry.accepted !== undefined && entry.accepted > part.keep) entry.accepted = undefined
            if (entry.delivered !== undefined && entry.delivered > part.keep) entry.delivered = undefined
          }
      }
    },

    ids: () => Array.from(entries.keys()),

    repeated: Effect.fnUntraced(function*({ delivery, messageId, prompt }) {
      const entry = entries.get(messageId)
      if (entry === undefined) return undefined
      const conflict = (field: "prompt" | "delivery") => new Bridge.MessageConflict({ turn, messageId, field })
      const isSame = entry.digest === undefined
        ? mayComeFrom(entry.logged, prompt)
        : entry.digest === (yield* digestJson(prompt))
      if (!isSame) return yield* conflict("prompt")
      if (delivery !== undefined && delivery !== entry.delivery) return yield* conflict("delivery")
      return entry.delivery
    }),

    accept: Effect.fnUntraced(function*({ delivery, messageId, prompt }) {
      if (closed) return false
      const before = waiting()
      const size = canonicalJson(prompt).length
      const total = before.reduce((sum, entry) => sum + entry.size, size)
      if (before.length >= Bridge.maxWaitingMessages || (before.length > 0 && total > Bridge.maxWaitingBytes)) {
        return yield* new Bridge.TooManyMessages({ turn, limit: Bridge.maxWaitingMessages })
      }
      const part = redact({ type: "user-message", messageId, prompt, delivery })
      const digest = yield* digestJson(prompt)
      const accepted = yield* append(part)
      entries.set(messageId, {
        messageId,
        delivery,
        logged: part.prompt,
        given: prompt,
        digest,
        size,
        accepted,
        delivered: undefined,
        waits: true
      })
      return true
    }, (effect) => oneAtATime.withPermit(Effect.uninterruptible(effect))),

    delivered: Effect.fnUntraced(function*(messageId, log) {
      const entry = entries.get(messageId)
      if (entry === undefined || !entry.waits) return
      take(entry)
      yield* log({ type: "user-message-delivered", messageId })
    }),

    next: Effect.gen(function*() {
      const entry = closed ? undefined : waiting()[0]
      if (entry === undefined) {
        closed = true
        return undefined
      }
      const { delivery, given, logged, messageId } = entry
      entry.delivered = yield* append({ type: "user-message-delivered", messageId })
      take(entry)
      return { messageId, delivery, prompt: given ?? logged! }
    }).pipe((effect) => oneAtATime.withPermit(Effect.uninterruptible(effect))),

    close: () => {
      closed = true
    },

    carriedOn: (held) => {
      const parts: Array<Bridge.KnownPart> = []
      for (const entry of entries.values()) {
        const { accepted, delivered, delivery, logged, messageId } = entry
        if (held !== undefined) entry.waits = !held.has(messageId)
        if (accepted === undefined) parts.push({ type: "user-message", messageId, prompt: logged!, delivery })
        if (delivered === undefined && !entry.waits) parts.push({ type: "user-message-delivered", messageId })
      }
      return parts
    }
  }
}
