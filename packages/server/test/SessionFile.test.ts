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
})
