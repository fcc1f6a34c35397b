/**
 * What a bridge says of itself.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { TurnState } from "./Failure.ts"
import { BridgeId, SessionId, TurnId } from "./Id.ts"

/**
 * What the agent behind a bridge can do. What it can't is answered `Unsupported`, or left out of its turns.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Capabilities = Schema.Struct({
  /** Reasoning comes as parts. */
  reasoning: Schema.Boolean,
  /** A tool's input comes piece by piece. */
  toolParams: Schema.Boolean,
  /** The host's tools can be called. */
  hostTools: Schema.Boolean,
  /** The agent asks before it acts. */
  approvals: Schema.Boolean,
  /** The agent can ask the user. */
  questions: Schema.Boolean,
  /** Prompts may hold images. */
  images: Schema.Boolean,
  /** Changes of files come as parts. */
  fileChanges: Schema.Boolean,
  /** `Compact` works. */
  compaction: Schema.Boolean,
  /** An aborted turn is continued in the same conversation. */
  continuation: Schema.Boolean,
  /** `ReadState` and the option `state` work. */
  state: Schema.Boolean,
  /** `responseFormat` works. */
  structuredOutput: Schema.Boolean,
  /** The session's MCP servers are used. */
  mcpServers: Schema.Boolean,
  /** The option `effort` works. */
  effort: Schema.Boolean,
  /** The agent says what it used, for each step. */
  usage: Schema.Boolean,
  /** The agent takes messages while it works: `SendMessage` can steer. */
  steering: Schema.Boolean
})

/** @category models @since 0.1.0 */
export type Capabilities = typeof Capabilities.Type

/**
 * The limits that hold on this bridge, in bytes where not said otherwise.
 *
 * @category schemas
 * @since 0.1.0
 */
export const BridgeLimits = Schema.Struct({
  /** An encoded request. */
  request: Schema.Int,
  /** A line of a turn's file, and so of a batch. */
  line: Schema.Int,
  /** The state that `ReadState` answers. */
  state: Schema.Int,
  /** A turn's file. */
  turn: Schema.Int,
  /** Streams on one connection, a count. */
  streams: Schema.Int,
  /** Turns of a session, a count. */
  turns: Schema.Int
})

/** @category models @since 0.1.0 */
export type BridgeLimits = typeof BridgeLimits.Type

/**
 * What a turn's agent waits for: an answer of a host, by `Approve` or `SubmitToolResult`.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Waiting = Schema.Struct({
  type: Schema.Literals(["approval", "question", "tool"]),
  /** By which it's answered: the `approvalId`, the `questionId`, or the tool call's `id`. */
  id: Schema.String,
  /** The tool, cut at 200 UTF-16 units; absent where it's a question. */
  name: Schema.optional(Schema.String)
})

/** @category models @since 0.1.0 */
export type Waiting = typeof Waiting.Type

/**
 * A session as `Hello` lists it. Dormant ones need `StartSession` before another turn.
 *
 * @category schemas
 * @since 0.1.0
 */
export const SessionSummary = Schema.Struct({
  session: SessionId,
  dormant: Schema.Boolean,
  directory: Schema.String,
  latest: Schema.optional(Schema.Struct({
    turn: TurnId,
    attempt: Schema.Int,
    state: TurnState,
    /** The number of the turn's next part, as it is now; absent where another bridge has the turn, or none runs it. */
    next: Schema.optional(Schema.Int),
    /** What waits for an answer, the first 16 of it; absent like `next`. */
    waiting: Schema.optional(Schema.Array(Waiting))
  }))
})

/** @category models @since 0.1.0 */
export type SessionSummary = typeof SessionSummary.Type

/**
 * The answer to `Hello`; it lists at most 1,000 sessions.
 *
 * @category schemas
 * @since 0.1.0
 */
export const HelloReply = Schema.Struct({
  protocol: Schema.Int,
  bridge: BridgeId,
  launch: Schema.String,
  driver: Schema.Struct({ name: Schema.String, version: Schema.String }),
  capabilities: Capabilities,
  limits: BridgeLimits,
  sessions: Schema.Array(SessionSummary)
})

/** @category models @since 0.1.0 */
export type HelloReply = typeof HelloReply.Type
