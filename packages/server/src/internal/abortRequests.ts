/**
 * The commands that wait for their place in a session's queue to end what runs: what's carried out before them doesn't
 * wait for its agent any longer then.
 */
import type { TurnId } from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type { Abort } from "./runningTurn.ts"

export interface AbortRequest {
  /** Absent, whichever there is. */
  readonly turn?: TurnId | undefined
  /** Absent, whichever there is. */
  readonly attempt?: number | undefined
  readonly abort: Abort
  /**
   * Whether it's for another bridge: `takeover` where that asks for the session, `yielding` where it may, so that turns,
   * and what's under way to end the session, go on.
   */
  readonly newer?: "takeover" | "yielding" | undefined
}

export interface AbortRequests {
  /** A command waits, until what's given back is called. */
  readonly add: (request: AbortRequest) => () => void
  /** Waits for one of a kind. One command at a time may wait. */
  readonly await: (isMeant: (request: AbortRequest) => boolean) => Effect.Effect<AbortRequest>
}

/** Whether a request ends an attempt, by itself or with its session. */
export const endsAttempt = (turn: TurnId, attempt: number) => (request: AbortRequest): boolean =>
  request.newer !== "yielding" && (request.turn ?? turn) === turn && (request.attempt ?? attempt) === attempt

/** Whether a request ends all that the session does, or all but its turns. */
export const endsSession = (request: AbortRequest): boolean => request.turn === undefined

/** Whether a request takes the session from whoever ends it already. */
export const takesSession = ({ abort, newer }: AbortRequest): boolean =>
  newer === "takeover" || abort.reason === "destroyed"

/** As many wait as the session's queue is long. */
export const make = (): AbortRequests => {
  const waiting = new Set<AbortRequest>()
  const changed = Latch.makeUnsafe(false)

  const awaitOne: AbortRequests["await"] = (isMeant) =>
    Effect.suspend(() => {
      for (const request of waiting) {
        if (isMeant(request)) return Effect.succeed(request)
      }
      changed.closeUnsafe()
      return Effect.andThen(changed.await, awaitOne(isMeant))
    })

  return {
    add: (request) => {
      waiting.add(request)
      changed.openUnsafe()
      return () => {
        waiting.delete(request)
      }
    },
    await: awaitOne
  }
}
