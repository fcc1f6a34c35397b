/**
 * The commands of one session, carried out one at a time in the session's own fiber, so that a connection that is cut
 * never stops one half-way.
 */
import type { TurnId } from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"

/** What a command is, as far as its place in the queue goes. */
export interface Kind {
  readonly name: "start" | "abort" | "other"
  readonly turn?: TurnId | undefined
}

interface Job {
  readonly kind: Kind
  readonly carryOut: Effect.Effect<void>
  readonly drop: () => void
}

export interface CommandQueue {
  /** Queues a command and awaits its outcome; interrupting the wait changes nothing for the command. */
  readonly run: <A, E>(kind: Kind, command: Effect.Effect<A, E>) => Effect.Effect<A, E>
}

// An abort overtakes all that waits but a start of its own turn.
const indexOfNext = (jobs: ReadonlyArray<Job>): number => {
  for (let i = 0; i < jobs.length; i++) {
    const { kind } = jobs[i]!
    if (kind.name !== "abort") continue
    const ownStart = jobs.slice(0, i).some((job) => job.kind.name === "start" && job.kind.turn === kind.turn)
    if (!ownStart) return i
  }
  return 0
}

/**
 * Makes a queue whose commands run in the given scope. It's as long as its callers are many: the transport bounds the
 * requests of a connection.
 */
export const make: Effect.Effect<CommandQueue, never, Scope.Scope> = Effect.gen(function*() {
  const jobs: Array<Job> = []
  const filled = Latch.makeUnsafe(false)

  yield* Effect.addFinalizer(() => Effect.sync(() => jobs.splice(0).forEach((job) => job.drop())))
  yield* Effect.forkScoped(Effect.forever(Effect.suspend(() => {
    if (jobs.length === 0) {
      filled.closeUnsafe()
      return filled.await
    }
    const [job] = jobs.splice(indexOfNext(jobs), 1)
    return job!.carryOut
  })))

  const run = <A, E>(kind: Kind, command: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.suspend(() => {
      const outcome = Deferred.makeUnsafe<A, E>()
      jobs.push({
        kind,
        carryOut: Effect.onExit(command, (exit) => Deferred.done(outcome, exit)).pipe(Effect.exit, Effect.asVoid),
        drop: () => Deferred.doneUnsafe(outcome, Exit.interrupt())
      })
      filled.openUnsafe()
      return Deferred.await(outcome)
    })

  return { run }
})
