import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Stream } from "effect"
import { createServer } from "node:http"
import * as Canned from "./fixtures/cannedBridge.ts"
import * as RawHost from "./fixtures/rawHost.ts"

const headers = { "x-bridge-token": Canned.token }
const server = Layer.orDie(NodeHttpServer.layerServer(() => createServer(), { host: "127.0.0.1", port: 0 }))
const read = { _tag: "Request", id: 1, tag: "ReadTurn", payload: { session: "s", turn: "t", from: 1 } }
const endless = Stream.map(Stream.iterate(1, (n) => n + 1), (n) => Canned.batch(n, 1))

describe("Transport on another server than Bun's", () => {
  it.live("answers over HTTP, echoes the subprotocol, and serves frames", () =>
    Effect.gen(function*() {
      const { port, url } = yield* Canned.serve({ server })
      assert.strictEqual((yield* RawHost.request(port, {})).answer.status, 401)
      const protocols = ["bridge.v1", `bridge.token.${Buffer.from(Canned.token).toString("base64url")}`]
      const host = yield* RawHost.connect(url, { protocols })
      assert.strictEqual(host.socket.protocol, "bridge.v1")
      host.send(read, { _tag: "Ack", requestId: 1 }, { _tag: "Ping" })
      const tags: Array<string> = []
      for (let i = 0; i < 3; i++) tags.push((yield* host.next)._tag)
      assert.sameMembers(tags, ["Chunk", "Exit", "Pong"])
      host.send("null")
      assert.strictEqual((yield* host.closed).code, 1002)
    }))

  it.live("keeps to the window, and closes its sockets without waiting for their hosts", () =>
    Effect.gen(function*() {
      const { port, transport, url } = yield* Canned.serve({
        server,
        handlers: { ReadTurn: () => Stream.rechunk(endless, 1) }
      })
      const host = yield* RawHost.connect(url, { headers })
      host.send(read)
      yield* RawHost.until(() => host.waiting() === 64)
      const stalled = yield* RawHost.request(port, { headers: { ...RawHost.upgradeHeaders, ...headers } })
      stalled.socket.pause()
      stalled.socket.write(RawHost.maskedFrame(JSON.stringify(read)))
      yield* Effect.repeat(transport.connections, { until: (count) => count === 2 })
      yield* transport.closeAll
      yield* Effect.repeat(transport.connections, { until: (count) => count === 0 })
      assert.deepStrictEqual(yield* host.closed, { code: 1001, reason: "the bridge is closing" })
      assert.strictEqual(host.waiting(), 64)
    }))

  it.live("closes with 1008 a connection on which no message came for too long", () =>
    Effect.gen(function*() {
      const { url } = yield* Canned.serve({ server, limits: { silence: 300 } })
      const host = yield* RawHost.connect(url, { headers })
      const quiet = yield* RawHost.connect(url, { headers })
      quiet.send({
        _tag: "Request",
        id: 1,
        tag: "Hello",
        payload: { host: { name: "t", version: "1" }, protocol: 1, pings: false }
      })
      assert.deepStrictEqual(yield* host.closed, { code: 1008, reason: "nothing came for too long" })
      quiet.send({ _tag: "Ping" })
      yield* quiet.next
      assert.deepStrictEqual(yield* quiet.next, { _tag: "Pong" })
    }))
})
