/**
 * How an attempt of a turn ended. Every attempt ends once.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { maxLineBytes } from "./Part.ts"
import { Usage } from "./Usage.ts"

/**
 * A process in the sandbox, as it is listed for a person.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ProcessInfo = Schema.Struct({
  pid: Schema.Int,
  /** The program and its arguments, cut at 200 characters, known secrets replaced. */
  command: Schema.String
})

/** @category models @since 0.1.0 */
export type ProcessInfo = typeof ProcessInfo.Type

/**
 * Why an attempt was aborted.
 *
 * - `host`: `AbortTurn` was called. Start the turn with one more than its `attempt`, and it goes on.
 * - `replaced`: a newer turn of its session was started. It never runs again: use a new id.
 * - `stopped`: `StopSession` was called. Start the session, then continue the turn.
 * - `destroyed`: `DestroySession` was called. There is nothing left of it: use another session.
 * - `bridge-replaced`: a newer bridge needed the session. Continue the turn there.
 * - `bridge-died`: its bridge was killed, or its machine died. Launch another bridge, start the session, and continue
 *   the turn.
 * - `shutdown`: its bridge was told to exit. Launch another bridge, start the session, and continue the turn.
 * - `log-damaged`: the turn's file is damaged. Continue the turn: it goes on from what can be read. Look after the
 *   disk.
 * - `timeout`: the turn's own `timeout` is over. Continue it with more time.
 * - `limit`: the session's limit that `limit` names is reached. Start the session with other limits, and another turn.
 *
 * @category schemas
 * @since 0.1.0
 */
export const AbortReason = Schema.Literals([
  "host",
  "replaced",
  "stopped",
  "destroyed",
  "bridge-replaced",
  "bridge-died",
  "shutdown",
  "log-damaged",
  "timeout",
  "limit"
])

/** @category models @since 0.1.0 */
export type AbortReason = typeof AbortReason.Type

/**
 * What kind of failure ended an attempt, for an orchestrator to act on.
 *
 * - `auth`: the model's provider refuses the credentials, or there are none. Give the agent others, in its options, in
 *   the session's `env`, or by logging it in.
 * - `rate-limit`: the model's provider has had too many requests, or the quota is used up. Start another turn later,
 *   or with another account.
 * - `overloaded`: the model's provider is overloaded or down. Start another turn later, or with another model.
 * - `context-too-long`: the conversation doesn't fit the model. Compact the session, or go on in another one.
 * - `agent-exit`: the agent's process ended in the middle of the turn. Read `message` and the log of the bridge; the
 *   next turn starts the agent again.
 * - `disk-full`: there was no space for the turn's parts. Make room, then start another turn.
 * - `log-full`: the turn's file reached `maxTurnBytes`. Launch the bridge with more, or ask for less in a turn.
 * - `invalid-request`: the agent or its model can't do what the turn asks, such as its model, its effort or the form
 *   of its answer. Ask for something else.
 * - `unknown`: something else, which `message` says. Start another turn, and report it where it comes again.
 *
 * @category schemas
 * @since 0.1.0
 */
export const FailureKind = Schema.Literals([
  "auth",
  "rate-limit",
  "overloaded",
  "context-too-long",
  "agent-exit",
  "disk-full",
  "log-full",
  "invalid-request",
  "unknown"
])

/** @category models @since 0.1.0 */
export type FailureKind = typeof FailureKind.Type

/**
 * The longest answer of a turn that asked for a `responseFormat`, as JSON in bytes: with the rest of its end it fits a
 * line.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxOutputBytes = maxLineBytes - 128 * 1024

/** @category schemas @since 0.1.0 */
export const Finished = Schema.Struct({
  type: Schema.Literal("finished"),
  usage: Usage,
  finishReason: Schema.String,
  /**
   * The answer as JSON, where the turn asked for a `responseFormat`; a turn whose answer is longer than
   * `maxOutputBytes` fails.
   */
  output: Schema.optional(Schema.Json),
  /** What the agent left running, at most 200 of them. */
  background: Schema.optional(Schema.Array(ProcessInfo))
})

/** @category schemas @since 0.1.0 */
export const Aborted = Schema.Struct({
  type: Schema.Literal("aborted"),
  reason: AbortReason,
  /** Which limit was reached, where the reason is `limit`. */
  limit: Schema.optional(Schema.Literals(["steps", "tokens", "cost", "time"])),
  /** What the host that aborted said, cut at 16,384 UTF-16 units. */
  message: Schema.optional(Schema.String),
  usage: Usage
})

/** @category schemas @since 0.1.0 */
export const Failed = Schema.Struct({
  type: Schema.Literal("failed"),
  /** The message is cut at 16,384 UTF-16 units. */
  error: Schema.Struct({ kind: FailureKind, message: Schema.String }),
  usage: Usage
})

/**
 * How an attempt ended. `finished` and `failed` are final; `aborted` can be continued.
 *
 * @category schemas
 * @since 0.1.0
 */
export const End = Schema.Union([Finished, Aborted, Failed])

/** @category models @since 0.1.0 */
export type End = typeof End.Type

/**
 * The last line of an attempt in the turn's file: its end, and the number that the next attempt's first part has.
 *
 * @category schemas
 * @since 0.1.0
 */
export const EndLine = Schema.Struct({ end: End, attempt: Schema.Int, next: Schema.Int })

/** @category models @since 0.1.0 */
export type EndLine = typeof EndLine.Type
