/**
 * The measured host: `@gangway/client`, whose streams are read to their ends, with each part's number checked again.
 */
import { BridgeClient, type Session, type Turn } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { Effect, Redacted, Scope, Stream } from "effect"
import { answer, tell } from "./Child.ts"
import { Arrivals, now, type NumberedBenchPart, type Play } from "./parts.ts"

const scope = Scope.makeUnsafe()
const bridge = Bridge.BridgeId.make("bench")
let client: BridgeClient.BridgeClient["Service"]
let session: Session.Session

const run = <A, E>(effect: Effect.Effect<A, E, Scope.Scope>): Promise<A> =>
  Effect.runPromise(Scope.provide(effect, scope))

const start = (turn: string, play: Play) =>
  session.startTurn({ turn: Bridge.TurnId.make(turn), prompt: JSON.stringify(play) })

const takeAll = (parts: ReturnType<Turn.Turn["parts"]>, arrivals: Arrivals) =>
  Stream.runForEachArray(
    parts,
    (chunk) => Effect.sync(() => arrivals.take(chunk as unknown as ReadonlyArray<NumberedBenchPart>))
  )

const commands = {
  connect: (
    { directory, port, token }: { readonly directory: string; readonly port: number; readonly token: string }
  ) =>
    run(Effect.gen(function*() {
      client = yield* BridgeClient.make({
        bridge,
        address: Effect.succeed({ url: new URL(`http://127.0.0.1:${port}/`), token: Redacted.make(token) })
      })
      session = yield* client.startSession({
        session: Bridge.SessionId.make("bench"),
        directory,
        permissions: "all",
        settings: "none"
      })
    })),

  /** Starts a turn and reads it as it comes. */
  live: ({ play, turn }: { readonly turn: string; readonly play: Play }) =>
    run(Effect.gen(function*() {
      const arrivals = new Arrivals({ timed: play.rate !== undefined })
      const handle = yield* start(turn, play)
      yield* takeAll(handle.parts(), arrivals)
      if (arrivals.count !== play.parts) throw new Error(`${arrivals.count} parts came`)
      return { elapsed: arrivals.elapsed, ...arrivals.percentiles() }
    })),

  /** Reads a turn that has ended. */
  replay: ({ parts, turn }: { readonly turn: string; readonly parts: number }) =>
    run(Effect.gen(function*() {
      const arrivals = new Arrivals({ timed: false })
      const start = now()
      yield* takeAll(session.turn(Bridge.TurnId.make(turn)).parts(), arrivals)
      if (arrivals.count !== parts) throw new Error(`${arrivals.count} parts came`)
      return { elapsed: now() - start }
    })),

  /** Starts a turn that is held, and waits for its last part, which is all that it reads. */
  fill: ({ parts, turn }: { readonly turn: string; readonly parts: number }) =>
    run(Effect.gen(function*() {
      const handle = yield* start(turn, { parts, hold: true })
      yield* Stream.runDrain(Stream.takeUntil(handle.parts(), ({ n }) => n === parts))
    })),

  /** Aborts a held turn. */
  abort: (turn: string) => run(Effect.asVoid(session.turn(Bridge.TurnId.make(turn)).abort())),

  /**
   * Starts a turn, takes one chunk, then nothing for so long, and calls the bridge meanwhile; then takes the rest.
   */
  stall: (
    { milliseconds, play, turn }: { readonly turn: string; readonly play: Play; readonly milliseconds: number }
  ) =>
    run(Effect.scoped(Effect.gen(function*() {
      const arrivals = new Arrivals({ timed: false })
      const handle = yield* start(turn, play)
      const pull = yield* Stream.toPull(handle.parts())
      const take = Effect.map(pull, (chunk) => arrivals.take(chunk as unknown as ReadonlyArray<NumberedBenchPart>))
      yield* take
      const calls: Array<number> = []
      const stalledAt = now()
      while (now() - stalledAt < milliseconds) {
        const start = now()
        yield* client.hello
        calls.push(now() - start)
        yield* Effect.sleep(100)
      }
      yield* Effect.ignore(Effect.forever(take))
      return { received: arrivals.count, calls }
    }))),

  /** Starts a turn and reads it to its end, and tells when the first part has come. */
  follow: ({ play, turn }: { readonly turn: string; readonly play: Play }) =>
    run(Effect.gen(function*() {
      const arrivals = new Arrivals({ timed: false })
      const handle = yield* start(turn, play)
      yield* Stream.runForEachArray(handle.parts(), (chunk) =>
        Effect.sync(() => {
          if (arrivals.count === 0) tell("reading")
          arrivals.take(chunk as unknown as ReadonlyArray<NumberedBenchPart>)
        }))
      return { received: arrivals.count }
    }))
}

export type Host = typeof commands

answer(commands)
