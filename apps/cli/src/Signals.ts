/**
 * The signals by which a user or the system ends a command.
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Queue from "effect/Queue"

const codes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const

export type Signal = keyof typeof codes

/** A signal ended the command. */
export class Interrupted extends Data.TaggedError("Interrupted")<{ readonly signal: Signal }> {
  /** What the command exits with. */
  readonly exitCode = codes[this.signal]
  override get message() {
    return "Interrupted."
  }
}

export class Signals extends Context.Service<Signals, {
  /** Waits for the next one. Of those that nobody waited for, the latest four are kept. */
  readonly next: Effect.Effect<Signal>
}>()("@gangway/cli/Signals") {}

export const layer: Layer.Layer<Signals> = Layer.effect(
  Signals,
  Effect.gen(function*() {
    const received = yield* Queue.sliding<Signal>(4)
    const listen = (signal: Signal) => {
      const onSignal = () => Queue.offerUnsafe(received, signal)
      return Effect.acquireRelease(
        Effect.sync(() => process.on(signal, onSignal)),
        () => Effect.sync(() => process.removeListener(signal, onSignal))
      )
    }
    yield* Effect.forEach(Object.keys(codes) as Array<Signal>, listen, { discard: true })
    return Signals.of({ next: Queue.take(received) })
  })
)

/** Runs an effect that a signal interrupts. */
export const interruptible = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E | Interrupted, R | Signals> =>
  Effect.flatMap(
    Signals,
    ({ next }) => Effect.raceFirst(effect, Effect.flatMap(next, (signal) => Effect.fail(new Interrupted({ signal }))))
  )
