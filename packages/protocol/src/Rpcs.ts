/**
 * The bridge's remote procedures.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import * as Rpc from "effect/unstable/rpc/Rpc"
import * as RpcGroup from "effect/unstable/rpc/RpcGroup"
import { End, EndLine, ProcessInfo } from "./End.ts"
import * as Failure from "./Failure.ts"
import { HelloReply } from "./Hello.ts"
import { MessageId, SessionId, TurnId } from "./Id.ts"
import { Decision, Delivery, NumberedPart } from "./Part.ts"
import { Prompt, ResponseFormat, SessionOptions } from "./Session.ts"

/**
 * The largest encoded request in bytes, 12 MiB.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxRequestBytes = 12 * 1024 * 1024

/**
 * The largest state that `ReadState` and `StopSession` answer, in bytes of JSON, 8 MiB.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxStateBytes = 8 * 1024 * 1024

/**
 * How many turns a connection can read at once.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxStreams = 64

/**
 * How many messages of a turn may wait for its agent, and how many bytes of their JSON.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxWaitingMessages = 32

/** @category constants @since 0.1.0 */
export const maxWaitingBytes = 16 * 1024 * 1024

/**
 * A batch of a turn's parts, all of one attempt: the lines of the turn's file, as JSON values.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Batch = Schema.Struct({ attempt: Schema.Int, parts: Schema.NonEmptyArray(NumberedPart) })

/** @category models @since 0.1.0 */
export type Batch = typeof Batch.Type

/**
 * An element of the stream that `ReadTurn` answers: batches, then the end line. A stream that ends without an end
 * line is a lost connection.
 *
 * @category schemas
 * @since 0.1.0
 */
export const TurnEvent = Schema.Union([Batch, EndLine])

/** @category models @since 0.1.0 */
export type TurnEvent = typeof TurnEvent.Type

const session = { session: SessionId }
const turn = { session: SessionId, turn: TurnId }
// Every command may fail with these.
const common = [Failure.TooLarge, Failure.TooDeep, Failure.DriverError] as const
const answering = [
  ...common,
  Failure.AlreadyAnswered,
  Failure.TurnEnded,
  Failure.SessionNotFound,
  Failure.TurnNotFound,
  Failure.SessionBusy,
  Failure.LogUnavailable
] as const

/** @category rpcs @since 0.1.0 */
export const Hello = Rpc.make("Hello", {
  payload: {
    host: Schema.Struct({ name: Schema.String, version: Schema.String }),
    protocol: Schema.Int,
    /** `false` where the host sends no pings: the bridge then never closes the connection for its silence. */
    pings: Schema.optional(Schema.Boolean)
  },
  success: HelloReply,
  error: Failure.ProtocolMismatch
})

/** @category rpcs @since 0.1.0 */
export const StartSession = Rpc.make("StartSession", {
  payload: { ...session, ...SessionOptions.fields },
  /** `resumed` is false only for the call that created the session. */
  success: Schema.Struct({ resumed: Schema.Boolean }),
  error: Schema.Union([
    ...common,
    Failure.SessionConflict,
    Failure.SessionBusy,
    Failure.SessionDestroyed,
    Failure.DirectoryInvalid,
    Failure.Replaced,
    Failure.Closing,
    Failure.ContextLost,
    Failure.UnsupportedFormat,
    Failure.LogUnavailable
  ])
})

/** @category rpcs @since 0.1.0 */
export const StartTurn = Rpc.make("StartTurn", {
  payload: {
    ...turn,
    /** Absent or 1 for a new turn; one more than the turn's own continues an aborted one. */
    attempt: Schema.optional(Schema.Int.check(Schema.isGreaterThan(0))),
    /** May be left out where the turn exists. */
    prompt: Schema.optional(Prompt),
    model: Schema.optional(Schema.String),
    effort: Schema.optional(Schema.String),
    responseFormat: Schema.optional(ResponseFormat),
    /** Milliseconds after which the turn is aborted with the reason `timeout`; absent, never. */
    timeout: Schema.optional(Schema.Finite.check(Schema.isGreaterThan(0))),
    /** Whether the agent's own events come as `raw` parts, for all readers. */
    raw: Schema.optional(Schema.Boolean)
  },
  success: Schema.Struct({
    attempt: Schema.Int,
    /** The number of the attempt's first part. */
    from: Schema.Int,
    /** The number of the turn's next part, as it is when this is answered: what's before is history to whoever starts. */
    next: Schema.Int,
    status: Schema.Literals(["started", "continued", "running", "ended"])
  }),
  error: Schema.Union([
    ...common,
    Failure.SessionNotFound,
    Failure.SessionNotStarted,
    Failure.SessionBusy,
    Failure.TurnSuperseded,
    Failure.TurnConflict,
    Failure.SessionFull,
    Failure.Replaced,
    Failure.Closing,
    Failure.ContextLost,
    Failure.Unsupported,
    Failure.LogUnavailable
  ])
})

/** @category rpcs @since 0.1.0 */
export const ReadTurn = Rpc.make("ReadTurn", {
  payload: {
    ...turn,
    /** The number of the first part to send. */
    from: Schema.Int.check(Schema.isGreaterThan(0)),
    /** The attempt of the part before `from`, as the host has it. */
    attempt: Schema.optional(Schema.Int)
  },
  success: TurnEvent,
  error: Schema.Union([
    Failure.SessionNotFound,
    Failure.TurnNotFound,
    Failure.PartNotFound,
    Failure.TurnDamaged,
    Failure.UnsupportedFormat,
    Failure.TooManyStreams,
    Failure.LogUnavailable
  ]),
  stream: true
})

/** @category rpcs @since 0.1.0 */
export const AbortTurn = Rpc.make("AbortTurn", {
  payload: {
    ...turn,
    /** Only this attempt; absent, whichever runs. */
    attempt: Schema.optional(Schema.Int),
    /** For people; recorded in the end. */
    reason: Schema.optional(Schema.String)
  },
  success: Schema.Struct({
    end: End,
    /** The agent's processes that were ended. */
    ended: Schema.Array(ProcessInfo),
    /** Those that could not be ended. */
    left: Schema.Array(ProcessInfo)
  }),
  error: Schema.Union([
    ...common,
    Failure.SessionNotFound,
    Failure.TurnNotFound,
    Failure.TurnConflict,
    Failure.SessionBusy,
    Failure.LogUnavailable
  ])
})

/** @category rpcs @since 0.1.0 */
export const SubmitToolResult = Rpc.make("SubmitToolResult", {
  payload: { ...turn, toolCallId: Schema.String, result: Schema.Json, isFailure: Schema.Boolean },
  success: Schema.Struct({ accepted: Schema.Literal(true) }),
  error: Schema.Union([...answering, Failure.ToolCallNotFound])
})

/** @category rpcs @since 0.1.0 */
export const Approve = Rpc.make("Approve", {
  payload: {
    ...turn,
    approvalId: Schema.String,
    decision: Decision,
    /** Told to the agent where the decision is `deny`. */
    reason: Schema.optional(Schema.String)
  },
  success: Schema.Struct({ accepted: Schema.Literal(true) }),
  error: Schema.Union([...answering, Failure.ApprovalNotFound])
})

/** @category rpcs @since 0.1.0 */
export const SendMessage = Rpc.make("SendMessage", {
  payload: {
    ...turn,
    /** The host's id of the message, unique in the turn: a repeat is answered as the first call was. */
    messageId: MessageId,
    prompt: Prompt,
    /** Absent, `steer` where the agent can be steered, otherwise `queue`. */
    delivery: Schema.optional(Delivery)
  },
  success: Schema.Struct({ accepted: Schema.Literal(true), delivery: Delivery }),
  error: Schema.Union([
    ...common,
    Failure.MessageConflict,
    Failure.TooManyMessages,
    Failure.TurnEnded,
    Failure.SessionNotFound,
    Failure.TurnNotFound,
    Failure.SessionBusy,
    Failure.Unsupported,
    Failure.LogUnavailable
  ])
})

/** @category rpcs @since 0.1.0 */
export const Compact = Rpc.make("Compact", {
  payload: { ...session, instructions: Schema.optional(Schema.String) },
  success: Schema.Struct({ summary: Schema.optional(Schema.String) }),
  error: Schema.Union([
    ...common,
    Failure.SessionNotFound,
    Failure.SessionNotStarted,
    Failure.SessionBusy,
    Failure.Unsupported,
    Failure.TurnRunning,
    Failure.ContextLost,
    Failure.LogUnavailable
  ])
})

/** @category rpcs @since 0.1.0 */
export const ReadState = Rpc.make("ReadState", {
  payload: session,
  success: Schema.Json,
  error: Schema.Union([
    ...common,
    Failure.SessionNotFound,
    Failure.StateTooLarge,
    Failure.SessionBusy,
    Failure.Unsupported,
    Failure.TurnRunning,
    Failure.ContextLost,
    Failure.LogUnavailable
  ])
})

/** @category rpcs @since 0.1.0 */
export const StopSession = Rpc.make("StopSession", {
  payload: session,
  success: Schema.Struct({
    /** What `ReadState` would answer, where the agent has state and it isn't too large. */
    state: Schema.optional(Schema.Json),
    stateTooLarge: Schema.optional(Schema.Literal(true)),
    ended: Schema.Array(ProcessInfo),
    left: Schema.Array(ProcessInfo)
  }),
  error: Schema.Union([...common, Failure.SessionBusy, Failure.LogUnavailable])
})

/** @category rpcs @since 0.1.0 */
export const DestroySession = Rpc.make("DestroySession", {
  payload: session,
  success: Schema.Struct({ ended: Schema.Array(ProcessInfo), left: Schema.Array(ProcessInfo) }),
  error: Schema.Union([...common, Failure.SessionBusy, Failure.LogUnavailable])
})

/**
 * The twelve procedures of a bridge.
 *
 * @category rpcs
 * @since 0.1.0
 */
export const Rpcs = RpcGroup.make(
  Hello,
  StartSession,
  StartTurn,
  ReadTurn,
  AbortTurn,
  SubmitToolResult,
  Approve,
  SendMessage,
  Compact,
  ReadState,
  StopSession,
  DestroySession
)
