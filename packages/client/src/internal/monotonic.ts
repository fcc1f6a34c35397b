/**
 * Time as it passes for this host: not while its machine sleeps, and whatever somebody sets the machine's clock to.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

/** In milliseconds, from some point on. */
export const now: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))
