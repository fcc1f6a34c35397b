import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import { assert, describe } from "@effect/vitest"
import { Bridge, BridgeServer } from "@gangway/server"
import { Effect, Exit, Option, Redacted } from "effect"
import * as Puppet from "./fixtures/puppet.ts"
import { act, bridge, connect, hello, listening, serve, start, token } from "./fixtures/served.ts"
import { directories, test } from "./fixtures/sessions.ts"

describe("a bridge", () => {
  test(
    "says where it listens, and runs a turn for a host with nothing but a WebSocket",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const { port } = yield* serve(Puppet.make({ hi: Puppet.says("hello") }), {
        stateDirectory,
        launch: "launch-0001"
      })
      const file = yield* listening(stateDirectory)
      assert.deepStrictEqual(file, { protocol: 1, bridge, launch: "launch-0001", port, pid: process.pid })
      const host = yield* connect(port)
      const reply = yield* host.call("Hello", hello)
      assert.deepInclude(reply, { protocol: 1, bridge, launch: "launch-0001", sessions: [] })
      assert.deepInclude(reply, { driver: { name: "puppet", version: "1.0.0" } })
      assert.deepStrictEqual(reply.limits, {
        request: 12 * 1024 * 1024,
        line: 1024 * 1024,
        state: 8 * 1024 * 1024,
        turn: 1024 ** 3,
        streams: 64,
        turns: 10_000
      })
      assert.deepStrictEqual(yield* host.call("StartSession", start(directory)), { resumed: false })
      yield* host.call("StartTurn", act("hi"))
      const { end, numbers } = yield* host.read({ session: "s1", turn: "t1", from: 1 })
      assert.deepStrictEqual(numbers, [1, 2, 3, 4])
      assert.deepInclude(end, { attempt: 1, next: 5 })
    })
  )

  test(
    "refuses a host of another protocol, and says both versions",
    Effect.gen(function*() {
      const { stateDirectory } = yield* directories
      const { port } = yield* serve(Puppet.make({}), { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(port)
      const mismatch = yield* host.call("Hello", { ...hello, protocol: 9 })
      assert.deepInclude(mismatch, { _tag: "ProtocolMismatch", host: 9, bridge: 1 })
    })
  )

  test(
    "leaves out what there isn't, which is never null",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make({ hi: Puppet.says("hello") }, {
        compact: () => Effect.succeed({ summary: undefined })
      })
      const { port } = yield* serve(puppet, { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(port)
      const key = { session: "s1", turn: "t1" }
      const says = Effect.fnUntraced(function*(tag: string, payload: unknown) {
        const answer = yield* host.call(tag, payload)
        assert.notInclude(JSON.stringify(answer), "null", tag)
        return answer
      })
      yield* says("StartSession", start(directory))
      yield* says("Hello", hello)
      for (
        const [tag, payload] of [
          ["AbortTurn", key],
          ["Approve", { ...key, approvalId: "a", decision: "allow" }],
          ["SendMessage", { ...key, messageId: "m", prompt: [{ type: "text", text: "hi" }] }]
        ] as const
      ) {
        assert.deepStrictEqual(yield* says(tag, payload), { _tag: "TurnNotFound", ...key })
      }
      assert.deepStrictEqual((yield* host.read({ ...key, from: 1 })).error, { _tag: "TurnNotFound", ...key })
      yield* says("StartTurn", act("hi"))
      yield* host.read({ ...key, from: 1 })
      for (
        const [tag, payload] of [
          ["StartTurn", { ...key, attempt: 2 }],
          ["AbortTurn", key],
          ["AbortTurn", { ...key, turn: "t2" }],
          ["Compact", { session: "s1" }],
          ["Hello", hello],
          ["StopSession", { session: "s1" }],
          ["DestroySession", { session: "s1" }]
        ] as const
      ) yield* says(tag, payload)
    })
  )

  test(
    "takes no notice of fields that it doesn't know",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const { port } = yield* serve(Puppet.make({ hi: Puppet.says("hello") }), { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(port)
      const newer = { later: { than: "this" } }
      assert.deepInclude(yield* host.call("Hello", { ...hello, host: { ...hello.host, ...newer }, ...newer }), {
        bridge
      })
      assert.deepStrictEqual(yield* host.call("StartSession", { ...start(directory), ...newer }), { resumed: false })
      assert.deepInclude(yield* host.call("StartTurn", { ...act("hi"), ...newer }), { status: "started" })
      // What's the same without them is the same.
      assert.deepStrictEqual(yield* host.call("StartSession", start(directory)), { resumed: true })
    })
  )

  test(
    "gets the commands of one connection to their session in the order in which they were sent",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const { port } = yield* serve(Puppet.make({ hang: Puppet.hangs }), { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(port)
      for (const session of ["s1", "s2", "s3"]) {
        host.request("StartSession", start(directory, session))
        for (let n = 0; n < 10; n++) {
          host.request("StartTurn", act("hang", `t${n}`, session))
          // Nobody waited for what came before.
          const aborted = yield* host.call("AbortTurn", { session, turn: `t${n}` })
          assert.deepInclude(aborted.end, { type: "aborted", reason: "host" })
        }
      }
    })
  )
})

describe("a state directory", () => {
  test(
    "belongs to one bridge id",
    Effect.gen(function*() {
      const { stateDirectory } = yield* directories
      yield* serve(Puppet.make({}), { stateDirectory })
      yield* listening(stateDirectory)
      const other = yield* Effect.exit(
        BridgeServer.serve(Puppet.make({}).driver, {
          bridge: Bridge.BridgeId.make("b2"),
          stateDirectory,
          token: Redacted.make(token)
        }).pipe(Effect.provide(BunHttpServer.layerServer({ hostname: "127.0.0.1", port: 0 })))
      )
      const error = Option.getOrThrow(Exit.findErrorOption(other))
      assert.deepInclude(error, { _tag: "OwnerMismatch", exitCode: 2 })
    })
  )
})
