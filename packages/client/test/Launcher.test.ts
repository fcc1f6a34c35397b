import * as BunServices from "@effect/platform-bun/BunServices"
import { NodeCrypto } from "@effect/platform-node-shared"
import { assert, describe, it } from "@effect/vitest"
import { type BridgeUnavailable, Launcher, Status, TokenStore, type Turn } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, Fiber, Redacted, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { eventually, eventuallyReal, realTime, session, token, turn } from "./fixtures/connected.ts"
import { TestBridge, TestState, text } from "./fixtures/TestBridge.ts"
import * as TestSandbox from "./fixtures/TestSandbox.ts"

const bridgeId = Bridge.BridgeId.make("b1")

const launcher = (sandbox: TestSandbox.TestSandbox, token_ = token) =>
  Launcher.make({ command: ["gangway-bridge"] }).pipe(
    Effect.provide([sandbox.layer, TokenStore.layerToken(Redacted.make(token_)), NodeCrypto.layer])
  )

const connect = Effect.fnUntraced(function*(
  sandbox: TestSandbox.TestSandbox,
  options: Partial<Launcher.LaunchOptions> & { readonly token?: string } = {}
) {
  const { token: token_, ...rest } = options
  return yield* (yield* launcher(sandbox, token_)).connect({
    bridge: bridgeId,
    stateDirectory: TestSandbox.stateDirectory,
    agentOptions: { agent: "scripted" },
    reconnectFor: "2 seconds",
    ...rest
  })
})

// Lets time pass until a fiber has ended: each step is followed by real time, in which sockets bring what they have.
const pass = Effect.fnUntraced(function*(fiber: Fiber.Fiber<unknown, unknown>) {
  while (fiber.pollUnsafe() === undefined) yield* Effect.andThen(TestClock.adjust("100 millis"), realTime)
})

// A bridge that runs before any launcher comes.
const running = (
  sandbox: TestSandbox.TestSandbox,
  options: Partial<ConstructorParameters<typeof TestBridge>[0]> = {}
) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const bridge = new TestBridge({ state: sandbox.state, token, launch: "launch-old", ...options })
      sandbox.list({ port: bridge.port, launch: "launch-old" })
      return bridge
    }),
    (bridge) => Effect.sync(() => bridge.stop())
  )

const startTurn = Effect.fnUntraced(function*(sandbox: TestSandbox.TestSandbox, policy?: Turn.Policy) {
  const client = yield* connect(sandbox)
  const started = yield* client.startSession({ session, directory: "/work", instructions: "be brief" })
  return { client, started, handle: yield* started.startTurn({ turn, prompt: "go", ...policy }) }
})

describe("Launcher", () => {
  it.live("launches a bridge where there's no listening file, with one line that has the token", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      const client = yield* connect(sandbox, {
        agentOptions: { agent: "scripted", key: Redacted.make("secret"), list: [{ key: Redacted.make("other") }] },
        idleTimeout: "3 minutes"
      })
      const { launch } = yield* client.hello
      assert.deepStrictEqual(sandbox.lines, [{
        token,
        bridge: "b1",
        stateDirectory: "/state",
        agentOptions: { agent: "scripted", key: "secret", list: [{ key: "other" }] },
        port: 0,
        hostname: "127.0.0.1",
        launch,
        idleTimeout: "180000 millis"
      }])
      yield* Schema.decodeUnknownEffect(Bridge.LaunchOptions)(sandbox.lines[0])
    }))

  it.live("finds a bridge that runs, and launches none", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      yield* running(sandbox)
      const client = yield* connect(sandbox)
      assert.strictEqual((yield* client.hello).launch, "launch-old")
      assert.strictEqual(sandbox.lines.length, 0)
    }))

  it.live("launches one where the file is stale: nobody there, somebody else there, another launch there, not a file", () =>
    Effect.gen(function*() {
      const launches = Effect.fnUntraced(
        function*(prepare: (sandbox: TestSandbox.TestSandbox) => Effect.Effect<unknown>) {
          return yield* Effect.scoped(Effect.gen(function*() {
            const sandbox = yield* TestSandbox.make()
            yield* prepare(sandbox)
            const client = yield* connect(sandbox)
            assert.strictEqual((yield* client.hello).launch, sandbox.lines[0]!.launch)
            assert.strictEqual(sandbox.lines.length, 1)
          }))
        }
      )
      yield* launches((sandbox) => Effect.scoped(running(sandbox)))
      const stranger = new TestBridge({ state: new TestState(), token: "x".repeat(32), launch: "launch-other" })
      yield* launches((sandbox) => Effect.sync(() => sandbox.list({ port: stranger.port, launch: "launch-old" })))
      const other = new TestBridge({ state: new TestState(), token, launch: "launch-other" })
      yield* launches((sandbox) => Effect.sync(() => sandbox.list({ port: other.port, launch: "launch-old" })))
      for (const content of ["", "{", "{}", `{"protocol":1,"bridge":"b1","launch":"x","port":0,"pid":1}`]) {
        yield* launches((sandbox) =>
          Effect.sync(() => sandbox.files.set("/state/listening.json", new TextEncoder().encode(content)))
        )
      }
      stranger.stop()
      other.stop()
    }))

  it.live("fails with TokenMismatch where the bridge that the file names has another token", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      yield* running(sandbox)
      const error = yield* Effect.flip(connect(sandbox, { token: "y".repeat(32) }))
      assert.deepStrictEqual(error.reason, { _tag: "TokenMismatch", launch: "launch-old" })
      assert.strictEqual(sandbox.lines.length, 0)
    }))

  it.effect("launches one where Hello isn't answered within 10 s", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      const silent = yield* running(sandbox, { onRequest: () => "silence" })
      const connecting = yield* Effect.forkScoped(connect(sandbox))
      yield* eventuallyReal(() => silent.count("Hello") === 1)
      yield* TestClock.adjust("9 seconds")
      yield* realTime
      assert.strictEqual(sandbox.lines.length, 0)
      yield* TestClock.adjust("1 seconds")
      yield* eventuallyReal(() => sandbox.lines.length === 1)
      const client = yield* Fiber.join(connecting)
      assert.strictEqual((yield* client.hello).launch, sandbox.lines[0]!.launch)
      assert.strictEqual(silent.count("Hello"), 1)
    }))

  it.live("reads the file again where a launched bridge exits with 3, and uses the one that it names", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        onLaunch: (_, sandbox) => {
          const winner = new TestBridge({ state: sandbox.state, token, launch: "launch-won" })
          sandbox.bridges.push(winner)
          sandbox.list({ port: winner.port, launch: "launch-won" })
          return { exitCode: 3 }
        }
      })
      const client = yield* connect(sandbox)
      assert.strictEqual((yield* client.hello).launch, "launch-won")
      assert.strictEqual(sandbox.lines.length, 1)
    }))

  it.live("launches no more than three times where bridges leave it to another and none is there", () =>
    Effect.gen(function*() {
      for (const exitCode of [3, 0]) {
        const sandbox = yield* TestSandbox.make({ onLaunch: () => ({ exitCode }) })
        const error = yield* Effect.flip(connect(sandbox))
        assert.deepInclude(error.reason, { _tag: "LaunchFailed", exitCode })
        assert.strictEqual(sandbox.lines.length, 3)
      }
    }))

  it.live("fails with the exit code and the end of the log where a bridge dies at start", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        onLaunch: ({ token }) => ({
          exitCode: 2,
          log: `${"x".repeat(5000)}\nagentOptions.model: a string (${token})\n`
        })
      })
      const error = yield* Effect.flip(connect(sandbox))
      assert.strictEqual(sandbox.lines.length, 1)
      assert.strictEqual(error.reason._tag, "LaunchFailed")
      const { exitCode, log } = error.reason as Extract<BridgeUnavailable.Reason, { _tag: "LaunchFailed" }>
      assert.strictEqual(exitCode, 2)
      assert.isAtMost(log.length, 2100)
      assert.isTrue(log.endsWith("\nagentOptions.model: a string ([redacted:TOKEN])"))
      assert.strictEqual(
        error.message,
        "Bridge b1: it was launched and exited with 2; its log ends with: agentOptions.model: a string ([redacted:TOKEN])."
      )
    }))

  it.live("tells of a launch what the log has of it, and nothing of an earlier one", () =>
    Effect.gen(function*() {
      for (const exitCode of [2, 4, 1]) {
        const sandbox = yield* TestSandbox.make({
          onLaunch: (_, { lines }) => ({ exitCode, ...(lines.length === 1 ? { log: "stateDirectory: full\n" } : {}) })
        })
        sandbox.log("from yesterday\n")
        const first = yield* Effect.flip(connect(sandbox))
        assert.deepStrictEqual(first.reason, {
          _tag: "LaunchFailed",
          launches: 1,
          exitCode,
          log: "stateDirectory: full"
        })
        const second = yield* Effect.flip(connect(sandbox))
        assert.strictEqual(second.message, `Bridge b1: it was launched and exited with ${exitCode}.`)
        assert.strictEqual(sandbox.lines.length, 2)
      }
    }))

  it.live("cuts a log that's longer than a MiB to its newest lines, at the next launch", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({ onLaunch: () => ({ exitCode: 2, log: "stateDirectory: full\n" }) })
      const old = Array.from({ length: 12_000 }, (_, i) => `${i} ${"x".repeat(100)}\n`).join("")
      sandbox.log(old)
      const failed = yield* Effect.flip(connect(sandbox))
      assert.deepInclude(failed.reason, { _tag: "LaunchFailed", log: "stateDirectory: full" })
      const [[, log]] = [...sandbox.files].filter(([path]) => path.endsWith("bridge.log")) as [[string, Uint8Array]]
      const text = new TextDecoder().decode(log)
      assert.isTrue(`${old}stateDirectory: full\n`.endsWith(text))
      assert.match(text, /^\d+ x/)
      assert.isAbove(log.length, 500 * 1024)
      assert.isAtMost(log.length, 513 * 1024)
    }))

  it.live("launches again where a bridge is killed while it starts, before or after it wrote its file", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        onLaunch: ({ launch }, sandbox) => {
          if (sandbox.lines.length > 2) return undefined
          // Nobody listens there any more.
          if (sandbox.lines.length === 2) sandbox.list({ port: 1, launch })
          return { exitCode: 137 }
        }
      })
      const client = yield* connect(sandbox)
      assert.strictEqual(sandbox.lines.length, 3)
      assert.strictEqual((yield* client.hello).launch, sandbox.lines[2]!.launch)
    }))

  it.effect("gives up in 8 s, after five more launches, where bridges are killed while they start, and tells of each", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({ onLaunch: () => ({ exitCode: 143, log: "One.\nTerminated." }) })
      const statuses: Array<Status.Status> = []
      const onStatus = (status: Status.Status) => Effect.sync(() => void statuses.push(status))
      const connecting = yield* Effect.forkScoped(Effect.flip(connect(sandbox, { onStatus })))
      yield* TestClock.adjust("7 seconds")
      assert.isUndefined(connecting.pollUnsafe())
      yield* TestClock.adjust("1 second")
      const error = yield* Fiber.join(connecting)
      assert.deepStrictEqual(error.reason, {
        _tag: "LaunchFailed",
        launches: 6,
        exitCode: 143,
        log: "One.\nTerminated."
      })
      assert.strictEqual(
        error.message,
        "Bridge b1: it was launched 6 times, and at last exited with 143; its log ends with: Terminated."
      )
      assert.strictEqual(sandbox.lines.length, 6)
      const told = statuses.filter(({ _tag }) => _tag === "Relaunching").map(Status.toMessage)
      assert.deepStrictEqual(
        told,
        ["at once", "in 0.5 s", "in 1.0 s", "in 2.0 s", "in 4.0 s"].map((when, i) =>
          `the bridge ended with exit code 143 soon after its launch; launched again ${when} (${i + 1} of 5)`
        )
      )
      assert.deepStrictEqual(statuses.at(-1), { _tag: "Unavailable", reason: error.reason })
    }))

  it.effect("gives up where bridges answer and die, each soon, with how the last one ended", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        bridge: {
          onRequest: (tag, _, bridge) => {
            if (tag !== "StartSession") return undefined
            sandbox.log("Killed\n")
            bridge.kill()
            return "silence"
          }
        }
      })
      const client = yield* connect(sandbox, { maxRelaunches: 2 })
      const starting = yield* Effect.forkScoped(Effect.flip(client.startSession({ session, directory: "/work" })))
      yield* pass(starting)
      const error = yield* Fiber.join(starting)
      assert.strictEqual(error._tag, "BridgeUnavailable")
      assert.deepStrictEqual((error as BridgeUnavailable.BridgeUnavailable).reason, {
        _tag: "LaunchFailed",
        launches: 3,
        exitCode: 137,
        log: "Killed",
        problem: "nobody listens there"
      })
      assert.strictEqual(sandbox.lines.length, 3)
      // Who asks again begins anew.
      yield* pass(yield* Effect.forkScoped(Effect.flip(client.startSession({ session, directory: "/work" }))))
      assert.strictEqual(sandbox.lines.length, 6)
    }))

  it.effect("launches as often as it takes where bridges live for 10 s, retire, or end in order", () =>
    Effect.gen(function*() {
      let retires = false
      const sandbox = yield* TestSandbox.make({
        bridge: {
          onRequest: (tag) => retires && tag === "StartSession" ? { fail: { _tag: "Closing" } } : undefined
        }
      })
      const client = yield* connect(sandbox, { maxRelaunches: 1 })
      const again = Effect.gen(function*() {
        const hello = yield* Effect.forkScoped(client.hello)
        yield* pass(hello)
        assert.strictEqual((yield* Fiber.join(hello)).launch, sandbox.lines.at(-1)!.launch)
      })
      for (let i = 0; i < 4; i++) {
        yield* TestClock.adjust("10 seconds")
        sandbox.bridge.kill()
        yield* again
      }
      for (let i = 0; i < 4; i++) {
        sandbox.bridge.kill(0)
        yield* again
      }
      assert.strictEqual(sandbox.lines.length, 9)
      retires = true
      const starting = yield* Effect.forkScoped(client.startSession({ session, directory: "/work" }))
      while (sandbox.lines.length < 13) yield* Effect.andThen(TestClock.adjust("250 millis"), realTime)
      retires = false
      yield* pass(starting)
      yield* Fiber.join(starting)
    }))

  it.live("names the state directory that can't be used at once, and says what to do", () =>
    Effect.gen(function*() {
      const launcher = yield* Launcher.make({ command: ["gangway-bridge"] })
      // What isn't there and can't be made, what the system doesn't allow, and what is no directory.
      for (const stateDirectory of ["/proc/gangway", "/sys/gangway", "/dev/null/gangway"]) {
        const options = { bridge: bridgeId, stateDirectory, agentOptions: { agent: "scripted" } }
        const error = yield* Effect.flip(launcher.connect(options))
        assert.strictEqual(error.reason._tag, "StateDirectoryUnusable")
        assert.isTrue(error.message.startsWith(`Bridge b1: the state directory ${stateDirectory} can't be used (`))
        assert.match(error.message, /^[^\n]+\): let the bridge's user write there, or name another one\.$/)
      }
    }).pipe(
      Effect.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make(token))]),
      Effect.provide(BunServices.layer)
    ))

  it.live("launches nothing with options that can't be, and says in one line which and why, without a value", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      let deep: unknown = 1
      for (let depth = 0; depth < 50_000; depth++) deep = [deep]
      const wrong: ReadonlyArray<readonly [options: object, says: string]> = [
        [{ stateDirectory: "sEcReT" }, "stateDirectory: expected an absolute path"],
        [{ token: "sEcReT" }, "token: expected 32 to 4096 visible ASCII characters"],
        [{ agentOptions: undefined }, "agentOptions: expected an object whose 'agent' names the driver"],
        [{ agentOptions: { agent: "scripted", deep } }, "agentOptions: expected JSON that is nested at most 512 deep"],
        [{ agentOptions: { agent: "sEcReT" } }, "agentOptions.agent: expected the name of a driver, such as"],
        [{ port: 8_675_309 }, "port: expected a whole number from 0 to 65535"],
        [{ idleTimeout: "sEcReT" }, "idleTimeout: expected a number more than 0 and a unit, such as"],
        [{ idleTimeout: 0 }, "idleTimeout: expected a number more than 0 and a unit, such as"],
        [{ allowedOrigins: ["sEcReT"] }, "allowedOrigins.0: expected an array of web origins, such as"],
        [{ sync: "sEcReT" }, "sync: expected true or false"],
        [{ maxTurnBytes: "sEcReT" }, "maxTurnBytes: expected a whole number of bytes, at least 1048576"]
      ]
      for (const [options, says] of wrong) {
        const { message, reason } = yield* Effect.flip(connect(sandbox, options))
        assert.strictEqual(reason._tag, "InvalidOptions")
        assert.include(message, `Bridge b1: it can't be launched with these options: ${says}`)
        assert.notMatch(message, /sEcReT|8675|\n/)
      }
      assert.strictEqual(sandbox.lines.length, 0)
    }))

  it.live("ends with one bridge where 20 hosts come at once", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        bridge: {
          // A bridge whose launch isn't the file's is replaced.
          onRequest: (tag, _, bridge) => {
            const file = JSON.parse(new TextDecoder().decode(sandbox.files.get("/state/listening.json")))
            return tag === "StartSession" && file.launch !== bridge.options.launch
              ? { fail: { _tag: "Replaced" } }
              : undefined
          }
        }
      })
      const launches = yield* Effect.forEach(Array.from({ length: 20 }), () =>
        Effect.gen(function*() {
          const client = yield* connect(sandbox)
          yield* client.startSession({ session, directory: "/work" })
          return (yield* client.hello).launch
        }), { concurrency: "unbounded" })
      assert.strictEqual(new Set(launches).size, 1)
      assert.strictEqual(launches[0], sandbox.bridge.options.launch)
    }))

  it.live("wakes a sandbox that has stopped, and doesn't trust the file of what ran in it", () =>
    Effect.gen(function*() {
      let wakes = 0
      const sandbox = yield* TestSandbox.make({
        wake: Effect.sync(() => wakes++ === 0 ? "restarted" : "already-running")
      })
      // What listens now is no bridge.
      const stranger = yield* running(sandbox, { onHttp: () => new Response(null, { status: 502 }) })
      const client = yield* connect(sandbox)
      assert.strictEqual((yield* client.hello).launch, sandbox.lines[0]!.launch)
      assert.strictEqual(wakes, 1)
      assert.strictEqual(stranger.count("Hello"), 0)
    }))

  it.live("goes where a retired bridge's file points, and launches where it still names that bridge", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      let answer: "Closing" | "Replaced" = "Replaced"
      const old = yield* running(sandbox, {
        onRequest: (tag) => tag === "StartSession" ? { fail: { _tag: answer } } : undefined
      })
      const client = yield* connect(sandbox)
      const newer = new TestBridge({ state: sandbox.state, token, launch: "launch-new" })
      sandbox.bridges.push(newer)
      sandbox.list({ port: newer.port, launch: "launch-new" })
      yield* client.startSession({ session, directory: "/work" })
      assert.strictEqual(newer.count("StartSession"), 1)
      assert.strictEqual(sandbox.lines.length, 0)
      // Another host, which finds the bridge that is about to exit.
      answer = "Closing"
      sandbox.list({ port: old.port, launch: "launch-old" })
      const second = yield* connect(sandbox)
      yield* second.startSession({ session, directory: "/work" })
      assert.strictEqual(sandbox.lines.length, 1)
      assert.strictEqual(sandbox.bridge.count("StartSession"), 1)
    }))
})

describe("a turn whose bridge dies", () => {
  it.live("is continued on another bridge, and each part comes once", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({ bridge: { batch: 3 } })
      const { handle } = yield* startTurn(sandbox)
      const log = sandbox.state.turn(session, turn)
      log.emit(text(1), text(2), text(3), text(4))
      const seen: Array<number> = []
      const reader = yield* handle.parts().pipe(
        Stream.tap((part) => Effect.sync(() => seen.push(part.n))),
        Stream.runCollect,
        Effect.forkScoped
      )
      yield* eventually(() => seen.length === 4)
      const first = sandbox.bridge
      log.emit(text(5))
      first.kill()
      yield* eventually(() => log.attempt === 2)
      log.emit(text(7))
      yield* eventually(() => seen.includes(7))
      sandbox.bridge.kill()
      yield* eventually(() => log.attempt === 3)
      log.finish()
      const parts = yield* Fiber.join(reader)
      assert.deepStrictEqual(parts.map(({ n }) => n), [1, 2, 3, 4, 5, 6, 7, 8])
      assert.deepStrictEqual(parts[5]!.part, { type: "turn-continued", attempt: 2, keep: 3 })
      assert.strictEqual((yield* handle.end).type, "finished")
      assert.strictEqual(sandbox.bridges.length, 3)
      const second = sandbox.bridges[1]!
      assert.deepStrictEqual(second.payloads("StartSession"), first.payloads("StartSession"))
      assert.deepStrictEqual(second.payloads("StartTurn").at(-1), { ...first.payloads("StartTurn")[0], attempt: 2 })
    }))

  it.effect("is taken from a bridge that is frozen, and continued on another one", () =>
    Effect.gen(function*() {
      let frozen: TestBridge | undefined
      const sandbox = yield* TestSandbox.make({
        bridge: {
          onPing: (bridge) => bridge === frozen ? "ignore" : undefined,
          onPart: (_, __, bridge) => bridge === frozen ? "stall" : undefined,
          onRequest: (tag, _, bridge) => {
            if (bridge === frozen) return "silence"
            const log = bridge.options.state.turn(session, turn)
            // Whoever starts the session gets it, which ends what ran there.
            if (frozen !== undefined && tag === "StartSession" && log.end === undefined) {
              log.finish({ type: "aborted", reason: "bridge-died", usage: { measured: false } })
            }
            return undefined
          }
        }
      })
      const log = sandbox.state.turn(session, turn)
      const { handle } = yield* startTurn(sandbox)
      const seen: Array<number> = []
      const reader = yield* handle.parts().pipe(
        Stream.runForEach(({ n }) => Effect.sync(() => seen.push(n))),
        Effect.forkScoped
      )
      yield* eventuallyReal(() => log.readers.size === 1)
      log.emit(text(1), text(2))
      yield* eventuallyReal(() => seen.length === 2)
      frozen = sandbox.bridge
      let seconds = 0
      for (; log.attempt < 2 && seconds < 300; seconds++) yield* Effect.andThen(TestClock.adjust("1 second"), realTime)
      assert.isAtLeast(seconds, 45)
      assert.isAtMost(seconds, 90)
      log.emit(text(4))
      log.finish()
      yield* Fiber.join(reader)
      assert.deepStrictEqual(seen, [1, 2, 3, 4])
      assert.deepStrictEqual(sandbox.bridges.map((bridge) => bridge.count("StartSession")), [1, 1])
    }))

  it.effect("is left to an older bridge that answers, however long it says nothing", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      const { handle } = yield* startTurn(sandbox)
      const log = sandbox.state.turn(session, turn)
      const seen: Array<number> = []
      const reader = yield* handle.parts().pipe(
        Stream.runForEach(({ n }) => Effect.sync(() => seen.push(n))),
        Effect.forkScoped
      )
      yield* eventuallyReal(() => log.readers.size === 1)
      const older = sandbox.bridge
      const newer = new TestBridge({ state: sandbox.state, token, launch: "launch-new" })
      sandbox.bridges.push(newer)
      sandbox.list({ port: newer.port, launch: "launch-new" })
      older.cut()
      yield* eventuallyReal(() => newer.count("ReadTurn") === 1)
      for (let seconds = 0; seconds < 120; seconds += 5) yield* Effect.andThen(TestClock.adjust("5 seconds"), realTime)
      assert.isAtLeast(older.count("Hello"), 5)
      log.emit(text(1))
      log.finish()
      yield* Fiber.join(reader)
      assert.deepStrictEqual([seen, newer.count("StartSession")], [[1], 0])
    }))

  it.live("is continued as often as the host allows", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      const { handle } = yield* startTurn(sandbox, { maxContinuations: 2 })
      const log = sandbox.state.turn(session, turn)
      const end = yield* Effect.forkScoped(handle.end)
      for (const attempt of [1, 2, 3]) {
        yield* eventually(() => log.attempt === attempt && log.readers.size > 0)
        sandbox.bridge.kill()
      }
      assert.deepInclude(yield* Fiber.join(end), { type: "aborted", reason: "bridge-died" })
      assert.strictEqual(log.attempt, 3)
    }))

  it.live("is continued once where several reads come to its end", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      const { handle } = yield* startTurn(sandbox)
      const log = sandbox.state.turn(session, turn)
      log.emit(text(1))
      const readers = yield* Effect.forEach([1, 2, 3], () => Effect.forkScoped(Stream.runCollect(handle.parts())))
      yield* eventually(() => log.readers.size === 3)
      sandbox.bridge.kill()
      yield* eventually(() => log.attempt === 2 && log.readers.size === 3)
      log.finish()
      for (const reader of readers) assert.deepStrictEqual((yield* Fiber.join(reader)).map(({ n }) => n), [1, 2])
      assert.strictEqual(sandbox.bridges.length, 2)
      assert.deepStrictEqual(sandbox.bridge.payloads("StartTurn").map(({ attempt }) => attempt), [2, 2])
    }))

  it.live("is left as it is after this host has aborted it, or wants to be told", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        bridge: {
          onRequest: (tag, _, bridge) => {
            if (tag !== "AbortTurn" || bridge !== sandbox.bridges[0]) return undefined
            bridge.kill()
            return "silence"
          }
        }
      })
      const { handle } = yield* startTurn(sandbox)
      const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
      yield* handle.abort()
      yield* Fiber.join(reader)
      assert.deepInclude(yield* handle.end, { type: "aborted", reason: "bridge-died" })
      assert.strictEqual(sandbox.state.turn(session, turn).attempt, 1)

      const other = yield* TestSandbox.make()
      const failing = yield* startTurn(other, { onBridgeDeath: "fail" })
      const parts = yield* Effect.forkScoped(Effect.flip(Stream.runDrain(failing.handle.parts())))
      yield* eventually(() => other.state.turn(session, turn).readers.size === 1)
      other.bridge.kill()
      const error = yield* Fiber.join(parts)
      assert.deepInclude(error, { _tag: "BridgeUnavailable", reason: { _tag: "Refused" } })
      assert.strictEqual(other.bridges.length, 1)
    }))

  it.live("fails where it can't be continued, and says why", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make({
        bridge: {
          onRequest: (tag, { attempt }) =>
            tag === "StartTurn" && attempt === 2
              ? { fail: { _tag: "ContextLost", session, problem: "the transcript is gone" } }
              : undefined
        }
      })
      const { handle } = yield* startTurn(sandbox)
      const end = yield* Effect.forkScoped(Effect.flip(handle.end))
      yield* eventually(() => sandbox.state.turn(session, turn).readers.size === 1)
      sandbox.bridge.kill()
      const error = yield* Fiber.join(end)
      assert.strictEqual(error._tag, "ContinueFailed")
      assert.include(error.message, "the transcript is gone")
    }))

  it.live("restarts a session for a turn on a new bridge, but not one that was stopped", () =>
    Effect.gen(function*() {
      const sandbox = yield* TestSandbox.make()
      const { started } = yield* startTurn(sandbox)
      sandbox.bridge.kill()
      yield* started.startTurn({ turn: Bridge.TurnId.make("t2"), prompt: "more" })
      assert.strictEqual(sandbox.bridge.count("StartSession"), 1)
      sandbox.state.sessions.get(session)!.startedBy = undefined
      const error = yield* Effect.flip(started.startTurn({ turn: Bridge.TurnId.make("t3"), prompt: "more" }))
      assert.strictEqual(error._tag, "SessionNotStarted")
      assert.strictEqual(sandbox.bridge.count("StartSession"), 1)
    }))
})

describe("a session that another bridge holds", () => {
  const busy = Effect.fnUntraced(function*(reachable: boolean) {
    const sandbox = yield* TestSandbox.make()
    const old = yield* running(sandbox)
    const { client, handle, started } = yield* startTurn(sandbox)
    const newer = new TestBridge({
      state: sandbox.state,
      token,
      launch: "launch-new",
      onRequest: (tag, { session }) => {
        if (tag === "StartSession") old.kill()
        return (tag === "Approve" || tag === "ReadState") && newer.count("StartSession") === 0
          ? { fail: { _tag: "SessionBusy", session, port: old.port, launch: reachable ? "launch-old" : "launch-gone" } }
          : undefined
      }
    })
    sandbox.bridges.push(newer)
    sandbox.list({ port: newer.port, launch: "launch-new" })
    // The host loses its connection, and finds the newer bridge.
    old.cut()
    yield* client.hello
    assert.strictEqual((yield* client.hello).launch, "launch-new")
    return { sandbox, old, newer, handle, started }
  })

  it.live("is answered there", () =>
    Effect.gen(function*() {
      const { handle, newer, old, started } = yield* busy(true)
      yield* handle.approve({ approvalId: "a1", decision: "allow" })
      assert.strictEqual(old.count("Approve"), 1)
      assert.deepStrictEqual(yield* started.readState, { carried: true })
      assert.strictEqual(newer.count("StartSession"), 0)
    }))

  it.live("is taken over where that bridge can't be reached, and its turn is continued", () =>
    Effect.gen(function*() {
      const { handle, newer, sandbox } = yield* busy(false)
      const log = sandbox.state.turn(session, turn)
      const error = yield* Effect.flip(handle.approve({ approvalId: "a1", decision: "allow" }))
      assert.strictEqual(error._tag, "TurnEnded")
      assert.strictEqual(newer.count("StartSession"), 1)
      const end = yield* Effect.forkScoped(handle.end)
      yield* eventually(() => log.attempt === 2)
      log.finish()
      assert.strictEqual((yield* Fiber.join(end)).type, "finished")
    }))
})
