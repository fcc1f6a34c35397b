import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { DockerSandbox, type Sandbox } from "@gangway/sandbox"
import { Effect, Fiber, FileSystem, Layer, Option, Redacted, Schedule } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/unstable/process"
import * as Docker from "../../../test/docker/Docker.ts"

const reason = <A, R>(effect: Effect.Effect<A, Sandbox.SandboxError, R>) =>
  Effect.map(Effect.flip(effect), (error) => error.reason)

const docker = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
  const { client: [program, ...global] } = yield* Docker.Docker
  const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
  return (yield* spawner.string(ChildProcess.make(program, [...global, ...args]))).trim()
})

const seen = (sandbox: Sandbox.Sandbox["Service"], file: string) =>
  sandbox.readFile(file).pipe(
    Effect.repeat({ until: Option.isSome, schedule: Schedule.spaced("20 millis") }),
    Effect.timeout("20 seconds")
  )

// What programs and engines of several versions say, and what that is to a launcher.
const said: ReadonlyArray<readonly [message: string, reason: Sandbox.SandboxError["reason"]["_tag"]]> = [
  ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "Transient"],
  [`error during connect: Get "http://foo:2375/v1.50/info": dial tcp: lookup foo: no such host`, "Transient"],
  ["Error response from daemon: <html><body>502 Bad Gateway</body></html>", "Transient"],
  ["Error response from daemon: toomanyrequests: You have reached your pull rate limit.", "Transient"],
  ["Error response from daemon: write /var/lib/docker/tmp/x: no space left on device", "Transient"],
  ["Error response from daemon: OCI runtime create failed: runc: fork/exec: cannot allocate memory", "Transient"],
  ["Error response from daemon: container is marked for removal and cannot be started", "Transient"],
  [`Failed to initialize: unable to resolve docker endpoint: context "x": context not found`, "Unsupported"],
  ["Error response from daemon: client version 1.50 is too new. Maximum supported API version is 1.41", "Unsupported"],
  ["docker: invalid hostPort: 99999\n\nRun 'docker create --help' for more information", "Unsupported"],
  ["docker: opening seccomp profile (/x) failed: open /x: no such file or directory", "Unsupported"],
  ["Error response from daemon: the working directory 'x' is invalid, it needs to be an absolute path", "Unsupported"],
  ["Error response from daemon: OCI runtime create failed: not a directory: unknown", "Unsupported"],
  ["Error response from daemon: exec format error", "Unsupported"],
  ["permission denied while trying to connect to the Docker daemon socket at unix:///x", "Denied"],
  ["error during connect: ssh has exited: stderr=a@b: Permission denied (publickey).", "Denied"],
  [`error during connect: Get "https://x:2376/": tls: failed to verify certificate: x509: unknown authority`, "Denied"],
  ["Error response from daemon: pull access denied for x, repository does not exist", "Denied"],
  ["Error response from daemon: No such container: x", "NotFound"],
  ["Error response from daemon: manifest for x:y not found: manifest unknown", "NotFound"],
  ["Error response from daemon: Container x is not running", "NotRunning"],
  ["OCI runtime exec failed: exec failed: cannot exec in a stopped container: unknown", "NotRunning"]
]

describe("a docker program that fails", () => {
  it.live("says what to do about it", () =>
    Effect.gen(function*() {
      for (const [message, tag] of said) {
        const client = ["sh", "-c", `printf '%s\n' "$0" >&2; exit 1`, message] as const
        const found = yield* reason(DockerSandbox.list({ client }))
        assert.strictEqual(found._tag, tag, message)
        assert.isNotEmpty(found.problem)
      }
    }).pipe(Effect.provide(BunServices.layer)))
})

describe("DockerSandbox", {
  skip: Docker.skipped !== undefined,
  meta: { skipped: Docker.skipped }
}, () => {
  it.layer(Layer.mergeAll(Docker.layer, BunServices.layer), {
    timeout: Docker.patience,
    excludeTestServices: true
  })((it) => {
    it.effect(
      "leaves nothing behind where the docker program is killed, at whichever step",
      () =>
        Effect.gen(function*() {
          const { client, image } = yield* Docker.Docker
          const fileSystem = yield* FileSystem.FileSystem
          const file = yield* fileSystem.makeTempFileScoped()
          // Dies once, in the first command of that name, before it's done or after it is and before it's told.
          yield* fileSystem.writeFileString(
            file,
            `step=$1 when=$2 mark=$3; shift 3
for word; do
  if [ "$word" = "$step" ] && [ ! -e "$mark" ]; then
    : >"$mark"
    [ "$when" = before ] || "$@" >/dev/null
    kill -9 $$
  fi
done
exec "$@"`
          )
          const labels = { "gangway-test": `${process.pid}` }
          const left = docker("ps", "--all", "--quiet", "--filter", `label=gangway-test=${process.pid}`)
          for (const step of ["create", "start", "container"]) {
            for (const when of ["before", "after"]) {
              const mark = `${file}-${step}-${when}`
              const dying = ["sh", file, step, when, mark, ...client] as const
              const found = yield* reason(DockerSandbox.make({ client: dying, image, labels, keep: true }))
              assert.strictEqual(found._tag, "Transient", mark)
              assert.isTrue(yield* fileSystem.exists(mark))
              yield* fileSystem.remove(mark)
              assert.strictEqual(yield* left, "", mark)
            }
          }
        }).pipe(Effect.scoped),
      120_000
    )

    it.effect(
      "tells of a command whose container is stopped, removed or renamed while it runs",
      () =>
        Effect.gen(function*() {
          const { client, image } = yield* Docker.Docker
          const sandbox = yield* DockerSandbox.make({ client, image })
          const running = sandbox.run({ command: ["sh", "-c", "touch /tmp/runs; sleep 100"], timeout: "1 minute" })
          const meanwhile = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
            yield* sandbox.run({ command: ["rm", "-f", "/tmp/runs"], timeout: "10 seconds" })
            const fiber = yield* Effect.forkScoped(reason(running))
            yield* seen(sandbox, "/tmp/runs")
            yield* docker(...args)
            return yield* Fiber.join(fiber)
          })
          yield* docker("rename", sandbox.id, `gangway-renamed-${process.pid}`)
          assert.isTrue(Option.isNone(yield* sandbox.readFile("/tmp/none")))
          const killed = yield* meanwhile("kill", sandbox.id)
          assert.deepInclude(killed, { _tag: "Transient" })
          assert.include(killed.problem, "before it ended")
          assert.strictEqual((yield* reason(running))._tag, "NotRunning")
          assert.strictEqual(yield* sandbox.wake, "restarted")
          assert.deepInclude(yield* meanwhile("rm", "--force", sandbox.id), { _tag: "Transient" })
          assert.strictEqual((yield* reason(running))._tag, "NotFound")
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect(
      "tells what doesn't work where nothing may be written, and leaves no halves where the disk is full",
      () =>
        Effect.gen(function*() {
          const { client, image } = yield* Docker.Docker
          const attached = Effect.fnUntraced(function*(...options: ReadonlyArray<string>) {
            const id = yield* Effect.acquireRelease(
              docker("run", "--detach", "--init", ...options, image, "sleep", "1000"),
              (id) => Effect.ignore(docker("rm", "--force", id))
            )
            return yield* DockerSandbox.attach({ client, container: id })
          })
          const line = Redacted.make("x")
          const closed = yield* attached("--read-only", "--cap-drop", "ALL", "--user", "4711:4711")
          assert.strictEqual((yield* reason(closed.writeFile("/tmp/x", new Uint8Array(1))))._tag, "Denied")
          const start = closed.start({ command: ["true"], stdinLine: line, log: "/var/tmp/x/log" })
          assert.strictEqual((yield* reason(start))._tag, "Denied")
          assert.isTrue(Option.isNone(yield* closed.readFile("/tmp/x")))
          const { stdout } = yield* closed.run({ command: ["id", "-u"], timeout: "10 seconds" })
          assert.strictEqual(stdout, "4711\n")

          const full = yield* attached("--tmpfs", "/full:size=100k", "--read-only")
          yield* full.writeFile("/full/kept", new Uint8Array(10))
          for (const file of ["/full/kept", "/full/new"]) {
            assert.strictEqual((yield* reason(full.writeFile(file, new Uint8Array(300_000))))._tag, "Transient")
          }
          const listed = yield* full.run({ command: ["ls", "/full"], timeout: "10 seconds" })
          assert.strictEqual(listed.stdout, "kept\n")
          assert.strictEqual(Option.getOrThrow(yield* full.readFile("/full/kept")).length, 10)
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect("understands an image whose commands speak another language", () =>
      Effect.gen(function*() {
        const { client, image } = yield* Docker.Docker
        const sandbox = yield* DockerSandbox.make({ client, image, env: { LC_ALL: "de_DE.UTF-8" } })
        const german = `#!/bin/busybox sh
if [ "$LC_ALL" = C ] || busybox cat "$@" 2>/dev/null; then exec busybox cat "$@"; fi
echo "cat: Datei oder Verzeichnis nicht gefunden" >&2; exit 1
`
        yield* sandbox.writeFile("/tmp/cat", new TextEncoder().encode(german), 0o755)
        // Busybox's own shell would find them in itself.
        const place = "mv /tmp/cat /bin/cat; ln -sf bash /bin/sh"
        yield* sandbox.run({ command: ["sh", "-c", place], timeout: "10 seconds" })
        const { exitCode } = yield* sandbox.run({ command: ["cat", "/none"], timeout: "10 seconds" })
        assert.strictEqual(exitCode, 1)
        assert.isTrue(Option.isNone(yield* sandbox.readFile("/none")))
        // Programs have the image's own.
        const { stdout } = yield* sandbox.run({ command: ["sh", "-c", "echo $LC_ALL"], timeout: "10 seconds" })
        assert.strictEqual(stdout, "de_DE.UTF-8\n")
      }).pipe(Effect.scoped), 60_000)
  })
})
