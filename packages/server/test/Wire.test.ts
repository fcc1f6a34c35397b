import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Deferred, Effect, Fiber, Layer, Stream } from "effect"
import { RpcClient, RpcSerialization } from "effect/unstable/rpc"
import { Socket } from "effect/unstable/socket"
import * as Canned from "./fixtures/cannedBridge.ts"
import * as RawHost from "./fixtures/rawHost.ts"

const headers = { "x-bridge-token": Canned.token }
const session = Bridge.SessionId.make("s")
const turn = Bridge.TurnId.make("t")
const many = 20_000
const events = [
  ...Array.from({ length: many / 1000 }, (_, i) => Canned.batch(i * 1000 + 1, 1000)),
  Canned.end(many + 1)
]
const handlers: Partial<Canned.Handlers> = {
  ReadTurn: ({ turn }) =>
    turn === "gone"
      ? Stream.fail(new Bridge.TurnNotFound({ session, turn }))
      : Stream.fromIterable(events, { chunkSize: 1 }),
  Compact: () => Effect.never,
  StopSession: () => Effect.fail(new Bridge.SessionBusy({ session, port: 7, launch: "launch-2" }))
}

describe("Wire", () => {
  describe("with nothing but WebSocket and JSON", () => {
    it.live("says hello, reads a turn to its end, and is told why another can't be read", () =>
      Effect.gen(function*() {
        const { url } = yield* Canned.serve({ handlers })
        const host = yield* RawHost.connect(url, { headers })
        host.send(
          `{"_tag":"Request","id":1,"tag":"Hello","payload":{"host":{"name":"raw","version":"1"},"protocol":1},"headers":[]}`
        )
        const hello = yield* host.next
        assert.deepStrictEqual(hello, {
          _tag: "Exit",
          requestId: 1,
          exit: { _tag: "Success", value: Canned.hello }
        })
        host.send(`{"_tag":"Request","id":2,"tag":"ReadTurn","payload":{"session":"s","turn":"t","from":1}}`)
        let next = 1
        let end: unknown
        for (let message = yield* host.next; message._tag === "Chunk"; message = yield* host.next) {
          assert.strictEqual(message.requestId, 2)
          assert.isUndefined(end)
          for (const value of message.values) {
            if ("end" in value) {
              end = value
              continue
            }
            assert.deepStrictEqual(Object.keys(value), ["attempt", "parts"])
            for (const { n, part } of value.parts) {
              assert.strictEqual(n, next++)
              assert.strictEqual(part.delta, `delta ${n}`)
            }
          }
          host.send(`{"_tag":"Ack","requestId":2}`)
        }
        assert.strictEqual(next, many + 1)
        assert.deepStrictEqual(end, {
          end: { type: "finished", usage: { measured: true }, finishReason: "stop" },
          attempt: 1,
          next: many + 1
        })
        host.send(`{"_tag":"Request","id":3,"tag":"ReadTurn","payload":{"session":"s","turn":"gone","from":1}}`)
        assert.deepStrictEqual(yield* host.next, {
          _tag: "Exit",
          requestId: 3,
          exit: {
            _tag: "Failure",
            cause: [{ _tag: "Fail", error: { _tag: "TurnNotFound", session: "s", turn: "gone" } }]
          }
        })
      }))

    it.live("has these very frames", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve({
          handlers: { ...handlers, ReadTurn: () => Stream.make(Canned.batch(41, 1, "Hi"), Canned.end(42)) }
        })
        const { received, socket } = yield* RawHost.request(port, {
          headers: { ...RawHost.upgradeHeaders, ...headers }
        })
        const requests = [
          `{"_tag":"Ping"}`,
          `{"_tag":"Request","id":"a","tag":"StartTurn","payload":{"session":"s","turn":"t"}}`,
          `{"_tag":"Request","id":2,"tag":"ReadTurn","payload":{"session":"s","turn":"t","from":41}}`,
          `{"_tag":"Ack","requestId":2}`,
          `{"_tag":"Request","id":3,"tag":"StopSession","payload":{"session":"s"}}`,
          `{"_tag":"Request","id":4,"tag":"AbortTurn","payload":{"session":"s","turn":"t"}}`,
          `{"_tag":"Request","id":5,"tag":"AbortTurn","payload":{"session":"S"}}`,
          `{"_tag":"Request","id":6,"tag":"Teleport","payload":{}}`,
          `{"_tag":"Request","id":7,"tag":"Compact","payload":{"session":"s"}}`,
          `{"_tag":"Interrupt","requestId":7}`
        ]
        const answers = [
          `{"_tag":"Pong"}`,
          `{"_tag":"Exit","requestId":"a","exit":{"_tag":"Success","value":{"attempt":1,"from":1,"next":1,"status":"started"}}}`,
          `{"_tag":"Chunk","requestId":2,"values":[{"attempt":1,"parts":[{"n":41,"part":` +
          `{"type":"text-delta","id":"1","delta":"Hi"}}]},{"end":{"type":"finished","usage":{"measured":true},` +
          `"finishReason":"stop"},"attempt":1,"next":42}]}`,
          `{"_tag":"Exit","requestId":2,"exit":{"_tag":"Success","value":null}}`,
          `{"_tag":"Exit","requestId":3,"exit":{"_tag":"Failure","cause":[{"_tag":"Fail","error":` +
          `{"_tag":"SessionBusy","session":"s","port":7,"launch":"launch-2"}}]}}`,
          `{"_tag":"Exit","requestId":4,"exit":{"_tag":"Failure","cause":[{"_tag":"Die","defect":"not canned"}]}}`,
          `{"_tag":"Exit","requestId":5,"exit":{"_tag":"Failure","cause":[{"_tag":"Die","defect":` +
          `"Expected 1 to 64 of a-z, 0-9 and '-', the first of them no '-'\\n  at [\\"session\\"]"}]}}`,
          `{"_tag":"Exit","requestId":6,"exit":{"_tag":"Failure","cause":[{"_tag":"Die","defect":` +
          `"Unknown rpc: Teleport"}]}}`,
          `{"_tag":"Exit","requestId":7,"exit":{"_tag":"Failure","cause":[{"_tag":"Interrupt","fiberId":0}]}}`
        ]
        for (const request of requests) socket.write(RawHost.maskedFrame(request))
        yield* RawHost.until(() => RawHost.frames(received()).length === answers.length)
        const texts = RawHost.frames(received()).map(({ payload }) => payload.toString())
        // Which fiber it was is nobody's business, and changes.
        const settled = texts.map((text) => text.replace(/"fiberId":\d+/, `"fiberId":0`))
        assert.sameMembers(settled, answers)
      }))
  })

  describe("with Effect's own client", () => {
    const client = Effect.fnUntraced(function*(url: string) {
      const socket = Layer.effect(Socket.Socket, Socket.makeWebSocket(url)).pipe(
        // Bun's constructor takes headers, which the types of the DOM don't know.
        Layer.provide(
          Layer.succeed(Socket.WebSocketConstructor, (url) => new WebSocket(url, { headers } as never))
        )
      )
      const context = yield* Layer.build(
        RpcClient.layerProtocolSocket().pipe(Layer.provide([RpcSerialization.layerJson, socket]))
      )
      return yield* Effect.provide(RpcClient.make(Bridge.Rpcs), context)
    })

    it.live("calls procedures, gets typed errors, and interrupts", () =>
      Effect.gen(function*() {
        const started = yield* Deferred.make<void>()
        const interrupted = yield* Deferred.make<void>()
        const { url } = yield* Canned.serve({
          handlers: {
            ...handlers,
            Compact: () =>
              Effect.andThen(Deferred.succeed(started, undefined), Effect.never).pipe(
                Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
              )
          }
        })
        const host = yield* client(url)
        assert.deepStrictEqual(
          yield* host.Hello({ host: { name: "stock", version: "1" }, protocol: 1 }),
          Canned.hello
        )
        const error = yield* Effect.flip(host.StopSession({ session }))
        assert.instanceOf(error, Bridge.SessionBusy)
        const fiber = yield* Effect.forkChild(host.Compact({ session }), { startImmediately: true })
        yield* Deferred.await(started)
        yield* Fiber.interrupt(fiber)
        yield* Deferred.await(interrupted)
        assert.isTrue((yield* host.Approve({ session, turn, approvalId: "a", decision: "deny" })).accepted)
      }))

    it.live("reads a turn to its end, several at once, and stops in the middle", () =>
      Effect.gen(function*() {
        const { url } = yield* Canned.serve({ handlers })
        const host = yield* client(url)
        const read = Effect.gen(function*() {
          let next = 1
          let ended = false
          yield* host.ReadTurn({ session, turn, from: 1 }).pipe(Stream.runForEach((event) =>
            Effect.sync(() => {
              if ("end" in event) ended = true
              else for (const { n } of event.parts) assert.strictEqual(n, next++)
            })
          ))
          assert.isTrue(ended)
          return next
        })
        assert.deepStrictEqual(yield* Effect.all([read, read, read], { concurrency: 3 }), [
          many + 1,
          many + 1,
          many + 1
        ])
        const first = yield* host.ReadTurn({ session, turn, from: 1 }).pipe(Stream.take(2), Stream.runCollect)
        assert.strictEqual(first.length, 2)
        const error = yield* host.ReadTurn({ session, turn: Bridge.TurnId.make("gone"), from: 1 }).pipe(
          Stream.runDrain,
          Effect.flip
        )
        assert.instanceOf(error, Bridge.TurnNotFound)
        assert.strictEqual(yield* read, many + 1)
      }))
  })
})
