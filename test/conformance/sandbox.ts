/**
 * What every sandbox must do, as a function of its layer.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Sandbox } from "@gangway/sandbox"
import { Duration, Effect, Layer, Option, Redacted, Schedule, type Scope, Stream } from "effect"
import { ChildProcess } from "effect/unstable/process"

type Shape = Sandbox.Sandbox["Service"]

type Server = (address: { readonly hostname: string; readonly port: number }) => [string, ...Array<string>]
type Services = Layer.Success<typeof BunServices.layer>

/** Runs the suite on the sandbox of a module that exports `layer`, which may ask for Bun's services. */
export const sandboxConformance = <R = never>(options: {
  readonly name: string
  /** Absolute path or specifier of a module whose `layer` reaches the sandbox, for a process of its own. */
  readonly module: string
  readonly layer: Layer.Layer<Sandbox.Sandbox | R, unknown, Services>
  /** How long the layer may take, in milliseconds; 2 minutes. */
  readonly timeout?: number | undefined
  /** Why the suite can't run. */
  readonly skipped?: string | undefined
  /** A program that answers HTTP there; a Bun of this machine. */
  readonly server?: Server | undefined
  /** Stops the sandbox, as somebody else would do it; absent where it can't be stopped. */
  readonly stop?: ((sandbox: Shape) => Effect.Effect<unknown, unknown, R | Services>) | undefined
  /** Makes a sandbox of this kind that's gone, as somebody else would remove it; absent where none can go. */
  readonly gone?: Effect.Effect<Shape, unknown, R | Services | Scope.Scope> | undefined
}) => {
  const layer = Layer.provideMerge(options.layer, BunServices.layer)
  const server = options.server ?? bunServer

  describe(`${options.name} is a sandbox`, {
    skip: options.skipped !== undefined,
    meta: { skipped: options.skipped }
  }, () => {
    it.layer(layer, { timeout: options.timeout ?? 120_000, excludeTestServices: true })((it) => {
      it.effect("hands a program its line once, and the program needs no end of input", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const out = `${directory}/line`
          yield* sandbox.start({
            // Reads one line, writes what else comes within a second, and is done.
            command: ["sh", "-c", `IFS= read -r line; printf '<%s>' "$line" > "$0"; timeout 1 cat >> "$0"; :`, out],
            stdinLine: Redacted.make(`{"token":"a 'quoted' \\"line\\" $HOME \\\\ ü🙂"}`),
            log: `${directory}/log`
          })
          const ended = yield* sandbox.start({
            command: ["sh", "-c", `sleep 1.5; printf end >> "$0"`, out],
            stdinLine: Redacted.make("x"),
            log: `${directory}/log`
          })
          yield* exit(ended)
          assert.strictEqual(yield* content(sandbox, out), `<{"token":"a 'quoted' \\"line\\" $HOME \\\\ ü🙂"}>end`)
        })))

      it.effect("hands over a line of a MiB", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const out = `${directory}/size`
          const started = yield* sandbox.start({
            command: ["sh", "-c", `head -n 1 | wc -c > "$0.part"; mv "$0.part" "$0"`, out],
            stdinLine: Redacted.make("x".repeat(1024 * 1024 - 1)),
            log: `${directory}/log`
          })
          assert.strictEqual(yield* exit(started), 0)
          assert.strictEqual((yield* content(sandbox, out)).trim(), String(1024 * 1024))
        })))

      it.effect("starts what outlives a caller that is killed", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const start = JSON.stringify({
            command: [
              "sh",
              "-c",
              `read line; echo $$ > "$0/pid"; until [ -e "$0/go" ]; do sleep 0.05; done; ` +
              `head -c 200000 /dev/zero; echo out; echo err >&2; echo "$line" > "$0/alive"`,
              directory
            ],
            line: "hello",
            log: `${directory}/log`
          })
          const caller = yield* ChildProcess.make(
            process.execPath,
            [new URL("sandboxCaller.ts", import.meta.url).pathname, options.module, start],
            { stderr: "inherit" }
          )
          yield* caller.stdout.pipe(
            Stream.decodeText,
            Stream.takeUntil((text) => text.includes("started")),
            Stream.runDrain
          )
          yield* eventually(Effect.map(sandbox.readFile(`${directory}/pid`), Option.isSome))
          yield* Effect.ignore(caller.kill({ killSignal: "SIGKILL" }))
          assert.isFalse(yield* caller.isRunning)
          yield* sandbox.writeFile(`${directory}/go`, new Uint8Array())
          yield* eventually(Effect.map(sandbox.readFile(`${directory}/alive`), Option.isSome))
          assert.strictEqual((yield* content(sandbox, `${directory}/alive`)).trim(), "hello")
          const log = yield* content(sandbox, `${directory}/log`)
          assert.strictEqual(log.length, 200_000 + "out\nerr\n".length)
        })))

      it.effect("tells how a started program ended", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const start = (...command: [string, ...Array<string>]) =>
            sandbox.start({ command, stdinLine: Redacted.make("x"), log: `${directory}/log` })
          const running = yield* start("sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, `${directory}/go`)
          assert.isTrue(Option.isNone(yield* running.exitCode))
          assert.strictEqual(yield* exit(yield* start("sh", "-c", "exit 3")), 3)
          assert.strictEqual(yield* exit(yield* start("/no/such/program")), 127)
          assert.strictEqual(yield* exit(yield* start("/")), 126)
          assert.strictEqual(yield* exit(yield* start("sh", "-c", "kill -9 $$")), 137)
          assert.include(yield* content(sandbox, `${directory}/log`), "/no/such/program")
          assert.isTrue(Option.isNone(yield* running.exitCode))
          yield* sandbox.writeFile(`${directory}/go`, new Uint8Array())
          assert.strictEqual(yield* exit(running), 0)
          // One that ends without reading a line that fills the pipe, which is no matter however often.
          for (let i = 0; i < 10; i++) {
            const unread = yield* sandbox.start({
              command: ["true"],
              stdinLine: Redacted.make("x".repeat(1024 * 1024 - 1)),
              log: `${directory}/log`
            })
            assert.strictEqual(yield* exit(unread), 0)
          }
        })))

      it.effect("runs commands and gives their output and exit code", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const result = yield* sandbox.run({
            command: ["sh", "-c", `printf '%s|' "$@" "$NAME" "$PWD"; exit 7`, "sh", "a b", "", "$x", "'"],
            env: { NAME: "ü" },
            cwd: directory,
            timeout: "10 seconds"
          })
          assert.deepStrictEqual(result, { exitCode: 7, stdout: `a b||$x|'|ü|${directory}|` })
          const missing = yield* sandbox.run({ command: ["/no/such/program"], timeout: "10 seconds" })
          assert.deepStrictEqual(missing, { exitCode: 127, stdout: "" })
          const much = yield* sandbox.run({
            command: ["head", "-c", "3000000", "/dev/zero"],
            timeout: "10 seconds"
          })
          assert.deepStrictEqual([much.exitCode, much.stdout.length], [0, 1024 * 1024])
        })))

      it.effect("kills a command and all it started when its time is over", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const [elapsed, error] = yield* sandbox.run({
            command: [
              "sh",
              "-c",
              `trap '' TERM; (trap '' TERM; sleep 2; echo late > "$0/late") & sleep 2; :`,
              directory
            ],
            timeout: "300 millis"
          }).pipe(Effect.flip, Effect.timed)
          assert.strictEqual(error.reason._tag, "Transient")
          assert.isBelow(Duration.toMillis(elapsed), 1_900)
          yield* Effect.sleep("1200 millis")
          assert.isTrue(Option.isNone(yield* sandbox.readFile(`${directory}/late`)))
        })))

      it.effect("reads and writes files of any bytes and modes, and tells when there is none", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 7) % 256)
          const file = `${directory}/new/sub dir/ünï 🙂 'q' "d" $x.bin`
          yield* sandbox.writeFile(file, bytes, 0o600)
          assert.deepStrictEqual(
            Option.map(yield* sandbox.readFile(file), (read) => Buffer.compare(read, bytes)),
            Option.some(0)
          )
          assert.strictEqual(yield* mode(sandbox, file), "600")
          yield* sandbox.writeFile(file, new Uint8Array([0]), 0o755)
          assert.deepStrictEqual(Array.from(Option.getOrThrow(yield* sandbox.readFile(file))), [0])
          assert.strictEqual(yield* mode(sandbox, file), "755")
          yield* sandbox.writeFile(`${directory}/plain`, new Uint8Array())
          assert.strictEqual(yield* mode(sandbox, `${directory}/plain`), "644")
          assert.isTrue(Option.isNone(yield* sandbox.readFile(`${directory}/none`)))
          assert.isTrue(Option.isNone(yield* sandbox.readFile(`${directory}/no/such/directory/none`)))
        })))

      it.effect("makes the log for its owner alone, at any path, and appends to it", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const log = `${directory}/state of 'b'/ü "1" $x/bridge.log`
          for (const word of ["one", "two"]) {
            yield* exit(
              yield* sandbox.start({
                command: ["sh", "-c", `echo ${word}; echo ${word} >&2`],
                stdinLine: Redacted.make("x"),
                log
              })
            )
          }
          assert.strictEqual(yield* content(sandbox, log), "one\none\ntwo\ntwo\n")
          assert.strictEqual(yield* mode(sandbox, log), "600")
          assert.strictEqual(yield* mode(sandbox, log.slice(0, log.lastIndexOf("/"))), "700")
        })))

      it.effect("starts 50 programs at once", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const codes = yield* Effect.forEach(Array.from({ length: 50 }, (_, i) => i), (i) =>
            sandbox.start({
              command: ["sh", "-c", `read line; echo "$line" > "$0"; exit ${i}`, `${directory}/out ${i}`],
              stdinLine: Redacted.make(`line ${i}`),
              log: `${directory}/log ${i}`
            }).pipe(Effect.flatMap(exit)), { concurrency: "unbounded" })
          assert.deepStrictEqual(codes, Array.from({ length: 50 }, (_, i) => i))
          const { stdout } = yield* sandbox.run({
            command: ["sh", "-c", `for i in "$0"/out*; do cat "$i"; done | sort | tr '\\n' ' '`, directory],
            timeout: "20 seconds"
          })
          const lines = Array.from({ length: 50 }, (_, i) => `line ${i}`).sort()
          assert.deepStrictEqual(stdout, `${lines.join(" ")} `)
        })), 60_000)

      it.effect("reaches a port at its endpoint, and is awake", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const port = sandbox.ports === "any" ? 43_117 : sandbox.ports[0]
          const command = server({ hostname: sandbox.hostname, port })
          const started = yield* sandbox.start({ command, stdinLine: Redacted.make("x"), log: `${directory}/log` })
          yield* eventually(answers(sandbox, port))
          assert.isTrue(Option.isNone(yield* started.exitCode))
          assert.strictEqual(yield* sandbox.wake, "already-running")
        })))

      it.effect("fails with a reason", () =>
        within(Effect.fnUntraced(function*(sandbox, directory) {
          const place = yield* Effect.flip(
            sandbox.run({ command: ["true"], cwd: `${directory}/none`, timeout: "5 seconds" })
          )
          assert.strictEqual(place.reason._tag, "NotFound")
          assert.include(place.message, "sandbox, run: ")
          const directoryRead = yield* Effect.flip(sandbox.readFile(directory))
          assert.strictEqual(directoryRead.reason._tag, "Unsupported")
          const directoryWritten = yield* Effect.flip(sandbox.writeFile(directory, new Uint8Array([1])))
          assert.strictEqual(directoryWritten.operation, "writeFile")
          const log = yield* Effect.flip(
            sandbox.start({ command: ["true"], stdinLine: Redacted.make("x"), log: `${directory}/none/../..` })
          )
          assert.strictEqual(log.operation, "start")
        })))

      const { gone, stop } = options

      if (stop !== undefined) {
        it.effect(
          "is woken once it has stopped, keeps its files, and is reached where it's now",
          () =>
            within(Effect.fnUntraced(function*(sandbox, directory) {
              const port = sandbox.ports === "any" ? 43_118 : sandbox.ports[0]
              const command = server({ hostname: sandbox.hostname, port })
              const serve = sandbox.start({ command, stdinLine: Redacted.make("x"), log: `${directory}/log` })
              yield* sandbox.writeFile(`${directory}/file`, new Uint8Array([1]))
              const before = yield* serve
              yield* eventually(answers(sandbox, port))

              yield* stop(sandbox)
              for (const failing of operations(sandbox, directory)) {
                assert.strictEqual((yield* Effect.flip(failing)).reason._tag, "NotRunning")
              }
              assert.strictEqual(yield* sandbox.wake, "restarted")
              assert.strictEqual(yield* sandbox.wake, "already-running")
              assert.notStrictEqual(yield* Effect.map(before.exitCode, Option.getOrUndefined), 0)
              assert.strictEqual(yield* content(sandbox, `${directory}/file`), "\x01")
              assert.isFalse(yield* answers(sandbox, port))

              yield* serve
              yield* eventually(answers(sandbox, port))
            })),
          60_000
        )
      }

      if (gone !== undefined) {
        it.effect("says that it's gone", () =>
          Effect.scoped(Effect.gen(function*() {
            const sandbox = yield* gone
            for (const failing of [...operations(sandbox, "/tmp"), sandbox.wake]) {
              assert.strictEqual((yield* Effect.flip(Effect.asVoid(failing))).reason._tag, "NotFound")
            }
          })), 60_000)
      }
    })
  })
}

const bunServer: Server = ({ hostname, port }) => [
  process.execPath,
  "-e",
  `Bun.serve({ hostname: "${hostname}", port: ${port}, fetch: () => new Response("here") })
   setTimeout(() => process.exit(), 10_000)`
]

const within = <A, E, R>(
  test: (sandbox: Shape, directory: string) => Effect.Effect<A, E, R>
) =>
  Effect.scoped(Effect.gen(function*() {
    const sandbox = yield* Sandbox.Sandbox
    const directory = yield* Effect.acquireRelease(
      Effect.map(sandbox.run({ command: ["mktemp", "-d"], timeout: "10 seconds" }), ({ stdout }) => stdout.trim()),
      (directory) => Effect.ignore(sandbox.run({ command: ["rm", "-rf", directory], timeout: "10 seconds" }))
    )
    return yield* test(sandbox, directory)
  }))

// All of it that takes a sandbox that runs.
const operations = (sandbox: Shape, directory: string): ReadonlyArray<Effect.Effect<unknown, Sandbox.SandboxError>> => [
  sandbox.start({ command: ["true"], stdinLine: Redacted.make("x"), log: `${directory}/log` }),
  sandbox.run({ command: ["true"], timeout: "10 seconds" }),
  sandbox.readFile(`${directory}/none`),
  sandbox.writeFile(`${directory}/other`, new Uint8Array()),
  sandbox.endpoint(sandbox.ports === "any" ? 43_118 : sandbox.ports[0])
]

// A proxy may take the connection, and then has nobody to pass it on to.
const answers = (sandbox: Shape, port: number) =>
  Effect.flatMap(sandbox.endpoint(port), ({ headers, url }) =>
    Effect.promise((signal) =>
      fetch(url, {
        signal,
        keepalive: false,
        headers: Object.entries(headers).map(([name, value]) => [name, Redacted.value(value)])
      }).then((response) => response.status < 500, () => false)
    ))

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("20 millis") }),
    Effect.timeout("20 seconds")
  )

const exit = (started: Sandbox.Started) =>
  started.exitCode.pipe(
    Effect.repeat({ until: Option.isSome, schedule: Schedule.spaced("20 millis") }),
    Effect.map(Option.getOrThrow),
    Effect.timeout("30 seconds")
  )

const content = (sandbox: Shape, file: string) =>
  Effect.map(sandbox.readFile(file), (bytes) => new TextDecoder().decode(Option.getOrThrow(bytes)))

const mode = (sandbox: Shape, file: string) =>
  Effect.map(
    sandbox.run({ command: ["stat", "-c", "%a", file], timeout: "5 seconds" }),
    ({ stdout }) => stdout.trim()
  )
