/**
 * Reading a turn: from this bridge's log, or from another's file.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Stream from "effect/Stream"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { Session } from "../Session.ts"
import * as TurnLog from "../TurnLog.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import type { Holding } from "./holding.ts"
import type { SessionCore } from "./sessionCore.ts"
import type * as SessionFile from "./sessionFile.ts"
import type { SessionLookup } from "./sessionLookup.ts"

type ReadStream = ReturnType<Session["readTurn"]>

/** Says that a log was closed before it was read. */
const closed = { _tag: "Closed" } as const

export const make = Effect.fnUntraced(function*(
  context: BridgeContext,
  core: SessionCore,
  { latestStatus, turnNotFound }: SessionLookup
): Effect.fn.Return<Session["readTurn"], never, FileSystem.FileSystem> {
  const services = yield* Effect.context<FileSystem.FileSystem>()
  const { id } = core

  const readTurn: Session["readTurn"] = ({ attempt, from, turn }) =>
    Stream.unwrap(Effect.gen(function*(): Effect.fn.Return<ReadStream, Rpc.ErrorExit<typeof Bridge.ReadTurn>> {
      const file = yield* core.file
      if (file === undefined) return yield* new Bridge.SessionNotFound({ session: id })
      const outcome = yield* core.holdIfFree
      if (outcome._tag === "Mine") return yield* readHeld(outcome.holding, file, turn, from, attempt)
      if (file.latest?.turn !== turn) return yield* turnNotFound(file, turn, yield* core.earlier(file))
      return readOthers(file, turn, from, attempt)
    }))

  const readHeld = Effect.fnUntraced(function*(
    holding: Holding,
    onDisk: SessionFile.SessionFile,
    turn: Bridge.TurnId,
    from: number,
    attempt: number | undefined
  ) {
    const opened = holding.log()
    // A file that's being written for the first time is on disk before it's known here.
    const gone = () => turnNotFound(holding.file() ?? onDisk, turn, holding.earlier)
    if (opened === undefined || opened.log.turn !== turn) return yield* gone()
    yield* Effect.ignore(latestStatus(holding))
    return opened.reading(opened.log.read({ from, attempt }), () => closed).pipe(
      Stream.catchIf(
        (error): error is typeof closed => error === closed,
        // The log of the latest turn is closed where the session was just let go: its next holder has the turn.
        () =>
          holding.file()?.latest?.turn === turn ? readTurn({ session: id, turn, from, attempt }) : Stream.fail(gone())
      )
    )
  })

  // Another bridge has the session: its file is read as it grows, until it ends or the other one died.
  const readOthers = (
    onDisk: SessionFile.SessionFile,
    turn: Bridge.TurnId,
    from: number,
    attempt: number | undefined
  ): ReadStream =>
    TurnLog.follow({
      path: context.state.turnFile(id, turn),
      turn,
      from,
      attempt,
      takeOver: Effect.map(Effect.option(core.holdIfFree), (outcome) => {
        if (outcome._tag === "None" || outcome.value._tag === "Busy") return undefined
        const { holding } = outcome.value
        if (holding.log()?.log.turn !== turn) return undefined
        return (options): ReadStream => Stream.unwrap(readHeld(holding, onDisk, turn, options.from, options.attempt))
      })
    }).pipe(
      Stream.catchTag("LogUnavailable", (error) =>
        Stream.unwrap(Effect.map(whyGone(turn), (gone) => Stream.fail(gone ?? error)))),
      Stream.provideContext(services)
    )

  // What can't be read may be a turn that another bridge has removed by now.
  const whyGone = (turn: Bridge.TurnId) =>
    Effect.gen(function*() {
      const file = yield* core.file
      if (file === undefined) return new Bridge.SessionNotFound({ session: id })
      return file.latest?.turn === turn ? undefined : turnNotFound(file, turn, yield* core.earlier(file))
    }).pipe(Effect.orElseSucceed(() => undefined))

  return readTurn
})
