import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { DockerSandbox, type Sandbox } from "@gangway/sandbox"
import { Effect, Exit, Fiber, FileSystem, Layer, Option, Redacted, Schedule, Scope } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/unstable/process"
import * as Docker from "../../../test/docker/Docker.ts"

type Shape = Sandbox.Sandbox["Service"]

const make = Effect.fnUntraced(function*(options: Partial<DockerSandbox.CreateOptions> = {}) {
  const { client, image } = yield* Docker.Docker
  return yield* DockerSandbox.make({ client, image, ...options })
})

const docker = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
  const { client: [program, ...global] } = yield* Docker.Docker
  const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
  return (yield* spawner.string(ChildProcess.make(program, [...global, ...args]))).trim()
})

const sh = (sandbox: Shape, script: string) =>
  Effect.map(
    sandbox.run({ command: ["sh", "-c", script], timeout: "20 seconds" }),
    ({ stdout }) => stdout.trim()
  )

const listed = Effect.fnUntraced(function*(id: string) {
  const { client } = yield* Docker.Docker
  return (yield* DockerSandbox.list({ client })).find((container) => container.id === id)
})

const reason = <A, R>(effect: Effect.Effect<A, Sandbox.SandboxError, R>) =>
  Effect.map(Effect.flip(effect), (error) => error.reason)

// The `docker` processes of this machine that run something in the container.
const clientsOf = (id: string) =>
  Effect.gen(function*() {
    const fileSystem = yield* FileSystem.FileSystem
    const pids = (yield* fileSystem.readDirectory("/proc")).filter((name) => /^\d+$/.test(name))
    return yield* Effect.filter(pids.map(Number), (pid) =>
      fileSystem.readFileString(`/proc/${pid}/cmdline`).pipe(
        Effect.map((command) => command.includes("\0exec\0") && command.includes(id)),
        Effect.orElseSucceed(() => false)
      ))
  })

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("20 millis") }),
    Effect.timeout("20 seconds")
  )

describe("DockerSandbox", {
  skip: Docker.skipped !== undefined,
  meta: { skipped: Docker.skipped }
}, () => {
  it.layer(Layer.mergeAll(Docker.layer, BunServices.layer), {
    timeout: Docker.patience,
    excludeTestServices: true
  })((it) => {
    it.effect("creates a container as it's asked to", () =>
      Effect.gen(function*() {
        const fileSystem = yield* FileSystem.FileSystem
        const outside = yield* fileSystem.makeTempDirectoryScoped({ prefix: `a "quoted", named ü-` })
        yield* fileSystem.writeFileString(`${outside}/given`, "from outside")
        yield* fileSystem.chmod(outside, 0o777)
        const sandbox = yield* make({
          name: `gangway-test-${process.pid}`,
          memory: "64m",
          cpus: 0.5,
          pids: 50,
          labels: { "some.label": "a value" },
          user: "agent",
          directory: "/srv",
          mounts: [
            { source: outside, target: "/mnt/a, b" },
            { source: outside, target: "/mnt/read", readOnly: true }
          ],
          env: { NAME: "a 'value'" },
          ports: [5000, 5001]
        })
        assert.deepStrictEqual(sandbox.ports, [5000, 5001])
        assert.strictEqual(yield* sh(sandbox, `echo "$(id -un) $PWD $NAME $HOME"`), "agent /srv a 'value' /srv")
        assert.strictEqual(yield* sh(sandbox, `cat "/mnt/a, b/given" && echo new >"/mnt/a, b/new"`), "from outside")
        assert.strictEqual(yield* fileSystem.readFileString(`${outside}/new`), "new\n")
        assert.strictEqual((yield* reason(sandbox.writeFile("/mnt/read/x", new Uint8Array())))._tag, "Denied")
        const limits = JSON.parse(yield* docker("inspect", "--format", "{{json .HostConfig}}", sandbox.id))
        assert.deepInclude(limits, { Memory: 64 * 1024 * 1024, NanoCpus: 500_000_000, PidsLimit: 50, Init: true })
        const found = yield* listed(sandbox.id)
        assert.deepInclude(found, { name: `gangway-test-${process.pid}`, status: "running" })
        assert.strictEqual(found?.labels["some.label"], "a value")
        assert.strictEqual((yield* sandbox.endpoint(5001)).url.hostname, "127.0.0.1")
        assert.strictEqual((yield* reason(sandbox.endpoint(5002)))._tag, "Unsupported")
        // What goes beyond a limit is told as any other end.
        const started = yield* sandbox.start({
          command: ["tail", "/dev/zero"],
          stdinLine: Redacted.make("x"),
          log: "/srv/log"
        })
        yield* eventually(Effect.map(started.exitCode, Option.contains(137)))
      }), 60_000)

    it.effect("leaves nothing behind, unless it's to be kept", () =>
      Effect.gen(function*() {
        const volumes = docker("volume", "ls", "--quiet")
        const before = yield* volumes
        const scope = yield* Scope.make()
        const sandbox = yield* Scope.provide(make(), scope)
        const kept = yield* Scope.provide(make({ keep: true }), scope)
        yield* sandbox.start({ command: ["sleep", "1000"], stdinLine: Redacted.make("x"), log: "/tmp/log" })
        yield* kept.start({
          command: ["sh", "-c", "read line; echo $line; sleep 1; echo on"],
          stdinLine: Redacted.make("x"),
          log: "/tmp/log"
        })
        yield* Scope.close(scope, Exit.void)
        assert.isUndefined(yield* listed(sandbox.id))
        assert.strictEqual(yield* volumes, before)
        assert.strictEqual((yield* reason(sandbox.wake))._tag, "NotFound")

        const { client } = yield* Docker.Docker
        assert.strictEqual((yield* listed(kept.id))?.status, "running")
        const again = yield* DockerSandbox.attach({ client, container: kept.id.slice(0, 12) })
        assert.strictEqual(again.id, kept.id)
        yield* eventually(Effect.map(sh(again, "cat /tmp/log"), (log) => log === "x\non"))
        yield* DockerSandbox.remove(kept.id, { client })
        assert.isUndefined(yield* listed(kept.id))
        yield* DockerSandbox.remove(kept.id, { client })
      }), 60_000)

    it.effect(
      "leaves nothing behind where it can't be started, and where it's interrupted",
      () =>
        Effect.gen(function*() {
          const { client } = yield* Docker.Docker
          const count = Effect.map(
            DockerSandbox.list({ client }),
            (all) => all.filter(({ labels }) => labels["test"] === String(process.pid)).length
          )
          const labels = { test: String(process.pid) }
          const nobody = yield* reason(make({ user: "nobody", keep: true, labels }))
          assert.deepInclude(nobody, { _tag: "Unsupported" })
          assert.include(nobody.problem, "unable to find user nobody")
          assert.strictEqual(yield* count, 0)
          for (const patience of [0, 20, 60, 120, 250]) {
            yield* Effect.scoped(Effect.timeoutOption(make({ labels }), patience))
            assert.strictEqual(yield* count, 0)
          }
        }),
      60_000
    )

    it.effect("attaches to a container that's stopped or paused, and wakes it", () =>
      Effect.gen(function*() {
        const { client } = yield* Docker.Docker
        const { id } = yield* make()
        yield* docker("stop", id)
        const sandbox = yield* DockerSandbox.attach({ client, container: id, user: "agent" })
        assert.deepStrictEqual(sandbox.ports, [4321])
        assert.strictEqual((yield* reason(sandbox.endpoint(4321)))._tag, "NotRunning")
        assert.strictEqual(yield* sandbox.wake, "restarted")
        assert.strictEqual(yield* sh(sandbox, "id -un"), "agent")

        const started = yield* sandbox.start({
          command: ["sh", "-c", "until [ -e /srv/go ]; do sleep 0.05; done"],
          stdinLine: Redacted.make("x"),
          log: "/srv/log"
        })
        yield* docker("pause", id)
        assert.strictEqual((yield* reason(sandbox.readFile("/srv/log")))._tag, "NotRunning")
        assert.strictEqual((yield* reason(sandbox.endpoint(4321)))._tag, "NotRunning")
        assert.strictEqual((yield* reason(sh(sandbox, ":")))._tag, "NotRunning")
        // Several hosts do it at once.
        const woken = yield* Effect.all(Array.from({ length: 5 }, () => sandbox.wake), { concurrency: "unbounded" })
        assert.deepStrictEqual(new Set(woken), new Set(["already-running"]))
        assert.isTrue(Option.isNone(yield* started.exitCode))
        yield* sandbox.writeFile("/srv/go", new Uint8Array())
        yield* eventually(Effect.map(started.exitCode, Option.contains(0)))
      }), 60_000)

    it.effect("reaches a container that publishes nothing by its own address", () =>
      Effect.gen(function*() {
        const reached = yield* make({ ports: [] })
        assert.strictEqual(reached.ports, "any")
        yield* reached.start({
          command: ["httpd", "-f", "-p", "0.0.0.0:8080"],
          stdinLine: Redacted.make("x"),
          log: "/tmp/log"
        })
        const { url } = yield* reached.endpoint(8080)
        yield* eventually(Effect.promise(() => fetch(url).then((response) => response.status === 404, () => false)))

        const alone = yield* make({ network: "none" })
        const problem = yield* reason(alone.endpoint(8080))
        assert.deepInclude(problem, { _tag: "Unsupported" })
        assert.include(problem.problem, "has no address")
      }), 60_000)

    it.effect(
      "shares the engine's network where it's asked to, and listens there on its loopback alone",
      () =>
        Effect.gen(function*() {
          const sandbox = yield* make({ network: "host" })
          assert.deepStrictEqual([sandbox.ports, sandbox.hostname], ["any", "127.0.0.1"])
          const port = 40_000 + process.pid % 10_000
          yield* sandbox.start({
            command: ["httpd", "-f", "-p", `${sandbox.hostname}:${port}`],
            stdinLine: Redacted.make("x"),
            log: "/tmp/log"
          })
          const { url } = yield* sandbox.endpoint(port)
          assert.strictEqual(url.href, `http://127.0.0.1:${port}/`)
          yield* eventually(Effect.promise(() => fetch(url).then((response) => response.status === 404, () => false)))
        }),
      60_000
    )

    it.effect("kills what a command started when it's interrupted", () =>
      Effect.gen(function*() {
        const sandbox = yield* make()
        const running = yield* Effect.forkScoped(
          sandbox.run({
            command: ["sh", "-c", "trap '' TERM INT HUP; sleep 1234 & touch /tmp/there; wait"],
            timeout: "1 minute"
          })
        )
        yield* eventually(Effect.map(sandbox.readFile("/tmp/there"), Option.isSome))
        assert.include(yield* sh(sandbox, "ps"), "sleep 1234")
        yield* Fiber.interrupt(running)
        assert.notInclude(yield* sh(sandbox, "ps"), "sleep 1234")
      }), 60_000)

    it.effect(
      "goes on when the programs that reach it are killed, and doesn't take their end for the other's",
      () =>
        Effect.gen(function*() {
          const sandbox = yield* make()
          const started = yield* sandbox.start({
            command: ["sh", "-c", "read line; until [ -e /tmp/go ]; do sleep 0.05; done; echo $line"],
            stdinLine: Redacted.make("here"),
            log: "/tmp/log"
          })
          const [client] = yield* clientsOf(sandbox.id)
          process.kill(client!, "SIGKILL")
          yield* eventually(Effect.map(clientsOf(sandbox.id), (clients) => clients.length === 0))
          assert.isTrue(Option.isNone(yield* started.exitCode))
          yield* sandbox.writeFile("/tmp/go", new Uint8Array())
          yield* eventually(Effect.map(sh(sandbox, "cat /tmp/log"), (log) => log === "here"))
          assert.isTrue(Option.isNone(yield* started.exitCode))
        }),
      60_000
    )

    it.effect(
      "tells what's wrong with a container, a file, the engine and the program that asks it",
      () =>
        Effect.gen(function*() {
          const { client, image } = yield* Docker.Docker
          const gone = yield* reason(DockerSandbox.attach({ client, container: "no-such-container" }))
          assert.deepInclude(gone, { _tag: "NotFound", problem: "No such container: no-such-container" })

          const unreachable = ["docker", "--host", "unix:///no/such/socket"] as const
          assert.strictEqual((yield* reason(make({ client: unreachable })))._tag, "Transient")
          assert.strictEqual((yield* reason(DockerSandbox.list({ client: unreachable })))._tag, "Transient")
          assert.deepInclude(yield* reason(DockerSandbox.make({ client: ["no-such-docker"], image })), {
            _tag: "Unsupported",
            problem: "there is no program no-such-docker"
          })
          for (const wrong of [{ image: "Not A Name" }, { memory: "much" }, { cpus: 10_000 }, { network: "no-such" }]) {
            assert.strictEqual((yield* reason(make(wrong)))._tag, "Unsupported", JSON.stringify(wrong))
          }

          const sandbox = yield* make({ user: "agent" })
          assert.strictEqual((yield* reason(sandbox.writeFile("/file", new Uint8Array())))._tag, "Denied")
          assert.strictEqual((yield* reason(sandbox.readFile("/etc/shadow")))._tag, "Denied")
          assert.strictEqual((yield* reason(sandbox.readFile("/etc/passwd/x")))._tag, "Unsupported")
          const denied = sandbox.start({ command: ["true"], stdinLine: Redacted.make("x"), log: "/etc/log" })
          assert.strictEqual((yield* reason(denied))._tag, "Denied")
          const file = sandbox.run({ command: ["true"], cwd: "/etc/passwd", timeout: "5 seconds" })
          assert.deepInclude(yield* reason(file), { _tag: "Unsupported", problem: "/etc/passwd: Not a directory" })
        }),
      60_000
    )
  })
})
