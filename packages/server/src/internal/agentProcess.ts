/**
 * One process of an agent: its pipes. Who descends from it, and how it's ended, is the supervisor's.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import * as Pull from "effect/Pull"
import * as Queue from "effect/Queue"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { type ChildProcessHandle, ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import type { AgentCommand, AgentProcess } from "../Supervisor.ts"

/** The longest line of standard output in bytes. */
export const maxLineBytes = 64 * 1024 * 1024

/** How much of standard error is shown. As much again is kept, so that a secret isn't cut in two by the limit. */
export const stderrTailBytes = 16 * 1024

/** Texts that wait to be written to standard input; the next writer waits. */
const pendingWrites = 16

/** Chunks of standard output, each at most a pipe's worth, that wait for the driver; then the process waits. */
const pendingChunks = 4

/**
 * A descendant may hold the output open after its process has ended. What the process wrote is in the pipe by then:
 * this many turns of waiting for more are enough to read it, and a descendant that writes on and on is cut off.
 */
const waitsAfterExit = 20
const bytesAfterExit = 16 * 1024 * 1024

/** @internal */
export type Exited = Effect.Success<AgentProcess["exit"]>

/** @internal */
export interface Options {
  readonly driver: string
  readonly variable: string
  readonly mark: string
  readonly redact: (text: string) => string
}

/**
 * Starts a process in a group of its own. Its fibers and pipes live in the current scope, the process doesn't end
 * with it. `settled` waits until it has ended and nobody holds its pipes.
 */
export const start = Effect.fnUntraced(function*(command: AgentCommand, options: Options): Effect.fn.Return<
  Omit<AgentProcess, "end"> & { readonly settled: Effect.Effect<void> },
  Bridge.DriverError,
  ChildProcessSpawner | Scope.Scope
> {
  const spawner = yield* ChildProcessSpawner
  const fail = (kind: Bridge.DriverError["kind"], problem: string) =>
    new Bridge.DriverError({ driver: options.driver, kind, problem })

  const handle: ChildProcessHandle = yield* spawner.spawn(ChildProcess.make(command.command, command.args, {
    cwd: command.cwd,
    extendEnv: true,
    env: {
      ...Object.fromEntries(
        Object.entries(command.env).map(([name, value]) => [
          name,
          Redacted.isRedacted(value) ? Redacted.value(value) : value
        ])
      ),
      [options.variable]: options.mark
    },
    detached: true,
    // The spawner signals the group by itself when the process fails, and when the scope closes. Whom to end is the
    // supervisor's to decide, so that signal is one that ends nobody, and `unref` below rules out the second.
    killSignal: "SIGCONT"
  })).pipe(
    // The platform throws where it can't make sense of the arguments.
    Effect.catchDefect((defect) => Effect.fail(fail("start", `${command.command}: ${codeOf(defect)}`))),
    Effect.catchTag("PlatformError", (error) => Effect.fail(startFailure(error)))
  )
  yield* Effect.ignore(handle.unref)

  function startFailure({ reason }: PlatformError): Bridge.DriverError {
    // Not the error's own message: that has the arguments.
    if (reason._tag === "BadArgument") return fail("start", `${command.command}: ${reason.description}`)
    if (reason.method !== "spawn") return fail("start", `the directory ${command.cwd} can't be used (${reason._tag})`)
    return reason._tag === "NotFound"
      ? fail("not-installed", `${command.command} was not found`)
      : fail("start", `${command.command} can't be started (${codeOf(reason.cause)})`)
  }

  const scope = yield* Effect.scope
  const exited = yield* Deferred.make<Exited>()
  yield* handle.exitCode.pipe(
    Effect.match({
      onSuccess: (code): Exited => ({ code, signal: undefined }),
      onFailure: (error): Exited => ({ code: undefined, signal: signalOf(error) })
    }),
    Effect.flatMap((status) => Deferred.succeed(exited, status)),
    Effect.forkIn(scope)
  )
  const exit = Deferred.await(exited)

  const input = yield* Queue.bounded<Uint8Array, Cause.Done>(pendingWrites)
  yield* Stream.run(Stream.fromQueue(input), handle.stdin).pipe(
    Effect.exit,
    // Whoever waits to write is told, whether the process is gone or only closed its input.
    Effect.andThen(Queue.shutdown(input)),
    Effect.forkIn(scope)
  )
  yield* exit.pipe(Effect.andThen(Queue.shutdown(input)), Effect.forkIn(scope))
  // What is still on its way when the process ends comes back as an error event, which must not find nobody listening.
  yield* Stream.run(Stream.never, handle.stdin).pipe(Effect.ignore, Effect.forkIn(scope))
  const encoder = new TextEncoder()

  let tail = new Uint8Array(0)
  const stderr = yield* handle.stderr.pipe(
    Stream.runForEach((chunk) =>
      Effect.sync(() => {
        const kept = Math.min(tail.length, Math.max(0, 2 * stderrTailBytes - chunk.length))
        const next = new Uint8Array(kept + Math.min(chunk.length, 2 * stderrTailBytes))
        next.set(tail.subarray(tail.length - kept))
        next.set(chunk.subarray(chunk.length - (next.length - kept)), kept)
        tail = next
      })
    ),
    Effect.ignore,
    Effect.forkIn(scope)
  )

  const output = yield* Queue.bounded<Uint8Array, Cause.Done>(pendingChunks)
  let afterExit = 0
  const stdout = yield* handle.stdout.pipe(
    Stream.runForEach((chunk) => {
      if (Deferred.isDoneUnsafe(exited) && (afterExit += chunk.length) > bytesAfterExit) {
        return Queue.end(output)
      }
      // Once nobody takes lines any more this doesn't wait, so that nobody blocks on a full pipe or loses its reader.
      return Queue.offer(output, chunk)
    }),
    Effect.ignore,
    Effect.andThen(Queue.end(output)),
    Effect.forkIn(scope)
  )
  yield* exit.pipe(
    Effect.andThen(Effect.sleep(50)),
    Effect.andThen(Effect.gen(function*() {
      let waits = 0
      while (waits < waitsAfterExit) {
        yield* Effect.sleep(50)
        if ((yield* Queue.size(output)) === 0) waits++
      }
      yield* Queue.end(output)
    })),
    Effect.forkIn(scope)
  )

  return {
    pid: handle.pid,
    write: (text) =>
      text === "" ? Effect.void : Effect.flatMap(
        Queue.offer(input, encoder.encode(text)),
        (taken) => taken ? Effect.void : fail("exit", `${command.command} takes no more input`)
      ),
    endInput: Effect.asVoid(Queue.end(input)),
    lines: Stream.fromQueue(output).pipe(
      splitLines((bytes) => fail("protocol", `a line of output is longer than ${bytes} bytes`)),
      Stream.ensuring(Queue.shutdown(output))
    ),
    stderr: Effect.sync(() => {
      const text = new TextDecoder().decode(tail)
      const redacted = new TextEncoder().encode(options.redact(text))
      return new TextDecoder().decode(redacted.subarray(Math.max(0, redacted.length - stderrTailBytes)))
    }),
    exit,
    settled: exit.pipe(
      Effect.andThen(Effect.sleep("1 second")),
      Effect.andThen(Fiber.awaitAll([stderr, stdout])),
      Effect.asVoid
    )
  }
})

/**
 * Cuts bytes into lines, and decodes each when it's whole, so that no character is ever cut.
 */
export const splitLines =
  (tooLong: (bytes: number) => Bridge.DriverError, maxBytes = maxLineBytes) =>
  (self: Stream.Stream<Uint8Array>): Stream.Stream<string, Bridge.DriverError> =>
    Stream.transformPull(self, (pull) =>
      Effect.sync(() => {
        const decoder = new TextDecoder()
        let pending: Array<Uint8Array> = []
        let pendingBytes = 0
        let done = false

        const decode = (last: Uint8Array): string => {
          const line = pending.length === 0 ? last : concat([...pending, last], pendingBytes + last.length)
          pending = []
          pendingBytes = 0
          return decoder.decode(line.at(-1) === 0x0d ? line.subarray(0, -1) : line)
        }

        const next: Pull.Pull<readonly [string, ...Array<string>], Bridge.DriverError> = Effect.suspend(() => {
          if (done) return Cause.done()
          return Pull.matchEffect(pull, {
            onSuccess: (chunks) => {
              const lines: Array<string> = []
              for (const chunk of chunks) {
                let from = 0
                for (let at = chunk.indexOf(0x0a); at >= 0; at = chunk.indexOf(0x0a, from)) {
                  lines.push(decode(chunk.subarray(from, at)))
                  from = at + 1
                }
                if (from < chunk.length) {
                  pending.push(chunk.subarray(from))
                  pendingBytes += chunk.length - from
                  if (pendingBytes > maxBytes) return Effect.fail(tooLong(maxBytes))
                }
              }
              return Predicate.isTupleOfAtLeast(lines, 1) ? Effect.succeed(lines) : next
            },
            onFailure: Effect.failCause,
            onDone: () => {
              done = true
              return pendingBytes === 0 ? Cause.done() : Effect.succeed([decode(new Uint8Array(0))] as const)
            }
          })
        })
        return next
      }))

const concat = (chunks: ReadonlyArray<Uint8Array>, length: number): Uint8Array => {
  const whole = new Uint8Array(length)
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
  }
  return whole
}

const codeOf = (cause: unknown): string =>
  Predicate.hasProperty(cause, "code") && Predicate.isString(cause.code) ? cause.code : "unknown"

/** The spawner tells a signal only in the message of its error. */
const signalOf = (error: PlatformError): string | undefined =>
  error.reason.cause instanceof Error ? /'(SIG[A-Z0-9]+)'/.exec(error.reason.cause.message)?.[1] : undefined
