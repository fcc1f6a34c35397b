import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore, Turn } from "@gangway/client"
import * as Scripted from "@gangway/drivers/Scripted"
import { Bridge } from "@gangway/protocol"
import { DockerSandbox, Executable, Sandbox } from "@gangway/sandbox"
import { Effect, Fiber, FileSystem, Layer, Option, Redacted, Schedule, Schema, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/unstable/process"
import * as Docker from "../../../test/docker/Docker.ts"
import { TcpProxy } from "../../../test/integration/TcpProxy.ts"

const bridge = Bridge.BridgeId.make("b1")
const session = Bridge.SessionId.make("s1")
const turn = Bridge.TurnId.make("t1")
const token = "a-token-that-has-32-characters-at-least"
const secret = "a-secret-of-the-agent's"
const directory = "/srv/work"
const stateDirectory = "/var/tmp/state"

const docker = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
  const { client: [program, ...global] } = yield* Docker.Docker
  const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
  return yield* spawner.string(ChildProcess.make(program, [...global, ...args]))
})

// A container of its own with a bridge program in it, and a proxy before its port.
const world = Effect.gen(function*() {
  const { bridge: file, client, image } = yield* Docker.Docker
  const sandbox = yield* DockerSandbox.make({ client, image, user: "agent", directory: "/srv" })
  yield* sandbox.run({ command: ["mkdir", directory], timeout: "10 seconds" })
  const program = yield* Executable.install({
    name: "gangway-bridge",
    directory: "/srv/.gangway",
    build: (target) =>
      Executable.toName(target) === "linux-x64"
        ? Effect.asSome(Effect.flatMap(FileSystem.FileSystem, (fileSystem) => fileSystem.readFile(file)))
        : Effect.succeedNone
  }).pipe(Effect.provideService(Sandbox.Sandbox, sandbox))

  // Where the port is now: it's asked anew for each connection.
  let port = 0
  const proxy = yield* Effect.acquireRelease(
    Effect.sync(() => new TcpProxy(() => port)),
    (proxy) => Effect.sync(() => proxy.stop())
  )
  const proxied: Sandbox.Sandbox["Service"] = {
    ...sandbox,
    endpoint: (inside) =>
      Effect.map(sandbox.endpoint(inside), ({ headers, url }) => {
        port = Number(url.port)
        return { headers, url: new URL(`http://127.0.0.1:${proxy.port}`) }
      })
  }
  const listening = sandbox.readFile(Bridge.listeningFile(stateDirectory)).pipe(
    Effect.map((bytes) => new TextDecoder().decode(Option.getOrThrow(bytes))),
    Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile)))
  )
  const kill = Effect.flatMap(
    listening,
    ({ pid }) => sandbox.run({ command: ["kill", "-KILL", String(pid)], timeout: "10 seconds" })
  )
  // A host of its own.
  const connect = Launcher.make({ command: [program], cwd: "/srv" }).pipe(
    Effect.provideService(Sandbox.Sandbox, proxied),
    Effect.provide(TokenStore.layerToken(Redacted.make(token))),
    Effect.flatMap((launcher) =>
      launcher.connect({
        bridge,
        stateDirectory,
        agentOptions: { agent: "scripted", home: "/srv/agent" },
        idleTimeout: "1 minute"
      })
    )
  )
  return { sandbox, proxy, listening, kill, connect }
})

// A turn of a second or two, which ends once it may.
const startTurn = Effect.fnUntraced(function*(
  { connect }: Effect.Success<typeof world>,
  policy: Turn.Policy = {}
) {
  const client = yield* connect
  const started = yield* client.startSession({
    session,
    directory,
    permissions: "all",
    env: { KEY: Redacted.make(secret) }
  })
  return yield* started.startTurn({
    ...policy,
    turn,
    prompt: Scripted.toPrompt({
      steps: [
        { actions: [{ type: "text", random: { length: 300 }, chunk: 10, delay: 10 }], repeat: 4 },
        { actions: [{ type: "tool", name: "wait", command: ["sh", "-c", "until [ -e go ]; do sleep 0.1; done"] }] }
      ]
    })
  })
})

// Reads all of a turn, and does something when so many parts have come; then it may end.
const readWhile = <R>(
  { sandbox }: Effect.Success<typeof world>,
  turn: Turn.Turn,
  events: ReadonlyArray<readonly [parts: number, Effect.Effect<unknown, unknown, R>]>
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
    yield* awake(sandbox, sandbox.writeFile(`${directory}/go`, new Uint8Array()))
    const parts = yield* Fiber.join(reader)
    let next = 1
    for (const part of parts) {
      assert.strictEqual(part.n, next)
      next = Turn.nextNumber(part)
    }
    assert.strictEqual(Turn.toText(parts).length, 4 * 300 + 3 * 2)
    assert.strictEqual((yield* turn.end).type, "finished")
    return parts
  })

// Whoever comes first wakes it.
const awake = <A>(sandbox: Sandbox.Sandbox["Service"], effect: Effect.Effect<A, Sandbox.SandboxError>) =>
  Effect.retry(effect, {
    while: ({ reason }) => Effect.as(sandbox.wake, reason._tag === "NotRunning"),
    times: 3
  })

const continuations = (parts: ReadonlyArray<Turn.TurnPart>) =>
  parts.filter(({ part }) => part.type === "turn-continued").length

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("10 millis") }),
    Effect.timeout("1 minute")
  )

describe("a host with a bridge in a container", {
  skip: Docker.skipped !== undefined,
  meta: { skipped: Docker.skipped }
}, () => {
  it.layer(Layer.mergeAll(Docker.layer, BunServices.layer), {
    timeout: Docker.patience,
    excludeTestServices: true
  })((it) => {
    it.effect("runs a turn while its connection is cut, and reads each part once", () =>
      Effect.gen(function*() {
        const here = yield* world
        const handle = yield* startTurn(here)
        const opened = here.proxy.opened
        const cut = Effect.sync(() => here.proxy.cut())
        const parts = yield* readWhile(here, handle, [[5, cut], [40, cut], [80, cut]])
        assert.strictEqual(continuations(parts), 0)
        assert.isAtLeast(here.proxy.opened - opened, 3)
      }), 120_000)

    it.effect("continues a turn whose bridge is killed", () =>
      Effect.gen(function*() {
        const here = yield* world
        const handle = yield* startTurn(here)
        const before = (yield* here.listening).launch
        const parts = yield* readWhile(here, handle, [[10, here.kill], [60, here.kill]])
        assert.strictEqual(continuations(parts), 2)
        assert.notStrictEqual((yield* here.listening).launch, before)
      }), 120_000)

    it.effect(
      "reads a turn whose container was stopped as aborted, and continues it in the one that is started",
      () =>
        Effect.gen(function*() {
          const here = yield* world
          const handle = yield* startTurn(here, { onBridgeDeath: "fail" })
          const stopped = Effect.andThen(docker("stop", here.sandbox.id), docker("start", here.sandbox.id))
          let seen = 0
          const reading = yield* Effect.forkScoped(
            Effect.exit(Stream.runForEach(handle.parts(), () => Effect.sync(() => seen++)))
          )
          yield* eventually(Effect.sync(() => seen > 20))
          yield* stopped
          yield* Fiber.await(reading)
          const client = yield* here.connect
          const summary = (yield* client.hello).sessions.find((found) => found.session === session)
          assert.deepInclude(summary?.latest, { turn, state: "aborted" })
          const parts = yield* readWhile<never>(here, yield* startTurn(here), [])
          assert.isAtLeast(continuations(parts), 1)
        }),
      60_000
    )

    it.effect(
      "wakes a container that is stopped in the middle of a turn, and continues it",
      () =>
        Effect.gen(function*() {
          const here = yield* world
          const handle = yield* startTurn(here)
          const parts = yield* readWhile(here, handle, [[10, docker("stop", here.sandbox.id)]])
          assert.strictEqual(continuations(parts), 1)
        }),
      60_000
    )

    it.effect("wakes a container that is paused in the middle of a turn, which goes on", () =>
      Effect.gen(function*() {
        const here = yield* world
        const handle = yield* startTurn(here)
        const before = (yield* here.listening).launch
        const pause = Effect.andThen(docker("pause", here.sandbox.id), Effect.sync(() => here.proxy.cut()))
        const parts = yield* readWhile(here, handle, [[10, pause]])
        assert.strictEqual(continuations(parts), 0)
        assert.strictEqual((yield* here.listening).launch, before)
      }), 120_000)

    it.effect("ends with one bridge where two hosts launch at once", () =>
      Effect.gen(function*() {
        const here = yield* world
        const sessions = ["s1", "s2"].map((id) => Bridge.SessionId.make(id))
        const clients = yield* Effect.forEach(sessions, (session) =>
          Effect.gen(function*() {
            const client = yield* here.connect
            const started = yield* client.startSession({ session, directory })
            const handle = yield* started.startTurn({ turn, prompt: `hello ${session}` })
            assert.strictEqual(yield* handle.text, `hello ${session}`)
            return client
          }), { concurrency: "unbounded" })
        yield* eventually(Effect.gen(function*() {
          const launches = yield* Effect.forEach(clients, (client, i) =>
            Effect.andThen(
              client.startSession({ session: sessions[i]!, directory }),
              Effect.map(client.hello, ({ launch }) => launch)
            ))
          return new Set([...launches, (yield* here.listening).launch]).size === 1
        }))
      }), 120_000)

    it.effect("shows the token and the agent's secrets to nobody else", () =>
      Effect.gen(function*() {
        const here = yield* world
        const handle = yield* startTurn(here)
        yield* readWhile(here, handle, [[
          10,
          Effect.gen(function*() {
            const { stdout } = yield* here.sandbox.run({
              command: ["sh", "-c", `cat /proc/[0-9]*/cmdline ${stateDirectory}/*.log | tr '\\0' ' '`],
              timeout: "10 seconds"
            })
            assert.include(stdout, "gangway-bridge")
            const hosts = yield* Effect.flatMap(
              ChildProcessSpawner.ChildProcessSpawner,
              (spawner) => spawner.string(ChildProcess.make("sh", ["-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]))
            )
            assert.include(hosts, here.sandbox.id)
            for (const text of [stdout, hosts, yield* docker("inspect", here.sandbox.id)]) {
              assert.notInclude(text, token)
              assert.notInclude(text, secret)
            }
          })
        ]])
      }), 120_000)
  })
})
