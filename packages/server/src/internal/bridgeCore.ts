/**
 * The bridge without a transport: its procedures, its idleness, its end.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import type * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { Driver } from "../Driver.ts"
import type { Session } from "../Session.ts"
import type { Holder } from "../SessionLock.ts"
import type { StateDirectory } from "../StateDirectory.ts"
import type { Ended } from "../Supervisor.ts"
import type { ReadEvent } from "../TurnLog.ts"
import * as DestroyedSessions from "./destroyedSessions.ts"
import * as SessionFile from "./sessionFile.ts"
import * as Sessions from "./sessions.ts"

/** What a bridge does: how many turns run, and since when it's idle, in milliseconds of the monotonic clock. */
export interface Activity {
  readonly turns: number
  readonly lastActiveAt: number
}

/** The bridge's standing on its state directory. */
export interface Standing {
  readonly isReplaced: () => boolean
  /** Looks now; before anything new is accepted. */
  readonly check: Effect.Effect<void, Bridge.Replaced>
  readonly listening: Effect.Effect<Bridge.ListeningFile | undefined>
}

export interface Options {
  readonly driver: Driver
  readonly bridge: Bridge.BridgeId
  readonly state: StateDirectory
  readonly holder: Holder
  readonly standing: Standing
  readonly activity: Ref.Ref<Activity>
  readonly secrets: Readonly<Record<string, Redacted.Redacted<string>>>
  readonly sync: boolean
  readonly maxTurnBytes: number
}

type Handler<R extends Rpc.Any> = (payload: Rpc.Payload<R>) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R>>

export interface Handlers {
  readonly Hello: Handler<typeof Bridge.Hello>
  readonly StartSession: Handler<typeof Bridge.StartSession>
  readonly StartTurn: Handler<typeof Bridge.StartTurn>
  readonly ReadTurn: (
    payload: Rpc.Payload<typeof Bridge.ReadTurn>
  ) => Stream.Stream<ReadEvent, Rpc.ErrorExit<typeof Bridge.ReadTurn>>
  readonly AbortTurn: Handler<typeof Bridge.AbortTurn>
  readonly SubmitToolResult: Handler<typeof Bridge.SubmitToolResult>
  readonly Approve: Handler<typeof Bridge.Approve>
  readonly SendMessage: Handler<typeof Bridge.SendMessage>
  readonly Compact: Handler<typeof Bridge.Compact>
  readonly ReadState: Handler<typeof Bridge.ReadState>
  readonly StopSession: Handler<typeof Bridge.StopSession>
  readonly DestroySession: Handler<typeof Bridge.DestroySession>
}

export interface BridgeCore {
  readonly state: StateDirectory
  readonly handlers: Handlers
  /** Frees what no turn needs: a newer bridge serves the state directory. */
  readonly yieldToNewer: Effect.Effect<void>
  /** Ends all turns, and waits a moment for their readers to be told. */
  readonly shutdown: Effect.Effect<void>
  /** Decides to exit, and refuses what is new from then on, if nothing runs and `mayExit` says so. */
  readonly closeIf: (mayExit: (activity: Activity) => boolean) => Effect.Effect<boolean>
}

// A turn's processes have had their chance by then.
const shutdownTimeout = Duration.seconds(5)
// Readers that keep up take less; the others read the end from the next bridge.
const drainTimeout = Duration.millis(300)
// Drivers that ignore their interruption are left behind.
const closeTimeout = Duration.seconds(1)
// Of a bridge that died, large turns take longer to look through: until then they're listed as they were.
const adoptTimeout = Duration.seconds(2)

// What doesn't end in time goes on by itself: as a program ends, its process does too.
const within = (duration: Duration.Duration, effect: Effect.Effect<void>) =>
  Effect.forkDetach(effect).pipe(
    Effect.flatMap((fiber) => Effect.timeoutOption(Fiber.await(fiber), duration)),
    Effect.asVoid
  )

/** Makes the bridge; closing the scope ends its turns, its sessions and their processes. */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<BridgeCore, never, FileSystem.FileSystem | Path.Path | Scope.Scope> {
  const { activity, driver, standing, state } = options
  const destroyed = yield* DestroyedSessions.make(state)
  const now = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))
  const touch = (turns: number) =>
    Effect.flatMap(
      now,
      (lastActiveAt) => Ref.update(activity, (before) => ({ turns: before.turns + turns, lastActiveAt }))
    )

  // Turns are ended before what they run in is closed.
  const scope = yield* Scope.make()
  const sessions = yield* Sessions.make({
    ...options,
    scope,
    destroyed,
    secrets: { ...options.secrets, ...driver.secrets },
    isReplaced: standing.isReplaced,
    check: standing.check,
    listening: standing.listening,
    turnStarted: touch(1),
    turnEnded: touch(-1)
  })
  let closing = false
  let readers = 0
  const drained = Effect.suspend(() =>
    readers === 0 ? Effect.void : Effect.repeat(Effect.sleep("10 millis"), { until: () => readers === 0 })
  )
  const shutdown = yield* Effect.cached(Effect.suspend(() => {
    closing = true
    return Effect.andThen(
      within(shutdownTimeout, sessions.shutdown),
      Effect.asVoid(Effect.timeoutOption(drained, drainTimeout))
    )
  }))
  yield* Effect.addFinalizer((exit) => Effect.andThen(shutdown, within(closeTimeout, Scope.close(scope, exit))))
  yield* touch(0)

  // In the bridge's scope: no host's connection ends a command half-way. Commands that come one after the other reach
  // their session's queue in that order.
  const carryOut = <A, E>(command: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.flatMap(Effect.forkIn(command, scope), Fiber.join)

  // Commands that may start a turn and haven't yet.
  let starting = 0

  // What may start something, unless the bridge is on its way out: that's decided where it's counted. Whether a newer
  // bridge is there is looked at when the command's turn has come.
  const accept = <A, E>(command: Effect.Effect<A, E>): Effect.Effect<A, E | Bridge.Closing> =>
    Effect.suspend((): Effect.Effect<A, E | Bridge.Closing> => {
      if (closing) return Effect.fail(new Bridge.Closing())
      starting++
      return carryOut(Effect.ensuring(
        Effect.andThen(touch(0), command),
        Effect.sync(() => {
          starting--
        })
      ))
    })

  // Turns of a bridge that died get their ends. That may have been a replaced one, at any time.
  const adopting = carryOut(sessions.adopt)
  yield* Effect.forkIn(sessions.adopt, scope)
  yield* Effect.forkIn(Effect.ignore(state.removeRemains), scope)

  type OfSession = { readonly session: Bridge.SessionId }
  const notFound = ({ session }: OfSession) => new Bridge.SessionNotFound({ session })
  const inSession = <A, E>(payload: OfSession, command: (session: Session) => Effect.Effect<A, E>) =>
    sessions.command<A, E | Bridge.SessionNotFound>(payload.session, command, Effect.fail(notFound(payload)))
  const noProcesses: Effect.Effect<Ended> = Effect.succeed({ ended: [], left: [] })

  const countReader = Effect.acquireRelease(
    Effect.sync(() => {
      readers++
    }),
    () =>
      Effect.sync(() => {
        readers--
      })
  )

  const handlers: Handlers = {
    Hello: Effect.fnUntraced(function*({ protocol }) {
      if (protocol !== Bridge.protocolVersion) {
        return yield* new Bridge.ProtocolMismatch({ host: protocol, bridge: Bridge.protocolVersion })
      }
      yield* Effect.timeoutOption(adopting, adoptTimeout)
      return {
        protocol: Bridge.protocolVersion,
        bridge: options.bridge,
        launch: options.holder.launch,
        driver: { name: driver.name, version: driver.version },
        capabilities: driver.capabilities,
        limits: {
          request: Bridge.maxRequestBytes,
          line: Bridge.maxLineBytes,
          state: Bridge.maxStateBytes,
          turn: options.maxTurnBytes,
          streams: Bridge.maxStreams,
          turns: SessionFile.maxTurns
        },
        sessions: yield* sessions.list
      }
    }),
    StartSession: (payload) => accept(sessions.start(payload.session, (session) => session.startSession(payload))),
    StartTurn: (payload) => accept(inSession(payload, (session) => session.startTurn(payload))),
    ReadTurn: (payload) =>
      sessions.read(
        payload.session,
        (session) => Stream.unwrap(Effect.as(countReader, session.readTurn(payload))),
        Stream.fail(notFound(payload))
      ),
    AbortTurn: (payload) => carryOut(inSession(payload, (session) => session.abortTurn(payload))),
    SubmitToolResult: (payload) => carryOut(inSession(payload, (session) => session.submitToolResult(payload))),
    Approve: (payload) => carryOut(inSession(payload, (session) => session.approve(payload))),
    SendMessage: (payload) => carryOut(inSession(payload, (session) => session.sendMessage(payload))),
    Compact: (payload) => carryOut(inSession(payload, (session) => session.compact(payload))),
    ReadState: (payload) => carryOut(inSession(payload, (session) => session.readState(payload))),
    StopSession: (payload) =>
      carryOut(sessions.command(payload.session, (session) => session.stopSession(payload), noProcesses)),
    DestroySession: (payload) =>
      carryOut(sessions.command<Ended, Rpc.Error<typeof Bridge.DestroySession>>(
        payload.session,
        (session) => session.destroySession(payload),
        Effect.andThen(state.removeRemains, noProcesses)
      ))
  }

  return {
    state,
    handlers,
    shutdown,
    yieldToNewer: sessions.yieldToNewer,
    closeIf: (mayExit) =>
      Effect.map(Ref.get(activity), (current) => {
        closing ||= current.turns === 0 && starting === 0 && mayExit(current)
        return closing
      })
  }
})
