import { assert, describe, it } from "@effect/vitest"
import { Effect, Schedule, Stream } from "effect"
import * as Canned from "./fixtures/cannedBridge.ts"
import * as RawHost from "./fixtures/rawHost.ts"

// Bun's shortest, in place of 45 s.
const idleTimeout = 8
const limits = { silence: 3000 }
const headers = { ...RawHost.upgradeHeaders, "x-bridge-token": Canned.token }
const hello = (pings?: boolean) =>
  JSON.stringify({
    _tag: "Request",
    id: 1,
    tag: "Hello",
    payload: { host: { name: "t", version: "1" }, protocol: 1, pings }
  })
const read = (turn: string) =>
  JSON.stringify({ _tag: "Request", id: 1, tag: "ReadTurn", payload: { session: "s", turn, from: 1 } })
const drops = Array.from({ length: 60 }, (_, index) => Canned.batch(index + 1, 1))

describe("Transport silence", () => {
  it.live(
    "closes a silent connection, also one it sends to, but none that bytes come on, and none whose host sends no pings",
    Effect.fnUntraced(function*() {
      const { port, transport } = yield* Canned.serve({
        limits,
        server: Canned.layerServer(idleTimeout),
        handlers: {
          ReadTurn: ({ turn }) =>
            turn === "late"
              ? Stream.fromEffect(Effect.delay(Effect.succeed(Canned.batch(1, 1)), 9000))
              : Stream.schedule(Stream.fromIterable(drops, { chunkSize: 1 }), Schedule.spaced(400))
        }
      })
      const open = Effect.map(RawHost.request(port, { headers }), (connection) => {
        const state = { ...connection, openedAt: performance.now(), closedAt: 0 }
        connection.socket.on("close", () => state.closedAt = performance.now())
        return state
      })
      const silent = yield* open
      const quiet = yield* open
      const slow = yield* open
      const dripping = yield* open
      const pinging = yield* open
      pinging.socket.write(RawHost.maskedFrame(read("late")))
      yield* Effect.forkScoped(Effect.forever(
        Effect.delay(Effect.sync(() => pinging.socket.write(RawHost.maskedPing)), 1000)
      ))
      quiet.socket.write(RawHost.maskedFrame(hello(false)))
      dripping.socket.write(RawHost.maskedFrame(read("t")))
      // One message, a byte at a time.
      const message = RawHost.maskedFrame(hello())
      yield* Effect.forkScoped(
        Effect.forEach(message, (byte) => Effect.delay(Effect.sync(() => slow.socket.write(Buffer.from([byte]))), 120))
      )
      yield* RawHost.until(() => silent.closedAt > 0)
      const seconds = (silent.closedAt - silent.openedAt) / 1000
      assert.isAbove(seconds, 6)
      assert.isBelow(seconds, 14)
      // It gets parts until the bridge has heard nothing for too long, which a sent byte would have put off for ever.
      yield* RawHost.until(() => dripping.closedAt > 0)
      const parts = RawHost.frames(dripping.received()).length
      assert.isAbove(parts, 5)
      assert.isBelow(parts, 15)
      yield* RawHost.until(() => RawHost.frames(slow.received()).length > 0)
      assert.isAbove((performance.now() - slow.openedAt) / 1000, 10)
      assert.include(RawHost.frames(slow.received())[0]!.payload.toString(), `"Success"`)
      // Pings of the WebSocket are bytes too, and whoever owes no acknowledgement is sent what there is.
      assert.isTrue(RawHost.frames(pinging.received()).some(({ payload }) => payload.includes(`"Chunk"`)))
      // Nothing went over the wire that the host which sends no pings would have had to pay for.
      assert.strictEqual(RawHost.frames(quiet.received()).length, 1)
      assert.strictEqual(quiet.closedAt, 0)
      assert.strictEqual(yield* transport.connections, 3)
      quiet.socket.write(RawHost.maskedFrame(`{"_tag":"Ping"}`))
      yield* RawHost.until(() => RawHost.frames(quiet.received()).length === 2)
    }, Effect.scoped)
  )
})
