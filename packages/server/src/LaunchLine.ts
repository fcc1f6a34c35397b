/**
 * The line of JSON by which a host launches a bridge.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Runtime from "effect/Runtime"
import * as Schema from "effect/Schema"
import type * as SchemaIssue from "effect/SchemaIssue"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"

/**
 * The launch line can't be used. The message is one line that names the field and what was expected, and never holds a
 * value.
 *
 * @remedy Correct the field that it names: docs/protocol.md, "1. Launch", says what each may be.
 * @client It is `BridgeUnavailable` with the reason `LaunchFailed`, or `InvalidOptions` where the client sees it
 *   before the launch; both are final.
 * @category errors
 * @since 0.1.0
 */
export class LaunchLineError extends Data.TaggedError("LaunchLineError")<{
  /** Where in the line, such as `token` or `agentOptions.agent`; absent where it's the line itself. */
  readonly field: string | undefined
  readonly expected: string
}> {
  override get message() {
    return `launch line: ${this.field === undefined ? "" : `${this.field}: `}${this.expected}`
  }

  /** What `runMain` exits with, `Bridge.ExitCode.launchLine`. */
  override readonly [Runtime.errorExitCode] = Bridge.ExitCode.launchLine
}

/**
 * Reads the launch options from standard input: exactly one line of at most 1 MiB, ended by a newline or by the end of
 * input, within 60 s. What comes after it is never looked at, and neither is whether anything comes. Fields that this
 * version doesn't know are ignored, so that a newer host can launch an older bridge.
 *
 * The token is a string: wrap it in `Redacted` at once.
 *
 * @category constructors
 * @since 0.1.0
 */
export const readLaunchOptions: Effect.Effect<Bridge.LaunchOptions, LaunchLineError, Stdio.Stdio> = Effect.suspend(() =>
  readLine
).pipe(
  Effect.timeoutOrElse({
    duration: "60 seconds",
    orElse: () => fail("expected a line of JSON, ended by a newline, within 60 seconds")
  }),
  Effect.flatMap((line) => decodeLine(line))
)

/**
 * Decodes the agent options of a launch line as a driver's own.
 *
 * @category constructors
 * @since 0.1.0
 */
export const decodeAgentOptions = <S extends Schema.Constraint & { readonly DecodingServices: never }>(
  schema: S
): (options: Bridge.AgentOptions) => Effect.Effect<S["Type"], LaunchLineError> => {
  const decode = Schema.decodeUnknownEffect(Schema.toCodecJson(schema))
  return (options) => Effect.mapError(decode(options), ({ issue }) => unusable(issue, ["agentOptions"]))
}

const fail = (expected: string) => Effect.fail(new LaunchLineError({ field: undefined, expected }))

const newline = 10

// Only whole chunks are held, and the last of them may hold more than the line.
const readLine: Effect.Effect<Uint8Array, LaunchLineError, Stdio.Stdio> = Effect.gen(function*() {
  const { stdin } = yield* Stdio.Stdio
  const chunks: Array<Uint8Array> = []
  let length = 0
  yield* stdin.pipe(
    Stream.mapEffect((chunk) => {
      const end = chunk.indexOf(newline)
      const piece = end === -1 ? chunk : chunk.subarray(0, end)
      chunks.push(piece)
      length += piece.length
      return length > Bridge.maxLaunchLineBytes
        ? fail(`expected at most ${Bridge.maxLaunchLineBytes} bytes`)
        : Effect.succeed(end !== -1)
    }),
    Stream.takeUntil((isWhole) => isWhole),
    Stream.runDrain,
    Effect.catchTag("PlatformError", () => fail("expected a line of JSON on standard input, which can't be read"))
  )
  const line = new Uint8Array(length)
  let at = 0
  for (const chunk of chunks) {
    line.set(chunk, at)
    at += chunk.length
  }
  return line
})

const decodeOptions = Schema.decodeUnknownEffect(Schema.toCodecJson(Bridge.LaunchOptions))

const decodeLine = Effect.fnUntraced(function*(line: Uint8Array) {
  const value = parse(line)
  if (Result.isFailure(value)) return yield* fail(value.failure)
  if (Bridge.isTooDeep(value.success)) return yield* fail(Bridge.expectedDepth)
  return yield* Effect.mapError(decodeOptions(value.success), ({ issue }) => unusable(issue, []))
})

const unusable = (issue: SchemaIssue.Issue, at: ReadonlyArray<string>) =>
  new LaunchLineError(Bridge.launchProblem(issue, at))

// What a parser says of the text may hold a piece of it, so nothing of that is passed on.
const parse = (line: Uint8Array): Result.Result<unknown, string> =>
  Result.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(line),
    catch: () => "expected UTF-8"
  }).pipe(
    Result.flatMap((text) =>
      text.trim() === ""
        ? Result.fail("expected a JSON object, got an empty line")
        : Result.try({
          try: (): unknown => JSON.parse(text),
          catch: () => "expected a JSON object, got what isn't JSON"
        })
    )
  )
