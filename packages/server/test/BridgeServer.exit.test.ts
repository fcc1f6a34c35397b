import { BunServices } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/server"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Clock, Deferred, Duration, Effect, Exit, Fiber, FileSystem, Ref } from "effect"
import { TestClock } from "effect/testing"
import * as BridgeCore from "../src/internal/bridgeCore.ts"
import { eventually } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"
import { act, bridge, connect, listening, serve, start } from "./fixtures/served.ts"
import { directories, test, until } from "./fixtures/sessions.ts"

const acts = { hang: Puppet.saysAndHangs("one"), hi: Puppet.says("hello") }
const key = { session: "s1", turn: "t1" }

describe("an idle bridge", () => {
  it.effect("exits when that's so long since a session was started, a turn was started, or one ended", () =>
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const served = yield* serve(Puppet.make(acts), { stateDirectory, idleTimeout: "60 seconds" })
      const file = yield* listening(stateDirectory)
      // Files and sockets take their real time in between.
      const advance = (seconds: number) =>
        Effect.repeat(
          Effect.andThen(TestClock.adjust("1 second"), TestClock.withLive(Effect.sleep("5 millis"))),
          { times: seconds - 1 }
        )
      const isThere = () => served.fiber.pollUnsafe() === undefined
      const host = yield* connect(served.port)
      yield* advance(50)
      yield* host.call("StartSession", start(directory))
      yield* advance(50)
      assert.isTrue(isThere())
      yield* host.call("StartTurn", act("hang"))
      // A turn may take as long as it does.
      yield* advance(200)
      assert.isTrue(isThere())
      yield* host.call("AbortTurn", key)
      yield* advance(55)
      assert.isTrue(isThere())
      // Reading, and asking who's there, is no work.
      yield* host.read({ ...key, from: 1 })
      yield* advance(8)
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(served.fiber)))
      assert.deepInclude(yield* host.closed, { code: 1001 })
      // The file outlives it.
      assert.deepStrictEqual(yield* listening(stateDirectory), file)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  // A clock that jumps ahead, as a machine's that was frozen.
  const jumping = Effect.gen(function*() {
    const live = yield* Clock.Clock
    let monotonic = 0n
    let wall = 0
    const monotonicTimeNanosUnsafe = () => live.monotonicTimeNanosUnsafe() + monotonic
    const currentTimeMillisUnsafe = () => live.currentTimeMillisUnsafe() + wall
    const clock: Clock.Clock = Object.create(live, {
      monotonicTimeNanosUnsafe: { value: monotonicTimeNanosUnsafe },
      monotonicTimeNanos: { value: Effect.sync(monotonicTimeNanosUnsafe) },
      currentTimeMillisUnsafe: { value: currentTimeMillisUnsafe },
      currentTimeMillis: { value: Effect.sync(currentTimeMillisUnsafe) }
    })
    return {
      clock,
      freeze: Effect.sync(() => {
        monotonic += 3_600_000_000_000n
        wall += 3_600_000
      }),
      setWall: Effect.sync(() => {
        wall += 86_400_000
      })
    }
  })

  test(
    "waits for one more full tick after its machine was frozen, and doesn't care for the wall's clock",
    Effect.gen(function*() {
      const { stateDirectory } = yield* directories
      const { clock, freeze, setWall } = yield* jumping
      const served = yield* Effect.provideService(
        serve(Puppet.make(acts), { stateDirectory, idleTimeout: "10 minutes" }),
        Clock.Clock,
        clock
      )
      yield* listening(stateDirectory)
      yield* setWall
      yield* Effect.sleep("2200 millis")
      assert.isUndefined(served.fiber.pollUnsafe())
      yield* freeze
      const [duration] = yield* Effect.timed(Fiber.await(served.fiber))
      // The tick that is late comes within a second, and the one that counts a second after that.
      assert.isAbove(Duration.toMillis(duration), 950)
      assert.isBelow(Duration.toMillis(duration), 3000)
    })
  )

  test(
    "that was frozen stays for who comes before that tick",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const { clock, freeze } = yield* jumping
      const served = yield* Effect.provideService(
        serve(Puppet.make(acts), { stateDirectory, idleTimeout: "10 minutes" }),
        Clock.Clock,
        clock
      )
      yield* listening(stateDirectory)
      const host = yield* connect(served.port)
      yield* freeze
      yield* Effect.sleep("900 millis")
      assert.deepStrictEqual(yield* host.call("StartSession", start(directory)), { resumed: false })
      yield* Effect.sleep("2200 millis")
      assert.isUndefined(served.fiber.pollUnsafe())
    })
  )
})

describe("the decision to exit", () => {
  const make = Effect.fnUntraced(function*(puppet: Puppet.Puppet) {
    const { directory, stateDirectory } = yield* directories
    const activity = yield* Ref.make<BridgeCore.Activity>({ turns: 0, lastActiveAt: 0 })
    const core = yield* BridgeCore.make({
      driver: puppet.driver,
      bridge,
      state: yield* StateDirectory.open({ path: stateDirectory, bridge }),
      holder: { launch: "launch-0001", port: 1, pid: process.pid, start: "", boot: "", pidNamespace: "" },
      standing: { isReplaced: () => false, check: Effect.void, listening: Effect.undefined },
      activity,
      secrets: {},
      sync: false,
      maxTurnBytes: 1024 ** 2
    })
    return { core, close: core.closeIf(() => true), session: { ...start(directory) } as never }
  })

  test(
    "and the acceptance of a command are one step: what comes later is told that the bridge closes",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      const puppet = Puppet.make(acts)
      let opening = false
      const { close, core, session } = yield* make({
        ...puppet,
        driver: {
          ...puppet.driver,
          open: (options) =>
            Effect.suspend(() => {
              opening = true
              return Effect.andThen(Deferred.await(gate), puppet.driver.open(options))
            })
        }
      })
      // A session is being started.
      const starting = yield* Effect.forkChild(core.handlers.StartSession(session))
      yield* until("its opening", () => opening)
      assert.isFalse(yield* close)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(starting)
      yield* core.handlers.StartTurn(act("hang") as never)
      assert.isFalse(yield* close)
      yield* core.handlers.AbortTurn(key as never)
      assert.isFalse(yield* core.closeIf(() => false))
      yield* eventually("its decision", close)
      assert.strictEqual((yield* Effect.flip(core.handlers.StartSession(session)))._tag, "Closing")
      assert.strictEqual((yield* Effect.flip(core.handlers.StartTurn(act("hi", "t2") as never)))._tag, "Closing")
      assert.deepStrictEqual(puppet.heard, ["hang"])
      assert.isTrue(yield* core.closeIf(() => false))
    })
  )

  test(
    "waits for a compaction",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      const { close, core, session } = yield* make(
        Puppet.make(acts, { compact: () => Effect.as(Deferred.await(gate), {}) })
      )
      yield* core.handlers.StartSession(session)
      const compacting = yield* Effect.forkChild(core.handlers.Compact({ session: "s1" as Bridge.SessionId }))
      yield* Effect.sleep("30 millis")
      assert.isFalse(yield* close)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(compacting)
      assert.isTrue(yield* close)
    })
  )
})

describe("a bridge whose scope closes", () => {
  test(
    "ends its turns, tells their readers, and then closes",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const served = yield* serve(Puppet.make(acts), { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(served.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartTurn", act("hang"))
      const reading = yield* Effect.forkChild(host.read({ ...key, from: 1 }))
      const closing = yield* Effect.forkChild(served.close)
      const { end } = yield* Fiber.join(reading)
      assert.deepInclude(end?.end, { type: "aborted", reason: "shutdown" })
      assert.deepInclude(yield* host.closed, { code: 1001 })
      yield* Fiber.join(closing)
    })
  )

  test(
    "leaves no turn without an end, nor a session held, whatever is being carried out",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make(acts)
      let openings = 0
      const slow = {
        ...puppet,
        driver: {
          ...puppet.driver,
          open: (options: Parameters<typeof puppet.driver.open>[0]) =>
            Effect.suspend(() => openings++ < 2 ? puppet.driver.open(options) : Effect.never)
        }
      }
      const served = yield* serve(slow, { stateDirectory })
      yield* listening(stateDirectory)
      const host = yield* connect(served.port)
      for (const session of ["s1", "s2"]) {
        yield* host.call("StartSession", start(directory, session))
        yield* host.call("StartTurn", act("hang", "t1", session))
      }
      // One waits for its driver, and a turn behind it; the other's is running.
      host.request("StartSession", { ...start(directory), settings: "user" })
      yield* host.call("AbortTurn", key)
      host.request("StartSession", { ...start(directory), settings: "project" })
      host.request("StartTurn", act("hi", "t2"))
      yield* until("the opening", () => openings === 3)
      const [duration] = yield* Effect.timed(served.close)
      assert.isBelow(Duration.toMillis(duration), 5000)
      const fs = yield* FileSystem.FileSystem
      for (const session of ["s1", "s2"]) {
        const directory = `${stateDirectory}/sessions/${session}`
        const names = yield* fs.readDirectory(directory)
        for (const name of names.filter((name) => name.startsWith("lock-"))) {
          assert.notInclude(yield* fs.readFileString(`${directory}/${name}`), "launch")
        }
        for (const name of yield* fs.readDirectory(`${directory}/turns`)) {
          const lines = (yield* fs.readFileString(`${directory}/turns/${name}`)).trim().split("\n")
          assert.include(lines.at(-1), "\"end\":")
        }
      }
    })
  )
})
