/**
 * The machine the host runs on as a sandbox: programs are processes of the host's user, files are its files.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import type * as PlatformError from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import { feed } from "./internal/feed.ts"
import * as Sandbox from "./Sandbox.ts"

/**
 * Makes the local sandbox.
 *
 * Programs get the host's environment and what is added to it. A started one is in a session of its own, with a file
 * for its output, so that neither the host's end nor a closed terminal reaches it. POSIX only: it asks for `sh`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: Effect.Effect<
  Sandbox.Sandbox["Service"],
  never,
  ChildProcessSpawner | FileSystem.FileSystem | Path.Path
> = Effect.gen(function*() {
  const spawner = yield* ChildProcessSpawner
  const fileSystem = yield* FileSystem.FileSystem
  const path = yield* Path.Path

  const makeParent = (file: string, mode: number) =>
    fileSystem.makeDirectory(path.dirname(file), { recursive: true, mode })

  return Sandbox.Sandbox.of({
    id: "local",
    kind: "local",
    hostname: "127.0.0.1",
    ports: "any",

    start: Effect.fnUntraced(
      function*(options) {
        yield* makeParent(options.log, 0o700)
        yield* fileSystem.writeFile(options.log, new Uint8Array(), { flag: "a", mode: 0o600 })
        const handle = yield* spawner.spawn(
          ChildProcess.make("sh", ["-c", startScript, options.log, ...options.command], {
            ...placed(options),
            stdin: "pipe",
            stdout: "ignore",
            stderr: "ignore"
          })
        )
        // From here on the scope's end leaves it alone, and the host may exit.
        yield* Effect.asVoid(handle.unref)
        // A program that ended without reading is told by its exit code.
        yield* feed(handle, new TextEncoder().encode(`${Redacted.value(options.stdinLine)}\n`), handle.exitCode)
        return {
          exitCode: Effect.gen(function*() {
            if (yield* Effect.orDie(handle.isRunning)) return Option.none()
            // It fails only where a signal ended the shell, which is then all that's known.
            return yield* Effect.orElseSucceed(Effect.asSome(handle.exitCode), () => Option.some(128))
          })
        }
      },
      Effect.scoped,
      Effect.mapError(toError("start"))
    ),

    run: (options) =>
      Effect.gen(function*() {
        const handle = yield* spawner.spawn(ChildProcess.make("sh", ["-c", runScript, "sh", ...options.command], {
          ...placed(options),
          stdin: "ignore",
          stdout: "pipe",
          stderr: "ignore",
          forceKillAfter: "100 millis"
        }))
        const stdout = yield* text(handle.stdout)
        return { exitCode: yield* handle.exitCode, stdout }
      }).pipe(
        Effect.scoped,
        Effect.mapError(toError("run")),
        Effect.timeoutOrElse({
          duration: options.timeout,
          orElse: () =>
            Effect.fail(error("run", new Sandbox.Transient({ problem: `${options.command[0]} took too long` })))
        })
      ),

    readFile: (file) =>
      fileSystem.readFile(file).pipe(
        Effect.asSome,
        Effect.catchIf(isNotFound, () => Effect.succeedNone),
        Effect.mapError(toError("readFile"))
      ),

    writeFile: Effect.fnUntraced(function*(file, content, mode = 0o644) {
      yield* makeParent(file, 0o755)
      yield* fileSystem.writeFile(file, content, { mode })
      // The mode above is for a new file, and less what the process masks.
      yield* fileSystem.chmod(file, mode)
    }, Effect.mapError(toError("writeFile"))),

    endpoint: (port) => Effect.succeed({ url: new URL(`http://127.0.0.1:${port}`), headers: {} }),

    wake: Effect.succeed("already-running")
  })
})

/**
 * The local sandbox.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  Sandbox.Sandbox,
  never,
  ChildProcessSpawner | FileSystem.FileSystem | Path.Path
> = Layer.effect(Sandbox.Sandbox, make)

// A shell stays in between, for its exit codes are those that the interface tells, also for signals and for programs
// that can't be executed. `exit` keeps it from replacing itself with the program.
const runScript = `"$@"; exit $?`

// The log is "$0", so that no path needs quoting.
const startScript = `"$@" >>"$0" 2>&1; exit $?`

const placed = (options: Pick<Sandbox.StartOptions, "cwd" | "env">): ChildProcess.CommandOptions => ({
  cwd: options.cwd,
  env: options.env,
  extendEnv: true,
  detached: true
})

const maxText = 1024 * 1024

const text = Effect.fnUntraced(function*<E, R>(output: Stream.Stream<Uint8Array, E, R>) {
  const decoder = new TextDecoder()
  let out = ""
  let left = maxText
  yield* Stream.runForEach(output, (bytes) =>
    Effect.sync(() => {
      out += decoder.decode(bytes.subarray(0, left), { stream: true })
      left = Math.max(0, left - bytes.length)
    }))
  return out + decoder.decode()
})

const isNotFound = (error: PlatformError.PlatformError) => error.reason._tag === "NotFound"

const error = (
  operation: Sandbox.SandboxError["operation"],
  reason: Sandbox.SandboxError["reason"]
) => new Sandbox.SandboxError({ kind: "local", operation, reason })

const toError = (operation: Sandbox.SandboxError["operation"]) => (cause: PlatformError.PlatformError) => {
  const options = { problem: cause.message, cause }
  switch (cause.reason._tag) {
    case "NotFound":
      return error(operation, new Sandbox.NotFound(options))
    case "PermissionDenied":
      return error(operation, new Sandbox.Denied(options))
    case "AlreadyExists":
    case "BadArgument":
    case "BadResource":
    case "InvalidData":
      return error(operation, new Sandbox.Unsupported(options))
    default:
      return error(operation, isForbidden(cause) ? new Sandbox.Denied(options) : new Sandbox.Transient(options))
  }
}

// What the system never allows, such as to write where all is read-only, and which the platform doesn't tell apart.
const isForbidden = ({ reason: { cause } }: PlatformError.PlatformError): boolean =>
  Predicate.hasProperty(cause, "code") && (cause.code === "EPERM" || cause.code === "EROFS")
