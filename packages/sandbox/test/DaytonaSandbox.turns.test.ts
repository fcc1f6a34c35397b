import * as BunServices from "@effect/platform-bun/BunServices"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore, Turn } from "@gangway/client"
import { Scripted } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import { DaytonaSandbox, Sandbox } from "@gangway/sandbox"
import { Effect, Fiber, Layer, Option, Redacted, Schedule, Schema, Stream } from "effect"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { DaytonaServer } from "../../../test/daytona/DaytonaServer.ts"
import { answersAreAsDocumented } from "../../../test/daytona/OpenApi.ts"
import { needed, processesOf } from "../../../test/daytona/Processes.ts"

const server = new DaytonaServer()
afterAll(() => server.close())

const bridge = Bridge.BridgeId.make("b1")
const session = Bridge.SessionId.make("s1")
const turn = Bridge.TurnId.make("t1")
const program = new URL("../../../apps/bridge/src/main.ts", import.meta.url).pathname
const token = "a-token-that-has-32-characters-at-least"
const secret = "a-secret-of-the-agent's"

const account = { apiKey: Redacted.make(server.apiKey), apiUrl: server.apiUrl }

const prompt = Scripted.toPrompt({
  steps: [
    { actions: [{ type: "text", random: { length: 300 }, chunk: 10, delay: 10 }], repeat: 4 },
    { actions: [{ type: "file", path: "done" }] }
  ]
})

// A host's client, attached to a sandbox that exists. The bridge counts as use as often as `every` says, or not at all.
const connect = Effect.fnUntraced(function*(sandbox: string, every?: "100 millis" | "never") {
  const { home } = server.get(sandbox).toolbox
  const attached = Effect.map(DaytonaSandbox.attach({ ...account, sandbox }), ({ use, ...rest }) => {
    assert.isDefined(use)
    return every === "never" ? rest : { ...rest, use: { ...use, every: every ?? use.every } }
  })
  const services = yield* Layer.build(
    Launcher.layer({ command: [process.execPath, program] }).pipe(
      Layer.provide([
        Layer.effect(Sandbox.Sandbox, attached),
        TokenStore.layerToken(Redacted.make(token))
      ]),
      Layer.provide(BunServices.layer)
    )
  )
  return yield* Effect.provide(
    Launcher.Launcher.use(({ connect }) =>
      connect({
        bridge,
        stateDirectory: `${home}/state`,
        agentOptions: { agent: "scripted", home: `${home}/agent`, env: { KEY: Redacted.make(secret) } },
        idleTimeout: "1 minute"
      })
    ),
    services
  )
})

// A sandbox of its own, a host's client, and a turn that takes a while.
const world = Effect.gen(function*() {
  const sandbox = yield* DaytonaSandbox.make(account)
  const loopback = server.get(sandbox.id)
  const directory = `${loopback.toolbox.home}/work`
  yield* sandbox.run({ command: ["mkdir", directory], timeout: "10 seconds" })
  const listening = sandbox.readFile(Bridge.listeningFile(`${loopback.toolbox.home}/state`)).pipe(
    Effect.map((bytes) => new TextDecoder().decode(Option.getOrThrow(bytes))),
    Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile)))
  )
  const client = yield* connect(sandbox.id)
  const started = yield* client.startSession({ session, directory, permissions: "all" })
  return { sandbox, loopback, directory, listening, client, startTurn: started.startTurn({ turn, prompt }) }
})

// Reads all of a turn, and does something when so many parts have come.
const readWhile = (
  turn: Turn.Turn,
  events: ReadonlyArray<readonly [parts: number, Effect.Effect<unknown, unknown>]>
) =>
  Effect.gen(function*() {
    let seen = 0
    const reader = yield* turn.parts().pipe(
      Stream.tap(() => Effect.sync(() => seen++)),
      Stream.runCollect,
      Effect.forkScoped
    )
    for (const [parts, event] of events) {
      yield* eventually(Effect.sync(() => seen >= parts))
      yield* event
    }
    const parts = yield* Fiber.join(reader)
    let next = 1
    for (const part of parts) {
      assert.strictEqual(part.n, next)
      next = Turn.nextNumber(part)
    }
    return parts
  })

const continuations = (parts: ReadonlyArray<Turn.TurnPart>) =>
  parts.filter(({ part }) => part.type === "turn-continued").length

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("10 millis") }),
    Effect.timeout("20 seconds")
  )

// The processes that are bridges, and not agents of theirs.
const bridges = (sandbox: string) =>
  processesOf(sandbox).filter((pid) => read(`/proc/${pid}/cmdline`) === `${process.execPath}\0${program}\0`)

// A process may have ended in between.
const read = (file: string) => {
  try {
    return readFileSync(file, "utf8")
  } catch {
    return ""
  }
}

// A client that waits for a bridge that's gone asks again and again where it is.
const asked = () => server.requests.filter((request) => request.endsWith("/preview-url")).length

const proxies = (loopback: ReturnType<typeof server.get>) => [...loopback.proxies.values()]

describe("a host with a bridge in a Daytona sandbox", needed, () => {
  it.live("runs a turn while its connection is cut, and reads each part once", () =>
    Effect.gen(function*() {
      const { loopback, startTurn } = yield* world
      const handle = yield* startTurn
      const cut = Effect.sync(() => {
        for (const proxy of proxies(loopback)) proxy.cut()
      })
      const parts = yield* readWhile(handle, [[5, cut], [40, cut], [80, cut]])
      assert.strictEqual(continuations(parts), 0)
      assert.strictEqual((yield* handle.end).type, "finished")
      assert.strictEqual(Turn.toText(parts).length, 4 * 300 + 3 * 2)
      assert.strictEqual(
        proxies(loopback).flatMap(({ statuses }) => statuses).filter((status) => status === 101).length,
        4
      )
    }).pipe(Effect.scoped), 60_000)

  it.live("continues a turn whose bridge is killed", () =>
    Effect.gen(function*() {
      const { listening, sandbox, startTurn } = yield* world
      const handle = yield* startTurn
      const before = asked()
      const kill = Effect.flatMap(listening, ({ pid }) =>
        sandbox.run({ command: ["kill", "-KILL", String(pid)], timeout: "10 seconds" }))
      const parts = yield* readWhile(handle, [[10, kill], [60, kill]])
      assert.strictEqual(continuations(parts), 2)
      assert.isBelow(asked() - before, 20)
      assert.strictEqual((yield* handle.end).type, "finished")
    }).pipe(Effect.scoped), 60_000)

  it.live("wakes a sandbox that is stopped in the middle of a turn, and continues it", () =>
    Effect.gen(function*() {
      const { listening, loopback, startTurn } = yield* world
      const handle = yield* startTurn
      const { launch } = yield* listening
      const before = asked()
      const parts = yield* readWhile(handle, [[10, Effect.promise(() => server.stop(loopback))]])
      assert.strictEqual(continuations(parts), 1)
      assert.strictEqual((yield* handle.end).type, "finished")
      assert.notStrictEqual((yield* listening).launch, launch)
      assert.isBelow(asked() - before, 20)
    }).pipe(Effect.scoped), 60_000)

  it.live("reads a turn as aborted once its sandbox was archived, and continues it", () =>
    Effect.gen(function*() {
      const { directory, loopback, sandbox } = yield* world
      // The host that started it is gone by then.
      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(sandbox.id)
        const started = yield* client.startSession({ session, directory, permissions: "all" })
        const handle = yield* started.startTurn({ turn, prompt })
        yield* Stream.runDrain(Stream.take(handle.parts(), 10))
      }))
      yield* Effect.promise(() => server.stop(loopback, "archived"))
      const file = `${loopback.toolbox.home}/work`
      assert.strictEqual((yield* Effect.flip(sandbox.readFile(file))).reason._tag, "NotRunning")

      const client = yield* connect(sandbox.id)
      assert.strictEqual(loopback.state, "started")
      assert.deepStrictEqual((yield* client.hello).sessions.map(({ latest }) => latest?.state), ["aborted"])
      const aborted = client.session(session).turn(turn)
      assert.deepInclude(yield* aborted.end, { type: "aborted", reason: "bridge-died" })

      const started = yield* client.startSession({ session, directory, permissions: "all" })
      const handle = yield* started.startTurn({ turn, attempt: 2 })
      assert.strictEqual(continuations(yield* readWhile(handle, [])), 1)
      assert.strictEqual((yield* handle.end).type, "finished")
    }).pipe(Effect.scoped), 60_000)

  it.live("ends with one bridge where hosts launch at once", () =>
    Effect.gen(function*() {
      const sandbox = yield* DaytonaSandbox.make(account)
      const directory = `${server.get(sandbox.id).toolbox.home}/work`
      yield* sandbox.run({ command: ["mkdir", directory], timeout: "10 seconds" })
      const clients = yield* Effect.forEach([1, 2, 3], () => connect(sandbox.id), { concurrency: "unbounded" })
      // One that's replaced still answers, and starts nothing more.
      yield* eventually(Effect.gen(function*() {
        const launches = yield* Effect.forEach(clients, (client, i) =>
          client.startSession({ session: Bridge.SessionId.make(`s${i}`), directory }).pipe(
            Effect.andThen(Effect.map(client.hello, ({ launch }) =>
              launch))
          ))
        return new Set(launches).size === 1
      }))
      yield* eventually(Effect.sync(() =>
        bridges(sandbox.id).length === 1
      ))
    }).pipe(Effect.scoped), 60_000)

  it.live(
    "asks for the token again where it's out of date, and waits while the proxy reaches nothing",
    () =>
      Effect.gen(function*() {
        const sandbox = yield* DaytonaSandbox.make(account)
        const loopback = server.get(sandbox.id)
        loopback.staleTokens = 2
        loopback.badGateways = 3
        const client = yield* connect(sandbox.id)
        const statuses = () => proxies(loopback).flatMap(({ statuses }) => statuses)
        for (const status of [307, 502, 101]) assert.include(statuses(), status)
        assert.strictEqual(bridges(sandbox.id).length, 1)

        // The connection that is there goes on with its token, the next one has the new.
        const { launch } = yield* client.hello
        server.rotateToken(loopback)
        for (const proxy of proxies(loopback)) proxy.cut()
        assert.strictEqual((yield* client.hello).launch, launch)
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "connects anew once the proxy cut a connection for being idle",
    () =>
      Effect.gen(function*() {
        server.idleCut = 300
        yield* Effect.addFinalizer(() =>
          Effect.sync(() => {
            server.idleCut = undefined
          })
        )
        const { client, loopback } = yield* world
        const { launch } = yield* client.hello
        yield* eventually(Effect.sync(() => proxies(loopback).every(({ connections }) => connections === 0)))
        assert.strictEqual((yield* client.hello).launch, launch)
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "is kept awake by its bridge while a turn runs without a host, and is stopped after it",
    () =>
      Effect.gen(function*() {
        const { minute } = server
        yield* Effect.addFinalizer(() =>
          Effect.sync(() => {
            server.minute = minute
          })
        )
        const results = yield* Effect.forEach(["100 millis", "never"] as const, (every) =>
          Effect.gen(function*() {
            server.minute = minute
            const sandbox = yield* DaytonaSandbox.make({ ...account, autoStop: "1 minute" })
            const loopback = server.get(sandbox.id)
            const directory = `${loopback.toolbox.home}/work`
            yield* sandbox.run({ command: ["mkdir", directory], timeout: "10 seconds" })
            yield* Effect.scoped(Effect.gen(function*() {
              const client = yield* connect(sandbox.id, every)
              const started = yield* client.startSession({ session, directory, permissions: "all" })
              const handle = yield* started.startTurn({ turn, prompt })
              yield* Stream.runDrain(Stream.take(handle.parts(), 3))
            }))
            // Much shorter than the turn.
            server.minute = 500
            yield* eventually(Effect.sync(() => loopback.state === "stopped"))
            server.minute = minute
            assert.strictEqual(existsSync(`${directory}/done`), every !== "never")
            const client = yield* connect(sandbox.id, every)
            return yield* client.session(session).turn(turn).end
          }).pipe(Effect.scoped))
        assert.deepStrictEqual(results.map(({ type }) => type), ["finished", "aborted"])
      }).pipe(Effect.scoped),
    60_000
  )

  it.live("lets neither the bridge's token nor the agent's secrets show anywhere", () =>
    Effect.gen(function*() {
      const { loopback, startTurn } = yield* world
      yield* Effect.andThen(startTurn, ({ end }) => end)
      const places = [
        loopback.toolbox.traces,
        ...processesOf(loopback.id).flatMap((pid) => [read(`/proc/${pid}/cmdline`), read(`/proc/${pid}/environ`)]),
        ...readdirSync(loopback.toolbox.home, { recursive: true, withFileTypes: true })
          .filter((entry) => entry.isFile()).map(({ name, parentPath }) => read(`${parentPath}/${name}`))
      ]
      assert.isAbove(places.length, 10)
      for (const hidden of [token, secret]) {
        assert.deepStrictEqual(places.filter((place) => place.includes(hidden)), [])
      }
    }).pipe(Effect.scoped), 60_000)
})

answersAreAsDocumented(server)
