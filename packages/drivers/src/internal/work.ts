/**
 * What drivers do alike whose agent is one process for all turns, and ends, or is interrupted, at any moment.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { TurnFailed } from "@gangway/server/Driver"
import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"

/** How a turn fails that the bridge interrupted: its end says why. */
export const interrupted = new TurnFailed({ kind: "unknown", message: "The turn was interrupted." })

/** Waits for what comes of a turn that `send` begins. An agent that ended says more about it than what wasn't sent. */
export const outcome = <A, E, E2>(
  done: Deferred.Deferred<A, E>,
  send: Effect.Effect<unknown, E2 | Bridge.DriverError>
): Effect.Effect<A, E | E2 | Bridge.DriverError> =>
  Effect.raceFirst(
    Deferred.await(done),
    Effect.andThen(
      Effect.catchIf(
        send,
        (error): error is Bridge.DriverError =>
          Predicate.isTagged(error, "DriverError") && (error as Bridge.DriverError).kind === "exit",
        (error) => Effect.delay(Effect.fail(error), "5 seconds")
      ),
      Effect.never
    )
  )

/** How a compaction fails that fails as a turn would. */
export const compactionFailed =
  (failed: (kind: Bridge.DriverError["kind"], problem: string) => Bridge.DriverError) =>
  ({ kind, message }: TurnFailed): Effect.Effect<never, Bridge.DriverError> =>
    Effect.fail(failed(kind === "agent-exit" ? "exit" : "unknown", message))

/** Works with the agent's own files; what the system refuses is a failure of the driver's. */
export const inFiles = (
  context: Context.Context<FileSystem.FileSystem | Path.Path>,
  failed: (kind: Bridge.DriverError["kind"], problem: string) => Bridge.DriverError
) =>
<A, E>(
  effect: Effect.Effect<A, E | PlatformError, FileSystem.FileSystem | Path.Path>
): Effect.Effect<A, Exclude<E, PlatformError> | Bridge.DriverError> =>
  Effect.mapError(effect, (error) =>
    Predicate.isTagged(error, "PlatformError")
      ? failed("unknown", (error as unknown as PlatformError).message)
      : error as Exclude<E, PlatformError>).pipe(Effect.provideContext(context))

/** Takes parts for the log, one after the other. */
export const emitAll = (
  { emit }: { readonly emit: (part: Bridge.AgentPart) => Effect.Effect<void> },
  parts: ReadonlyArray<Bridge.AgentPart>
): Effect.Effect<void> => Effect.forEach(parts, emit, { discard: true })
