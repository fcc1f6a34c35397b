/**
 * The sessions of a bridge, and its remote procedures by session.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import * as Session from "../Session.ts"
import type { BridgeContext } from "./bridgeContext.ts"

/** How many sessions `Hello` lists. */
const maxListed = 1_000

export interface Sessions {
  /** The session, which `StartSession` makes where there's none. */
  readonly forStart: (id: Bridge.SessionId) => Effect.Effect<Session.Session>
  readonly find: (id: Bridge.SessionId) => Effect.Effect<Session.Session | undefined>
  readonly list: Effect.Effect<ReadonlyArray<Bridge.SessionSummary>>
  /** Lets a session go that isn't on disk (any more). */
  readonly forget: (id: Bridge.SessionId) => Effect.Effect<void>
  /** Takes the sessions that a bridge left behind when it died. */
  readonly adopt: Effect.Effect<void>
  /** Frees what a newer bridge may want. */
  readonly yieldToNewer: Effect.Effect<void>
  readonly shutdown: Effect.Effect<void>
}

export const make = Effect.fnUntraced(function*(
  context: BridgeContext
): Effect.fn.Return<Sessions, never, FileSystem.FileSystem | Path.Path> {
  const services = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const sessions = new Map<Bridge.SessionId, Session.Session>()

  const add = (id: Bridge.SessionId) =>
    Effect.provide(Session.make(context, id), services).pipe(
      // Two callers at once end with one session: making one does nothing yet.
      Effect.flatMap((made) =>
        Effect.suspend(() => {
          const there = sessions.get(id)
          if (there !== undefined) return Effect.as(made.retire, there)
          sessions.set(id, made)
          return Effect.succeed(made)
        })
      )
    )

  const forStart = (id: Bridge.SessionId) =>
    Effect.suspend(() => {
      const there = sessions.get(id)
      return there === undefined ? add(id) : Effect.succeed(there)
    })

  const find = Effect.fnUntraced(function*(id: Bridge.SessionId) {
    const there = sessions.get(id)
    if (there !== undefined) return there
    return (yield* context.state.hasSession(id)) ? yield* add(id) : undefined
  })

  const onDisk = Effect.flatMap(context.state.sessions, (ids) => Effect.forEach(ids, forStart, { concurrency: 16 }))

  const forget = (id: Bridge.SessionId) =>
    Effect.suspend(() => {
      const gone = sessions.get(id)
      if (gone === undefined) return Effect.void
      sessions.delete(id)
      return Effect.asVoid(Effect.forkIn(gone.retire, context.scope))
    })

  const all = <A>(f: (session: Session.Session) => Effect.Effect<A>) =>
    Effect.suspend(() => Effect.forEach([...sessions.values()], f, { concurrency: "unbounded", discard: true }))

  return {
    forStart,
    find,
    forget,
    list: onDisk.pipe(
      Effect.flatMap((found) => Effect.forEach(found, (session) => session.summary, { concurrency: 16 })),
      Effect.map((summaries) => summaries.filter((summary) => summary !== undefined).slice(0, maxListed))
    ),
    adopt: Effect.flatMap(
      onDisk,
      (found) => Effect.forEach(found, (session) => session.adopt, { concurrency: 16, discard: true })
    ),
    yieldToNewer: all((session) => session.yieldToNewer),
    shutdown: all((session) => session.shutdown)
  }
})
