import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { ReadEvent } from "../src/TurnLog.ts"
import * as Canned from "./fixtures/cannedBridge.ts"
import * as RawHost from "./fixtures/rawHost.ts"

const withToken = { "x-bridge-token": Canned.token }
const read = (id: number) => ({
  _tag: "Request",
  id,
  tag: "ReadTurn",
  payload: { session: "s", turn: "t", from: 1 }
})
const ack = (requestId: number) => ({ _tag: "Ack", requestId })
const hello = {
  _tag: "Request",
  id: "hello",
  tag: "Hello",
  payload: { host: { name: "t", version: "1" }, protocol: 1 }
}

/** A turn of so many batches, each of one part with so many bytes, and how many of them were asked for so far. */
const turn = (count: number, bytes: number) => {
  const batches = { pulled: 0 }
  const delta = "x".repeat(bytes - Canned.line(1_000_000, "").length)
  const events = function*(): Generator<ReadEvent> {
    for (let n = 1; n <= count; n++) {
      batches.pulled++
      yield Canned.batch(n, 1, delta)
    }
    yield Canned.end(count + 1)
  }
  return { batches, handlers: { ReadTurn: () => Stream.fromIterable(events(), { chunkSize: 1 }) } }
}

/** Waits until nothing more has come for a while. */
const settled = (count: () => number): Effect.Effect<number> =>
  Effect.gen(function*() {
    while (true) {
      const before = count()
      yield* Effect.sleep(100)
      if (before > 0 && before === count()) return before
    }
  })

const serve = (options: Parameters<typeof Canned.serve>[0]) =>
  Effect.gen(function*() {
    const bridge = yield* Canned.serve(options)
    const host = yield* RawHost.connect(bridge.url, { headers: withToken })
    return { ...bridge, host }
  })

describe("Transport flow", () => {
  it.live("sends 64 batches of a stream ahead, and one for each that's acknowledged", () =>
    Effect.gen(function*() {
      const { host } = yield* serve(turn(1000, 100))
      host.send(ack(1), read(1), ack(2), ack(3))
      assert.strictEqual(yield* settled(host.waiting), 64)
      host.send(ack(1))
      assert.strictEqual(yield* settled(host.waiting), 65)
      host.send([ack(1), ack(1), ack(1)])
      assert.strictEqual(yield* settled(host.waiting), 68)
    }))

  it.live("sends 256 KB of a stream ahead, and the frame that oversteps them", () =>
    Effect.gen(function*() {
      const { host } = yield* serve(turn(1000, 60 * 1024))
      host.send(read(1))
      assert.strictEqual(yield* settled(host.waiting), 5)
      host.send(ack(1))
      assert.strictEqual(yield* settled(host.waiting), 6)
    }))

  it.live("sends full batches one behind the other", () =>
    Effect.gen(function*() {
      const { host } = yield* serve(turn(1000, 256 * 1024))
      host.send(read(1))
      assert.strictEqual(yield* settled(host.waiting), 2)
    }))

  it.live("sends a line of 1 MiB alone, once its stream's window is empty", () =>
    Effect.gen(function*() {
      const long = "x".repeat(1024 * 1024 - Canned.line(2, "").length)
      const events = [Canned.batch(1, 1), Canned.batch(2, 1, long), Canned.batch(3, 1), Canned.end(4)]
      const { host } = yield* serve({ handlers: { ReadTurn: () => Stream.fromIterable(events, { chunkSize: 1 }) } })
      host.send(read(1))
      assert.strictEqual(yield* settled(host.waiting), 1)
      host.send(ack(1))
      assert.strictEqual(yield* settled(host.waiting), 2)
      host.send(ack(1))
      assert.strictEqual(yield* settled(host.waiting), 5)
    }))

  it.live("puts what a log gives at once into as few frames as 256 KB allow", () =>
    Effect.gen(function*() {
      const delta = "x".repeat(100 * 1024)
      const events = [...Array.from({ length: 5 }, (_, i) => Canned.batch(i + 1, 1, delta)), Canned.end(6)]
      const { host } = yield* serve({ handlers: { ReadTurn: () => Stream.fromIterable(events) } })
      host.send(read(1))
      const counts: Array<number> = []
      for (let frame = yield* host.next; frame._tag === "Chunk"; frame = yield* host.next) {
        counts.push(frame.values.length)
        host.send(ack(1))
      }
      assert.deepStrictEqual(counts, [2, 2, 2])
    }))

  it.live("sends at most 8 MiB ahead over all streams, and goes on with the others when one ends", () =>
    Effect.gen(function*() {
      const { batches, handlers } = turn(1_000_000, 200 * 1024)
      const { host } = yield* serve({ handlers })
      for (let id = 0; id < 64; id++) host.send(read(id))
      const frames = yield* settled(host.waiting)
      assert.isAtMost(frames * 200 * 1024, 8 * 1024 * 1024)
      assert.isAbove((frames + 1) * 200 * 1024, 8 * 1024 * 1024 - 64 * 1024)
      // One batch of each stream waits for its turn.
      assert.isAtMost(batches.pulled, frames + 64)
      const first = yield* host.next
      host.send({ _tag: "Interrupt", requestId: first.requestId })
      assert.isAbove(yield* settled(host.waiting), frames)
    }))

  it.live("brings all parts of many streams in order, whenever they're acknowledged", () =>
    Effect.gen(function*() {
      const count = 2000
      const { handlers } = turn(count, 2000)
      const { host } = yield* serve({ handlers, limits: { connectionBytes: 100_000, streamBytes: 30_000 } })
      const next = new Map(Array.from({ length: 5 }, (_, id) => [id, 1]))
      for (const id of next.keys()) host.send(read(id))
      const owed: Array<number> = []
      while (next.size > 0) {
        const frame = yield* host.next
        if (frame._tag === "Exit") {
          assert.strictEqual(frame.exit._tag, "Success")
          assert.strictEqual(next.get(frame.requestId), count + 1)
          next.delete(frame.requestId)
          continue
        }
        for (const { parts } of frame.values) {
          for (const { n } of parts ?? []) {
            assert.strictEqual(n, next.get(frame.requestId))
            next.set(frame.requestId, n + 1)
          }
        }
        owed.push(frame.requestId)
        if (host.waiting() === 0 || owed.length > 20) host.send(owed.splice(0).reverse().map(ack))
      }
    }))

  it.live("keeps a host that reads nothing waiting, and nobody else, not even its other calls", () =>
    Effect.gen(function*() {
      const { batches, handlers } = turn(1_000_000, 100_000)
      const { host, port, transport, url } = yield* serve({ handlers })
      const stalled = yield* RawHost.request(port, { headers: { ...RawHost.upgradeHeaders, ...withToken } })
      stalled.socket.pause()
      for (let id = 0; id < 64; id++) stalled.socket.write(RawHost.maskedFrame(JSON.stringify(read(id))))
      const pulled = yield* settled(() => batches.pulled)
      assert.isAtMost(pulled * 100_000, 8 * 1024 * 1024 + 64 * 100_000)
      // Another host reads a turn.
      host.send(read(1))
      for (let n = 1; n <= 500; n++) {
        const frame = yield* host.next
        assert.strictEqual(frame.values[0].parts[0].n, n)
        host.send(ack(1))
      }
      // A host that reads its socket, but acknowledges nothing, gets answers.
      const reading = yield* RawHost.connect(url, { headers: withToken })
      for (let id = 0; id < 64; id++) reading.send(read(id))
      reading.send(hello)
      yield* settled(reading.waiting)
      const count = reading.waiting()
      const tags: Array<string> = []
      for (let i = 0; i < count; i++) tags.push((yield* reading.next)._tag)
      assert.strictEqual(tags.filter((tag) => tag === "Exit").length, 1)
      // And when the stalled one reads on, it gets what was sent, in order.
      stalled.socket.resume()
      stalled.socket.write(RawHost.maskedFrame(JSON.stringify(hello)))
      yield* RawHost.until(() => RawHost.frames(stalled.received()).some(({ payload }) => payload.includes(`"hello"`)))
      const seen = new Map<number, number>()
      for (const { payload } of RawHost.frames(stalled.received())) {
        const frame = JSON.parse(payload.toString())
        if (frame._tag !== "Chunk") continue
        const n = (seen.get(frame.requestId) ?? 0) + 1
        assert.strictEqual(frame.values[0].parts[0].n, n)
        seen.set(frame.requestId, n)
      }
      assert.strictEqual(yield* transport.connections, 3)
    }))

  it.live("closes with 1013 a connection whose replies aren't read, and has lost none before", () =>
    Effect.gen(function*() {
      let asked = 0
      const state = "x".repeat(1024 * 1024)
      const { port, transport } = yield* Canned.serve({
        handlers: { ReadState: () => Effect.sync(() => ({ n: ++asked, state })) }
      })
      const { received, socket } = yield* RawHost.request(port, {
        headers: { ...RawHost.upgradeHeaders, ...withToken }
      })
      socket.pause()
      const request = { _tag: "Request", tag: "ReadState", payload: { session: "s" } }
      for (let id = 0; id < 100; id++) socket.write(RawHost.maskedFrame(JSON.stringify({ ...request, id })))
      yield* Effect.repeat(transport.connections, { until: (count) => count === 0 })
      assert.isBelow(asked, 40)
      socket.resume()
      yield* RawHost.until(() => RawHost.frames(received()).some(({ opcode }) => opcode === 8))
      const frames = RawHost.frames(received())
      const close = frames.at(-1)!
      assert.strictEqual(close.opcode, 8)
      assert.strictEqual(close.payload.readUInt16BE(0), 1013)
      assert.strictEqual(close.payload.subarray(2).toString(), "the replies aren't read")
      frames.slice(0, -1).forEach(({ payload }, index) =>
        assert.strictEqual(JSON.parse(payload.toString()).exit.value.n, index + 1)
      )
    }))

  it.live("stops reading the log for a host that's gone", () =>
    Effect.gen(function*() {
      const { batches, handlers } = turn(1_000_000, 1000)
      const { port, transport } = yield* Canned.serve({ handlers })
      const { socket } = yield* RawHost.request(port, { headers: { ...RawHost.upgradeHeaders, ...withToken } })
      socket.write(RawHost.maskedFrame(JSON.stringify(read(1))))
      yield* settled(() => batches.pulled)
      socket.resetAndDestroy()
      yield* Effect.repeat(transport.connections, { until: (count) => count === 0 })
      const pulled = batches.pulled
      assert.isAtMost(pulled, 66)
      yield* Effect.sleep(50)
      assert.strictEqual(batches.pulled, pulled)
    }))
})
