import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as Window from "../src/internal/window.ts"

const limits = { streamFrames: 4, streamBytes: 10_000, connectionBytes: 30_000 }
const make = () => Window.make(limits, () => 0)
/** Starts to take, and says whether it was granted at once. */
const take = (stream: Window.StreamWindow, bytes: number) =>
  Effect.forkChild(stream.take(bytes), { startImmediately: true })
const granted = (fiber: Fiber.Fiber<void>) => fiber.pollUnsafe() !== undefined

describe("Window", () => {
  it.effect("lets four frames out, and one for each that's acknowledged", () =>
    Effect.gen(function*() {
      const stream = make().open()
      const fibers = yield* Effect.forEach([1, 2, 3, 4, 5, 6], () => take(stream, 1))
      assert.deepStrictEqual(fibers.map(granted), [true, true, true, true, false, false])
      stream.acknowledge()
      yield* Fiber.join(fibers[4]!)
      assert.isFalse(granted(fibers[5]!))
      stream.acknowledge()
      yield* Fiber.join(fibers[5]!)
    }))

  it.effect("lets frames out while no more than the bytes of a stream are unacknowledged", () =>
    Effect.gen(function*() {
      const stream = make().open()
      const fibers = yield* Effect.forEach([6000, 5024, 11_024, 1], (bytes) => take(stream, bytes))
      assert.deepStrictEqual(fibers.map(granted), [true, true, true, false])
      stream.acknowledge()
      assert.isFalse(granted(fibers[3]!))
      stream.acknowledge()
      yield* Fiber.join(fibers[3]!)
    }))

  it.effect("lets a long frame out alone, once nothing of its stream is unacknowledged", () =>
    Effect.gen(function*() {
      const stream = make().open()
      assert.isTrue(granted(yield* take(stream, 1)))
      const long = yield* take(stream, 20_000)
      assert.isFalse(granted(long))
      stream.acknowledge()
      yield* Fiber.join(long)
      const after = yield* take(stream, 1)
      assert.isFalse(granted(after))
      stream.acknowledge()
      yield* Fiber.join(after)
    }))

  it.effect("keeps all streams of a connection below its bytes, in the order in which they came", () =>
    Effect.gen(function*() {
      const connection = make()
      const streams = Array.from({ length: 5 }, () => connection.open())
      const fibers = yield* Effect.forEach(streams, (stream) => take(stream, 9000))
      assert.deepStrictEqual(fibers.map(granted), [true, true, true, false, false])
      // A small one that came later doesn't overtake.
      const late = connection.open()
      const small = yield* take(late, 10)
      assert.isFalse(granted(small))
      streams[0]!.acknowledge()
      yield* Fiber.join(fibers[3]!)
      assert.isFalse(granted(fibers[4]!))
      streams[1]!.end()
      yield* Fiber.join(fibers[4]!)
      yield* Fiber.join(small)
    }))

  it.effect("gives the room of an ended stream to others, and lets one leave the queue", () =>
    Effect.gen(function*() {
      const connection = make()
      const [a, b, c, d] = [connection.open(), connection.open(), connection.open(), connection.open()]
      assert.isTrue(granted(yield* take(a, 15_000)))
      assert.isTrue(granted(yield* take(b, 15_000)))
      const long = yield* take(c, 30_000)
      const next = yield* take(d, 15_000)
      a.end()
      assert.isFalse(granted(next))
      yield* Fiber.interrupt(long)
      yield* Fiber.join(next)
    }))

  it.effect("ignores acknowledgements of nothing", () =>
    Effect.gen(function*() {
      const stream = make().open()
      for (let i = 0; i < 10; i++) stream.acknowledge()
      const fibers = yield* Effect.forEach([1, 2, 3, 4, 5], () => take(stream, 1))
      assert.deepStrictEqual(fibers.map(granted), [true, true, true, true, false])
      stream.end()
      stream.acknowledge()
    }))

  it.effect("sends nothing while it's held", () =>
    Effect.gen(function*() {
      const connection = make()
      connection.hold(true)
      const fiber = yield* take(connection.open(), 1)
      assert.isFalse(granted(fiber))
      connection.hold(false)
      yield* Fiber.join(fiber)
    }))

  it.effect("waits until the socket has drained", () =>
    Effect.gen(function*() {
      let buffered = 25_000
      const stream = Window.make(limits, () => buffered).open()
      const fiber = yield* take(stream, 6000)
      yield* TestClock.adjust(1000)
      assert.isFalse(granted(fiber))
      buffered = 24_000
      yield* TestClock.adjust(1000)
      assert.isTrue(granted(fiber))
    }))

  it.effect.prop(
    "stays below its bounds and grants everything in the end, whatever the order",
    { steps: Schema.Array(Schema.Tuple([Schema.Literals([0, 1, 2]), Schema.Int, Schema.Boolean])) },
    ({ steps }) =>
      Effect.gen(function*() {
        const connection = make()
        const streams = [connection.open(), connection.open(), connection.open()]
        const unacknowledged: Array<Array<number>> = [[], [], []]
        const open: Array<Fiber.Fiber<void>> = []
        const total = (index: number) => unacknowledged[index]!.reduce((a, b) => a + b, 0)
        const check = () => {
          for (const index of [0, 1, 2]) {
            const frames = unacknowledged[index]!
            assert.isAtMost(frames.length, limits.streamFrames)
            if (frames.length > 1) assert.isAtMost(total(index) - frames.at(-1)!, limits.streamBytes + 1024)
          }
          const all = unacknowledged.flat()
          if (all.length > 1) assert.isAtMost(total(0) + total(1) + total(2), limits.connectionBytes)
        }
        const acknowledge = (index: number) => {
          unacknowledged[index]!.shift()
          streams[index]!.acknowledge()
        }
        const settle = Effect.gen(function*() {
          for (let i = 0; i < 10; i++) yield* Effect.yieldNow
        })
        for (const [index, size, ack] of steps) {
          if (ack) acknowledge(index)
          else {
            const bytes = Math.abs(size) % 35_000
            const wait = Effect.tap(streams[index]!.take(bytes), () =>
              Effect.sync(() => unacknowledged[index]!.push(bytes)))
            open.push(yield* Effect.forkChild(wait, { startImmediately: true }))
          }
          yield* settle
          check()
        }
        for (
          let i = 0;
          open.some((fiber) =>
            !granted(fiber)
          );
          i++
        ) {
          assert.isBelow(i, 1000)
          for (const index of [0, 1, 2]) acknowledge(index)
          yield* settle
          check()
        }
      })
  )
})
