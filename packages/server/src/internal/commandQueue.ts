/**
 * The commands of one session, carried out one at a time in the session's own fiber.
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
  /**
   * Whether it waits, and lets others pass, while something else has the agent. A start doesn't wait where its turn is to
   * be aborted, and neither do those before it, whose turns it replaces.
   */
  readonly needsAgent?: boolean | undefined
}

interface Job {
  readonly kind: Kind
  readonly carryOut: Effect.Effect<void>
  readonly drop: () => void
}

export interface CommandQueue {
  /** Queues a command and awaits its outcome; interrupting the wait changes nothing for the command. */
  readonly run: <A, E>(kind: Kind, command: Effect.Effect<A, E>) => Effect.Effect<A, E>
  /** Whether a start of another turn waits that is to be aborted: it replaces what's started before it. */
  readonly isReplaced: (turn: TurnId) => boolean
  /** To be called when the agent is free again. */
  readonly agentIsFree: () => void
}

/**
 * Makes a queue whose commands run in the given scope. It's as long as its callers are many: the transport bounds the
 * requests of a connection. When the scope closes, the command that's carried out is interrupted, those that wait are
 * dropped, and whoever awaits one is interrupted.
 */
export const make = Effect.fnUntraced(function*(options: {
  /** Whether something else than a command has the agent. */
  readonly isAgentTaken: () => boolean
}): Effect.fn.Return<CommandQueue, never, Scope.Scope> {
  const jobs: Array<Job> = []
  const changed = Latch.makeUnsafe(false)
  let stopped = false

  // The last start of a turn that is to be aborted.
  const lastAborted = (): number =>
    jobs.findLastIndex(({ kind }, i) =>
      kind.name === "start" && jobs.slice(i).some((job) => job.kind.name === "abort" && job.kind.turn === kind.turn)
    )

  // An abort overtakes all that waits but a start of its own turn.
  const indexOfNext = (): number => {
    for (let i = 0; i < jobs.length; i++) {
      const { kind } = jobs[i]!
      if (kind.name !== "abort") continue
      const ownStart = jobs.slice(0, i).some((job) => job.kind.name === "start" && job.kind.turn === kind.turn)
      if (!ownStart) return i
    }
    if (!options.isAgentTaken()) return jobs.findIndex(({ kind }) => kind.name !== "abort")
    const ready = lastAborted()
    return jobs.findIndex(({ kind }, i) =>
      kind.name !== "abort" && (kind.needsAgent !== true || (kind.name === "start" && i <= ready))
    )
  }

  const next = Effect.suspend(() => {
    const index = indexOfNext()
    if (index === -1) {
      changed.closeUnsafe()
      return changed.await
    }
    const [job] = jobs.splice(index, 1)
    return job!.carryOut
  })
  yield* Effect.forkScoped(Effect.forever(next))
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      stopped = true
      jobs.splice(0).forEach((job) => job.drop())
    })
  )

  const run = <A, E>(kind: Kind, command: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.suspend(() => {
      if (stopped) return Effect.interrupt
      const outcome = Deferred.makeUnsafe<A, E>()
      jobs.push({
        kind,
        carryOut: Effect.onExit(command, (exit) => Deferred.done(outcome, exit)).pipe(Effect.exit, Effect.asVoid),
        drop: () => Deferred.doneUnsafe(outcome, Exit.interrupt())
      })
      changed.openUnsafe()
      return Deferred.await(outcome)
    })

  return {
    run,
    isReplaced: (turn) => {
      const index = lastAborted()
      return index !== -1 && jobs[index]!.kind.turn !== turn
    },
    agentIsFree: () => changed.openUnsafe()
  }
})
