/**
 * The `docker` program: what is asked of it, and what its messages mean.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as PlatformError from "effect/PlatformError"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { type ChildProcessHandle, ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as Sandbox from "../Sandbox.ts"

export type Operation = Sandbox.SandboxError["operation"]

/** An engine that says nothing for so long is taken for unreachable. */
export const patience = "1 minute"

export interface Client {
  /** Starts the program; its three streams are pipes, or its input is empty. */
  readonly spawn: (
    operation: Operation,
    args: ReadonlyArray<string>,
    stdin: "pipe" | "ignore"
  ) => Effect.Effect<ChildProcessHandle, Sandbox.SandboxError, Scope.Scope>
  /** Runs it to its end, and gives what it printed. `timeout: false` is for what takes as long as it takes. */
  readonly call: (
    operation: Operation,
    args: ReadonlyArray<string>,
    options?: { readonly timeout: false }
  ) => Effect.Effect<string, Sandbox.SandboxError>
}

export const make = Effect.fnUntraced(function*([program, ...global]: readonly [string, ...Array<string>]) {
  const spawner = yield* ChildProcessSpawner

  const spawn: Client["spawn"] = (operation, args, stdin) =>
    Effect.mapError(
      spawner.spawn(ChildProcess.make(program, [...global, ...args], {
        stdin,
        stdout: "pipe",
        stderr: "pipe",
        extendEnv: true,
        forceKillAfter: "500 millis"
      })),
      fromPlatform(program, operation)
    )

  const call: Client["call"] = (operation, args, options) => {
    const called = Effect.gen(function*() {
      const handle = yield* spawn(operation, args, "ignore")
      const stderr = yield* Effect.forkScoped(excerpt(handle.stderr))
      const { exitCode, stdout } = yield* Effect.mapError(
        Effect.gen(function*() {
          const stdout = yield* Stream.mkString(Stream.decodeText(handle.stdout))
          return { stdout, exitCode: yield* handle.exitCode }
        }),
        fromPlatform(program, operation)
      )
      if (exitCode === 0) return stdout
      return yield* fromMessage(operation, yield* Fiber.join(stderr))
    }).pipe(Effect.scoped)
    return options?.timeout === false ? called : patiently(operation)(called)
  }

  return { spawn, call } satisfies Client
})

export const patiently = (operation: Operation) =>
  Effect.timeoutOrElse({
    duration: patience,
    orElse: () => Effect.fail(error(operation, new Sandbox.Transient({ problem: "the engine doesn't answer" })))
  })

export const error = (operation: Operation, reason: Sandbox.SandboxError["reason"]) =>
  new Sandbox.SandboxError({ kind: "docker", operation, reason })

const maxExcerpt = 4096

/** The beginning of what is read to its end. */
export const excerpt = <E, R>(bytes: Stream.Stream<Uint8Array, E, R>): Effect.Effect<string, never, R> =>
  bytes.pipe(
    Stream.decodeText,
    Stream.runFold(() => "", (text, more) => text.length < maxExcerpt ? (text + more).slice(0, maxExcerpt) : text),
    Effect.orElseSucceed(() => "")
  )

const fromPlatform = (program: string, operation: Operation) => (cause: PlatformError.PlatformError) => {
  switch (cause.reason._tag) {
    case "NotFound":
      return error(operation, new Sandbox.Unsupported({ problem: `there is no program ${program}`, cause }))
    case "PermissionDenied":
      return error(operation, new Sandbox.Denied({ problem: `${program} can't be run`, cause }))
    default:
      return error(operation, new Sandbox.Transient({ problem: cause.message, cause }))
  }
}

type Reason =
  | typeof Sandbox.NotFound
  | typeof Sandbox.NotRunning
  | typeof Sandbox.Transient
  | typeof Sandbox.Denied
  | typeof Sandbox.Unsupported

// In this order: what an engine says about a container may hold words of another line.
const meanings: ReadonlyArray<readonly [RegExp, Reason]> = [
  [/is restarting|removal of container .* is already in progress|marked for removal/i, Sandbox.Transient],
  [/is not running|is paused|is not paused|a paused container|container .* is stopped/i, Sandbox.NotRunning],
  [/in a stopped (container|state|process)/i, Sandbox.NotRunning],
  [/permission denied while trying to connect|access denied|unauthorized|authentication required/i, Sandbox.Denied],
  [/permission denied \(publickey|host key verification failed|x509:|tls: /i, Sandbox.Denied],
  [/no such (container|image)|manifest unknown|repository .* not found|name unknown/i, Sandbox.NotFound],
  [/unable to resolve docker endpoint|client version .* is too (new|old)|http response to https/i, Sandbox.Unsupported],
  [
    /is the docker daemon running|error during connect|no such host|i\/o timeout|connection refused/i,
    Sandbox.Transient
  ],
  [/port is already allocated|address already in use/i, Sandbox.Transient],
  [/no space left|cannot allocate memory|temporarily unavailable|too many open files/i, Sandbox.Transient],
  [/executable file not found|unable to find user|exec format error|runtime create failed/i, Sandbox.Unsupported],
  // What the program makes of its own arguments.
  [/^docker: (?!error response)|^(run|see) 'docker .*--help'|unknown (flag|shorthand)/im, Sandbox.Unsupported],
  [/invalid (reference|argument|value|mount|spec|port)|is invalid|conflicting options/i, Sandbox.Unsupported],
  [/no matching (manifest|entries)|bind source path does not exist|network .* not found/i, Sandbox.Unsupported],
  [/is already in use by container|not a valid|must be|minimum memory limit|range of cpus/i, Sandbox.Unsupported]
]

/** What the `docker` program or its engine says instead of doing what was asked. */
export const fromMessage = (operation: Operation, text: string): Sandbox.SandboxError => {
  const Reason = meanings.find(([pattern]) => pattern.test(text))?.[1] ?? Sandbox.Transient
  const said = text.split("\n").map((line) => line.trim()).filter((line) =>
    line !== "" && !line.startsWith("Run 'docker") && !line.startsWith("See 'docker") && !line.startsWith("WARNING:")
  )
  const problem = said.join("; ").replaceAll(/(docker: )?Error( response from daemon)?: /g, "")
  return error(operation, new Reason({ problem: problem === "" ? "docker failed without a word" : problem }))
}

/** What a command in the container says of a file: its message ends with the system's own words. */
export const fromFile = (operation: Operation, text: string): Sandbox.SandboxError => {
  const problem = text.trim().split("\n").at(-1) ?? ""
  const Reason = fileReason(problem)
  return error(operation, new Reason({ problem }))
}

const fileReason = (problem: string): Reason => {
  if (/(no such file or directory|directory nonexistent|nonexistent directory)$/i.test(problem)) return Sandbox.NotFound
  if (/(permission denied|not permitted|read-only file system)$/i.test(problem)) return Sandbox.Denied
  if (/(directory|file exists|invalid argument|file name too long|busy)$/i.test(problem)) return Sandbox.Unsupported
  return Sandbox.Transient
}
