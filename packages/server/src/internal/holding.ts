/**
 * A session that this bridge holds: its lock, its file, its processes, and its latest turn's log.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import * as Supervisor from "../Supervisor.ts"
import * as TurnLog from "../TurnLog.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import { randomName } from "./digest.ts"
import * as EarlierTurns from "./earlierTurns.ts"
import * as SessionFile from "./sessionFile.ts"
import { codeOf, unavailable } from "./unavailable.ts"

/** A turn's log that stays open while somebody reads it, also after a newer turn took its place. */
export interface OpenLog {
  readonly log: TurnLog.TurnLog
  /** Keeps the log open for the stream; fails where it's closed already. */
  readonly reading: <A, E, E2>(stream: Stream.Stream<A, E>, closed: () => E2) => Stream.Stream<A, E | E2>
  /** Closes the log after its last reader. */
  readonly retire: Effect.Effect<void>
}

/** Makes of what a session's file holds what it shall hold. */
type Change = (file: SessionFile.SessionFile) => SessionFile.SessionFile

export interface Holding {
  readonly scope: Scope.Closeable
  readonly supervisor: Supervisor.Supervisor
  /** Starts the agent's processes, once it's on disk that there may be some. */
  readonly processes: Supervisor.AgentProcesses
  /** Whether one that was started there runs. */
  readonly agentRuns: () => boolean
  /** Absent until it's stored for the first time, and where it's damaged. */
  readonly file: () => SessionFile.SessionFile | undefined
  /** Where the file is damaged and the session is to be destroyed, what it still says. */
  readonly remains: SessionFile.Remains | undefined
  /** Stores the file of a new session, synced. */
  readonly create: (file: Omit<SessionFile.SessionFile, "marker">) => Effect.Effect<void, Bridge.LogUnavailable>
  /** Changes what's stored, synced: something must not happen before it's on disk. */
  readonly save: (change: Change) => Effect.Effect<void, Bridge.LogUnavailable>
  /** Takes note of what is found again from other files should it not be written. */
  readonly note: (change: Change) => Effect.Effect<void>
  /** Waits until what an earlier bridge left running is ended: two agents would write one conversation. */
  readonly reaped: Effect.Effect<void>
  /** The turns before the latest one. */
  readonly earlier: EarlierTurns.EarlierTurns
  /** The latest turn's log. */
  readonly log: () => OpenLog | undefined
  /** Creates a new turn's log, has the session's file name it, then drops the one before, which `previous` is. */
  readonly beginTurn: (
    header: TurnLog.TurnHeader,
    previous: EarlierTurns.EarlierTurn | undefined,
    change: Change
  ) => Effect.Effect<OpenLog, Bridge.LogUnavailable>
}

const encodeFile = Schema.encodeSync(Schema.fromJsonString(SessionFile.SessionFile))
const decodeJson = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))
const decodeFormat = Schema.decodeUnknownOption(Schema.Struct({ format: Schema.Int }))

const reading = <A>(decode: (json: unknown) => Option.Option<A>) =>
  Effect.fnUntraced(function*(
    context: BridgeContext,
    session: Bridge.SessionId
  ): Effect.fn.Return<A | undefined, Bridge.LogUnavailable | Bridge.UnsupportedFormat, FileSystem.FileSystem> {
    const fs = yield* FileSystem.FileSystem
    const path = context.state.sessionFile(session)
    const text = yield* fs.readFileString(path).pipe(
      Effect.asSome,
      Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.succeedNone),
      // A directory in its place says as little as an empty file.
      Effect.catchIf((error) => codeOf(error) === "EISDIR", () => Effect.succeedSome("")),
      Effect.mapError(unavailable)
    )
    if (Option.isNone(text)) return undefined
    const json = decodeJson(text.value)
    const found = Option.getOrUndefined(Option.flatMap(json, decodeFormat))?.format
    if (found !== undefined && found > SessionFile.format) {
      return yield* new Bridge.UnsupportedFormat({ found, known: SessionFile.format })
    }
    const file = decode(Option.getOrUndefined(json))
    if (Option.isSome(file)) return file.value
    const problem = `the file of session ${session} is damaged: DestroySession removes it`
    return yield* new Bridge.LogUnavailable({ problem })
  })

/** Reads a session's file; `undefined` where there's none. */
export const readFile = reading(Schema.decodeUnknownOption(SessionFile.SessionFile))

/** Reads what may be damaged. */
export const readRemains = reading((json) => Option.some(SessionFile.toRemains(json)))
const openLog = Effect.fnUntraced(function*<E, R>(
  parent: Scope.Scope,
  open: Effect.Effect<TurnLog.TurnLog, E, R | Scope.Scope>
) {
  const scope = yield* Scope.fork(parent)
  const log = yield* Scope.provide(open, scope).pipe(
    Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
  )
  let readers = 0
  let retired = false
  const isClosed = () => retired && readers === 0
  const close = Effect.suspend(() => isClosed() ? Scope.close(scope, Exit.void) : Effect.void)
  const read = Effect.acquireRelease(
    Effect.sync(() => {
      readers++
    }),
    () =>
      Effect.suspend(() => {
        readers--
        return close
      })
  )
  const opened: OpenLog = {
    log,
    reading: (stream, closed) =>
      Stream.unwrap(Effect.suspend(() => isClosed() ? Effect.fail(closed()) : Effect.as(read, stream))),
    retire: Effect.suspend(() => {
      retired = true
      return close
    })
  }
  return opened
})

/** Loads what's on disk of a session whose lock `scope` holds, and begins to end what an earlier bridge left running. */
export const load = Effect.fnUntraced(function*(options: {
  readonly context: BridgeContext
  readonly session: Bridge.SessionId
  readonly scope: Scope.Closeable
  /** Replaces the secrets that are known when it's called. */
  readonly redact: (text: string) => string
  /** Whether its file may be damaged, since it's to be destroyed. */
  readonly toDestroy: boolean
}): Effect.fn.Return<
  Holding,
  Bridge.LogUnavailable | Bridge.UnsupportedFormat,
  FileSystem.FileSystem
> {
  const { context, redact, scope, session } = options
  const fs = yield* FileSystem.FileSystem
  const { state } = context
  const logOptions = { sync: context.sync, maxTurnBytes: context.maxTurnBytes, reserve: state.reserveFile(session) }

  const whole = readFile(context, session)
  const remains = options.toDestroy ? yield* readRemains(context, session) : undefined
  let file = yield* options.toDestroy ? Effect.orElseSucceed(whole, () => undefined) : whole
  const earlierFile = state.earlierFile(session)
  const earlier = new Map(
    file === undefined ? [] : yield* EarlierTurns.read(earlierFile, file.earlier).pipe(
      (read) => options.toDestroy ? Effect.orElseSucceed(read, () => []) : read
    )
  )
  let log: OpenLog | undefined
  // Nobody changes what another is about to store.
  const one = Semaphore.makeUnsafe(1)
  // A driver that was left behind may still ask for it when the session is let go: the file is another's by then.
  let letGo = false
  const write = (next: SessionFile.SessionFile, sync: true | "text") =>
    letGo
      ? Effect.fail(new Bridge.LogUnavailable({ problem: `this bridge has let session ${session} go` }))
      : Effect.map(state.writeAtomic(state.sessionFile(session), `${encodeFile(next)}\n`, { sync }), () => {
        file = next
      })
  yield* Scope.addFinalizer(
    scope,
    one.withPermit(Effect.sync(() => {
      letGo = true
    }))
  )
  const save: Holding["save"] = (change) => one.withPermit(Effect.suspend(() => write(change(file!), true)))
  const note: Holding["note"] = (change) =>
    one.withPermit(Effect.suspend(() => {
      file = change(file!)
      // It may be lost with the power, but not leave a file without its text in the place of the one before.
      return Effect.ignore(write(file, "text"))
    }))

  const marker = file?.marker ?? remains?.marker ?? (yield* randomName)
  const supervisor = yield* Scope.provide(
    Supervisor.make({
      driver: context.driver.name,
      marker: { name: Supervisor.markerName, value: marker },
      redact,
      user: context.driver.user
    }),
    scope
  )
  // Until they're ended, a later bridge must look for them too. Of a turn without an end there may be some in any case:
  // where the disk was full when they started, the file doesn't say so.
  const mayRun = file !== undefined && (file.active || (file.latest !== undefined && file.latest.end === undefined))
  const reaping = !mayRun ? undefined : yield* Effect.forkIn(
    Effect.flatMap(
      supervisor.endAll,
      ({ left }) => left.length > 0 ? Effect.void : note((current) => ({ ...current, active: false }))
    ),
    scope
  )

  if (file !== undefined) {
    const { latest } = file
    // A turn's file that the session doesn't name: its prompt never reached the agent.
    const named = latest === undefined ? undefined : state.turnFile(session, latest.turn)
    const paths = yield* state.turnFiles(session).pipe(
      (paths) => options.toDestroy ? Effect.orElseSucceed(paths, () => []) : paths
    )
    for (const path of paths) {
      if (path !== named) yield* Effect.ignore(fs.remove(path, { recursive: true, force: true }))
    }
    if (latest !== undefined) {
      log = yield* openLog(
        context.scope,
        TurnLog.open({
          path: state.turnFile(session, latest.turn),
          turn: latest.turn,
          known: { attempt: latest.attempt, end: latest.end },
          ...logOptions
        })
      ).pipe((opening) =>
        options.toDestroy ? Effect.catchTag(opening, "LogUnavailable", () => Effect.undefined) : opening
      )
    }
    if (latest !== undefined && log !== undefined) {
      const { attempt, begun, end } = yield* log.log.status
      if (latest.end === undefined || attempt !== latest.attempt) {
        const established = file.established || begun
        yield* note((current) => ({ ...current, established, latest: { ...latest, attempt, end } }))
      }
    }
  }

  const beginTurn: Holding["beginTurn"] = Effect.fnUntraced(function*(header, previous, change) {
    const before = log
    const created = yield* openLog(
      context.scope,
      TurnLog.create({ path: state.turnFile(session, header.turn), header, ...logOptions })
    )
    yield* Effect.gen(function*() {
      const extent = previous === undefined
        ? file!.earlier
        : yield* EarlierTurns.append(earlierFile, file!.earlier, previous)
      yield* save((current) => ({ ...change(current), earlier: extent }))
    }).pipe(Effect.onError(() => created.retire))
    if (previous !== undefined) earlier.set(previous.turn, previous.end)
    log = created
    if (before !== undefined) {
      yield* Effect.ignore(fs.remove(state.turnFile(session, before.log.turn)))
      yield* before.retire
    }
    return created
  }, Effect.provideService(FileSystem.FileSystem, fs))

  let processes = 0
  const spawn: Holding["processes"]["spawn"] = Effect.fnUntraced(function*(command) {
    if (!file!.active) yield* note((current) => ({ ...current, active: true }))
    const process = yield* supervisor.processes.spawn(command)
    processes++
    const ended = Effect.sync(() => {
      processes--
    })
    yield* Effect.forkIn(Effect.andThen(process.exit, ended), scope)
    return process
  }, Effect.uninterruptible)

  return {
    scope,
    supervisor,
    processes: { spawn },
    agentRuns: () => processes > 0,
    file: () => file,
    remains,
    create: (created) => one.withPermit(write({ ...created, marker }, true)),
    save,
    note,
    reaped: reaping === undefined ? Effect.void : Effect.asVoid(Fiber.await(reaping)),
    earlier,
    log: () => log,
    beginTurn
  }
})
