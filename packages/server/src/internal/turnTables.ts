/**
 * What a turn's agent asked, what hosts answered and what they sent, whether the turn runs or is over.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type * as Answers from "./answers.ts"
import type * as Messages from "./messages.ts"
import type { Running, SessionCore } from "./sessionCore.ts"
import type { SessionLookup } from "./sessionLookup.ts"
import { scan } from "./turnScan.ts"

export interface TurnTables {
  readonly answers: Answers.Answers
  readonly messages: Messages.Messages
  readonly running: Running | undefined
  readonly end: Bridge.End | undefined
}

/** Finds the latest turn's tables: the running turn's, or what its log says. An earlier turn is over. */
export const find = Effect.fnUntraced(function*(core: SessionCore, lookup: SessionLookup, turn: Bridge.TurnId) {
  const { answersOf, earlierEnd, heldOrBusy, latestStatus, messagesOf, requireFile } = lookup
  const file = yield* requireFile
  const running = core.running()
  if (running !== undefined && running.turn === turn) {
    const { answers, messages } = running
    return { answers, messages, running, end: undefined } satisfies TurnTables
  }
  const over = yield* earlierEnd(file, turn)
  if (over !== undefined) return yield* new Bridge.TurnEnded({ turn, end: over })
  const holding = yield* heldOrBusy
  const opened = holding.log()!
  const { end } = yield* latestStatus(holding)
  const answers = answersOf(opened)
  const messages = messagesOf(opened)
  yield* Stream.runForEachArray(
    scan(opened.log),
    (parts) =>
      Effect.sync(() => {
        for (const numbered of parts) {
          answers.observe(numbered.part)
          messages.observe(numbered)
        }
      })
  ).pipe(
    Effect.mapError((error) => new Bridge.LogUnavailable({ problem: error.message }))
  )
  return { answers, messages, running: undefined, end } satisfies TurnTables
})
