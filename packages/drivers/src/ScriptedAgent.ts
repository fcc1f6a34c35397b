/**
 * The scripted agent: a program that plays what its prompts script, as a real agent would behave, and keeps a journal
 * by which a test can tell what it did.
 *
 * It speaks lines of JSON with its driver over standard input and output: `ToAgent` one way, `FromAgent` the other.
 * The first line is `open`; then turns, answers, interrupts and compactions follow. It ends with code 0 when its input
 * ends.
 *
 * In its `home` it keeps two files of lines, cut to whole lines at each start:
 *
 * - `conversations/<conversation>.ndjson`, what it remembers: prompts, the parts of each step, answers, and which
 *   steps are finished. A continued turn resumes after its last finished step; a step that was cut is played anew.
 * - `journal/<conversation>.ndjson`, what it did: see `JournalEntry`. Nobody but tests reads it, and it outlives its
 *   conversation.
 *
 * A message with parts is in the journal, synced, before it's written to the driver, so the driver never has a part
 * that the journal lacks. A step is recorded as finished, synced, after its last part is in the journal and before its
 * `step-finished` is told.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Schema from "effect/Schema"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as Agent from "./internal/scriptedAgent.ts"
import * as Files from "./internal/scriptedFiles.ts"
import * as Output from "./internal/scriptedOutput.ts"
import { Script } from "./internal/scriptedScript.ts"

/**
 * What the agent repeats when a script lets it `describe` itself.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Told = Schema.Struct({
  session: Schema.String,
  directory: Schema.String,
  instructions: Schema.optional(Schema.String),
  /** Names of the host's tools. */
  tools: Schema.Array(Schema.String),
  permissions: Bridge.Permissions,
  settings: Bridge.Settings,
  /** Names of the MCP servers. */
  mcpServers: Schema.Array(Schema.String),
  /** Names of the session's environment variables. */
  env: Schema.Array(Schema.String)
})

/** @category models @since 0.1.0 */
export type Told = typeof Told.Type

/**
 * A line from the driver.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ToAgent = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("open"),
    home: Schema.String,
    conversation: Schema.String,
    /** `off`: no journal, and no parts in the conversation, for benchmarks. */
    journal: Schema.Literals(["synced", "off"]),
    told: Told
  }),
  Schema.Struct({
    type: Schema.Literal("turn"),
    turn: Schema.String,
    attempt: Schema.Int,
    /** Absent, a nudge: the turn that the conversation holds is resumed. */
    prompt: Schema.optional(Schema.Array(Bridge.PromptPart)),
    /** Set where the prompt is a message that a host sent into the turn: it's played after what the turn had before. */
    message: Schema.optional(Schema.String),
    /** Played where the prompt holds no script. */
    script: Schema.optional(Script),
    model: Schema.optional(Schema.String),
    effort: Schema.optional(Schema.String),
    responseFormat: Schema.optional(Bridge.ResponseFormat),
    raw: Schema.Boolean
  }),
  /** A message for the turn that is played: it's taken before the next step, or at the turn's end. Late, it's dropped. */
  Schema.Struct({ type: Schema.Literal("message"), id: Schema.String, prompt: Schema.Array(Bridge.PromptPart) }),
  /** The answer to a `call`, an `approval` or a `question` by its id. */
  Schema.Struct({ type: Schema.Literal("answer"), id: Schema.String, answer: Schema.Json }),
  /** Answered by `interrupted` where a turn was running. */
  Schema.Struct({ type: Schema.Literal("interrupt") }),
  Schema.Struct({ type: Schema.Literal("compact"), instructions: Schema.optional(Schema.String) })
])

/** @category models @since 0.1.0 */
export type ToAgent = typeof ToAgent.Type

/**
 * A line from the agent.
 *
 * @category schemas
 * @since 0.1.0
 */
export const FromAgent = Schema.Union([
  Schema.Struct({ type: Schema.Literal("parts"), parts: Schema.Array(Bridge.AgentPart) }),
  /** The conversation holds that message, and its steps come next. */
  Schema.Struct({ type: Schema.Literal("taken"), id: Schema.String }),
  /** A host tool's call, whose part came before. */
  Schema.Struct({
    type: Schema.Literal("call"),
    id: Schema.String,
    name: Schema.String,
    params: Schema.Json
  }),
  Schema.Struct({
    type: Schema.Literal("approval"),
    id: Schema.String,
    toolCallId: Schema.String,
    name: Schema.String,
    params: Schema.Json,
    edits: Schema.Boolean,
    reason: Schema.optional(Schema.String),
    rule: Schema.optional(Schema.String)
  }),
  Schema.Struct({
    type: Schema.Literal("question"),
    id: Schema.String,
    questions: Bridge.Question.fields.questions
  }),
  Schema.Struct({
    type: Schema.Literal("finished"),
    finishReason: Schema.String,
    cost: Schema.optional(Schema.Finite),
    output: Schema.optional(Schema.Json)
  }),
  Schema.Struct({
    type: Schema.Literal("failed"),
    kind: Schema.Literals(["auth", "rate-limit", "overloaded", "context-too-long", "invalid-request", "unknown"]),
    message: Schema.String
  }),
  Schema.Struct({ type: Schema.Literal("interrupted") }),
  Schema.Struct({ type: Schema.Literal("compacted"), summary: Schema.String }),
  /** A piece of a line that's longer than 8 Mi UTF-16 units; the line is what they're joined to. */
  Schema.Struct({ type: Schema.Literal("piece"), text: Schema.String, last: Schema.Boolean })
])

/** @category models @since 0.1.0 */
export type FromAgent = typeof FromAgent.Type

const inStep = { turn: Schema.String, attempt: Schema.Int, step: Schema.Int }

/**
 * A line of the journal.
 *
 * @category schemas
 * @since 0.1.0
 */
export const JournalEntry = Schema.Union([
  /** The agent was started. */
  Schema.Struct({ type: Schema.Literal("started") }),
  Schema.Struct({
    type: Schema.Literal("turn"),
    turn: Schema.String,
    attempt: Schema.Int,
    nudged: Schema.Boolean,
    /** The message that the turn went on with. */
    message: Schema.optional(Schema.String)
  }),
  /** A message was taken while the turn was played; it's in the conversation by then. */
  Schema.Struct({ type: Schema.Literal("taken"), turn: Schema.String, attempt: Schema.Int, id: Schema.String }),
  /** Parts that are about to be written to the driver; `first` counts the step's parts from 0. */
  Schema.Struct({
    type: Schema.Literal("emitted"),
    ...inStep,
    first: Schema.Int,
    parts: Schema.Array(Bridge.AgentPart)
  }),
  /** A host is about to be asked. */
  Schema.Struct({
    type: Schema.Literal("asked"),
    ...inStep,
    kind: Schema.Literals(["call", "approval", "question"]),
    id: Schema.String
  }),
  Schema.Struct({ type: Schema.Literal("answered"), ...inStep, id: Schema.String, answer: Schema.Json }),
  /** The conversation holds the step finished. */
  Schema.Struct({ type: Schema.Literal("recorded"), ...inStep }),
  Schema.Struct({
    type: Schema.Literal("ended"),
    turn: Schema.String,
    attempt: Schema.Int,
    how: Schema.Literals(["finished", "failed", "interrupted"])
  })
])

/** @category models @since 0.1.0 */
export type JournalEntry = typeof JournalEntry.Type

/**
 * The journal of a conversation. It fails where a line isn't the journal's; what a crash left of a last line is left
 * out.
 *
 * @category journal
 * @since 0.1.0
 */
export const readJournal = (options: {
  readonly home: string
  readonly conversation: string
}): Effect.Effect<
  ReadonlyArray<JournalEntry>,
  PlatformError | Schema.SchemaError,
  FileSystem.FileSystem | Path.Path
> =>
  Effect.gen(function*() {
    const path = yield* Path.Path
    return yield* Files.lines(Output.journalPath(path, options.home, options.conversation)).pipe(
      Stream.mapEffect((line) => decodeJournalEntry(line)),
      Stream.runCollect
    )
  })

const decodeJournalEntry = Schema.decodeEffect(Schema.fromJsonString(JournalEntry))

/**
 * Runs the agent until its input ends, and returns its exit code. The program that runs it must exit at once with that
 * code, whatever is still open.
 *
 * @category programs
 * @since 0.1.0
 */
export const program: Effect.Effect<
  number,
  never,
  Stdio.Stdio | FileSystem.FileSystem | Path.Path | ChildProcessSpawner
> = Effect.gen(function*() {
  const stdio = yield* Stdio.Stdio
  const exit = yield* Deferred.make<number>()
  const print = Output.printer(stdio)
  let agent: Agent.Agent | undefined

  const obey = Effect.fnUntraced(function*(message: ToAgent) {
    if (message.type === "open") agent = yield* Agent.open(message, stdio, exit)
    else if (agent !== undefined) yield* agent.obey(message)
  })

  const read = stdio.stdin.pipe(
    Stream.decodeText(),
    Stream.splitLines,
    Stream.runForEach((line) => Effect.flatMap(decode(line), obey)),
    Effect.as(0)
  )
  return yield* Effect.raceFirst(read, Deferred.await(exit)).pipe(
    Effect.scoped,
    Effect.catchCause((cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.failCause(cause as Cause.Cause<never>)
        : Effect.as(Effect.ignore(print("stderr", Cause.pretty(cause))), 1)
    )
  )
})

const decode = Schema.decodeEffect(Schema.fromJsonString(ToAgent))
