/**
 * Calls of a driver that can't hold the bridge up, break it, or give a secret away.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"

type DriverFailure = Bridge.DriverError | Bridge.ContextLost

/** How long a driver may take to let a conversation go. */
const closeTimeout = Duration.seconds(1)

export interface DriverCalls {
  /**
   * Calls the driver in a fiber of its own: what takes longer than `atMost` fails, also where it can't be interrupted,
   * and so does what breaks. Without `atMost` it may take as long as it wants.
   */
  readonly call: <A, E extends DriverFailure>(
    doing: string,
    effect: Effect.Effect<A, E>,
    atMost?: Duration.Duration
  ) => Effect.Effect<A, DriverFailure>
  /** Closes what the driver holds for a conversation. What isn't closed in time is left to the bridge's end. */
  readonly close: (scope: Scope.Closeable) => Effect.Effect<void>
}

export const make = (options: {
  readonly driver: string
  /** What is left behind ends with it. */
  readonly scope: Scope.Scope
  /** Replaces the secrets that are known when it's called. */
  readonly redact: (text: string) => string
}): DriverCalls => {
  const { driver, redact, scope } = options

  const failure = (problem: string) => new Bridge.DriverError({ driver, kind: "unknown", problem: redact(problem) })

  const toFailure = (cause: Cause.Cause<DriverFailure>): DriverFailure => {
    const error = Option.getOrUndefined(Cause.findErrorOption(cause))
    switch (error?._tag) {
      case undefined:
        return failure(`the driver broke: ${String(Cause.squash(cause))}`)
      case "DriverError":
        return new Bridge.DriverError({ driver: error.driver, kind: error.kind, problem: redact(error.problem) })
      case "ContextLost":
        return new Bridge.ContextLost({ session: error.session, problem: redact(error.problem) })
    }
  }

  return {
    call: Effect.fnUntraced(function*(doing, effect, atMost) {
      const fiber = yield* Effect.forkIn(effect, scope)
      const exit = yield* Fiber.await(fiber).pipe(
        atMost === undefined ? Effect.asSome : Effect.timeoutOption(atMost),
        Effect.ensuring(Effect.sync(() => fiber.interruptUnsafe()))
      )
      if (Option.isNone(exit)) return yield* failure(`${doing} took longer than ${Duration.format(atMost!)}`)
      return Exit.isSuccess(exit.value) ? exit.value.value : yield* toFailure(exit.value.cause)
    }),
    close: (held) =>
      Effect.forkIn(Scope.close(held, Exit.void), scope).pipe(
        Effect.flatMap(Fiber.await),
        Effect.timeoutOption(closeTimeout),
        Effect.asVoid
      )
  }
}
