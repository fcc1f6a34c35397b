/**
 * How a process that may end unread is given its input.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import type { ChildProcessHandle } from "effect/unstable/process/ChildProcessSpawner"

/** Writes all of a process's input, and returns once it's written or `ended` is done. */
export const feed = <A, E>(
  handle: ChildProcessHandle,
  bytes: Uint8Array,
  ended: Effect.Effect<A, E>
): Effect.Effect<void> =>
  Effect.gen(function*() {
    // In no scope: one that's interrupted hears no more of the pipe that breaks when its process ends, and an error that
    // nobody hears is thrown at the whole host. It's done when that process is.
    const writing = yield* Effect.forkDetach(Effect.ignore(Stream.run(Stream.make(bytes), handle.stdin)))
    yield* Effect.raceFirst(Fiber.await(writing), Effect.exit(ended))
  })
