import * as BunHttpServer from "@effect/platform-bun/BunHttpServer"
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Bridge, BridgeServer } from "@gangway/server"
import { Effect, Exit, Fiber, FileSystem, Layer, Option, type Path, Redacted, Schema, Scope } from "effect"
import { HttpServer } from "effect/unstable/http"
import * as Puppet from "./fixtures/puppet.ts"
import * as RawHost from "./fixtures/rawHost.ts"

const token = "correct-horse-battery-staple-0123456789"
const bridge = Bridge.BridgeId.make("b1")

const directories = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.makeTempDirectoryScoped()
  yield* fs.makeDirectory(`${root}/work`)
  return { directory: `${root}/work`, stateDirectory: `${root}/state` }
})

interface Running {
  readonly fiber: Fiber.Fiber<void, unknown>
  readonly port: number
  /** Closes its scope, as a program does at SIGTERM. */
  readonly close: Effect.Effect<void>
}

const serve = Effect.fnUntraced(function*(
  puppet: Puppet.Puppet,
  options: Omit<BridgeServer.Options, "bridge" | "token">
) {
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const context = yield* Layer.buildWithScope(
    BunHttpServer.layerServer({ hostname: "127.0.0.1", port: 0, websocket: BridgeServer.webSocketOptions }),
    scope
  )
  const { address } = yield* Effect.provide(HttpServer.HttpServer, context)
  const fiber = yield* BridgeServer.serve(puppet.driver, { bridge, token: Redacted.make(token), ...options }).pipe(
    Effect.provide(context),
    Scope.provide(scope),
    Effect.forkIn(scope)
  )
  return { fiber, port: (address as { readonly port: number }).port, close: Scope.close(scope, Exit.void) } as Running
})

const listening = Effect.fnUntraced(function*(stateDirectory: string) {
  const fs = yield* FileSystem.FileSystem
  return yield* fs.readFileString(Bridge.listeningFile(stateDirectory)).pipe(
    Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile))),
    Effect.eventually
  )
})

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  Effect.repeat(Effect.delay(condition, "20 millis"), { until: (holds) => holds })

// A host's connection on which calls are answered one after the other.
const connect = Effect.fnUntraced(function*(port: number) {
  const host = yield* RawHost.connect(`ws://127.0.0.1:${port}/`, { headers: { "X-Bridge-Token": token } })
  let id = 0
  const call = Effect.fnUntraced(function*(tag: string, payload: unknown) {
    host.send({ _tag: "Request", id: String(++id), tag, payload, headers: [] })
    while (true) {
      const message = yield* host.next
      if (message._tag === "Exit" && message.requestId === String(id)) {
        return message.exit._tag === "Success" ? message.exit.value : message.exit.cause[0].error
      }
    }
  })
  return { ...host, call }
})

const start = (directory: string, session = "s1") => ({ session, directory, permissions: "ask", settings: "none" })
const hangs = (turn = "t1", session = "s1") => ({ session, turn, prompt: [{ type: "text", text: "hang" }] })
const hang: Puppet.Act = () => Effect.never
const says: Puppet.Act = (turn) => Effect.as(Puppet.say(turn, "hello"), { finishReason: "stop" })

const test = <E>(
  name: string,
  body: Effect.Effect<void, E, FileSystem.FileSystem | Path.Path | Scope.Scope>
) => it.live(name, () => Effect.scoped(body).pipe(Effect.provide(BunServices.layer)))

describe("a bridge", () => {
  test(
    "says where it listens, and runs a turn for a host with nothing but a WebSocket",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const running = yield* serve(Puppet.make({ hi: says }), { stateDirectory, launch: "launch-0001" })
      const file = yield* listening(stateDirectory)
      assert.deepInclude(file, { protocol: 1, bridge, launch: "launch-0001", port: running.port })
      const host = yield* connect(file.port)
      const hello = yield* host.call("Hello", { host: { name: "t", version: "1" }, protocol: 1 })
      assert.deepInclude(hello, { bridge, launch: "launch-0001", sessions: [] })
      const mismatch = yield* host.call("Hello", { host: { name: "t", version: "1" }, protocol: 9 })
      assert.deepInclude(mismatch, { _tag: "ProtocolMismatch", host: 9, bridge: 1 })
      assert.deepStrictEqual(yield* host.call("StartSession", start(directory)), { resumed: false })
      yield* host.call("StartTurn", { session: "s1", turn: "t1", prompt: [{ type: "text", text: "hi" }] })
      host.send({
        _tag: "Request",
        id: "r",
        tag: "ReadTurn",
        payload: { session: "s1", turn: "t1", from: 1 },
        headers: []
      })
      const numbers: Array<number> = []
      let ends = 0
      while (ends === 0) {
        const message = yield* host.next
        for (const event of message.values ?? []) {
          if (event.end !== undefined) ends++
          else numbers.push(...event.parts.map(({ n }: Bridge.NumberedPart) => n))
        }
        host.send({ _tag: "Ack", requestId: "r" })
      }
      assert.deepStrictEqual(numbers, [1, 2, 3, 4])
    })
  )

  test(
    "exits when it's idle, not while a turn runs, with a host connected",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const running = yield* serve(Puppet.make({ hang }), { stateDirectory, idleTimeout: "300 millis" })
      yield* listening(stateDirectory)
      const host = yield* connect(running.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartTurn", hangs())
      yield* Effect.sleep("700 millis")
      assert.isUndefined(running.fiber.pollUnsafe())
      yield* host.call("AbortTurn", { session: "s1", turn: "t1" })
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(running.fiber)))
      assert.deepInclude(yield* host.closed, { code: 1001 })
    })
  )

  test(
    "ends its turns, tells their readers, and then closes, when its scope closes",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const running = yield* serve(Puppet.make({ hang }), { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(running.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartTurn", hangs())
      host.send({
        _tag: "Request",
        id: "r",
        tag: "ReadTurn",
        payload: { session: "s1", turn: "t1", from: 1 },
        headers: []
      })
      const closing = yield* Effect.forkChild(running.close)
      const chunk = yield* host.next
      assert.deepInclude(chunk.values[0].end, { type: "aborted", reason: "shutdown" })
      assert.deepInclude(yield* host.closed, { code: 1001 })
      yield* Fiber.join(closing)
    })
  )
})

describe("a newer bridge", () => {
  test(
    "takes over: the older one runs its turn to the end, starts nothing, and exits",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const older = yield* serve(Puppet.make({ hang }), { stateDirectory, launch: "launch-0001" })
      yield* listening(stateDirectory)
      const host = yield* connect(older.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartSession", start(directory, "s2"))
      yield* host.call("StartTurn", hangs())

      const newer = yield* serve(Puppet.make({ hi: says }), { stateDirectory, launch: "launch-0002" })
      yield* eventually(Effect.map(listening(stateDirectory), ({ launch }) => launch === "launch-0002"))
      assert.strictEqual((yield* host.call("StartTurn", hangs("t2")))._tag, "Replaced")
      assert.strictEqual((yield* host.call("StartSession", start(directory)))._tag, "Replaced")
      assert.isUndefined(older.fiber.pollUnsafe())

      const other = yield* connect(newer.port)
      const hello = yield* other.call("Hello", { host: { name: "t", version: "1" }, protocol: 1 })
      assert.deepInclude(hello.sessions[0], { session: "s1", latest: { turn: "t1", attempt: 1, state: "running" } })
      // Its session without a turn is free at once; answers to the other one belong to the older bridge.
      assert.deepStrictEqual(yield* other.call("StartSession", start(directory, "s2")), { resumed: true })
      const busy = yield* other.call("Approve", { session: "s1", turn: "t1", approvalId: "a", decision: "allow" })
      assert.deepInclude(busy, { _tag: "SessionBusy", port: older.port, launch: "launch-0001" })

      // Starting the session asks the older one for it.
      assert.deepStrictEqual(yield* other.call("StartSession", start(directory)), { resumed: true })
      const aborted = yield* other.call("AbortTurn", { session: "s1", turn: "t1" })
      assert.deepInclude(aborted.end, { type: "aborted", reason: "bridge-replaced" })
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(older.fiber)))
      assert.strictEqual((yield* listening(stateDirectory)).launch, "launch-0002")
    })
  )

  test(
    "reads the older one's turn as it goes on",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      let go: () => void = () => {}
      const waits = new Promise<void>((resolve) => {
        go = resolve
      })
      const twice: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          yield* Puppet.say(turn, "before")
          yield* Effect.promise(() => waits)
          yield* Puppet.say(turn, "after")
          return { finishReason: "stop" }
        })
      const older = yield* serve(Puppet.make({ hang: twice }), { stateDirectory, launch: "launch-0001" })
      yield* listening(stateDirectory)
      const host = yield* connect(older.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartTurn", hangs())
      const newer = yield* serve(Puppet.make({}), { stateDirectory, launch: "launch-0002" })
      yield* eventually(Effect.map(listening(stateDirectory), ({ launch }) => launch === "launch-0002"))
      const other = yield* connect(newer.port)
      other.send({
        _tag: "Request",
        id: "r",
        tag: "ReadTurn",
        payload: { session: "s1", turn: "t1", from: 1 },
        headers: []
      })
      const numbers: Array<number> = []
      let end: Bridge.EndLine | undefined
      while (end === undefined) {
        const message = yield* other.next
        for (const event of message.values ?? []) {
          if (event.end !== undefined) end = event
          else numbers.push(...event.parts.map(({ n }: Bridge.NumberedPart) => n))
        }
        other.send({ _tag: "Ack", requestId: "r" })
        go()
      }
      assert.deepStrictEqual(numbers, [1, 2, 3, 4, 5, 6, 7, 8])
      assert.strictEqual(end.end.type, "finished")
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
