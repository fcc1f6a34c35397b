import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { connect, eventuallyReal, realTime, serve, session, startSession, turn } from "./fixtures/connected.ts"
import { type Options, text } from "./fixtures/TestBridge.ts"

const started = Effect.fnUntraced(function*(options: Partial<Options>) {
  const bridge = yield* serve(options)
  const handle = yield* Effect.flatMap(startSession(bridge), (session) => session.startTurn({ turn, prompt: "go" }))
  const seen: Array<number> = []
  const reader = yield* handle.parts().pipe(
    Stream.runForEach(({ n }) => Effect.sync(() => seen.push(n))),
    Effect.forkScoped
  )
  const log = bridge.options.state.turn(session, turn)
  yield* eventuallyReal(() => log.readers.size === 1)
  return { bridge, handle, log, reader, seen }
})

// Each step is followed by real time, in which sockets bring what they have.
const pass = (seconds: number) =>
  Effect.forEach(Array.from({ length: seconds / 15 }), () => Effect.andThen(TestClock.adjust("15 seconds"), realTime), {
    discard: true
  })

// An attempt to connect has 10 s of this time, and on a busy machine it may take a few of them.
const passUntil = (condition: () => boolean) =>
  Effect.repeat(
    Effect.andThen(Effect.andThen(TestClock.adjust("1 second"), realTime), Effect.sync(condition)),
    { until: (done) => done }
  )

describe("silence", () => {
  it.effect("is broken by a ping every 15 s, and none where the host wants none", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      yield* connect(bridge)
      yield* pass(150)
      yield* eventuallyReal(() => bridge.pings === 10)
      assert.strictEqual(bridge.upgrades.length, 1)

      const silent = yield* serve()
      const client = yield* connect(silent, { pings: false })
      yield* pass(600)
      assert.strictEqual(silent.pings, 0)
      assert.deepStrictEqual(silent.payloads("Hello").map(({ pings }) => pings), [false])
      yield* client.hello
      assert.strictEqual(silent.upgrades.length, 1)
    }))

  it.effect("of 30 s after a ping makes a read go on over another connection", () =>
    Effect.gen(function*() {
      // The first connection takes all, and brings nothing.
      const { bridge, log, reader, seen } = yield* started({
        onPing: (bridge) => bridge.upgrades.length === 1 ? "ignore" : undefined,
        onPart: (n, _, bridge) => n >= 3 && bridge.upgrades.length === 1 ? "stall" : undefined
      })
      log.emit(text(1), text(2))
      yield* eventuallyReal(() => seen.length === 2)
      log.emit(text(3))
      log.finish()
      yield* pass(30)
      assert.deepStrictEqual([seen, bridge.upgrades.length], [[1, 2], 1])
      yield* pass(15)
      yield* eventuallyReal(() => seen.length === 3)
      yield* Fiber.join(reader)
      assert.deepStrictEqual([seen, bridge.upgrades.length], [[1, 2, 3], 2])
      assert.deepStrictEqual(bridge.payloads("ReadTurn")[1], { session, turn, from: 3, attempt: 1 })
      // Nothing is left on the one that was silent.
      yield* eventuallyReal(() => bridge.sockets.size === 1)
    }))

  it.effect("of a connection that then brings its message after all costs nothing", () =>
    Effect.gen(function*() {
      let isSlow = true
      const { bridge, log, reader, seen } = yield* started({
        onPing: () => isSlow ? "ignore" : undefined,
        onPart: (n, _, bridge) => n >= 3 && isSlow && bridge.upgrades.length === 1 ? "stall" : undefined,
        // The second connection is slower still.
        onRequest: (tag, _, bridge) => tag === "ReadTurn" && bridge.upgrades.length > 1 ? "silence" : undefined
      })
      log.emit(text(1), text(2))
      yield* eventuallyReal(() => seen.length === 2)
      yield* pass(120)
      yield* passUntil(() => bridge.count("ReadTurn") > 1)
      isSlow = false
      log.emit(text(3), text(4))
      yield* eventuallyReal(() => seen.length === 4)
      log.finish()
      yield* Fiber.join(reader)
      assert.deepStrictEqual(seen, [1, 2, 3, 4])
    }))

  it.effect("makes a command be repeated over another connection", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({
        onPing: (bridge) => bridge.upgrades.length === 1 ? "ignore" : undefined,
        onRequest: (tag, _, bridge) => tag === "Compact" && bridge.upgrades.length === 1 ? "silence" : undefined
      })
      const statuses: Array<string> = []
      const client = yield* connect(bridge, { onStatus: ({ _tag }) => Effect.sync(() => void statuses.push(_tag)) })
      const started = yield* client.startSession({ session, directory: "/work" })
      const compacting = yield* Effect.forkScoped(started.compact())
      yield* eventuallyReal(() => bridge.count("Compact") === 1)
      yield* pass(45)
      assert.deepStrictEqual(yield* Fiber.join(compacting), {})
      assert.deepStrictEqual([bridge.count("Compact"), bridge.upgrades.length], [2, 2])
      assert.deepStrictEqual([...statuses].sort(), ["Connected", "Connected", "Connecting", "Connecting", "Silent"])
    }))
})
