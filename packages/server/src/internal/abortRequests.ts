/**
 * The commands that wait for their place in a session's queue to end what runs: a start before them, which they wait
 * for, doesn't wait for its agent any longer then.
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
}

export interface AbortRequests {
  /** A command waits, until what's given back is called. */
  readonly add: (request: AbortRequest) => () => void
  /** Waits for one of this attempt. One command at a time may wait. */
  readonly await: (turn: TurnId, attempt: number) => Effect.Effect<AbortRequest>
}

/** As many wait as the session's queue is long. */
export const make = (): AbortRequests => {
  const waiting = new Set<AbortRequest>()
  const changed = Latch.makeUnsafe(false)

  const awaitOne: AbortRequests["await"] = (turn, attempt) =>
    Effect.suspend(() => {
      for (const request of waiting) {
        if ((request.turn ?? turn) === turn && (request.attempt ?? attempt) === attempt) return Effect.succeed(request)
      }
      changed.closeUnsafe()
      return Effect.andThen(changed.await, awaitOne(turn, attempt))
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
