/**
 * The numbered pieces of a turn, as they stand in the turn's file and on the wire.
 *
 * Bodies are the encoded stream parts of Effect AI's `Response`, and the bridge's own. The schema is ours, so that an
 * Effect release can't make stored turns unreadable.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { MessageId } from "./Id.ts"
import { Prompt } from "./Session.ts"
import { Usage } from "./Usage.ts"

/**
 * The longest line of a turn's file in bytes, 1 MiB: what is longer travels as `part-fragment`s.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxLineBytes = 1024 * 1024

// What every part may carry.
const common = {
  /** The tool call of the parent agent, where a sub-agent speaks. */
  parent: Schema.optional(Schema.String),
  /** Set where a continued attempt took the part from the agent's conversation because the log lacked it. */
  recovered: Schema.optional(Schema.Boolean),
  /** The agent's own details, as JSON. */
  metadata: Schema.optional(Schema.JsonObject)
}

const part = <const Type extends string, const Fields extends Schema.Struct.Fields>(type: Type, fields: Fields) =>
  Schema.Struct({ type: Schema.Literal(type), ...fields, ...common })

/** @category text @since 0.1.0 */
export const TextStart = part("text-start", { id: Schema.String })

/** @category text @since 0.1.0 */
export const TextDelta = part("text-delta", { id: Schema.String, delta: Schema.String })

/** @category text @since 0.1.0 */
export const TextEnd = part("text-end", { id: Schema.String })

/** @category reasoning @since 0.1.0 */
export const ReasoningStart = part("reasoning-start", { id: Schema.String })

/** @category reasoning @since 0.1.0 */
export const ReasoningDelta = part("reasoning-delta", { id: Schema.String, delta: Schema.String })

/** @category reasoning @since 0.1.0 */
export const ReasoningEnd = part("reasoning-end", { id: Schema.String })

/** @category tools @since 0.1.0 */
export const ToolParamsStart = part("tool-params-start", {
  id: Schema.String,
  name: Schema.String,
  providerExecuted: Schema.optional(Schema.Boolean)
})

/** @category tools @since 0.1.0 */
export const ToolParamsDelta = part("tool-params-delta", { id: Schema.String, delta: Schema.String })

/** @category tools @since 0.1.0 */
export const ToolParamsEnd = part("tool-params-end", { id: Schema.String })

/**
 * A tool call. `providerExecuted: false` marks a host tool: the turn waits until a host answers it with
 * `SubmitToolResult`; the agent runs every other tool itself.
 *
 * @category tools
 * @since 0.1.0
 */
export const ToolCall = part("tool-call", {
  id: Schema.String,
  name: Schema.String,
  params: Schema.Json,
  providerExecuted: Schema.optional(Schema.Boolean),
  /** The pending call of an earlier attempt that this one asks again. */
  replaces: Schema.optional(Schema.String)
})

/** @category tools @since 0.1.0 */
export const ToolResult = part("tool-result", {
  id: Schema.String,
  name: Schema.String,
  result: Schema.Json,
  isFailure: Schema.Boolean,
  providerExecuted: Schema.optional(Schema.Boolean),
  preliminary: Schema.optional(Schema.Boolean)
})

/**
 * The agent asks whether it may carry out a tool call; answered with `Approve`.
 *
 * @category approvals
 * @since 0.1.0
 */
export const ToolApprovalRequest = part("tool-approval-request", {
  approvalId: Schema.String,
  toolCallId: Schema.String,
  /** The tool's name and input, so that a host can show them without looking for the call. */
  name: Schema.String,
  params: Schema.Json,
  /** Why the agent asks, in words for a person. */
  reason: Schema.optional(Schema.String),
  /** What `allow-always` would allow from now on, in words for a person; absent where it allows this call only. */
  rule: Schema.optional(Schema.String),
  /** The pending request of an earlier attempt that this one asks again. */
  replaces: Schema.optional(Schema.String)
})

/**
 * What a host, or the bridge in its place, decides on an approval request.
 *
 * @category approvals
 * @since 0.1.0
 */
export const Decision = Schema.Literals(["allow", "allow-always", "deny"])

/** @category approvals @since 0.1.0 */
export type Decision = typeof Decision.Type

/** @category approvals @since 0.1.0 */
export const ToolApprovalResponse = part("tool-approval-response", {
  approvalId: Schema.String,
  decision: Decision,
  reason: Schema.optional(Schema.String),
  /** Who decided: a host, or the session's `approvalTimeout`. */
  by: Schema.Literals(["host", "timeout"])
})

/**
 * The agent asks the user; answered with `SubmitToolResult`, whose `toolCallId` is the `questionId`.
 *
 * @category questions
 * @since 0.1.0
 */
export const Question = part("question", {
  questionId: Schema.String,
  toolCallId: Schema.optional(Schema.String),
  questions: Schema.Array(Schema.Struct({
    question: Schema.String,
    header: Schema.optional(Schema.String),
    options: Schema.Array(Schema.Struct({ label: Schema.String, description: Schema.optional(Schema.String) })),
    multiple: Schema.optional(Schema.Boolean)
  })),
  replaces: Schema.optional(Schema.String)
})

/**
 * The answer to a question: an object from each question's text to the chosen labels or free text, or any JSON where
 * `isFailure` says that nobody answered.
 *
 * @category questions
 * @since 0.1.0
 */
export const QuestionAnswer = part("question-answer", {
  questionId: Schema.String,
  answer: Schema.Json,
  isFailure: Schema.Boolean,
  by: Schema.Literals(["host", "timeout"])
})

/**
 * How a message reaches the agent: `steer`, in the middle of its work, with its next step; `queue`, once it's done with
 * what it was given before.
 *
 * @category messages
 * @since 0.1.0
 */
export const Delivery = Schema.Literals(["steer", "queue"])

/** @category messages @since 0.1.0 */
export type Delivery = typeof Delivery.Type

/**
 * What a host sent into the running turn with `SendMessage`. The turn isn't finished before the agent has it.
 *
 * @category messages
 * @since 0.1.0
 */
export const UserMessage = part("user-message", { messageId: MessageId, prompt: Prompt, delivery: Delivery })

/**
 * The agent has that message: it took it while it worked, or it's given it now. Without this part at a turn's end, a
 * queued message didn't reach the agent, and of one that steers it isn't known.
 *
 * @category messages
 * @since 0.1.0
 */
export const UserMessageDelivered = part("user-message-delivered", { messageId: MessageId })

/**
 * A file that the agent changed, with the change as a unified diff where the agent tells.
 *
 * @category agent
 * @since 0.1.0
 */
export const FileChange = part("file-change", {
  path: Schema.String,
  kind: Schema.Literals(["create", "update", "delete", "move"]),
  from: Schema.optional(Schema.String),
  diff: Schema.optional(Schema.String),
  toolCallId: Schema.optional(Schema.String)
})

/** @category agent @since 0.1.0 */
export const File = part("file", { mediaType: Schema.String, data: Schema.String })

/** @category agent @since 0.1.0 */
export const Source = part("source", {
  sourceType: Schema.Literals(["document", "url"]),
  id: Schema.String,
  title: Schema.String,
  url: Schema.optional(Schema.String),
  mediaType: Schema.optional(Schema.String),
  fileName: Schema.optional(Schema.String)
})

/** @category agent @since 0.1.0 */
export const ResponseMetadata = part("response-metadata", {
  id: Schema.optional(Schema.String),
  modelId: Schema.optional(Schema.String),
  timestamp: Schema.optional(Schema.String)
})

/** @category agent @since 0.1.0 */
export const ErrorPart = part("error", { error: Schema.Json })

/**
 * One call of the model is done, with what it used.
 *
 * @category agent
 * @since 0.1.0
 */
export const StepFinished = part("step-finished", {
  usage: Usage,
  finishReason: Schema.optional(Schema.String)
})

/** @category agent @since 0.1.0 */
export const Compaction = part("compaction", {
  trigger: Schema.Literals(["auto", "manual"]),
  tokensBefore: Schema.optional(Schema.Finite),
  tokensAfter: Schema.optional(Schema.Finite),
  summary: Schema.optional(Schema.String)
})

/** @category agent @since 0.1.0 */
export const Plan = part("plan", {
  entries: Schema.Array(Schema.Struct({
    content: Schema.String,
    status: Schema.Literals(["pending", "in-progress", "completed"])
  }))
})

/**
 * The agent's call of its model failed and is tried again after `delay` milliseconds.
 *
 * @category agent
 * @since 0.1.0
 */
export const Retry = part("retry", {
  attempt: Schema.Finite,
  maxAttempts: Schema.optional(Schema.Finite),
  delay: Schema.optional(Schema.Finite),
  message: Schema.String
})

/**
 * The first part of a continued attempt: parts up to number `keep` count, those from there to this one are void.
 *
 * @category bridge
 * @since 0.1.0
 */
export const TurnContinued = part("turn-continued", { attempt: Schema.Int, keep: Schema.Int })

/**
 * Something that people should know of, said by the agent, its driver or the bridge.
 *
 * @category bridge
 * @since 0.1.0
 */
export const Notice = part("notice", {
  level: Schema.Literals(["info", "warning"]),
  message: Schema.String
})

/**
 * The agent's own event, only in turns that were started with `raw`.
 *
 * @category bridge
 * @since 0.1.0
 */
export const Raw = part("raw", { event: Schema.Json })

/**
 * A piece of a part whose line would be longer than `maxLineBytes`. `of` is the number of the first piece, which is
 * the whole part's; `index` counts from 0; `text` is a piece of the part's JSON, cut at code points.
 *
 * @category bridge
 * @since 0.1.0
 */
export const PartFragment = part("part-fragment", {
  of: Schema.Int,
  index: Schema.Int,
  last: Schema.Boolean,
  text: Schema.String
})

/**
 * What an agent does, as its driver says it. The other parts are the bridge's: what hosts are asked in the agent's name,
 * their answers, their messages, and what becomes of the log.
 *
 * @category parts
 * @since 0.1.0
 */
export const AgentPart = Schema.Union([
  TextStart,
  TextDelta,
  TextEnd,
  ReasoningStart,
  ReasoningDelta,
  ReasoningEnd,
  ToolParamsStart,
  ToolParamsDelta,
  ToolParamsEnd,
  ToolCall,
  ToolResult,
  FileChange,
  File,
  Source,
  ResponseMetadata,
  ErrorPart,
  StepFinished,
  Compaction,
  Plan,
  Retry,
  Notice,
  Raw
])

/** @category parts @since 0.1.0 */
export type AgentPart = typeof AgentPart.Type

/**
 * Every part that this version knows.
 *
 * @category parts
 * @since 0.1.0
 */
export const KnownPart = Schema.Union([
  ...AgentPart.members,
  ToolApprovalRequest,
  ToolApprovalResponse,
  Question,
  QuestionAnswer,
  UserMessage,
  UserMessageDelivered,
  TurnContinued,
  PartFragment
])

/** @category parts @since 0.1.0 */
export type KnownPart = typeof KnownPart.Type

/**
 * The type of every part that this version knows.
 *
 * @category parts
 * @since 0.1.0
 */
export const knownTypes: ReadonlySet<string> = new Set(KnownPart.members.map((member) => member.fields.type.literal))

/**
 * Whether a part is one of a type that this version knows.
 *
 * @category guards
 * @since 0.1.0
 */
export const isKnown = (part: Part): part is KnownPart => knownTypes.has(part.type)

/**
 * The type of a part that this version doesn't know: any name. TypeScript is told a pattern that no name has, because
 * then `part.type === "text-delta"` says that the part is one of text.
 *
 * @category parts
 * @since 0.1.0
 */
export type UnknownType = `unknown ${string}`

/**
 * A part of a type that a newer bridge knows: it passes through as JSON.
 *
 * @category parts
 * @since 0.1.0
 */
export interface UnknownPart {
  readonly type: UnknownType
  readonly [key: string]: Schema.Json
}

/** @category parts @since 0.1.0 */
export const UnknownPart = Schema.StructWithRest(
  Schema.Struct({
    type: Schema.String.check(Schema.makeFilter((type) => !knownTypes.has(type), {
      toJsonSchema: () => ({ not: { enum: [...knownTypes] } })
    }))
  }),
  [Schema.JsonObject]
) as unknown as Schema.Codec<UnknownPart, Schema.JsonObject>

/**
 * A part of a turn.
 *
 * @category parts
 * @since 0.1.0
 */
export const Part = Schema.Union([KnownPart, UnknownPart])

/** @category parts @since 0.1.0 */
export type Part = typeof Part.Type

/**
 * A part with its number in the turn, the line of the turn's file; numbers start at 1.
 *
 * @category parts
 * @since 0.1.0
 */
export const NumberedPart = Schema.Struct({ n: Schema.Int, part: Part })

/** @category parts @since 0.1.0 */
export type NumberedPart = typeof NumberedPart.Type
