import { assert, describe, it } from "@effect/vitest"
import { type BridgeClient, Status } from "@gangway/client"
import { Deferred, Effect, Fiber, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { connect, eventually, realTime, serve, session, token, turn } from "./fixtures/connected.ts"
import { text } from "./fixtures/TestBridge.ts"

const recorded = () => {
  const statuses: Array<Status.Status> = []
  const tags = () => statuses.map(({ _tag }) => _tag)
  // It's also called when it's told, and not before.
  const onStatus = (status: Status.Status) => {
    statuses.push(status)
    return Effect.void
  }
  return { statuses, tags, onStatus }
}

describe("Status", () => {
  it.live("is told from the first attempt on, at a lost connection and the next one, and not of the client's own end", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const { onStatus, statuses, tags } = recorded()
      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(bridge, { onStatus })
        assert.deepStrictEqual(statuses, [{ _tag: "Connecting" }, { _tag: "Connected", launch: "launch-one" }])
        bridge.close(1013, "the replies aren't read")
        yield* eventually(() => statuses.length === 3)
        assert.deepStrictEqual(statuses[2], {
          _tag: "Disconnected",
          reason: { _tag: "Disconnected", code: 1013, problem: "the replies aren't read" }
        })
        assert.strictEqual(
          Status.toMessage(statuses[2]!),
          "the connection was lost (1013, the replies aren't read)"
        )
        // Nothing needs it yet.
        yield* client.hello
        assert.deepStrictEqual(tags().slice(3), ["Connecting", "Connected"])
        yield* client.hello
      }))
      yield* eventually(() => bridge.sockets.size === 0)
      assert.strictEqual(statuses.length, 5)
    }))

  it.live("tells of each attempt that failed, why, and when the next one comes, and that it was given up", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const { onStatus, statuses, tags } = recorded()
      const client = yield* connect(bridge, { onStatus, reconnectFor: "1 second" })
      bridge.stop()
      yield* eventually(() => tags().includes("Disconnected"))
      const error = yield* Effect.flip(client.hello)
      assert.deepStrictEqual(statuses.at(-1), { _tag: "Unavailable", reason: error.reason })
      const attempts = statuses.filter((status) => status._tag === "Reconnecting")
      assert.isAtLeast(attempts.length, 3)
      assert.isAtMost(attempts.length, 6)
      for (const [i, { attempt, reason, retryIn }] of attempts.entries()) {
        assert.deepStrictEqual([attempt, reason], [i + 1, { _tag: "Refused" }])
        const { retryIn: millis } = yield* Schema.encodeEffect(Status.Status)(attempts[i]!) as never as Effect.Effect<
          { readonly retryIn: number }
        >
        assert.isAtLeast(millis, 80 * 2 ** i, String(retryIn))
        assert.isAtMost(millis, 120 * 2 ** i)
      }
      assert.match(
        Status.toMessage(attempts[0]!),
        /^attempt 1 to connect failed: nobody listens there; again in 0\.1 s$/
      )
    }))

  it.live("holds up nothing that has its connection while a status is dealt with", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      let isSlow = false
      const client = yield* connect(bridge, {
        onStatus: ({ _tag }) => isSlow && _tag === "Disconnected" ? Effect.never : Effect.void
      })
      const started = yield* client.startSession({ session, directory: "/work" })
      const handle = yield* started.startTurn({ turn, prompt: "go" })
      const seen: Array<number> = []
      const reader = yield* handle.parts().pipe(
        Stream.runForEach(({ n }) => Effect.sync(() => void seen.push(n))),
        Effect.forkScoped
      )
      const log = bridge.options.state.turn(session, turn)
      log.emit(text(1))
      yield* eventually(() => seen.length === 1)
      isSlow = true
      bridge.cut()
      log.emit(text(2))
      log.finish()
      yield* Fiber.join(reader)
      assert.deepStrictEqual(seen, [1, 2])
    }))

  it.live("may be dealt with by calls of the client, whatever it tells of", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const known: { client?: BridgeClient.BridgeClient["Service"] } = {}
      const called: Array<string> = []
      const { onStatus, tags } = recorded()
      known.client = yield* connect(bridge, {
        onStatus: (status) =>
          Effect.andThen(
            onStatus(status),
            known.client === undefined ? Effect.void : Effect.orDie(known.client.hello).pipe(
              Effect.andThen(Effect.sync(() => void called.push(status._tag)))
            )
          )
      })
      bridge.cut()
      yield* eventually(() => called.includes("Connected"))
      assert.deepStrictEqual(called, ["Disconnected", "Connecting", "Connected"])
      assert.deepStrictEqual(tags(), ["Connecting", "Connected", "Disconnected", "Connecting", "Connected"])
    }))

  it.live("holds up nothing where it's dealt with for ever, and of those that wait 64 are kept", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const go = yield* Deferred.make<void>()
      const { onStatus, statuses } = recorded()
      const client = yield* connect(bridge, {
        onStatus: (status) => Effect.andThen(onStatus(status), Deferred.await(go))
      })
      for (let i = 1; i <= 40; i++) {
        bridge.cut()
        yield* client.hello
        assert.strictEqual(bridge.upgrades.length, i + 1)
      }
      assert.deepStrictEqual(statuses, [{ _tag: "Connecting" }])
      yield* Deferred.succeed(go, undefined)
      yield* eventually(() => statuses.length === 65)
      assert.strictEqual(statuses.at(-1)!._tag, "Connected")
      yield* client.hello
      assert.lengthOf(statuses, 65)
    }))

  it.live("breaks nothing where dealing with it does", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      let told = 0
      const client = yield* connect(bridge, {
        onStatus: () => {
          told++
          throw new Error("broken")
        }
      })
      yield* client.hello
      assert.strictEqual(told, 2)
    }))

  it.live("has no token in it, in no form", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({ onHttp: () => new Response(null, { status: 403 }) })
      const { onStatus, statuses } = recorded()
      yield* Effect.flip(connect(bridge, { onStatus, reconnectFor: 0 }))
      const gone = yield* Effect.scoped(serve())
      yield* Effect.flip(connect(gone, { onStatus, reconnectFor: 0 }))
      const encoded = yield* Effect.forEach(statuses, (status) => Schema.encodeEffect(Status.Status)(status))
      for (const shown of [JSON.stringify(encoded), ...statuses.map(Status.toMessage)]) {
        assert.notInclude(shown, token)
        assert.notInclude(shown, Buffer.from(token).toString("base64url"))
      }
      assert.isAbove(encoded.length, 3)
    }))
})

describe("a close code", () => {
  const codes = [
    [1000, "the requests before Eof are answered"],
    [1001, "the bridge is closing"],
    [1002, "a message is an object with a known _tag"],
    [1003, "frames are text"],
    [1007, "a frame is JSON"],
    [1008, "nothing came for too long"],
    [1011, "the bridge failed at this frame"],
    [1013, "the replies aren't read"]
  ] as const

  it.live("of a lost connection makes a command be repeated and a read go on, on another one", () =>
    Effect.forEach(codes, ([code, reason]) =>
      Effect.gen(function*() {
        let closes = 1
        const bridge = yield* serve({
          onRequest: (tag, _, bridge) => {
            if (tag !== "Compact" || closes-- <= 0) return undefined
            bridge.close(code, reason)
            return "silence"
          }
        })
        const { onStatus, statuses } = recorded()
        const client = yield* connect(bridge, { onStatus })
        const started = yield* client.startSession({ session, directory: "/work" })
        const handle = yield* started.startTurn({ turn, prompt: "go" })
        const log = bridge.options.state.turn(session, turn)
        log.emit(text(1), text(2))
        const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
        yield* eventually(() => log.readers.size === 1)
        yield* started.compact()
        log.emit(text(3))
        log.finish()
        assert.deepStrictEqual((yield* Fiber.join(reader)).map(({ n }) => n), [1, 2, 3])
        assert.deepStrictEqual([bridge.count("Compact"), bridge.upgrades.length], [2, 2])
        assert.deepStrictEqual(statuses.filter(({ _tag }) => _tag === "Disconnected"), [
          { _tag: "Disconnected", reason: { _tag: "Disconnected", code, problem: reason } }
        ])
      }).pipe(Effect.scoped), { concurrency: 4, discard: true }))

  it.effect("that comes at each attempt of a command is what its error says", () =>
    Effect.forEach([codes[2], codes[6]], ([code, reason]) =>
      Effect.gen(function*() {
        const bridge = yield* serve({
          onRequest: (tag, _, bridge) => {
            if (tag !== "Compact") return undefined
            bridge.close(code, reason)
            return "silence"
          }
        })
        const client = yield* connect(bridge)
        const started = yield* client.startSession({ session, directory: "/work" })
        const compacting = yield* Effect.forkScoped(Effect.flip(started.compact()))
        while (compacting.pollUnsafe() === undefined) yield* Effect.andThen(TestClock.adjust("1 second"), realTime)
        const error = yield* Fiber.join(compacting)
        assert.strictEqual(error._tag, "BridgeUnavailable")
        assert.strictEqual(error.message, `Bridge b1: the connection was lost (${code}, ${reason}).`)
        assert.strictEqual(bridge.count("Compact"), 11)
      }).pipe(Effect.scoped), { discard: true }))
})
