/**
 * Programs in a Daytona sandbox, each in a session of Daytona's own.
 */
import type { Sandbox as SdkSandbox } from "@daytona/sdk"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Sandbox from "../Sandbox.ts"
import * as Errors from "./daytonaErrors.ts"
import * as Shell from "./daytonaShell.ts"
import { running } from "./daytonaWake.ts"

// In seconds: what takes no longer by itself.
const shortTimeout = 30

// How often input is refused before it's taken, at 100 ms and a call's time each. A long line may then wait for the
// program to read it, for as long as a request may take.
const maxRefusals = 80

/** A name that nothing else has. */
export const makeId = Effect.map(
  Effect.all([Random.nextInt, Random.nextInt]),
  (parts) => `gangway-${parts.map((part) => Math.abs(part).toString(36)).join("")}`
)

/**
 * Calls the sandbox's own API. What it fails with while the sandbox isn't running says anything, so then the state is
 * asked for; and what says nothing of the call while the sandbox runs is of the moment.
 */
export const inside = <A>(
  operation: Sandbox.SandboxError["operation"],
  sdk: SdkSandbox,
  call: () => Promise<A>
): Effect.Effect<A, Sandbox.SandboxError> =>
  Effect.tryPromise(call).pipe(
    Effect.catch(({ cause }) => {
      const error = Errors.toError(operation)(cause)
      if (Errors.isFromInside(cause)) return Effect.fail(error)
      return Effect.andThen(
        running(operation, sdk),
        Effect.fail(
          error.reason._tag === "Unsupported"
            ? Errors.error(operation, new Sandbox.Transient({ problem: error.reason.problem, cause }))
            : error
        )
      )
    })
  )

/** Runs a script of ours to its end; its output is both standard output and error. */
export const runScript = (
  operation: Sandbox.SandboxError["operation"],
  sdk: SdkSandbox,
  script: string,
  args: ReadonlyArray<string>,
  options: { readonly env?: Readonly<Record<string, string>> | undefined; readonly timeout?: number } = {}
): Effect.Effect<{ readonly exitCode: number; readonly result: string }, Sandbox.SandboxError> =>
  inside(operation, sdk, () =>
    sdk.process.executeCommand(
      Shell.scriptText(script, args),
      undefined,
      options.env,
      options.timeout ?? shortTimeout
    )).pipe(
      Effect.filterOrFail(
        (answer) => typeof answer?.exitCode === "number" && typeof answer.result === "string",
        () => Errors.odd(operation)
      )
    )

/** Starts a program. */
export const start = Effect.fnUntraced(function*(sdk: SdkSandbox, options: Sandbox.StartOptions) {
  const { command, cwd = "", env = {}, log } = options
  const prepared = yield* runScript("start", sdk, Shell.prepareScript, [log, Shell.parentOf(log), cwd])
  if (prepared.exitCode !== 0) return yield* Errors.toScriptError("start", prepared.result)

  const session = yield* makeId
  const remove = Effect.ignore(Effect.tryPromise(() => sdk.process.deleteSession(session)))
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  return yield* Effect.acquireUseRelease(
    inside("start", sdk, () => sdk.process.createSession(session)),
    Effect.fnUntraced(function*() {
      const { cmdId } = yield* inside("start", sdk, () =>
        sdk.process.executeSessionCommand(session, {
          command: Shell.scriptText(Shell.startScript, [
            log,
            cwd,
            ...(variables.length === 0 ? [] : ["env", ...variables]),
            ...command
          ]),
          runAsync: true,
          // It would write the line to a file that anyone in the sandbox may read, and that the API shows.
          suppressInputEcho: true
        })).pipe(Effect.filterOrFail((answer) => typeof answer?.cmdId === "string", () => Errors.odd("start")))
      let ended: number | undefined
      // Removed as soon as it's of no more use: until then it holds a shell.
      const exitCode = Effect.suspend(() =>
        ended !== undefined
          ? Effect.succeedSome(ended)
          : inside("start", sdk, () => sdk.process.getSessionCommand(session, cmdId)).pipe(
            Effect.filterOrFail((answer) => typeof answer?.id === "string", () => Errors.odd("start")),
            Effect.flatMap(({ exitCode }) => {
              if (exitCode === undefined) return Effect.succeedNone
              ended = exitCode
              return Effect.as(remove, Option.some(exitCode))
            }),
            // The sandbox runs without it: it was stopped in between, or somebody removed the session. Or it was removed
            // above, for another who asked.
            Effect.catchIf(
              ({ reason }) => reason._tag === "NotFound" && Errors.statusOf(reason.cause) === 404,
              () => Effect.succeedSome(ended ?? 137)
            )
          )
      )
      yield* write(sdk, session, cmdId, options.stdinLine, exitCode)
      return { exitCode } satisfies Sandbox.Started
    }),
    (_, exit) => Exit.isFailure(exit) ? remove : Effect.void
  )
})

// The pipe is made after the call that starts the command has returned: until then input is refused, with the status
// 500 and nothing written. Once the command has ended it's refused in the same way, or waits for a reader for ever, so
// the exit code is looked for meanwhile. Nothing of these errors is handed on, for they may quote what was written.
const write = Effect.fnUntraced(function*(
  sdk: SdkSandbox,
  session: string,
  command: string,
  line: Redacted.Redacted<string>,
  exitCode: Sandbox.Started["exitCode"]
) {
  const failed = (status: number | undefined) =>
    Errors.error(
      "start",
      new Sandbox.Transient({
        problem: `the program's input can't be written${status === undefined ? "" : ` (HTTP ${status})`}`
      })
    )
  const written = Effect.tryPromise({
    try: () => sdk.process.sendSessionCommandInput(session, command, `${Redacted.value(line)}\n`),
    catch: (cause) => ({ status: Errors.statusOf(cause) })
  })
  const ended = exitCode.pipe(
    Effect.orElseSucceed(Option.none),
    Effect.delay("250 millis"),
    Effect.repeat({ until: Option.isSome })
  )
  yield* written.pipe(
    Effect.retry({
      times: maxRefusals,
      schedule: Schedule.spaced("100 millis"),
      while: ({ status }) => status === 500
    }),
    // It has ended, and that has been told.
    Effect.catchIf(({ status }) => status === 410, () => Effect.void),
    Effect.mapError(({ status }) => failed(status)),
    Effect.raceFirst(ended)
  )
})
