/**
 * Where a bridge and its agent run: what a launcher asks of any sandbox.
 *
 * A `Sandbox` is one live sandbox. Whoever makes it, by a layer of its provider, also stops or destroys it; the
 * interface only starts programs in it, reads and writes its files, and says how its ports are reached.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"

/**
 * A program that goes on in the sandbox when its caller has gone.
 *
 * @category models
 * @since 0.1.0
 */
export interface StartOptions {
  /** Program and arguments; no shell reads them. */
  readonly command: readonly [string, ...Array<string>]
  /**
   * Written once to the program's standard input, with a newline after it. What follows differs: the input may end,
   * or stay open for ever.
   */
  readonly stdinLine: Redacted.Redacted<string>
  /** The file that standard output and error are appended to; made, with its directory, for its owner alone. */
  readonly log: string
  /** Added to the environment that programs in the sandbox have. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Absent, the sandbox's own. */
  readonly cwd?: string | undefined
}

/**
 * A program that was started.
 *
 * @category models
 * @since 0.1.0
 */
export interface Started {
  /**
   * The exit code, once the program has ended and where the sandbox tells: 127 and 126 where it isn't there or can't
   * be executed, 128 plus the signal's number where a signal ended it. Doesn't wait.
   */
  readonly exitCode: Effect.Effect<Option.Option<number>, SandboxError>
}

/**
 * A command that ends by itself.
 *
 * @category models
 * @since 0.1.0
 */
export interface RunOptions {
  /** Program and arguments; no shell reads them. */
  readonly command: readonly [string, ...Array<string>]
  /** After this the command is killed, with all it started, and the error is `Transient`. */
  readonly timeout: Duration.Input
  /** Added to the environment that programs in the sandbox have. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Absent, the sandbox's own. */
  readonly cwd?: string | undefined
}

/**
 * What came of a command.
 *
 * @category models
 * @since 0.1.0
 */
export interface RunResult {
  /** As `Started.exitCode`. */
  readonly exitCode: number
  /** The first MiB of its standard output, as UTF-8. */
  readonly stdout: string
}

/**
 * How a port of the sandbox is reached now.
 *
 * @category models
 * @since 0.1.0
 */
export interface Endpoint {
  /** An `http:` or `https:` URL. */
  readonly url: URL
  /** What requests must carry to get through to the port, such as a preview token. */
  readonly headers: Readonly<Record<string, Redacted.Redacted<string>>>
}

/**
 * How a program in the sandbox keeps it from being stopped.
 *
 * @category models
 * @since 0.1.0
 */
export interface Use {
  /** What is requested, with `HEAD`; it holds until the sandbox stops. */
  readonly endpoint: Effect.Effect<Endpoint, SandboxError>
  /** How often. */
  readonly every: Duration.Input
}

/**
 * A live sandbox.
 *
 * @category services
 * @since 0.1.0
 */
export class Sandbox extends Context.Service<Sandbox, {
  /** Tells sandboxes of a kind apart. */
  readonly id: string
  /** Such as `local` or `docker`. */
  readonly kind: string
  /** The address that a server in the sandbox listens on to be reached at its endpoint. */
  readonly hostname: string
  /** The ports that can be reached from outside. A launcher picks one of them where it isn't `any`. */
  readonly ports: "any" | readonly [number, ...Array<number>]
  /** Starts a program that outlives the caller; returns when it has started and its line is written. */
  readonly start: (options: StartOptions) => Effect.Effect<Started, SandboxError>
  /** Runs a command to its end. */
  readonly run: (options: RunOptions) => Effect.Effect<RunResult, SandboxError>
  /** Reads a file; `None` where there is none. */
  readonly readFile: (path: string) => Effect.Effect<Option.Option<Uint8Array>, SandboxError>
  /** Writes a file, making its directory and replacing what is there. `mode` is set exactly; absent, 0o644. */
  readonly writeFile: (path: string, content: Uint8Array, mode?: number) => Effect.Effect<void, SandboxError>
  /** How a port is reached; asked anew for every connection, since ports and tokens change. */
  readonly endpoint: (port: number) => Effect.Effect<Endpoint, SandboxError>
  /** Starts or resumes the sandbox. `restarted` says that everything that ran in it is gone. */
  readonly wake: Effect.Effect<"already-running" | "restarted", SandboxError>
  /**
   * Counts as use, where a sandbox that nobody uses is stopped; absent where none is. An open connection to a port is
   * use already, so this is for a host without one: see `keepAwake`.
   */
  readonly keepAlive?: Effect.Effect<void, SandboxError> | undefined
  /**
   * A request that counts as use when it's made from within the sandbox, without a host: its bridge makes it while a
   * turn runs. Absent where nothing is stopped for want of use, or nothing within may prevent it.
   */
  readonly use?: Use | undefined
}>()("@gangway/sandbox/Sandbox") {}

const problem = { problem: Schema.String, cause: Schema.optional(Schema.Defect()) }

/**
 * The sandbox, or the file or directory that was asked for, isn't there.
 *
 * @remedy Create the sandbox, or name what is there.
 * @category errors
 * @since 0.1.0
 */
export class NotFound extends Schema.TaggedError<NotFound>()("NotFound", problem) {
  override get message() {
    return this.problem
  }
}

/**
 * The sandbox is stopped: `wake` starts it.
 *
 * @remedy Call `wake`, and repeat the operation.
 * @client It wakes the sandbox and repeats the operation.
 * @category errors
 * @since 0.1.0
 */
export class NotRunning extends Schema.TaggedError<NotRunning>()("NotRunning", problem) {
  override get message() {
    return this.problem
  }
}

/**
 * It didn't work this time: the same may work later.
 *
 * @remedy Repeat the operation, later each time.
 * @client It repeats the operation for `reconnectFor`.
 * @category errors
 * @since 0.1.0
 */
export class Transient extends Schema.TaggedError<Transient>()("Transient", problem) {
  override get message() {
    return this.problem
  }
}

/**
 * Credentials or permissions don't allow it.
 *
 * @remedy Give the sandbox's provider other credentials, or the user the permission.
 * @category errors
 * @since 0.1.0
 */
export class Denied extends Schema.TaggedError<Denied>()("Denied", problem) {
  override get message() {
    return this.problem
  }
}

/**
 * This sandbox can't do that.
 *
 * @remedy Use another kind of sandbox, or do without.
 * @category errors
 * @since 0.1.0
 */
export class Unsupported extends Schema.TaggedError<Unsupported>()("Unsupported", problem) {
  override get message() {
    return this.problem
  }
}

/**
 * What an operation of a sandbox fails with; the reason says what to do.
 *
 * @remedy By its `reason`: `NotFound`, `NotRunning`, `Transient`, `Denied` or `Unsupported`.
 * @client It is `BridgeUnavailable` with the reason `SandboxFailed` or `StateDirectoryUnusable`, once repeating
 *   doesn't help.
 * @category errors
 * @since 0.1.0
 */
export class SandboxError extends Schema.TaggedError<SandboxError>()("SandboxError", {
  kind: Schema.String,
  operation: Schema.Literals([
    "create",
    "attach",
    "start",
    "run",
    "readFile",
    "writeFile",
    "endpoint",
    "wake",
    "keepAlive",
    "list",
    "remove"
  ]),
  reason: Schema.Union([NotFound, NotRunning, Transient, Denied, Unsupported])
}) {
  override get message() {
    return `${this.kind} sandbox, ${this.operation}: ${this.reason.problem}`
  }
}

/**
 * Keeps the sandbox from being stopped for want of use, until the scope closes: for a host that has other work in it than
 * turns, and no connection to a port. A bridge whose sandbox has a `use` does so itself while a turn runs. A call of `keepAlive` that fails is made again with the next one, 30 s later.
 *
 * @category constructors
 * @since 0.1.0
 */
export const keepAwake: Effect.Effect<void, never, Sandbox | Scope.Scope> = Effect.gen(function*() {
  const { keepAlive } = yield* Sandbox
  if (keepAlive === undefined) return
  yield* Effect.ignore(keepAlive).pipe(Effect.repeat(Schedule.spaced("30 seconds")), Effect.forkScoped)
})
