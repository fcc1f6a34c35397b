import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import { Effect, Exit, Schema } from "effect"
import * as Puppet from "../../packages/server/test/fixtures/puppet.ts"
import * as RawHost from "../../packages/server/test/fixtures/rawHost.ts"
import * as Served from "../../packages/server/test/fixtures/served.ts"
import { directories, test } from "../../packages/server/test/fixtures/sessions.ts"
import * as Random from "../chaos/Random.ts"

const seed = 20_261

/** No refusal repeats it. */
const marker = "value-that-is-never-repeated"

const ids = { session: "s1", turn: "t1" }
const text = [{ type: "text", text: "hi" }]

/** A payload that fits, for each procedure. */
const payloads: Readonly<Record<string, (directory: string) => object>> = {
  Hello: () => ({ ...Served.hello, pings: true }),
  StartSession: (directory) => ({
    ...Served.start(directory),
    instructions: "Be brief.",
    env: { KEY: "a-secret-value" },
    tools: [{ name: "lookup", description: "Looks up", parameters: { type: "object" } }],
    mcpServers: [{
      type: "http",
      name: "m",
      url: "http://127.0.0.1:1/",
      headers: { Authorization: "Bearer secret-1" }
    }],
    limits: { steps: 5, tokens: 1000 }
  }),
  StartTurn: () => ({ ...ids, attempt: 1, prompt: text, timeout: 60_000, raw: true }),
  ReadTurn: () => ({ ...ids, from: 1, attempt: 1 }),
  AbortTurn: () => ({ ...ids, attempt: 1, reason: "enough" }),
  SubmitToolResult: () => ({ ...ids, toolCallId: "c1", result: { of: ["it"] }, isFailure: false }),
  Approve: () => ({ ...ids, approvalId: "a1", decision: "allow", reason: "fine" }),
  SendMessage: () => ({ ...ids, messageId: "m1", prompt: text, delivery: "queue" }),
  Compact: () => ({ session: "s1", instructions: "keep names" }),
  ReadState: () => ({ session: "s1" }),
  StopSession: () => ({ session: "s1" }),
  DestroySession: () => ({ session: "s1" })
}

const rubbish = (random: Random.Random): unknown =>
  random.pick<unknown>([
    null,
    marker,
    `${marker}/../../etc`,
    `${marker}\0`,
    "",
    "x".repeat(70),
    -1,
    0.5,
    1e300,
    true,
    [],
    [marker],
    {},
    { [marker]: marker },
    JSON.parse(`{"__proto__":{"session":"s1"},"constructor":1}`)
  ])

/** Another value in one place of a JSON value, or nothing there. */
const spoil = (value: unknown, random: Random.Random): unknown => {
  if (typeof value !== "object" || value === null || random.chance(0.1)) return rubbish(random)
  const keys = Object.keys(value)
  if (keys.length === 0) return rubbish(random)
  const key = keys[random.integer(0, keys.length - 1)]!
  const copy: any = Array.isArray(value) ? [...value] : { ...value }
  if (!Array.isArray(value) && random.chance(0.2)) delete copy[key]
  else copy[key] = spoil(copy[key], random)
  return copy
}

const served = Effect.gen(function*() {
  const { directory, stateDirectory } = yield* directories
  const { port } = yield* Served.serve(Puppet.make({ hi: Puppet.says("Hello.") }), { stateDirectory })
  yield* Served.listening(stateDirectory)
  return { directory, port, host: yield* Served.connect(port), other: yield* Served.connect(port) }
})

const answersHello = Effect.fnUntraced(function*(host: Effect.Success<ReturnType<typeof Served.connect>>) {
  assert.deepInclude(yield* host.call("Hello", Served.hello), { bridge: "b1", protocol: 1 })
})

describe("rubbish", () => {
  test(
    "as a payload is refused by every procedure, in words that repeat none of it, and the connection lives on",
    Effect.gen(function*() {
      const { directory, host, other } = yield* served
      const random = Random.make(seed)
      assert.sameMembers(Object.keys(payloads), [...Bridge.Rpcs.requests.keys()])
      let refused = 0
      for (const [tag, payload] of Object.entries(payloads)) {
        // As it's read from JSON, where null in the place of an optional field is none.
        const schema = Schema.toCodecJson(
          Bridge.Rpcs.requests.get(tag)!.payloadSchema as Schema.Codec<unknown, unknown>
        )
        const fits = (value: unknown) => Exit.isSuccess(Schema.decodeUnknownExit(schema)(value))
        assert.isTrue(fits(JSON.parse(JSON.stringify(payload(directory)))), tag)
        for (let i = 0; i < 100; i++) {
          const spoiled = JSON.parse(JSON.stringify(spoil(payload(directory), random)))
          if (fits(spoiled)) continue
          refused++
          const id = host.request(tag, spoiled)
          const reply = yield* host.next
          assert.deepInclude(reply, { _tag: "Exit", requestId: id }, JSON.stringify(spoiled))
          assert.strictEqual(reply.exit._tag, "Failure", `${tag} ${JSON.stringify(spoiled)}`)
          const [{ _tag, defect }] = reply.exit.cause
          assert.strictEqual(_tag, "Die", `${tag} ${JSON.stringify(spoiled)}`)
          assert.match(defect, /expected|missing key/i, JSON.stringify(spoiled))
          const said = JSON.stringify(reply)
          for (const secret of [marker, "a-secret-value", "secret-1", Served.token]) assert.notInclude(said, secret)
        }
      }
      assert.isAbove(refused, 500)
      yield* answersHello(host)
      yield* answersHello(other)
    }),
    120_000
  )

  test(
    "in a hundred thousand tiny frames, about requests that there aren't, costs nobody anything",
    Effect.gen(function*() {
      const { host, other } = yield* served
      const tiny = [
        { _tag: "Ack", requestId: "none" },
        { _tag: "Interrupt", requestId: 7 }
      ].map((message) => JSON.stringify(message))
      for (let i = 0; i < 100_000; i++) {
        host.socket.send(tiny[i % 2]!)
        // A socket takes what is sent at once only so far.
        if (i % 1000 === 0) yield* Effect.yieldNow
        if (i % 10_000 === 0) yield* answersHello(other)
      }
      yield* answersHello(host)
    }),
    120_000
  )

  test(
    "of a hundred megabytes in one frame ends its connection, and no other",
    Effect.gen(function*() {
      const { other, port } = yield* served
      const { received, socket } = yield* RawHost.request(port, {
        headers: { ...RawHost.upgradeHeaders, "x-bridge-token": Served.token }
      })
      const size = Buffer.alloc(4)
      size.writeUInt32BE(100 * 1024 * 1024)
      socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | 127, 0, 0, 0, 0]), size, Buffer.alloc(4)]))
      let closed = false
      socket.on("close", () => closed = true)
      const piece = Buffer.alloc(64 * 1024, "x")
      for (let sent = 0; sent < 100 * 1024 * 1024 && !closed; sent += piece.length) {
        if (!socket.write(piece)) yield* RawHost.until(() => closed || !socket.writableNeedDrain)
      }
      yield* RawHost.until(() => closed)
      const [close] = RawHost.frames(received())
      if (close !== undefined) assert.deepStrictEqual([close.opcode, close.payload.readUInt16BE(0)], [8, 1009])
      yield* answersHello(other)
    }),
    120_000
  )
})
