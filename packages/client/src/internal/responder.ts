/**
 * Runs a host's tools and handlers for a turn: for calls and requests that nobody has answered yet.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Stream from "effect/Stream"
import type { ReadError, TurnPart } from "../Turn.ts"

/** What answers a part, if anything of this host does. */
export type Answer = (part: Bridge.Part) => Effect.Effect<void> | undefined

/**
 * Reads parts and answers those that are open. An answer that's on its way is interrupted when another one is in the
 * log, and when the attempt is over. There are as many at a time as the agent waits for.
 *
 * Before number `liveFrom` all is history: what is asked there waits until it's known that no answer follows.
 */
export const respond = (options: {
  readonly parts: Stream.Stream<TurnPart, ReadError>
  readonly liveFrom: number
  readonly answer: Answer
}): Effect.Effect<void, ReadError> =>
  Effect.scoped(Effect.gen(function*() {
    const { answer, liveFrom, parts } = options
    const running = yield* FiberMap.make<string>()
    const waiting = new Map<string, Effect.Effect<void>>()

    yield* Stream.runForEachArray(parts, (chunk) =>
      Effect.gen(function*() {
        let attemptIsOver = false
        for (const { part } of chunk) {
          if (part.type === "turn-continued") {
            waiting.clear()
            attemptIsOver = true
          }
          const asked = askedKey(part)
          if (asked !== undefined) {
            const effect = answer(part)
            if (effect !== undefined) waiting.set(asked, effect)
          }
          const answered = answeredKey(part)
          if (answered !== undefined) {
            waiting.delete(answered)
            yield* FiberMap.remove(running, answered)
          }
        }
        if (attemptIsOver) yield* FiberMap.clear(running)
        const last = chunk[chunk.length - 1]!
        if ((last.last ?? last.n) + 1 < liveFrom) return
        for (const [key, effect] of waiting) yield* FiberMap.run(running, key, effect)
        waiting.clear()
      }))
  }))

const askedKey = (part: Bridge.Part): string | undefined => {
  switch (part.type) {
    case "tool-call":
      return part.providerExecuted === false ? `call ${part.id}` : undefined
    case "tool-approval-request":
      return `approval ${part.approvalId}`
    case "question":
      return `question ${part.questionId}`
    default:
      return undefined
  }
}

const answeredKey = (part: Bridge.Part): string | undefined => {
  switch (part.type) {
    case "tool-result":
      return part.preliminary === true ? undefined : `call ${part.id}`
    case "tool-approval-response":
      return `approval ${part.approvalId}`
    case "question-answer":
      return `question ${part.questionId}`
    default:
      return undefined
  }
}
