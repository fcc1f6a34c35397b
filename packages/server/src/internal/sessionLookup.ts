/**
 * What a session's commands look up before they do anything: its file, who holds it, how its turns stand.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Answers from "./answers.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import type { EarlierTurns } from "./earlierTurns.ts"
import type { Holding, OpenLog } from "./holding.ts"
import * as Messages from "./messages.ts"
import type { SessionCore } from "./sessionCore.ts"
import type { SessionFile } from "./sessionFile.ts"

/** What this version can't read is out of reach for all commands but those that have an error for it. */
export const orUnavailable = <A, E, R>(effect: Effect.Effect<A, E | Bridge.UnsupportedFormat, R>) =>
  Effect.mapError(
    effect,
    (error): Exclude<E, Bridge.UnsupportedFormat> | Bridge.LogUnavailable =>
      error instanceof Bridge.UnsupportedFormat
        ? new Bridge.LogUnavailable({ problem: error.message })
        : error as Exclude<E, Bridge.UnsupportedFormat>
  )

export const stateOf = (end: Bridge.End | undefined): Bridge.TurnState => end === undefined ? "running" : end.type

export type SessionLookup = ReturnType<typeof make>

export const make = (context: BridgeContext, core: SessionCore) => {
  const { id } = core

  const turnNotFound = (file: SessionFile, turn: Bridge.TurnId, earlier: EarlierTurns) => {
    const end = earlier.get(turn)
    return new Bridge.TurnNotFound({
      session: id,
      turn,
      ...(file.latest === undefined ? {} : { latest: file.latest.turn }),
      ...(end === undefined ? {} : { end })
    })
  }

  return {
    requireFile: Effect.filterOrFail(
      orUnavailable(core.file),
      (file) => file !== undefined,
      () => new Bridge.SessionNotFound({ session: id })
    ),

    heldOrBusy: Effect.flatMap(
      orUnavailable(core.holdIfFree),
      (outcome) => outcome._tag === "Mine" ? Effect.succeed(outcome.holding) : Effect.fail(outcome.busy)
    ),

    /** How the latest turn stands. An end that couldn't be written when it came is written now, or it isn't told. */
    latestStatus: Effect.fnUntraced(function*(holding: Holding) {
      const { log } = holding.log()!
      const { end } = holding.file()!.latest!
      const status = yield* log.status
      if (status.end !== undefined || end === undefined || core.running() !== undefined) return status
      const line = yield* log.end(end)
      return { ...status, end: line.end, next: line.next }
    }),

    turnNotFound,

    /** How a turn before the latest one ended; fails where there never was such a turn. */
    earlierEnd: (file: SessionFile, turn: Bridge.TurnId) => {
      if (file.latest?.turn === turn) return Effect.undefined
      return Effect.flatMap(core.earlier(file), (earlier) => {
        const end = earlier.get(turn)
        return end === undefined ? Effect.fail(turnNotFound(file, turn, earlier)) : Effect.succeed(end)
      })
    },

    /** A turn's table of what is asked, with nothing in it. */
    answersOf: (opened: OpenLog) => {
      const redaction = core.redaction()
      return Answers.make({
        append: opened.log.appendSynced,
        // Only what comes piece by piece is held back.
        redact: (answer) => redaction.apply(answer)[0] as Answers.Answer
      })
    },

    /** A turn's table of what hosts sent, with nothing in it. */
    messagesOf: ({ log }: OpenLog) => {
      const redaction = core.redaction()
      return Messages.make({
        turn: log.turn,
        append: log.appendSynced,
        redact: (message) => redaction.apply(message)[0] as typeof message
      })
    },

    unsupported: (capability: string) => new Bridge.Unsupported({ driver: context.driver.name, capability })
  }
}
