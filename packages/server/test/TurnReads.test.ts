import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, FileSystem, Stream } from "effect"
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

const header = JSON.stringify({ format: 1, turn, prompt: "", startedAt: 0 })
const part = (n: number) => ({ n, part: { type: "text-delta", id: "1", delta: "Hi" } })

it.live("a read of another bridge's turn goes on with whoever has the session next, however often it changes hands", () =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const path = `${yield* fs.makeTempDirectoryScoped()}/t1.ndjson`
    yield* fs.writeFileString(path, `${header}\n${JSON.stringify(part(1))}\n`)
    const file = { latest: { turn } }
    // It's another's, then this bridge's, which lets it go between the look at it and the read of its log, and again.
    let looks = 0
    const froms: Array<unknown> = []
    const holding = (isLetGo: boolean) => ({
      file: () => file,
      earlier: new Map(),
      log: () => ({
        log: {
          turn,
          read: (options: unknown) => {
            froms.push(options)
            return Stream.make(end)
          }
        },
        reading: (stream: Stream.Stream<unknown>, closed: () => unknown) => isLetGo ? Stream.fail(closed()) : stream
      })
    })
    const core = {
      id: session,
      file: Effect.succeed(file),
      holdIfFree: Effect.sync(() => ++looks === 1 ? { _tag: "Busy" } : { _tag: "Mine", holding: holding(looks < 4) })
    }
    const lookup = { latestStatus: () => Effect.void, turnNotFound: () => new Bridge.TurnNotFound({ session, turn }) }
    const readTurn = yield* make({ state: { turnFile: () => path } } as never, core as never, lookup as never)
    const events = yield* Stream.runCollect(readTurn({ session, turn, from: 1 }))
    assert.deepStrictEqual(events.slice(-1), [end as never])
    assert.lengthOf(events, 2)
    assert.strictEqual(looks, 4)
    for (const from of froms) assert.deepStrictEqual(from, { from: 2, attempt: 1 })
  }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

it.effect("a read of another bridge's turn whose file was removed is told what became of the turn", () =>
  Effect.gen(function*() {
    let file: unknown = { latest: { turn } }
    let next: unknown
    const core = {
      id: session,
      file: Effect.sync(() => {
        const found = file
        file = next
        return found
      }),
      earlier: () => Effect.succeed(new Map()),
      holdIfFree: Effect.succeed({ _tag: "Busy" })
    }
    const lookup = { turnNotFound: () => new Bridge.TurnNotFound({ session, turn }) }
    const context = { state: { turnFile: () => "/nowhere/t1.ndjson" } }
    const readTurn = yield* make(context as never, core as never, lookup as never)
    const told = Effect.map(Effect.flip(Stream.runCollect(readTurn({ session, turn, from: 1 }))), ({ _tag }) => _tag)
    next = { latest: { turn: Bridge.TurnId.make("t2") } }
    assert.strictEqual(yield* told, "TurnNotFound")
    file = { latest: { turn } }
    next = undefined
    assert.strictEqual(yield* told, "SessionNotFound")
    file = next = { latest: { turn } }
    assert.strictEqual(yield* told, "LogUnavailable")
  }).pipe(Effect.provide(BunServices.layer)))
