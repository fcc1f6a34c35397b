import { assert, describe, it } from "@effect/vitest"
import { BridgeClient, WebSocketConstructor } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { Clock, Deferred, Duration, Effect, Exit, Fiber, Redacted, Schedule, type Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { connect, eventually, realTime, serve, session, startSession, token, turn } from "./fixtures/connected.ts"
import { type Options, TestState, text } from "./fixtures/TestBridge.ts"

describe("BridgeClient", () => {
  it.live("says hello with its token in a subprotocol, and starts a session", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const client = yield* connect(bridge, { host: { name: "test", version: "9" } })
      const hello = yield* client.hello
      assert.strictEqual(hello.launch, "launch-one")
      assert.deepStrictEqual(bridge.payloads("Hello")[0], { host: { name: "test", version: "9" }, protocol: 1 })
      assert.match(bridge.upgrades[0]!.get("sec-websocket-protocol")!, /^bridge\.v1, bridge\.token\.[\w-]+$/)
      const started = yield* client.startSession({ session, directory: "/work" })
      assert.isFalse(started.resumed)
      assert.isTrue((yield* client.startSession({ session, directory: "/work" })).resumed)
      assert.deepStrictEqual(bridge.payloads("StartSession")[0], {
        session,
        directory: "/work",
        permissions: "ask",
        settings: "project"
      })
    }))

  it.live("repeats a command whose connection was lost before its answer", () =>
    Effect.gen(function*() {
      let cuts = 3
      const bridge = yield* serve({
        onRequest: (tag, payload, bridge) => {
          if (tag !== "StartTurn" || cuts-- <= 0) return undefined
          // Carried out, and the answer is lost.
          bridge.answer(tag, payload)
          bridge.cut()
          return "silence"
        }
      })
      const started = yield* startSession(bridge)
      const turnHandle = yield* started.startTurn({ turn, prompt: "hello" })
      assert.deepInclude(turnHandle.started, { attempt: 1, from: 1, status: "running" })
      assert.strictEqual(bridge.count("StartTurn"), 4)
      for (const payload of bridge.payloads("StartTurn")) {
        assert.deepStrictEqual(payload, { session, turn, attempt: 1, prompt: [{ type: "text", text: "hello" }] })
      }
    }))

  it.effect("gives up a command that kills each connection", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({
        onRequest: (tag, _, bridge) => {
          if (tag !== "StartTurn") return undefined
          bridge.cut()
          return "silence"
        }
      })
      const started = yield* startSession(bridge)
      const starting = yield* Effect.forkScoped(Effect.flip(started.startTurn({ turn, prompt: "hello" })))
      while (starting.pollUnsafe() === undefined) yield* Effect.andThen(TestClock.adjust("1 second"), realTime)
      const error = yield* Fiber.join(starting)
      assert.strictEqual(error._tag, "BridgeUnavailable")
      assert.strictEqual((error as BridgeUnavailableError).reason._tag, "Disconnected")
      assert.isAtMost(bridge.count("StartTurn"), 11)
    }))

  it.live("refuses a request over 12 MiB before it's sent", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const started = yield* startSession(bridge)
      const error = yield* Effect.flip(started.startTurn({ turn, prompt: "ü".repeat(6 * 1024 * 1024) }))
      assert.strictEqual(error._tag, "TooLarge")
      assert.strictEqual(bridge.count("StartTurn"), 0)
      assert.strictEqual(bridge.sockets.size, 1)
      yield* started.startTurn({ turn, prompt: "ü".repeat(1000) })
    }))

  it.live("refuses JSON that's nested too deep before it's sent", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const nested = (depth: number) => {
        let json: Schema.JsonObject = {}
        for (let i = 1; i < depth; i++) json = { a: json }
        return json
      }
      // Where a payload has it, it's in an object of its own.
      const responseFormat = (depth: number) => ({ type: "json", schema: nested(depth - 1) }) as const
      const started = yield* startSession(bridge)
      for (const depth of [513, 50_000]) {
        const tooDeep = started.startTurn({ turn, prompt: "go", responseFormat: responseFormat(depth) })
        const error = yield* Effect.flip(tooDeep)
        assert.deepInclude(error, { _tag: "TooDeep", limit: 512 })
      }
      const client = yield* connect(bridge)
      const tools = { tools: [{ name: "t", description: "d", parameters: nested(50_000) }], handle: () => Effect.never }
      const refused = yield* Effect.flip(client.startSession({ session, directory: "/work", tools }))
      assert.strictEqual(refused._tag, "TooDeep")
      assert.strictEqual(bridge.count("StartTurn"), 0)
      yield* started.startTurn({ turn, prompt: "go", responseFormat: responseFormat(512) })
    }))

  it.live("takes a close for a too long frame as TooLarge, and doesn't repeat it", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({ maxPayloadLength: 100_000 })
      const started = yield* startSession(bridge)
      const error = yield* Effect.flip(started.startTurn({ turn, prompt: "x".repeat(200_000) }))
      assert.strictEqual(error._tag, "TooLarge")
      assert.strictEqual(bridge.count("StartTurn"), 0)
      yield* started.startTurn({ turn, prompt: "short" })
    }))

  it.live("gives a remote defect as an error with its text", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({
        onRequest: (tag) => tag === "Compact" ? { die: "payload: 'session' is bad" } : undefined
      })
      const started = yield* startSession(bridge)
      const error = yield* Effect.flip(started.compact())
      assert.strictEqual(error._tag, "BridgeUnavailable")
      assert.include(error.message, "payload: 'session' is bad")
    }))

  it.live("says in one line that an answer isn't what it knows, and where", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({
        onRequest: (tag) => tag === "StartSession" ? { success: { resumed: 7 } } : undefined
      })
      const error = yield* Effect.flip(startSession(bridge))
      assert.match(error.message, /^Bridge b1: its answer isn't what this client knows: [^\n]*"resumed"[^\n]*\.$/)
      assert.strictEqual(bridge.count("StartSession"), 1)
    }))

  it.live("tells why a connection doesn't open", () =>
    Effect.gen(function*() {
      const reason = Effect.fnUntraced(function*(options: Partial<Options>, connectOptions?: { token?: string }) {
        const bridge = yield* serve(options)
        const error = yield* Effect.flip(connect(bridge, { reconnectFor: 0, ...connectOptions }))
        assert.strictEqual(error._tag, "BridgeUnavailable")
        assert.notInclude(error.message, token)
        return error.reason
      })
      const respond = (status: number, headers?: Record<string, string>) => ({
        onHttp: () => new Response(null, { status, ...(headers === undefined ? {} : { headers }) })
      })
      assert.deepStrictEqual(yield* reason({}, { token: "another-token-with-32-characters-or-so" }), {
        _tag: "TokenMismatch",
        launch: "launch-one"
      })
      assert.deepStrictEqual(yield* reason(respond(401)), { _tag: "TokenMismatch" })
      assert.deepStrictEqual(yield* reason(respond(403)), { _tag: "Forbidden" })
      assert.deepStrictEqual(yield* reason(respond(307, { location: "http://127.0.0.1:9/login" })), {
        _tag: "Redirected",
        status: 307
      })
      assert.deepStrictEqual(yield* reason(respond(502)), { _tag: "BadGateway", status: 502 })
      assert.deepStrictEqual(yield* reason(respond(404)), { _tag: "UnexpectedStatus", status: 404 })
      // The upgrade fails, the plain request finds the bridge.
      assert.deepStrictEqual(
        yield* reason({
          onHttp: (request) => request.headers.has("upgrade") ? new Response(null, { status: 500 }) : undefined
        }),
        { _tag: "UpgradeRefused" }
      )
      const gone = yield* Effect.scoped(serve())
      assert.deepStrictEqual((yield* Effect.flip(connect(gone, { reconnectFor: 0 }))).reason, { _tag: "Refused" })
      const other = yield* serve({
        onRequest: (tag, payload, bridge) => {
          const answer = bridge.answer(tag, payload) as { success: object }
          return { success: { ...answer.success, bridge: "b2" } }
        }
      })
      assert.deepStrictEqual((yield* Effect.flip(connect(other))).reason, {
        _tag: "WrongBridge",
        bridge: Bridge.BridgeId.make("b2"),
        launch: "launch-one"
      })
      const newer = yield* serve({ onRequest: () => ({ fail: { _tag: "ProtocolMismatch", host: 1, bridge: 2 } }) })
      assert.strictEqual((yield* Effect.flip(connect(newer))).reason._tag, "ProtocolMismatch")
    }))

  it.live("seeks on though the machine's clock was set forward, as it is after a sleep", () =>
    Effect.gen(function*() {
      const real = yield* Clock.Clock
      let ahead = 0
      const clock: Clock.Clock = Object.assign(Object.create(real), {
        currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe() + ahead,
        currentTimeMillis: Effect.sync(() => real.currentTimeMillisUnsafe() + ahead)
      })
      let asked = 0
      const bridge = yield* serve({ onHttp: () => asked++ < 3 ? new Response(null, { status: 502 }) : undefined })
      const connecting = yield* Effect.forkScoped(
        Effect.provideService(connect(bridge, { reconnectFor: "1 minute" }), Clock.Clock, clock)
      )
      yield* eventually(() => asked > 0)
      ahead = 3_600_000
      assert.strictEqual((yield* (yield* Fiber.join(connecting)).hello).launch, "launch-one")
    }))

  it.live("asks why without the proxy that the environment names, which a WebSocket doesn't use either", () =>
    Effect.gen(function*() {
      let asked = 0
      const proxy = yield* serve({
        onHttp: () => {
          asked++
          return new Response(null, { status: 403 })
        }
      })
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          process.env["HTTP_PROXY"] = `http://127.0.0.1:${proxy.port}`
        }),
        () => Effect.sync(() => delete process.env["HTTP_PROXY"])
      )
      const gone = yield* Effect.scoped(serve())
      assert.deepStrictEqual((yield* Effect.flip(connect(gone, { reconnectFor: 0 }))).reason, { _tag: "Refused" })
      assert.strictEqual(asked, 0)
    }))

  it.live("fails with a reason where there's no WebSocket", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      const error = yield* connect(bridge).pipe(
        Effect.provideService(WebSocketConstructor.WebSocketConstructor, undefined),
        Effect.flip
      )
      assert.deepStrictEqual(error.reason, { _tag: "NoWebSocket" })
    }))

  it.live("sends the headers that an endpoint asks for", () =>
    Effect.gen(function*() {
      const bridge = yield* serve()
      yield* BridgeClient.make({
        bridge: bridge.options.state.bridge,
        address: Effect.sync(() => ({
          url: new URL(`http://127.0.0.1:${bridge.port}/`),
          token: Redacted.make(token),
          headers: { "X-Preview": Redacted.make("p") }
        }))
      })
      assert.strictEqual(bridge.upgrades[0]!.get("x-preview"), "p")
      assert.match(bridge.upgrades[0]!.get("sec-websocket-protocol")!, /^bridge\.v1, /)
    }))

  it.live("asks for the address for each connection", () =>
    Effect.gen(function*() {
      const state = new TestState()
      const bridges = [yield* serve({ state }), yield* serve({ state, launch: "launch-two" })]
      let asked = 0
      const client = yield* BridgeClient.make({
        bridge: state.bridge,
        address: Effect.sync(() => ({
          url: new URL(`http://127.0.0.1:${bridges[Math.min(asked++, 1)]!.port}/`),
          token: Redacted.make(token)
        }))
      })
      assert.strictEqual((yield* client.hello).launch, "launch-one")
      bridges[0]!.stop()
      assert.strictEqual((yield* client.hello).launch, "launch-two")
    }))

  it.live("isn't held up by consumers that stall: not its calls, not its other reads", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({ batch: 100 })
      const started = yield* startSession(bridge)
      const big = yield* started.startTurn({ turn, prompt: "big" })
      const other = yield* started.startTurn({ turn: Bridge.TurnId.make("t2"), prompt: "small" })
      const log = bridge.options.state.turn(session, turn)
      const small = bridge.options.state.turn(session, "t2")
      // 10 MB, in chunks of about 100 KB.
      const delta = "x".repeat(1000)
      log.emit(...Array.from({ length: 10_000 }, () => ({ type: "text-delta", id: "t", delta })))
      log.finish()
      // Each takes one chunk, and stalls. There are more of them than may hold the bridge back.
      const released = yield* Deferred.make<void>()
      const stalled = yield* Effect.forEach(Array.from({ length: 12 }), () =>
        Effect.gen(function*() {
          const numbers: Array<number> = []
          const fiber = yield* big.parts().pipe(
            Stream.runForEachArray((parts) => {
              numbers.push(...parts.map(({ n }) => n))
              return Deferred.await(released)
            }),
            Effect.forkScoped
          )
          return { fiber, numbers }
        }))
      // What each is sent is its first chunk, about 1 MiB that is acknowledged, and the window.
      let acks = 0
      yield* Effect.sync(() => acks === bridge.acks && acks > 12 * 5 ? true : (acks = bridge.acks, false)).pipe(
        Effect.repeat({ until: (settled) => settled, schedule: Schedule.spaced("100 millis") })
      )
      const [elapsed] = yield* Effect.timed(Effect.all([
        started.compact(),
        Effect.gen(function*() {
          small.emit(text(1), text(2))
          small.finish()
          assert.deepStrictEqual((yield* Stream.runCollect(other.parts())).map(({ n }) => n), [1, 2])
        })
      ], { concurrency: "unbounded" }))
      assert.isBelow(Duration.toMillis(elapsed), 1000)
      assert.isBelow(bridge.acks, 12 * 12)
      for (const { fiber } of stalled) assert.isUndefined(fiber.pollUnsafe())
      yield* Deferred.succeed(released, undefined)
      for (const { fiber, numbers } of stalled) {
        assert.isTrue(Exit.isSuccess(yield* Fiber.await(fiber)))
        assert.deepStrictEqual(numbers, Array.from({ length: 10_000 }, (_, i) => i + 1))
      }
      // Four reads were ended for the others, and taken up again on the connection there was.
      assert.isAtLeast(bridge.count("ReadTurn"), 12 + 1 + 4)
      assert.strictEqual(bridge.upgrades.length, 1)
    }))

  it.live("ends a read whose bridge sends more than it may, and reads on", () =>
    Effect.gen(function*() {
      const bridge = yield* serve({ batch: 2000 })
      const started = yield* startSession(bridge)
      const big = yield* started.startTurn({ turn, prompt: "big" })
      const log = bridge.options.state.turn(session, turn)
      // Chunks of 2 MB, eight of them ahead.
      const delta = "x".repeat(1000)
      log.emit(...Array.from({ length: 20_000 }, () => ({ type: "text-delta", id: "t", delta })))
      log.finish()
      const numbers: Array<number> = []
      yield* big.parts().pipe(Stream.runForEachArray((parts) =>
        Effect.suspend(() => {
          numbers.push(...parts.map(({ n }) => n))
          return numbers.length === 2000 ? eventually(() => log.readers.size === 0) : Effect.void
        })
      ))
      assert.deepStrictEqual(numbers, Array.from({ length: 20_000 }, (_, i) => i + 1))
      assert.isAtLeast(bridge.count("ReadTurn"), 2)
      assert.strictEqual(bridge.upgrades.length, 1)
    }))
})

type BridgeUnavailableError = Effect.Error<ReturnType<typeof connect>>
