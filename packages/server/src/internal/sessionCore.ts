/**
 * What a session is besides its commands: whether this bridge holds it, its open agent, its running turn.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as FileSystem from "effect/FileSystem"
import * as Latch from "effect/Latch"
import type * as Path from "effect/Path"
import * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as Redaction from "../Redaction.ts"
import * as SessionLock from "../SessionLock.ts"
import type { Ended } from "../Supervisor.ts"
import * as AbortRequests from "./abortRequests.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import { busyBy } from "./busy.ts"
import * as CommandQueue from "./commandQueue.ts"
import * as Conversation from "./conversation.ts"
import * as DriverCalls from "./driverCalls.ts"
import * as EarlierTurns from "./earlierTurns.ts"
import * as Holding from "./holding.ts"
import * as RunningTurn from "./runningTurn.ts"
import type { Remains, SessionFile } from "./sessionFile.ts"
import { addSecrets, secretsOf, type Started } from "./sessionOptions.ts"

export interface Running extends RunningTurn.RunningTurn {
  /** Resolves once the session has taken note of the end, too. */
  readonly settled: Deferred.Deferred<RunningTurn.Outcome>
}

type Compacted = { readonly summary?: string | undefined }

export interface Compaction {
  readonly fiber: Fiber.Fiber<void>
  readonly outcome: Deferred.Deferred<Compacted, Bridge.DriverError | Bridge.ContextLost | Bridge.SessionNotStarted>
}

export interface SessionCore {
  readonly id: Bridge.SessionId
  readonly queue: CommandQueue.CommandQueue
  readonly abortRequests: AbortRequests.AbortRequests
  /** Queues a command that ends what runs. */
  readonly runEnding: <A, E>(
    kind: CommandQueue.Kind,
    request: AbortRequests.AbortRequest,
    command: Effect.Effect<A, E>
  ) => Effect.Effect<A, E>
  readonly holding: () => Holding.Holding | undefined
  readonly running: () => Running | undefined
  /** The same for a command that mustn't come in between: of one whose end is in the log, it awaits the rest. */
  readonly runningStill: Effect.Effect<Running | undefined>
  readonly compaction: () => Compaction | undefined
  /** Absent while the session is dormant. */
  readonly options: () => Started | undefined
  /** A new one each time, with the secrets that are known now. */
  readonly redaction: () => Redaction.Redaction
  readonly calls: DriverCalls.DriverCalls
  /** The options of a started session from now on. */
  readonly setOptions: (options: Started) => void
  /** The session's file as it's held, or as it's on disk. */
  readonly file: Effect.Effect<SessionFile | undefined, Bridge.LogUnavailable | Bridge.UnsupportedFormat>
  /** The turns before the latest one of a file that was just looked at. */
  readonly earlier: (file: SessionFile) => Effect.Effect<EarlierTurns.EarlierTurns, Bridge.LogUnavailable>
  /** What there is to destroy, also of a session whose file is damaged. */
  readonly remains: Effect.Effect<SessionFile | Remains | undefined, Bridge.LogUnavailable | Bridge.UnsupportedFormat>
  /** What this bridge holds, else what it gets without asking anybody, else who has it. */
  readonly holdIfFree: Effect.Effect<
    | { readonly _tag: "Mine"; readonly holding: Holding.Holding }
    | { readonly _tag: "Busy"; readonly busy: Bridge.SessionBusy },
    Bridge.LogUnavailable | Bridge.UnsupportedFormat
  >
  /** Holds the session, handed over by another bridge where it has it. To be destroyed, its file may be damaged. */
  readonly need: (
    reason: Bridge.AbortReason
  ) => Effect.Effect<Holding.Holding, Bridge.SessionBusy | Bridge.LogUnavailable | Bridge.UnsupportedFormat>
  /** Ends all that runs of the session and frees its lock: it's dormant then. */
  readonly free: Effect.Effect<void>
  /** Ends the running turn, and waits until that's noted. */
  readonly endRunning: (abort: RunningTurn.Abort) => Effect.Effect<Ended>
  /** Removes the session's files, and frees it. */
  readonly remove: Effect.Effect<void, Bridge.LogUnavailable>
  readonly openAgent: Conversation.Conversation["open"]
  readonly closeAgent: Effect.Effect<void>
  /** Starts an attempt whose beginning is in the log. */
  readonly run: (
    holding: Holding.Holding,
    options: Omit<RunningTurn.Options, "supervisor" | "rules" | "session">
  ) => Effect.Effect<void>
  readonly startCompaction: (
    compact: Effect.Effect<Compacted, Bridge.DriverError | Bridge.ContextLost>
  ) => Effect.Effect<Compaction>
  readonly stopCompaction: Effect.Effect<void>
  /** Ends the command that's carried out and those that wait, all that runs, and the hold: the bridge exits. */
  readonly shutdown: Effect.Effect<void>
}

const nothing: Ended = { ended: [], left: [] }

// A lock that isn't had by then is another's.
const askingAfter = Duration.millis(200)

export const make = Effect.fnUntraced(function*(
  context: BridgeContext,
  id: Bridge.SessionId
): Effect.fn.Return<SessionCore, never, FileSystem.FileSystem | Path.Path> {
  const services = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const queueScope = yield* Scope.fork(context.scope)
  const queue = yield* Scope.provide(CommandQueue.make({ isAgentTaken: () => compaction !== undefined }), queueScope)
  const directory = context.state.sessionDirectory(id)
  const { driver } = context
  const oneHolder = Semaphore.makeUnsafe(1)

  let holding: Holding.Holding | undefined
  let options: Started | undefined
  let running: Running | undefined
  let compaction: Compaction | undefined

  const heldOr = <A, E>(read: Effect.Effect<A, E>) =>
    Effect.suspend((): Effect.Effect<A | SessionFile, E> => {
      const held = holding?.file()
      return held === undefined ? read : Effect.succeed(held)
    })
  const file = heldOr(Effect.provide(Holding.readFile(context, id), services))
  const remains = heldOr(Effect.provide(Holding.readRemains(context, id), services))
  const earlier: SessionCore["earlier"] = (file) =>
    Effect.suspend(() =>
      holding?.file() === undefined
        ? Effect.provide(EarlierTurns.read(context.state.earlierFile(id), file.earlier), services)
        : Effect.succeed(holding.earlier)
    )

  // Of all options since the session is held: what was started with earlier ones may run on with their secrets.
  let secrets: ReadonlyArray<Redaction.Secret> = []
  const makeRedaction = () => Redaction.make([...Object.entries(context.secrets), ...secrets])

  // Costs something to make, and processes are listed one by one.
  let redactedFor: { readonly secrets: typeof secrets; readonly redaction: Redaction.Redaction } | undefined
  const redact = (text: string) => {
    if (redactedFor?.secrets !== secrets) redactedFor = { secrets, redaction: makeRedaction() }
    return redactedFor.redaction.text(text)
  }
  const calls = DriverCalls.make({ driver: driver.name, scope: context.scope, redact })
  const { close: closeAgent, open: openAgent } = Conversation.make({
    context,
    session: id,
    calls,
    options: () => options
  })

  const busy = (holder: { readonly port: number; readonly launch: string } | undefined) => busyBy(id, holder)

  const stopCompaction = Effect.suspend(() => {
    const stopped = compaction
    if (stopped === undefined) return Effect.void
    return Effect.andThen(
      Deferred.fail(stopped.outcome, new Bridge.SessionNotStarted({ session: id })),
      Fiber.interrupt(stopped.fiber)
    )
  })

  const endRunning = (abort: RunningTurn.Abort): Effect.Effect<Ended> =>
    Effect.suspend(() => {
      const ending = running
      if (ending === undefined) return Effect.succeed(nothing)
      return Effect.andThen(ending.abort(abort), Deferred.await(ending.settled))
    })

  const runningStill = Effect.gen(function*() {
    const ending = running
    const log = holding?.log()
    if (ending === undefined || log === undefined || (yield* log.log.status).end === undefined) return ending
    yield* Deferred.await(ending.settled)
    return undefined
  })

  const free = Effect.suspend(() => {
    const freed = holding
    if (freed === undefined) return Effect.void
    return Effect.gen(function*() {
      const { left } = yield* freed.supervisor.endAll
      yield* closeAgent
      // What couldn't be ended is looked for again by whoever holds the session next.
      if (freed.file()?.active === true && left.length === 0) {
        yield* freed.note((current) => ({ ...current, active: false }))
      }
      const log = freed.log()
      if (log !== undefined) yield* log.retire
      options = undefined
      secrets = []
      holding = undefined
      yield* Scope.close(freed.scope, Exit.void)
    })
  })

  const remove = Effect.uninterruptible(Effect.andThen(context.state.removeSession(id), free))

  const endAll = (reason: Bridge.AbortReason) =>
    Effect.andThen(endRunning({ reason }), Effect.andThen(stopCompaction, free))

  const abortRequests = AbortRequests.make()
  const runEnding: SessionCore["runEnding"] = (kind, request, command) =>
    Effect.suspend(() => {
      const isCarriedOut = abortRequests.add(request)
      return queue.run(kind, Effect.andThen(Effect.sync(isCarriedOut), command))
    })

  const giveUp = (reason: Bridge.AbortReason) =>
    runEnding({ name: "abort", turn: running?.turn }, { abort: { reason }, newer: "takeover" }, endAll(reason))

  // Not in what it ends.
  const giveUpLater = Effect.suspend(() => Effect.forkIn(giveUp("bridge-replaced"), context.scope))

  const hold = <E>(
    lock: Effect.Effect<SessionLock.Outcome, E, Scope.Scope | FileSystem.FileSystem>,
    toDestroy = false
  ) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function*() {
        if (holding !== undefined) return { _tag: "Mine" as const, holding }
        const scope = yield* Scope.fork(context.scope)
        return yield* Effect.gen(function*() {
          const outcome = yield* restore(Scope.provide(lock, scope))
          if (outcome._tag === "Held") {
            yield* Scope.close(scope, Exit.void)
            return { _tag: "Busy" as const, busy: busy(outcome.holder) }
          }
          const loaded = yield* Holding.load({ context, session: id, scope, redact: (text) => redact(text), toDestroy })
          holding = loaded
          yield* Effect.forkIn(
            Effect.flatMap(
              SessionLock.awaitRequest({ directory, launch: context.holder.launch, listening: context.listening }),
              // Not in the scope that this closes.
              (reason) => Effect.forkIn(giveUp(reason), context.scope)
            ),
            scope
          )
          return { _tag: "Mine" as const, holding: loaded }
        }).pipe(Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause))))
      })
    ).pipe(oneHolder.withPermit, Effect.provide(services))

  // Open while another bridge is waited for, which may take as long as it takes to end that one.
  const asking = Latch.makeUnsafe(false)
  const telling = Effect.fnUntraced(function*<A, E, R>(take: Effect.Effect<A, E, R>) {
    const opening = yield* Effect.forkChild(Effect.delay(asking.open, askingAfter))
    return yield* Effect.ensuring(take, Effect.andThen(Fiber.interrupt(opening), asking.close))
  })

  const holdIfFree: SessionCore["holdIfFree"] = Effect.suspend(() => {
    const mine = holding
    if (mine !== undefined) return Effect.succeed({ _tag: "Mine" as const, holding: mine }) as SessionCore["holdIfFree"]
    // A bridge that was replaced asks nobody for anything, and takes nothing.
    if (context.isReplaced()) {
      return Effect.map(context.listening, (file) => ({ _tag: "Busy" as const, busy: busy(file) }))
    }
    return Effect.raceFirst(
      hold(SessionLock.tryAcquire(directory, context.holder)),
      Effect.as(asking.await, { _tag: "Busy" as const, busy: busy(undefined) })
    )
  })

  const need: SessionCore["need"] = Effect.fnUntraced(function*(reason) {
    if (holding !== undefined) return holding
    if (context.isReplaced()) return yield* busy(yield* context.listening)
    const take = SessionLock.take({
      directory,
      session: id,
      holder: context.holder,
      reason,
      listening: context.listening
    })
    const outcome = yield* hold(Effect.as(telling(take), { _tag: "Acquired" as const }), reason === "destroyed")
    return outcome._tag === "Mine" ? outcome.holding : yield* outcome.busy
  })

  const run: SessionCore["run"] = Effect.fnUntraced(function*(held, turn) {
    const scope = yield* Scope.fork(context.scope)
    const settled = Deferred.makeUnsafe<RunningTurn.Outcome>()
    yield* context.turnStarted
    const { supervisor } = held
    const started = yield* Scope.provide(
      RunningTurn.start({
        ...turn,
        // What begins meanwhile is aborted already, and has no agent to end.
        supervisor: compaction === undefined
          ? supervisor
          : { ...supervisor, endAll: Effect.succeed(nothing), turnBegan: Effect.void },
        session: options!,
        rules: {
          has: (key) => held.file()!.rules.some((rule) => rule.key === key),
          add: (rule) =>
            held.note((file) => ({ ...file, rules: [...file.rules.filter(({ key }) => key !== rule.key), rule] }))
        }
      }),
      scope
    )
    running = { ...started, settled }
    yield* Effect.forkIn(
      Effect.gen(function*() {
        const outcome = yield* started.outcome
        yield* held.note((file) => ({
          ...file,
          established: file.established || turn.usage.begun(),
          latest: { ...file.latest!, end: outcome.end }
        }))
        running = undefined
        yield* Deferred.succeed(settled, outcome)
        yield* context.turnEnded
        if (context.isReplaced()) yield* giveUpLater
        yield* Effect.forkIn(Scope.close(scope, Exit.void), context.scope)
      }),
      context.scope
    )
  })

  const startCompaction: SessionCore["startCompaction"] = Effect.fnUntraced(function*(compact) {
    const outcome: Compaction["outcome"] = Deferred.makeUnsafe()
    yield* context.turnStarted
    const fiber = yield* Effect.forkIn(
      Effect.onExit(compact, (exit) => {
        compaction = undefined
        queue.agentIsFree()
        return Deferred.done(outcome, exit).pipe(
          Effect.andThen(context.turnEnded),
          Effect.andThen(Effect.suspend(() => context.isReplaced() ? giveUpLater : Effect.void))
        )
      }).pipe(Effect.exit, Effect.asVoid),
      context.scope
    )
    const started: Compaction = { fiber, outcome }
    if (!Deferred.isDoneUnsafe(outcome)) compaction = started
    return started
  })

  return {
    id,
    queue,
    abortRequests,
    runEnding,
    holding: () => holding,
    running: () => running,
    runningStill,
    compaction: () => compaction,
    options: () => options,
    redaction: makeRedaction,
    calls,
    setOptions: (next) => {
      options = next
      secrets = addSecrets(secrets, secretsOf(next))
    },
    file,
    remains,
    earlier,
    holdIfFree,
    need,
    free,
    remove,
    endRunning,
    openAgent,
    closeAgent,
    run,
    startCompaction,
    stopCompaction,
    shutdown: Effect.andThen(Scope.close(queueScope, Exit.void), endAll("shutdown"))
  }
})
