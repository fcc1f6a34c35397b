/**
 * The sessions of a bridge: those that somebody uses, those that it holds, and those on disk.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import * as Session from "../Session.ts"
import type { BridgeContext } from "./bridgeContext.ts"

/** How many sessions `Hello` lists. */
const maxListed = 1_000

export interface Sessions {
  /** Runs a command of a session, which may not exist yet. */
  readonly start: <A, E>(
    id: Bridge.SessionId,
    command: (session: Session.Session) => Effect.Effect<A, E>
  ) => Effect.Effect<A, E>
  /** Runs a command of a session that exists. */
  readonly command: <A, E>(
    id: Bridge.SessionId,
    command: (session: Session.Session) => Effect.Effect<A, E>,
    otherwise: Effect.Effect<A, E>
  ) => Effect.Effect<A, E>
  readonly read: <A, E>(
    id: Bridge.SessionId,
    stream: (session: Session.Session) => Stream.Stream<A, E>,
    otherwise: Stream.Stream<A, E>
  ) => Stream.Stream<A, E>
  readonly list: Effect.Effect<ReadonlyArray<Bridge.SessionSummary>>
  /** Takes the sessions that a bridge left behind when it died. */
  readonly adopt: Effect.Effect<void>
  /** Frees what a newer bridge may want. */
  readonly yieldToNewer: Effect.Effect<void>
  readonly shutdown: Effect.Effect<void>
}

interface Entry {
  readonly session: Session.Session
  /** Commands and streams under way. */
  uses: number
}

export const make = Effect.fnUntraced(function*(
  context: BridgeContext
): Effect.fn.Return<Sessions, never, FileSystem.FileSystem | Path.Path> {
  const services = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const entries = new Map<Bridge.SessionId, Entry>()

  const entryOf = Effect.fnUntraced(function*(id: Bridge.SessionId) {
    const there = entries.get(id)
    if (there !== undefined) return there
    const session = yield* Session.make(context, id)
    const other = entries.get(id)
    // Two callers at once end with one session: making one does nothing yet.
    if (other !== undefined) return yield* Effect.as(session.shutdown, other)
    const entry: Entry = { session, uses: 0 }
    entries.set(id, entry)
    return entry
  }, Effect.provideContext(services))

  // One that isn't on disk (any more) is of no use to anybody.
  const dropIfGone = Effect.fnUntraced(function*(id: Bridge.SessionId, entry: Entry) {
    const isIdle = () => entry.uses === 0 && !entry.session.isKnown()
    if (!isIdle() || (yield* context.state.hasSession(id)) || !isIdle() || entries.get(id) !== entry) return
    entries.delete(id)
    yield* entry.session.shutdown
  })

  const using = (id: Bridge.SessionId) =>
    Effect.acquireRelease(
      Effect.tap(entryOf(id), (entry) =>
        Effect.sync(() => {
          entry.uses++
        })),
      (entry) =>
        Effect.suspend(() => {
          entry.uses--
          return dropIfGone(id, entry)
        })
    )

  const exists = (id: Bridge.SessionId) =>
    Effect.suspend(() => entries.has(id) ? Effect.succeed(true) : context.state.hasSession(id))

  const start: Sessions["start"] = (id, command) =>
    Effect.scoped(Effect.flatMap(using(id), ({ session }) => command(session)))

  const onDisk = <A>(f: (session: Session.Session) => Effect.Effect<A>, most = Number.POSITIVE_INFINITY) =>
    Effect.flatMap(context.state.sessions, (ids) => {
      // What this bridge has had to do with comes first.
      const inOrder = [...ids.filter((id) => entries.has(id)), ...ids.filter((id) => !entries.has(id))]
      return Effect.forEach(inOrder.slice(0, most), (id) => start(id, f), { concurrency: 16 })
    })

  const all = (f: (session: Session.Session) => Effect.Effect<void>) =>
    Effect.suspend(() =>
      Effect.forEach([...entries.values()], ({ session }) => f(session), { concurrency: "unbounded", discard: true })
    )

  return {
    start,
    command: (id, command, otherwise) =>
      Effect.flatMap(exists(id), (exists) => exists ? start(id, command) : otherwise),
    read: (id, stream, otherwise) =>
      Stream.unwrap(
        Effect.flatMap(exists(id), (exists) =>
          exists
            ? Effect.map(using(id), ({ session }) => stream(session))
            : Effect.succeed(otherwise))
      ),
    list: together(
      Effect.map(
        onDisk((session) => session.summary, maxListed),
        (summaries) => summaries.filter((summary) => summary !== undefined)
      ),
      context.scope
    ),
    adopt: together(Effect.asVoid(onDisk((session) => session.adopt)), context.scope),
    yieldToNewer: all((session) => session.yieldToNewer),
    shutdown: all((session) => session.shutdown)
  }
})

// Who comes while it runs waits for the next run, which all share that came meanwhile: many hosts that say Hello at once
// look through the sessions twice, and each sees what was there when it asked.
const together = <A>(effect: Effect.Effect<A>, scope: Scope.Scope): Effect.Effect<A> => {
  const one = Semaphore.makeUnsafe(1)
  let next: Deferred.Deferred<A> | undefined
  return Effect.suspend(() => {
    if (next !== undefined) return Deferred.await(next)
    const mine = next = Deferred.makeUnsafe<A>()
    const run = Effect.suspend(() => {
      next = undefined
      return effect
    })
    return Effect.andThen(
      Effect.forkIn(Effect.onExit(one.withPermit(run), (exit) => Deferred.done(mine, exit)), scope),
      Deferred.await(mine)
    )
  })
}
