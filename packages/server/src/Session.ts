/**
 * A session: what its hosts command, one command at a time, and what runs of it.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Path from "effect/Path"
import type * as Stream from "effect/Stream"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { AgentSession } from "./Driver.ts"
import * as AbortRequests from "./internal/abortRequests.ts"
import type { BridgeContext } from "./internal/bridgeContext.ts"
import { busyBy } from "./internal/busy.ts"
import * as EarlierTurns from "./internal/earlierTurns.ts"
import type { Holding } from "./internal/holding.ts"
import * as SessionCore from "./internal/sessionCore.ts"
import * as SessionFile from "./internal/sessionFile.ts"
import * as SessionLookup from "./internal/sessionLookup.ts"
import { optionDigests, sessionDirectory } from "./internal/sessionOptions.ts"
import * as TurnAnswers from "./internal/turnAnswers.ts"
import * as TurnMessages from "./internal/turnMessages.ts"
import * as TurnReads from "./internal/turnReads.ts"
import * as TurnStarts from "./internal/turnStarts.ts"
import type { ReadEvent } from "./TurnLog.ts"

type Command<R extends Rpc.Any> = (payload: Rpc.Payload<R>) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R>>

/**
 * A session of this bridge's state directory, whether this bridge holds it or not.
 *
 * @category models
 * @since 0.1.0
 */
export interface Session {
  readonly startSession: Command<typeof Bridge.StartSession>
  readonly startTurn: Command<typeof Bridge.StartTurn>
  readonly readTurn: (
    payload: Rpc.Payload<typeof Bridge.ReadTurn>
  ) => Stream.Stream<ReadEvent, Rpc.ErrorExit<typeof Bridge.ReadTurn>>
  readonly abortTurn: Command<typeof Bridge.AbortTurn>
  readonly submitToolResult: Command<typeof Bridge.SubmitToolResult>
  readonly approve: Command<typeof Bridge.Approve>
  readonly sendMessage: Command<typeof Bridge.SendMessage>
  readonly compact: Command<typeof Bridge.Compact>
  readonly readState: Command<typeof Bridge.ReadState>
  readonly stopSession: Command<typeof Bridge.StopSession>
  readonly destroySession: Command<typeof Bridge.DestroySession>
  /** Absent where there's no such session on disk. */
  readonly summary: Effect.Effect<Bridge.SessionSummary | undefined>
  /** Takes the session if its bridge died while its agent was active: its turn ends, its processes are ended. */
  readonly adopt: Effect.Effect<void>
  /** Frees the session if no turn runs: a newer bridge serves the state directory. */
  readonly yieldToNewer: Effect.Effect<void>
  /** Ends all that runs and the session's queue, because the bridge exits, or the session is gone. */
  readonly shutdown: Effect.Effect<void>
  /** Whether this bridge holds it, with what's on disk of it. */
  readonly isKnown: () => boolean
}

/** How much `Hello` lists of what a turn waits for. */
const maxWaiting = 16

const stateBytes = (state: unknown): number => new TextEncoder().encode(JSON.stringify(state)).length

const nothing = { ended: [], left: [] }

// How long a driver may take to delete a conversation.
const forgetTimeout = Duration.minutes(1)

const comparedOptions = ["directory", "instructions", "tools", "permissions", "mcpServers"] as const

/**
 * Makes a session of the state directory; nothing is read or locked yet.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function*(
  context: BridgeContext,
  id: Bridge.SessionId
): Effect.fn.Return<Session, never, FileSystem.FileSystem | Path.Path> {
  const services = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const core = yield* SessionCore.make(context, id)
  const { driver } = context
  const { queue } = core

  const lookup = SessionLookup.make(context, core)
  const { earlierEnd, heldOrBusy, latestStatus, requireFile, unsupported } = lookup

  // What waits for the driver is cut short by a command that ends the session, or gives it to another bridge.
  const unlessEnded = <A, E>(waiting: Effect.Effect<A, E>, isEnd = AbortRequests.endsSession) =>
    Effect.raceFirst(
      waiting,
      Effect.flatMap(
        core.abortRequests.await(isEnd),
        Effect.fnUntraced(function*({ abort, newer }) {
          if (newer !== undefined) return yield* busyBy(id, yield* context.listening)
          const problem = `the session was ${abort.reason} while its agent was waited for`
          return yield* new Bridge.DriverError({ driver: driver.name, kind: "unknown", problem })
        })
      )
    )

  // ---------------------------------------------------------------------------
  // StartSession
  // ---------------------------------------------------------------------------

  const conflict = (file: SessionFile.SessionFile, digests: SessionFile.SessionFile["digests"]) => {
    const field = comparedOptions.find((option) => file.digests[option] !== digests[option])
    return field === undefined ? Effect.void : Effect.fail(new Bridge.SessionConflict({ session: id, field }))
  }

  const startSession: Session["startSession"] = ({ session: _, ...asked }) =>
    queue.run(
      { name: "other" },
      Effect.gen(function*() {
        yield* context.check
        if (yield* context.destroyed.has(id)) return yield* new Bridge.SessionDestroyed({ session: id })
        const directory = yield* sessionDirectory(context, asked.directory)
        const options = { ...asked, directory }
        const digests = yield* optionDigests(options)
        // What doesn't fit takes nothing from another bridge.
        const known = yield* core.file
        if (known !== undefined) yield* conflict(known, digests)
        const holding = yield* core.need("bridge-replaced")
        const file = holding.file()
        if (file === undefined) {
          yield* holding.create({
            format: SessionFile.format,
            session: id,
            directory,
            digests,
            driver: { name: driver.name, version: driver.version },
            established: false,
            active: false,
            earlier: EarlierTurns.empty,
            rules: []
          }).pipe(
            Effect.andThen(Effect.suspend(() => {
              core.setOptions(options)
              return unlessEnded(core.openAgent(holding, asked.state))
            })),
            // Nothing is left of a session that couldn't be had.
            Effect.onError(() => Effect.ignore(core.remove))
          )
          return { resumed: false }
        }
        yield* conflict(file, digests)
        core.setOptions(options)
        // What runs has its agent; what's new is the next turn's.
        if (core.running() === undefined && core.compaction() === undefined) {
          yield* unlessEnded(core.openAgent(holding, asked.state))
        }
        return { resumed: true }
      }).pipe(
        // A newer bridge that asks for the session is known by then.
        Effect.catchTag("SessionBusy", (busy) => Effect.andThen(context.check, busy)),
        Effect.provide(services)
      )
    )

  // ---------------------------------------------------------------------------
  // AbortTurn
  // ---------------------------------------------------------------------------

  const abortTurn: Session["abortTurn"] = (payload) =>
    core.runEnding(
      { name: "abort", turn: payload.turn },
      { turn: payload.turn, attempt: payload.attempt, abort: { reason: "host", message: payload.reason } },
      abortTurnNow(payload)
    )

  // How the turn stands that's to be aborted, if the attempt is the one that's meant.
  const standing = Effect.fnUntraced(function*<E>(
    { attempt: meant, turn }: Rpc.Payload<typeof Bridge.AbortTurn>,
    file: SessionFile.SessionFile,
    latest: Effect.Effect<{ readonly attempt: number; readonly end?: Bridge.End | undefined }, E>
  ) {
    const over = yield* earlierEnd(file, turn)
    if (over !== undefined) return { isLatest: false, end: over }
    const { attempt, end } = yield* latest
    if (meant === undefined || meant === attempt) return { isLatest: true, end }
    return yield* new Bridge.TurnConflict({ turn, field: "attempt", attempt, state: SessionLookup.stateOf(end) })
  })

  const abortTurnNow = Effect.fnUntraced(function*(payload: Rpc.Payload<typeof Bridge.AbortTurn>) {
    const known = yield* requireFile
    // Another bridge's turn isn't ended for the sake of one that's over.
    const before = yield* standing(payload, known, Effect.sync(() => known.latest!))
    if (!before.isLatest) return { end: before.end!, ...nothing }
    const holding = yield* SessionLookup.orUnavailable(core.need("host"))
    // It may have been destroyed meanwhile, or another turn begun, by who had it before.
    const held = holding.file()
    if (held === undefined) return yield* new Bridge.SessionNotFound({ session: id })
    const { end, isLatest } = yield* standing(payload, held, latestStatus(holding))
    const running = core.running()
    if (!isLatest || running === undefined) return { end: end!, ...nothing }
    yield* running.abort({ reason: "host", message: payload.reason })
    return yield* Deferred.await(running.settled)
  })

  // ---------------------------------------------------------------------------
  // Compact and ReadState
  // ---------------------------------------------------------------------------

  const compact: Session["compact"] = ({ instructions }) =>
    Effect.flatMap(
      queue.run(
        { name: "other" },
        Effect.gen(function*() {
          yield* requireFile
          if (core.options() === undefined) return yield* new Bridge.SessionNotStarted({ session: id })
          const joined = core.compaction()
          if (joined !== undefined) return joined
          const running = yield* core.runningStill
          if (running !== undefined) return yield* new Bridge.TurnRunning({ turn: running.turn })
          const holding = yield* heldOrBusy
          const agent = yield* unlessEnded(core.openAgent(holding))
          if (agent.compact === undefined) return yield* unsupported("compaction")
          return yield* core.startCompaction(agent.compact(instructions))
        })
      ),
      ({ outcome }) => Deferred.await(outcome)
    ).pipe(
      Effect.map(({ summary }) => summary === undefined ? {} : { summary: core.redaction().text(summary) })
    )

  const stateOfAgent = Effect.fnUntraced(function*(agent: AgentSession) {
    if (agent.readState === undefined) return yield* unsupported("state")
    const state = yield* agent.readState
    const bytes = stateBytes(state)
    if (bytes > Bridge.maxStateBytes) return yield* new Bridge.StateTooLarge({ bytes, limit: Bridge.maxStateBytes })
    return state
  })

  const readState: Session["readState"] = () =>
    queue.run(
      { name: "other", needsAgent: true },
      Effect.gen(function*() {
        yield* requireFile
        const holding = yield* heldOrBusy
        const running = yield* core.runningStill
        if (running !== undefined) return yield* new Bridge.TurnRunning({ turn: running.turn })
        return yield* unlessEnded(Effect.flatMap(core.openAgent(holding), stateOfAgent))
      })
    )

  // ---------------------------------------------------------------------------
  // StopSession and DestroySession
  // ---------------------------------------------------------------------------

  // Ends all that runs; the session stays held.
  const stop = Effect.fnUntraced(function*(holding: Holding, reason: "stopped" | "destroyed") {
    const turn = yield* core.endRunning({ reason })
    yield* core.stopCompaction
    const rest = yield* holding.supervisor.endAll
    return { ended: [...turn.ended, ...rest.ended], left: [...turn.left, ...rest.left] }
  })

  const stopSession: Session["stopSession"] = () =>
    core.runEnding(
      { name: "other" },
      { abort: { reason: "stopped" } },
      Effect.gen(function*() {
        if ((yield* SessionLookup.orUnavailable(core.file)) === undefined) return nothing
        const holding = yield* SessionLookup.orUnavailable(core.need("stopped"))
        // It may have been destroyed meanwhile.
        if (holding.file() === undefined) return yield* Effect.as(core.remove, nothing)
        const processes = yield* stop(holding, "stopped")
        const state = driver.capabilities.state
          ? yield* Effect.result(
            unlessEnded(Effect.flatMap(core.openAgent(holding), stateOfAgent), AbortRequests.takesSession)
          )
          : undefined
        yield* holding.note((current) => ({ ...current, rules: [] }))
        yield* core.free
        if (state?._tag === "Success") return { state: state.success, ...processes }
        if (state?.failure._tag === "StateTooLarge") return { stateTooLarge: true as const, ...processes }
        return processes
      })
    )

  const destroySession: Session["destroySession"] = () =>
    core.runEnding(
      { name: "other" },
      { abort: { reason: "destroyed" } },
      Effect.gen(function*() {
        if ((yield* SessionLookup.orUnavailable(core.remains)) === undefined) return nothing
        const holding = yield* SessionLookup.orUnavailable(core.need("destroyed"))
        const file = holding.file() ?? holding.remains
        if (file === undefined) return yield* Effect.as(core.remove, nothing)
        const processes = yield* stop(holding, "destroyed")
        yield* core.closeAgent
        const { conversation, directory } = file
        const { forget } = driver
        const isKnown = conversation !== undefined && directory !== undefined
        if (forget !== undefined && isKnown && file.driver?.name === driver.name) {
          const forgetting = Effect.suspend(() => forget({ conversation, directory }))
          yield* core.calls.call("deleting the conversation", forgetting, forgetTimeout).pipe(
            Effect.catchTag("ContextLost", () => Effect.void),
            (forgetting) => unlessEnded(forgetting, ({ newer }) => newer === "takeover")
          )
        }
        yield* Effect.uninterruptible(Effect.andThen(context.destroyed.add(id), core.remove))
        return processes
      })
    )

  // ---------------------------------------------------------------------------
  // The bridge's own doings
  // ---------------------------------------------------------------------------

  // How far the running turn is, and what it waits for.
  const progress = Effect.fnUntraced(function*(turn: Bridge.TurnId) {
    const running = core.running()
    const log = core.holding()?.log()
    if (running?.turn !== turn || log === undefined) return {}
    return { next: (yield* log.log.status).next, waiting: running.answers.waiting(maxWaiting) }
  })

  const summary = Effect.gen(function*(): Effect.fn.Return<Bridge.SessionSummary | undefined> {
    const file = Option.getOrUndefined(yield* Effect.option(core.file))
    if (file === undefined) return undefined
    const { directory, latest } = file
    const known = { session: id, dormant: core.options() === undefined, directory }
    if (latest === undefined) return known
    const state = SessionLookup.stateOf(latest.end)
    return {
      ...known,
      latest: {
        turn: latest.turn,
        attempt: latest.attempt,
        state,
        ...(state === "running" ? yield* progress(latest.turn) : {})
      }
    }
  })

  const adopt = Effect.gen(function*() {
    const file = yield* core.file
    if (file === undefined || (!file.active && (file.latest === undefined || file.latest.end !== undefined))) return
    yield* core.holdIfFree
    // Who asks for the session later is told what's wrong.
  }).pipe(Effect.ignore)

  const yieldToNewer = core.runEnding(
    { name: "other" },
    { abort: { reason: "bridge-replaced" }, newer: "yielding" },
    Effect.suspend(() => core.running() !== undefined || core.compaction() !== undefined ? Effect.void : core.free)
  )

  return {
    ...TurnAnswers.make(core, lookup),
    sendMessage: TurnMessages.make(context, core, lookup),
    startSession,
    startTurn: TurnStarts.make(context, core, lookup),
    readTurn: yield* TurnReads.make(context, core, lookup),
    abortTurn,
    compact,
    readState,
    stopSession,
    destroySession,
    summary,
    adopt,
    yieldToNewer,
    shutdown: core.shutdown,
    isKnown: () => core.holding()?.file() !== undefined
  }
})
