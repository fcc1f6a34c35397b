import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { BridgeClient, type HostTools, Launcher, TokenStore, Turn } from "@gangway/client"
import { Scripted } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, Fiber, FileSystem, Layer, Redacted, Schedule, Schema, Stream } from "effect"
import { TcpProxy } from "./TcpProxy.ts"

const bridge = Bridge.BridgeId.make("b1")
const session = Bridge.SessionId.make("s1")
const turn = Bridge.TurnId.make("t1")
const program = new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname
const token = "a-token-that-has-32-characters-at-least"

const launching = Launcher.layer({ command: [process.execPath, program] }).pipe(
  Layer.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make(token))]),
  Layer.provideMerge(BunServices.layer)
)

// A directory of its own; the bridge that its listening file names at the end is killed.
const world = Effect.gen(function*() {
  const fileSystem = yield* FileSystem.FileSystem
  const { connect } = yield* Launcher.Launcher
  const root = yield* fileSystem.makeTempDirectoryScoped()
  const stateDirectory = `${root}/state`
  const directory = `${root}/work`
  yield* fileSystem.makeDirectory(directory)
  const listening = fileSystem.readFileString(Bridge.listeningFile(stateDirectory)).pipe(
    Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile)))
  )
  const kill = Effect.map(listening, ({ pid }) => process.kill(pid, "SIGKILL"))
  yield* Effect.addFinalizer(() => Effect.ignore(Effect.catchDefect(kill, () => Effect.void)))
  return {
    directory,
    stateDirectory,
    listening,
    kill,
    connect: connect({
      bridge,
      stateDirectory,
      agentOptions: { agent: "scripted", home: `${root}/agent` },
      idleTimeout: "1 minute"
    })
  }
})

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("10 millis") }),
    Effect.timeout("20 seconds")
  )

const assertOnce = (parts: ReadonlyArray<Turn.TurnPart>) => {
  let next = 1
  for (const part of parts) {
    assert.strictEqual(part.n, next)
    next = Turn.nextNumber(part)
  }
}

describe("a host with a bridge", () => {
  it.layer(launching, { excludeTestServices: true, timeout: "1 minute" })((it) => {
    it.effect("launches it, runs a turn with a host tool and an approval, and reads all of it", () =>
      Effect.gen(function*() {
        const { connect, directory } = yield* world
        const client = yield* connect
        const long = "é🙂".repeat(600_000)
        const tools: HostTools.HostTools = {
          tools: [{ name: "lookup", description: "Looks up", parameters: { type: "object" } }],
          // More than a line of the turn's file holds.
          handle: ({ params }) => Effect.succeed({ result: { found: params, long }, isFailure: false })
        }
        const started = yield* client.startSession({
          session,
          directory,
          tools,
          onApproval: ({ name }) => Effect.succeed({ decision: name === "bash" ? "allow" : "deny" })
        })
        const handle = yield* started.startTurn({
          turn,
          prompt: Scripted.toPrompt({
            steps: [
              { actions: [{ type: "text", text: "Looking." }] },
              { actions: [{ type: "host-tools", calls: [{ name: "lookup", params: { word: "x" } }] }] },
              { actions: [{ type: "tool", name: "bash", approval: {}, result: "done" }] },
              { actions: [{ type: "text", random: { length: 3_000_000 }, chunk: 100_000 }] }
            ]
          })
        })
        const parts = yield* Stream.runCollect(handle.parts())
        assertOnce(parts)
        const types = new Set<string>(parts.map(({ part }) => part.type))
        for (const type of ["tool-call", "tool-result", "tool-approval-request", "tool-approval-response"]) {
          assert.isTrue(types.has(type), type)
        }
        const result = parts.find(({ part }) => part.type === "tool-result")!
        assert.deepInclude(result.part, { result: { found: { word: "x" }, long } })
        assert.isAbove(result.last!, result.n)
        assert.strictEqual((yield* handle.end).type, "finished")
        const text = yield* handle.text
        assert.isTrue(text.startsWith("Looking."))
        assert.isAbove(text.length, 3_000_000)
        assert.deepStrictEqual((yield* client.hello).sessions.map(({ latest }) => latest?.state), ["finished"])
        yield* started.destroy
      }))

    it.effect("continues the turn when the bridge is killed, again and again, and reads each part once", () =>
      Effect.gen(function*() {
        const { connect, directory, kill, listening } = yield* world
        const client = yield* connect
        const started = yield* client.startSession({ session, directory, permissions: "all" })
        const handle = yield* started.startTurn({
          turn,
          prompt: Scripted.toPrompt({
            steps: [{ actions: [{ type: "text", random: { length: 400 }, chunk: 10, delay: 10 }], repeat: 4 }]
          })
        })
        let seen = 0
        const reader = yield* handle.parts().pipe(
          Stream.tap(() => Effect.sync(() => seen++)),
          Stream.runCollect,
          Effect.forkScoped
        )
        const launches = new Set<string>()
        for (const until of [10, 70, 130]) {
          yield* eventually(Effect.sync(() => seen > until))
          launches.add((yield* listening).launch)
          yield* kill
        }
        const parts = yield* Fiber.join(reader)
        assertOnce(parts)
        assert.strictEqual(launches.size, 3)
        assert.strictEqual((yield* handle.end).type, "finished")
        assert.strictEqual(parts.filter(({ part }) => part.type === "turn-continued").length, 3)
        const finished = Turn.counted(parts).filter(({ part }) => part.type === "step-finished")
        assert.strictEqual(finished.length, 4)
        assert.strictEqual(Turn.toText(parts).length, 4 * 400 + 3 * 2)
        // Read again from the file, it's the same.
        assert.deepStrictEqual(yield* Stream.runCollect(handle.parts()), parts)
      }))

    it.effect("ends with one bridge where eight hosts come at once", () =>
      Effect.gen(function*() {
        const { connect, directory, listening } = yield* world
        const hosts = Array.from({ length: 8 }, (_, i) => ({ session: Bridge.SessionId.make(`s${i}`), directory }))
        const clients = yield* Effect.forEach(hosts, (options) =>
          Effect.gen(function*() {
            const client = yield* connect
            const started = yield* client.startSession(options)
            const handle = yield* started.startTurn({ turn, prompt: `hello ${options.session}` })
            assert.strictEqual(yield* handle.text, `hello ${options.session}`)
            return client
          }), { concurrency: "unbounded" })
        // The last one that was launched may still be on its way.
        yield* eventually(Effect.gen(function*() {
          const launches = yield* Effect.forEach(clients, (client, i) =>
            Effect.andThen(
              client.startSession(hosts[i]!),
              Effect.map(client.hello, ({ launch }) => launch)
            ))
          return new Set([...launches, (yield* listening).launch]).size === 1
        }))
      }), 60_000)

    it.effect("fails with the reason where the bridge can't be launched", () =>
      Effect.gen(function*() {
        const { stateDirectory } = yield* world
        const { connect } = yield* Launcher.Launcher
        const error = yield* Effect.flip(connect({ bridge, stateDirectory, agentOptions: { agent: "nobody" } }))
        assert.deepInclude(error.reason, { _tag: "LaunchFailed", exitCode: 2 })
        assert.include(error.message, "agentOptions.agent")
      }))
  })
})

describe("a host behind a proxy", () => {
  const behind = Effect.gen(function*() {
    const { connect, directory, listening } = yield* world
    const direct = yield* connect
    const target = (yield* listening).port
    const proxy = yield* Effect.acquireRelease(
      Effect.sync(() => new TcpProxy(() => target)),
      (proxy) => Effect.sync(() => proxy.stop())
    )
    const client = yield* BridgeClient.make({
      bridge,
      address: Effect.sync(() => ({
        url: new URL(`http://127.0.0.1:${proxy.port}`),
        token: Redacted.make(token)
      }))
    })
    const started = yield* client.startSession({ session, directory, permissions: "all" })
    return { direct, proxy, started }
  })

  it.layer(launching, { excludeTestServices: true, timeout: "1 minute" })((it) => {
    it.effect("reads each part once over many cuts at any byte", () =>
      Effect.gen(function*() {
        const { proxy, started } = yield* behind
        let seed = 7
        const random = () => {
          seed = (Math.imul(seed, 1103515245) + 12345) >>> 0
          return seed / 2 ** 32
        }
        let left = 0
        proxy.onBytes = (bytes) => {
          left -= bytes
          if (left > 0) return undefined
          // More than the largest frame, so that each connection brings something.
          left = 300_000 + random() * 300_000
          return "cut"
        }
        const fast = yield* started.startTurn({
          turn,
          prompt: Scripted.toPrompt({ steps: [{ actions: [{ type: "burst", parts: 30_000, size: 60 }] }] })
        })
        const burst = yield* Stream.runCollect(fast.parts())
        assertOnce(burst)
        assert.isAtLeast(burst.length, 30_000)
        assert.isAtLeast(proxy.opened, 5)
        proxy.onBytes = undefined

        const slow = yield* started.startTurn({
          turn: Bridge.TurnId.make("t2"),
          prompt: Scripted.toPrompt({
            steps: [{
              actions: [{ type: "text", random: { length: 6_000, alphabet: "unicode" }, chunk: 10, delay: 2 }]
            }]
          })
        })
        const before = proxy.opened
        const cutting = yield* Effect.sync(() => proxy.cut()).pipe(
          Effect.delay("120 millis"),
          Effect.forever,
          Effect.forkScoped
        )
        const parts = yield* Stream.runCollect(slow.parts())
        yield* Fiber.interrupt(cutting)
        assertOnce(parts)
        assert.isAtLeast(parts.length, 600)
        assert.isAtLeast(proxy.opened - before, 5)
        assert.deepStrictEqual(yield* Stream.runCollect(slow.parts()), parts)
      }), 60_000)
  })
})
