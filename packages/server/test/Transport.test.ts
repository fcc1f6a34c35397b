import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Encoding, Layer, Redacted, Tracer } from "effect"
import { HttpServer } from "effect/unstable/http"
import * as Transport from "../src/internal/transport.ts"
import { defaultLimits } from "../src/internal/transportLimits.ts"
import * as Canned from "./fixtures/cannedBridge.ts"
import * as RawHost from "./fixtures/rawHost.ts"

const { token } = Canned
const withToken = { "x-bridge-token": token }
const inBrowser = (token: string) => ["bridge.v1", `bridge.token.${Encoding.encodeBase64Url(token)}`]
const hello = {
  _tag: "Request",
  id: 1,
  tag: "Hello",
  payload: { host: { name: "test", version: "1" }, protocol: 1 }
}
const connected = (options?: Parameters<typeof Canned.serve>[0]) =>
  Effect.gen(function*() {
    const bridge = yield* Canned.serve(options)
    const host = yield* RawHost.connect(bridge.url, { headers: withToken })
    return { ...bridge, host }
  })

describe("Transport", () => {
  describe("before a WebSocket is opened", () => {
    const status = (port: number, options: Parameters<typeof RawHost.request>[1]) =>
      Effect.map(RawHost.request(port, options), ({ answer }) => answer)

    it.live("answers other paths with 404, whatever the token", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve()
        for (const path of ["/x", "//", "/health?token=1"]) {
          assert.strictEqual((yield* status(port, { path, headers: withToken })).status, 404)
        }
        assert.strictEqual((yield* status(port, { path: "/?a=b" })).status, 401)
      }))

    it.live("answers an origin that isn't allowed with 403, before it looks at the token", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve({ allowedOrigins: ["https://good.example"] })
        const answer = (origin: string) => status(port, { headers: { origin } })
        assert.strictEqual((yield* answer("https://evil.example")).status, 403)
        assert.strictEqual((yield* answer("https://good.example.evil")).status, 403)
        assert.strictEqual((yield* answer("null")).status, 403)
        assert.strictEqual((yield* answer("https://good.example")).status, 401)
      }))

    it.live("answers any first subprotocol but bridge.v1 with 400", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve()
        const answer = (protocols: string) =>
          status(port, { headers: { ...RawHost.upgradeHeaders, "sec-websocket-protocol": protocols } })
        const [first, second] = inBrowser(token)
        assert.strictEqual((yield* answer(`${second}, ${first}`)).status, 400)
        assert.strictEqual((yield* answer("chat")).status, 400)
        assert.strictEqual((yield* answer("bridge.v1")).status, 401)
        assert.strictEqual((yield* answer(`${first}, ${second}`)).status, 101)
      }))

    it.live("answers a missing or wrong token with 401 and the launch, without a body", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve()
        const wrong: ReadonlyArray<Record<string, string>> = [
          {},
          { "x-bridge-token": "" },
          { "x-bridge-token": `${token}x` },
          { "x-bridge-token": token.slice(1) },
          { authorization: `Bearer ${token}` },
          { "sec-websocket-protocol": "bridge.v1, bridge.token.%%%" },
          { "sec-websocket-protocol": inBrowser("wrong".repeat(8)).join(", ") },
          // The header counts, where there are both.
          { "x-bridge-token": "wrong", "sec-websocket-protocol": inBrowser(token).join(", ") }
        ]
        for (const headers of wrong) {
          for (const upgrade of [{}, RawHost.upgradeHeaders]) {
            const answer = yield* status(port, { headers: { ...upgrade, ...headers } })
            assert.strictEqual(answer.status, 401, JSON.stringify(headers))
            assert.strictEqual(answer.headers["x-bridge-launch"], "launch-1")
            assert.strictEqual(answer.body, "")
          }
        }
      }))

    it.live("accepts the previous token beside the token", () =>
      Effect.gen(function*() {
        const previousToken = "the-token-before-this-one-0123456789"
        const { port } = yield* Canned.serve({ previousToken })
        for (const each of [token, previousToken]) {
          assert.strictEqual((yield* status(port, { headers: { "x-bridge-token": each } })).status, 426)
        }
        assert.strictEqual((yield* status(port, { headers: { "x-bridge-token": "neither" } })).status, 401)
      }))

    it.live("answers a plain GET with a valid token with 426, and other methods with 405", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve()
        const answer = yield* status(port, { headers: withToken })
        assert.strictEqual(answer.status, 426)
        assert.strictEqual(answer.headers.upgrade, "websocket")
        assert.strictEqual((yield* status(port, { method: "POST", headers: withToken })).status, 405)
        assert.strictEqual((yield* status(port, { method: "POST" })).status, 401)
      }))

    it.live("answers an upgrade that isn't one of WebSocket with 400", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve()
        const headers = { ...withToken, connection: "Upgrade", upgrade: "websocket" }
        assert.strictEqual((yield* status(port, { headers })).status, 400)
      }))

    it.live("echoes bridge.v1, never the token, to a browser", () =>
      Effect.gen(function*() {
        const { port, url } = yield* Canned.serve()
        const host = yield* RawHost.connect(url, { protocols: inBrowser(token) })
        assert.strictEqual(host.socket.protocol, "bridge.v1")
        host.send(hello)
        assert.strictEqual((yield* host.next).exit._tag, "Success")
        const { answer } = yield* RawHost.request(port, {
          headers: { ...RawHost.upgradeHeaders, "sec-websocket-protocol": inBrowser(token).join(",") }
        })
        assert.strictEqual(answer.headers["sec-websocket-protocol"], "bridge.v1")
      }))

    const recordSpans = () => {
      const spans: Array<Tracer.Span> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      return { spans, tracer }
    }

    it.live("takes the token out of the request", () =>
      Effect.gen(function*() {
        const { spans, tracer } = recordSpans()
        const transport = yield* Transport.make({ tokens: [], launch: "launch-1" })
        const services = yield* Layer.build(Canned.layerServer())
        // Without the names of its headers among those that are redacted.
        yield* HttpServer.serveEffect(transport.httpEffect).pipe(Effect.withTracer(tracer), Effect.provide(services))
        const { address } = Context.get(services, HttpServer.HttpServer)
        assert.strictEqual(address._tag, "InetAddressV4")
        yield* RawHost.request((address as { readonly port: number }).port, {
          headers: { ...withToken, "sec-websocket-protocol": inBrowser(token).join() }
        })
        yield* RawHost.until(() => spans[0]?.attributes.has("http.request.header.host") === true)
        const [{ attributes }] = spans as [Tracer.Span]
        assert.isFalse(attributes.has("http.request.header.x-bridge-token"))
        assert.strictEqual(attributes.get("http.request.header.sec-websocket-protocol"), "bridge.v1")
      }))

    it.live("shows the token to no handler and to no tracer", () =>
      Effect.gen(function*() {
        const { spans, tracer } = recordSpans()
        const seen = yield* Deferred.make<unknown>()
        const { port, url } = yield* Effect.withTracer(
          Canned.serve({
            handlers: {
              Hello: (_, options) => Effect.as(Deferred.succeed(seen, options), Canned.hello)
            }
          }),
          tracer
        )
        const secrets = [token, Encoding.encodeBase64Url(token)]
        for (const options of [{ headers: withToken }, { protocols: inBrowser(token) }]) {
          const host = yield* RawHost.connect(url, options)
          host.send(hello)
          yield* host.next
          host.socket.close()
          yield* host.closed
        }
        yield* RawHost.request(port, { headers: { ...withToken, "x-other": "shown" } })
        const headers = JSON.stringify((yield* Deferred.await(seen)) as never, ["headers"])
        assert.strictEqual(headers, `{"headers":{}}`)
        yield* RawHost.until(() =>
          spans.length === 3 && spans.every(({ attributes }) => attributes.has("http.request.header.host"))
        )
        const written = spans.flatMap(({ attributes }) => [...attributes.values()].map(String))
        assert.include(written, "shown")
        assert.include(written, "<redacted>")
        for (const value of written) for (const secret of secrets) assert.notInclude(value, secret)
      }))
  })

  describe("frames", () => {
    it.live("answers requests whose ids are numbers or strings, without headers", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        for (const id of [0, -1.5, "0", "", "ü\"\\"]) {
          host.send({ ...hello, id })
          const reply = yield* host.next
          assert.strictEqual(reply._tag, "Exit")
          assert.strictEqual(reply.requestId, id)
          assert.deepStrictEqual(reply.exit, { _tag: "Success", value: Canned.hello })
        }
      }))

    it.live("takes an array of messages in one frame", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        host.send([], [{ _tag: "Ping" }, { ...hello, id: "a" }, { ...hello, id: "b", headers: [["x", "y"]] }])
        assert.deepStrictEqual(yield* host.next, { _tag: "Pong" })
        const replies = [(yield* host.next).requestId, (yield* host.next).requestId]
        assert.sameMembers(replies, ["a", "b"])
      }))

    it.live("answers an unknown rpc with its name, and the connection lives on", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        host.send({ _tag: "Request", id: 1, tag: "Teleport", payload: {} }, { ...hello, id: 1 })
        assert.deepStrictEqual(yield* host.next, {
          _tag: "Exit",
          requestId: 1,
          exit: { _tag: "Failure", cause: [{ _tag: "Die", defect: "Unknown rpc: Teleport" }] }
        })
        assert.strictEqual((yield* host.next).exit._tag, "Success")
        host.send({ _tag: "Request", id: 1, tag: "x".repeat(10_000) })
        assert.isBelow(JSON.stringify(yield* host.next).length, 200)
      }))

    it.live("answers a payload that doesn't fit with the field's name and no value, and lives on", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        const session = { session: "s", directory: "/d", permissions: "ask", settings: "none" }
        const cases: ReadonlyArray<readonly [payload: unknown, field: string]> = [
          [{ ...session, env: { KEY: 8_675_309 } }, `["env"]["KEY"]`],
          [{ ...session, env: "8675309" }, `["env"]`],
          [{ ...session, mcpServers: [{ type: "stdio", name: "m", command: "c", env: { A: 8_675_309 } }] }, `["A"]`],
          [{ ...session, permissions: "8675309" }, `["permissions"]`],
          [{ ...session, session: "8675309 " }, `["session"]`],
          [{ ...session, limits: { steps: -8_675_309 } }, `["limits"]["steps"]`],
          [{ ...session, directory: undefined }, `["directory"]`]
        ]
        for (const [payload, field] of cases) {
          host.send({ _tag: "Request", id: "x", tag: "StartSession", payload })
          const reply = yield* host.next
          const [{ _tag, defect }] = reply.exit.cause
          assert.strictEqual(_tag, "Die")
          assert.include(defect, field)
          assert.notInclude(JSON.stringify(reply), "8675309")
        }
        for (const payload of ["8675309", null, [8_675_309]]) {
          host.send({ _tag: "Request", id: "x", tag: "StartSession", payload })
          assert.notInclude(JSON.stringify((yield* host.next).exit.cause[0].defect), "8675309")
        }
        host.send(hello)
        assert.strictEqual((yield* host.next).exit._tag, "Success")
      }))

    it.live("keeps a secret out of handlers' sight until it's unwrapped", () =>
      Effect.gen(function*() {
        const seen = yield* Deferred.make<unknown>()
        const { host } = yield* connected({
          handlers: {
            StartSession: ({ env }) => Effect.as(Deferred.succeed(seen, env?.KEY), { resumed: false })
          }
        })
        const payload = { session: "s", directory: "/d", permissions: "ask", settings: "none", env: { KEY: "k3y" } }
        host.send({ _tag: "Request", id: 1, tag: "StartSession", payload })
        yield* host.next
        const secret = yield* Deferred.await(seen)
        assert.isTrue(Redacted.isRedacted(secret))
        assert.notInclude(String(secret), "k3y")
      }))

    const refusals: ReadonlyArray<readonly [name: string, frames: ReadonlyArray<unknown>, close: object]> = [
      ["broken JSON with 1007", [`{"_tag":`], { code: 1007, reason: "a frame is JSON" }],
      ["an empty frame with 1007", [""], { code: 1007, reason: "a frame is JSON" }],
      ["null with 1002", ["null"], { code: 1002, reason: "a message is an object with a known _tag" }],
      ["a number with 1002", ["7"], { code: 1002, reason: "a message is an object with a known _tag" }],
      ["a message without _tag with 1002", [{ id: 1 }], {
        code: 1002,
        reason: "a message is an object with a known _tag"
      }],
      ["a message with an unknown _tag with 1002", [{ _tag: "Shout" }], {
        code: 1002,
        reason: "a message is an object with a known _tag"
      }],
      ["an array in an array with 1002", [[[hello]]], {
        code: 1002,
        reason: "a message is an object with a known _tag"
      }],
      ["a Request without id or tag with 1002", [{ _tag: "Request", tag: "Hello" }], {
        code: 1002,
        reason: "a Request needs an id (a number, or at most 128 characters) and a tag"
      }],
      ["a Request with an infinite id with 1002", [`{"_tag":"Request","tag":"Hello","id":1e999}`], {
        code: 1002,
        reason: "a Request needs an id (a number, or at most 128 characters) and a tag"
      }],
      ["a Request with a long id with 1002", [{ ...hello, id: "x".repeat(129) }], {
        code: 1002,
        reason: "a Request needs an id (a number, or at most 128 characters) and a tag"
      }],
      ["an Ack without requestId with 1002", [{ _tag: "Ack" }], {
        code: 1002,
        reason: "an Ack and an Interrupt need a requestId"
      }],
      ["a Request after Eof with 1002", [[{ _tag: "Request", id: 2, tag: "Compact", payload: { session: "s" } }, {
        _tag: "Eof"
      }, hello]], { code: 1002, reason: "a Request came after Eof" }]
    ]
    for (const [name, frames, close] of refusals) {
      it.live(`closes on ${name}`, () =>
        Effect.gen(function*() {
          const { host } = yield* connected({ handlers: { Compact: () => Effect.never } })
          host.send(...frames)
          assert.deepStrictEqual(yield* host.closed, close as never)
        }))
    }

    it.live("closes on a binary frame with 1003", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        host.sendBytes(new TextEncoder().encode(JSON.stringify(hello)))
        assert.deepStrictEqual(yield* host.closed, { code: 1003, reason: "frames are text" })
      }))

    it.live("closes on text that isn't UTF-8 with 1007", () =>
      Effect.gen(function*() {
        const { port } = yield* Canned.serve()
        const { received, socket } = yield* RawHost.request(port, {
          headers: { ...RawHost.upgradeHeaders, ...withToken }
        })
        socket.write(RawHost.maskedFrame(Buffer.from([0x22, 0xff, 0x22])))
        yield* RawHost.until(() => RawHost.frames(received()).length === 1)
        const [{ opcode, payload }] = RawHost.frames(received()) as [{ opcode: number; payload: Buffer }]
        assert.strictEqual(opcode, 8)
        assert.strictEqual(payload.readUInt16BE(0), 1007)
      }))

    it.live("closes on the id of an open request with 1002, and not on one that's answered", () =>
      Effect.gen(function*() {
        const { host } = yield* connected({ handlers: { Compact: () => Effect.never } })
        host.send(hello)
        yield* host.next
        host.send(hello)
        yield* host.next
        const request = { _tag: "Request", id: 1, tag: "Compact", payload: { session: "s" } }
        host.send(request, { ...request, id: "1" }, request)
        assert.deepStrictEqual(yield* host.closed, {
          code: 1002,
          reason: "a Request has the id of one that is still open"
        })
      }))

    it.live("closes with 1000 once what came before Eof is answered", () =>
      Effect.gen(function*() {
        const gate = yield* Deferred.make<void>()
        const { host } = yield* connected({ handlers: { Compact: () => Effect.as(Deferred.await(gate), {}) } })
        host.send({ _tag: "Request", id: 1, tag: "Compact", payload: { session: "s" } }, { _tag: "Eof" }, {
          _tag: "Ping"
        })
        assert.deepStrictEqual(yield* host.next, { _tag: "Pong" })
        yield* Deferred.succeed(gate, undefined)
        assert.strictEqual((yield* host.next).exit._tag, "Success")
        assert.deepStrictEqual(yield* host.closed, { code: 1000, reason: "the requests before Eof are answered" })
      }))

    it.live("interrupts a request, answers that it was, and ignores an Interrupt of none", () =>
      Effect.gen(function*() {
        const interrupted = yield* Deferred.make<void>()
        const { host } = yield* connected({
          handlers: {
            Compact: () => Effect.onInterrupt(Effect.never, () => Deferred.succeed(interrupted, undefined))
          }
        })
        host.send(
          { _tag: "Interrupt", requestId: 9 },
          { _tag: "Request", id: 9, tag: "Compact", payload: { session: "s" } },
          { _tag: "Interrupt", requestId: 9 }
        )
        yield* Deferred.await(interrupted)
        const reply = yield* host.next
        assert.strictEqual(reply.requestId, 9)
        assert.strictEqual(reply.exit._tag, "Failure")
        assert.strictEqual(reply.exit.cause[0]._tag, "Interrupt")
      }))

    it.live("answers a handler's defect, and the connection lives on", () =>
      Effect.gen(function*() {
        const { host } = yield* connected({ handlers: { Compact: () => Effect.die(new Error("broken")) } })
        host.send({ _tag: "Request", id: 9, tag: "Compact", payload: { session: "s" } })
        const reply = yield* host.next
        assert.strictEqual(reply.exit.cause[0]._tag, "Die")
        assert.deepInclude(reply.exit.cause[0].defect, { name: "Error", message: "broken" })
        host.send(hello)
        assert.strictEqual((yield* host.next).exit._tag, "Success")
      }))

    it.live("interrupts what a connection asked for when it's gone", () =>
      Effect.gen(function*() {
        const interrupted = yield* Deferred.make<void>()
        const started = yield* Deferred.make<void>()
        const { host, transport } = yield* connected({
          handlers: {
            Compact: () =>
              Effect.andThen(Deferred.succeed(started, undefined), Effect.never).pipe(
                Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
              )
          }
        })
        host.send({ _tag: "Request", id: 9, tag: "Compact", payload: { session: "s" } })
        yield* Deferred.await(started)
        host.socket.close()
        yield* Deferred.await(interrupted)
        assert.strictEqual(yield* transport.connections, 0)
      }))
  })

  describe("limits", () => {
    const big = (bytes: number, tag = "StartSession") => {
      const request = { _tag: "Request", id: "big", tag, payload: { session: "s", pad: "" } }
      request.payload.pad = "x".repeat(bytes - JSON.stringify(request).length)
      return request
    }

    it.live("answers a request over 12 MiB with TooLarge, and one of 12 MiB is read", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        const limit = defaultLimits.requestBytes
        assert.strictEqual(limit, 12 * 1024 * 1024)
        host.send(big(limit + 1))
        assert.deepStrictEqual(yield* host.next, {
          _tag: "Exit",
          requestId: "big",
          exit: { _tag: "Failure", cause: [{ _tag: "Fail", error: { _tag: "TooLarge", limit } }] }
        })
        host.send(big(limit + 1, "Hello"))
        assert.strictEqual((yield* host.next).exit.cause[0].defect, `Hello is longer than ${limit} bytes`)
        host.send(big(limit))
        assert.include((yield* host.next).exit.cause[0].defect, `["directory"]`)
        // Counted in bytes, not in characters.
        const wide = big(limit - 100)
        wide.payload.pad = wide.payload.pad.replace(/x{99}/, "ü".repeat(99))
        host.send(wide)
        assert.include((yield* host.next).exit.cause[0].defect, `["directory"]`)
        wide.payload.pad = wide.payload.pad.replace(/x{9}/, "ü".repeat(9))
        host.send(wide)
        assert.strictEqual((yield* host.next).exit.cause[0].error._tag, "TooLarge")
      }))

    it.live("answers JSON that's nested too deep with TooDeep, whatever it's for, and lives on", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        const nested = (depth: number) => `${"[".repeat(depth)}1${"]".repeat(depth)}`
        const request = (tag: string, json: string) =>
          host.send(`{"_tag":"Request","id":"deep","tag":"${tag}","payload":{"session":"s","any":${json}}}`)
        for (const tag of ["StartSession", "StartTurn", "SubmitToolResult", "SendMessage", "Compact", "StopSession"]) {
          for (const depth of [513, 50_000, 3_000_000]) {
            request(tag, nested(depth))
            assert.deepStrictEqual((yield* host.next).exit.cause, [{
              _tag: "Fail",
              error: { _tag: "TooDeep", limit: 512 }
            }])
          }
        }
        request("Hello", `{"a":${nested(50_000)}}`)
        assert.strictEqual((yield* host.next).exit.cause[0].defect, "Hello is nested more than 512 deep")
        // What isn't a field's business is read no further.
        host.send(`{"_tag":"Request","id":"deep","tag":"Hello","headers":${nested(50_000)},"payload":{}}`)
        assert.include((yield* host.next).exit.cause[0].defect, `["host"]`)
        request("StartSession", nested(512))
        assert.include((yield* host.next).exit.cause[0].defect, `["directory"]`)
      }))

    it.live("closes with 1009 on a frame over 16 MiB", () =>
      Effect.gen(function*() {
        const { host } = yield* connected()
        host.send(big(16 * 1024 * 1024 + 1))
        assert.strictEqual((yield* host.closed).code, 1009)
      }))

    it.live("answers the 65th stream with TooManyStreams, and reads on when one has ended", () =>
      Effect.gen(function*() {
        const { host } = yield* connected({ handlers: { ReadTurn: () => Effect.never as never } })
        const read = (id: number) => ({
          _tag: "Request",
          id,
          tag: "ReadTurn",
          payload: { session: "s", turn: "t", from: 1 }
        })
        for (let id = 0; id < 64; id++) host.send(read(id))
        host.send(read(64))
        assert.deepStrictEqual(yield* host.next, {
          _tag: "Exit",
          requestId: 64,
          exit: { _tag: "Failure", cause: [{ _tag: "Fail", error: { _tag: "TooManyStreams", limit: 64 } }] }
        })
        host.send({ _tag: "Interrupt", requestId: 7 })
        assert.strictEqual((yield* host.next).requestId, 7)
        host.send(read(65), { ...hello, id: "hello" })
        assert.strictEqual((yield* host.next).requestId, "hello")
      }))

    it.live("answers what is too much at once with a defect, until something is answered", () =>
      Effect.gen(function*() {
        const gate = yield* Deferred.make<void>()
        const { host } = yield* connected({
          limits: { requests: 3, openBytes: 2000 },
          handlers: { Compact: () => Effect.as(Deferred.await(gate), {}) }
        })
        const compact = (id: string, instructions = "") => ({
          _tag: "Request",
          id,
          tag: "Compact",
          payload: { session: "s", instructions }
        })
        host.send(compact("a"), compact("b", "x".repeat(1500)), compact("c", "x".repeat(500)))
        const refused = yield* host.next
        assert.strictEqual(refused.requestId, "c")
        assert.strictEqual(
          refused.exit.cause[0].defect,
          "Too many open requests: at most 3, and 2000 bytes, are"
        )
        host.send(compact("d"), compact("e"))
        assert.strictEqual((yield* host.next).requestId, "e")
        yield* Deferred.succeed(gate, undefined)
        const answered = yield* Effect.forEach([1, 2, 3], () => host.next)
        assert.sameMembers(answered.map(({ requestId }) => requestId), ["a", "b", "d"])
        host.send(compact("f", "x".repeat(1500)))
        assert.strictEqual((yield* host.next).exit._tag, "Success")
      }))

    it.live("answers a reply that's too long with a defect", () =>
      Effect.gen(function*() {
        const { host } = yield* connected({
          limits: { unreadBytes: 1000 },
          handlers: { ReadState: () => Effect.succeed("x".repeat(1000)) }
        })
        host.send({ _tag: "Request", id: 1, tag: "ReadState", payload: { session: "s" } })
        assert.strictEqual((yield* host.next).exit.cause[0].defect, "The reply is longer than 1000 bytes")
      }))
  })

  it.live("closes every socket with 1001, and answers new ones with 503", () =>
    Effect.gen(function*() {
      const { host, port, transport } = yield* connected()
      yield* transport.closeAll
      assert.deepStrictEqual(yield* host.closed, { code: 1001, reason: "the bridge is closing" })
      yield* Effect.repeat(transport.connections, { until: (count) => count === 0 })
      const { answer } = yield* RawHost.request(port, { headers: { ...RawHost.upgradeHeaders, ...withToken } })
      assert.strictEqual(answer.status, 503)
    }))
})
