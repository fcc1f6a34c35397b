import { BunServices } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import { Bridge, BridgeServer } from "@gangway/server"
import { markerName } from "@gangway/server/Supervisor"
import { Deferred, Effect, FileSystem, Layer, Stream } from "effect"
import { RpcTest } from "effect/unstable/rpc"
import { spawn } from "node:child_process"
import { eventually, killAll, marked } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"

const bridge = Bridge.BridgeId.make("b1")
const session = Bridge.SessionId.make("s1")
const turn = Bridge.TurnId.make("t1")

const world = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.makeTempDirectoryScoped()
  yield* fs.makeDirectory(`${root}/work`)
  const stateDirectory = `${root}/state`
  const file = `${stateDirectory}/sessions/${session}/session.json`
  return {
    fs,
    file,
    start: { session, directory: `${root}/work`, permissions: "ask", settings: "none" } as const,
    read: Effect.map(fs.readFileString(file), (text) => JSON.parse(text)),
    connect: (puppet: Puppet.Puppet) =>
      Effect.flatMap(
        Layer.build(BridgeServer.layerHandlers(puppet.driver, { bridge, stateDirectory })),
        (context) => Effect.provide(RpcTest.makeClient(Bridge.Rpcs), context)
      )
  }
})

describe("a session's file", () => {
  it.live("may be there before its bridge knows that it is", () =>
    Effect.gen(function*() {
      const { connect, file, fs, start } = yield* world
      const renamed = yield* Deferred.make<void>()
      const goOn = yield* Deferred.make<void>()
      const slow: FileSystem.FileSystem = {
        ...fs,
        rename: (from, to) =>
          to === file
            ? Effect.andThen(
              fs.rename(from, to),
              Effect.andThen(Deferred.succeed(renamed, undefined), Deferred.await(goOn))
            )
            : fs.rename(from, to)
      }
      const client = yield* Effect.provideService(connect(Puppet.make({})), FileSystem.FileSystem, slow)
      yield* Effect.addFinalizer(() => Deferred.succeed(goOn, undefined))
      yield* Effect.forkScoped(client.StartSession(start))
      yield* Deferred.await(renamed)
      const error = yield* Effect.flip(Stream.runDrain(client.ReadTurn({ session, turn, from: 1 })))
      assert.deepInclude(error, { _tag: "TurnNotFound", turn })
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("says that the agent is active until nothing runs of it, whichever bridge ends that", () =>
    Effect.gen(function*() {
      const { connect, file, fs, read, start } = yield* world
      const puppet = Puppet.make({ hi: (turn) => Effect.as(Puppet.say(turn, "hello"), { finishReason: "stop" }) })
      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(puppet)
        yield* client.StartSession(start)
        yield* client.StartTurn({ session, turn, prompt: [{ type: "text", text: "hi" }] })
        yield* Stream.runDrain(client.ReadTurn({ session, turn, from: 1 }))
      }))
      const before = yield* read
      // As a bridge that was killed left it.
      yield* fs.writeFileString(file, JSON.stringify({ ...before, active: true }))
      const agent = spawn("sh", ["-c", "trap '' TERM; while :; do sleep 0.1; done"], {
        detached: true,
        stdio: "ignore",
        env: { ...process.env, [markerName]: before.marker }
      })
      const left = () => marked(markerName, before.marker)
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll(left())))
      yield* eventually("the agent's start", Effect.sync(() => left().includes(agent.pid!)))

      const client = yield* connect(Puppet.make({}))
      yield* client.Hello({ host: { name: "test", version: "1" }, protocol: Bridge.protocolVersion })
      assert.isTrue((yield* read).active)
      while (left().length > 0) {
        assert.isTrue((yield* read).active || left().length === 0)
        yield* Effect.sleep("20 millis")
      }
      yield* eventually("the end of its activity", Effect.map(read, ({ active }) => active === false))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("that couldn't be written as a turn's agent started has a later bridge look for that all the same", () =>
    Effect.gen(function*() {
      const { connect, file, fs, read, start } = yield* world
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(puppet)
        yield* client.StartSession(start)
        yield* client.StartTurn({ session, turn, prompt: [{ type: "text", text: "hi" }] })
        yield* Stream.runDrain(client.ReadTurn({ session, turn, from: 1 }))
      }))
      const { latest, ...before } = yield* read
      const agent = spawn("sleep", ["1007"], { stdio: "ignore", env: { ...process.env, [markerName]: before.marker } })
      const left = () => marked(markerName, before.marker)
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll(left())))
      yield* eventually("the agent's start", Effect.sync(() => left().includes(agent.pid!)))
      const unfinished = { ...before, active: false, latest: { turn: latest.turn, attempt: latest.attempt } }
      yield* fs.writeFileString(file, JSON.stringify(unfinished))
      yield* connect(puppet)
      yield* eventually("the agent's end", Effect.sync(() => left().length === 0))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("that's damaged is told so, and can be destroyed with all that it still names", () =>
    Effect.gen(function*() {
      const { connect, file, fs, read, start } = yield* world
      const forgotten: Array<string> = []
      const puppet = Puppet.make({}, {}, {
        forget: ({ conversation }) => Effect.sync(() => void forgotten.push(conversation))
      })
      yield* Effect.scoped(Effect.flatMap(connect(puppet), (client) => client.StartSession(start)))
      const whole = yield* read
      const agent = spawn("sleep", ["1006"], { stdio: "ignore", env: { ...process.env, [markerName]: whole.marker } })
      const left = () => marked(markerName, whole.marker)
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll(left())))
      yield* eventually("the agent's start", Effect.sync(() => left().includes(agent.pid!)))
      yield* fs.writeFileString(file, JSON.stringify({ ...whole, active: "perhaps" }))

      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(puppet)
        assert.strictEqual((yield* Effect.flip(client.StartSession(start)))._tag, "LogUnavailable")
        const { ended } = yield* client.DestroySession({ session })
        assert.deepStrictEqual(ended.map(({ pid }) => pid), [agent.pid!])
        assert.deepStrictEqual(left(), [])
        assert.deepStrictEqual(forgotten, [whole.conversation])
        assert.isFalse(yield* fs.exists(file.slice(0, file.lastIndexOf("/"))))
        assert.strictEqual((yield* Effect.flip(client.StartSession(start)))._tag, "SessionDestroyed")
        assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] })
      }))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("doesn't grow with its turns, and says how much counts of the file that does", () =>
    Effect.gen(function*() {
      const { connect, file, fs, read, start } = yield* world
      const earlier = file.replace("session.json", "earlier.ndjson")
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      const turnOf = (n: number) => Bridge.TurnId.make(`t${n}`)
      const play = Effect.fnUntraced(function*(from: number, to: number) {
        const client = yield* connect(puppet)
        yield* client.StartSession(start)
        for (let n = from; n <= to; n++) {
          yield* client.StartTurn({ session, turn: turnOf(n), prompt: [{ type: "text", text: "hi" }] })
          yield* Stream.runDrain(client.ReadTurn({ session, turn: turnOf(n), from: 1 }))
        }
        for (let n = 1; n < to; n++) {
          const superseded = yield* Effect.flip(client.StartTurn({ session, turn: turnOf(n) }))
          assert.deepInclude(superseded, { _tag: "TurnSuperseded", turn: turnOf(n), latest: turnOf(to) })
        }
      }, Effect.scoped)
      yield* play(1, 2)
      const { length } = yield* fs.readFileString(file)
      yield* play(3, 12)
      assert.isBelow((yield* fs.readFileString(file)).length - length, 10)
      const lines = (yield* fs.readFileString(earlier)).split("\n")
      assert.deepStrictEqual(
        lines.slice(0, -1).map((line) => JSON.parse(line).turn),
        lines.slice(1).map((_, i) => `t${i + 1}`)
      )

      // A bridge that died between the two files had written more than counts, or the beginning of it.
      for (const [n, rest] of [[13, `${lines[0]}\n`], [14, `{"turn":"t14","en`]] as const) {
        yield* fs.writeFileString(earlier, rest, { flag: "a" })
        yield* play(n, n)
      }
      const { bytes, turns } = (yield* read).earlier
      assert.strictEqual(turns, 13)
      assert.strictEqual(Number((yield* fs.stat(earlier)).size), bytes)

      // One that lacks what counts isn't good for anything but to be destroyed.
      yield* fs.truncate(earlier, bytes - 1)
      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(puppet)
        assert.strictEqual((yield* Effect.flip(client.StartSession(start)))._tag, "LogUnavailable")
        yield* client.DestroySession({ session })
        assert.isFalse(yield* fs.exists(earlier))
      }))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("can be destroyed with all that's beside it, whatever has the place of that", () =>
    Effect.gen(function*() {
      for (const name of [`turns/${turn}.ndjson`, "earlier.ndjson", "reserve", "request.json"]) {
        const { connect, file, fs, start } = yield* world
        const puppet = Puppet.make({ hi: Puppet.says("hello") })
        yield* Effect.scoped(Effect.gen(function*() {
          const client = yield* connect(puppet)
          yield* client.StartSession(start)
          yield* client.StartTurn({ session, turn, prompt: [{ type: "text", text: "hi" }] })
          yield* Stream.runDrain(client.ReadTurn({ session, turn, from: 1 }))
        }))
        const directory = file.slice(0, file.lastIndexOf("/"))
        yield* fs.remove(`${directory}/${name}`, { force: true })
        yield* fs.makeDirectory(`${directory}/${name}/full`, { recursive: true })
        yield* Effect.scoped(Effect.gen(function*() {
          const client = yield* connect(puppet)
          assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] }, name)
          assert.isFalse(yield* fs.exists(directory))
        }))
      }
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("that holds nothing of a session can be destroyed", () =>
    Effect.gen(function*() {
      for (const content of ["", "{", "[]", "\0\0\0", undefined]) {
        const { connect, file, fs, start } = yield* world
        const forgotten: Array<string> = []
        const puppet = Puppet.make({}, {}, {
          forget: ({ conversation }) => Effect.sync(() => void forgotten.push(conversation))
        })
        yield* Effect.scoped(Effect.flatMap(connect(puppet), (client) => client.StartSession(start)))
        if (content === undefined) {
          yield* fs.remove(file)
          yield* fs.makeDirectory(file)
        } else {
          yield* fs.writeFileString(file, content)
        }
        yield* Effect.scoped(Effect.gen(function*() {
          const client = yield* connect(puppet)
          assert.strictEqual((yield* Effect.flip(client.StartSession(start)))._tag, "LogUnavailable")
          assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] })
          assert.isFalse(yield* fs.exists(file.slice(0, file.lastIndexOf("/"))))
          assert.strictEqual((yield* Effect.flip(client.StartSession(start)))._tag, "SessionDestroyed")
          assert.deepStrictEqual(forgotten, [])
        }))
      }
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
