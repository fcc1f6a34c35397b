import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, Stream } from "effect"
import { make } from "../src/internal/turnReads.ts"

const session = Bridge.SessionId.make("s1")
const turn = Bridge.TurnId.make("t1")
const end = { end: { type: "aborted", reason: "bridge-died", usage: { measured: true } }, attempt: 1, next: 1 } as const

it.effect("a read of a turn whose session is let go before it begins is one of its next holder, not of a turn that's gone", () =>
  Effect.gen(function*() {
    const file = { latest: { turn } }
    let looks = 0
    // The first holding is let go between the look at it and the read of its log.
    const holding = () => {
      const isLetGo = ++looks === 1
      return {
        file: () => file,
        earlier: new Map(),
        log: () => ({
          log: { turn, read: () => Stream.make(end) },
          reading: (stream: Stream.Stream<unknown>, closed: () => unknown) => isLetGo ? Stream.fail(closed()) : stream
        })
      }
    }
    const core = {
      id: session,
      file: Effect.succeed(file),
      holdIfFree: Effect.sync(() => ({ _tag: "Mine", holding: holding() }))
    }
    const lookup = {
      latestStatus: () => Effect.void,
      turnNotFound: () => new Bridge.TurnNotFound({ session, turn })
    }
    const readTurn = yield* make({} as never, core as never, lookup as never)
    const read = () => Stream.runCollect(readTurn({ session, turn, from: 1 }))
    assert.deepStrictEqual(yield* read(), [end as never])
    assert.strictEqual(looks, 2)
    // Where a newer turn took its place, it's gone.
    looks = 0
    file.latest = { turn: Bridge.TurnId.make("t2") }
    assert.strictEqual((yield* Effect.flip(read()))._tag, "TurnNotFound")
    assert.strictEqual(looks, 1)
  }).pipe(Effect.provide(BunServices.layer)))
