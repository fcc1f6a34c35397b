/**
 * What Claude Code prints and is told, one JSON message a line, as far as the driver needs it. Messages of other types,
 * and fields that aren't named here, pass unnoticed.
 */
import * as Schema from "effect/Schema"

/** Part of what was parsed from JSON, so it needs no check of its own. */
const json: Schema.Codec<Schema.Json> = Schema.Any

const text = Schema.optional(Schema.NullOr(Schema.String))
const count = Schema.optional(Schema.NullOr(Schema.Finite))

/** The id of the tool call that started the sub-agent which speaks. */
const parent = { parent_tool_use_id: text }

export const TokenCounts = Schema.Struct({
  input_tokens: count,
  output_tokens: count,
  cache_read_input_tokens: count,
  cache_creation_input_tokens: count
})

export type TokenCounts = typeof TokenCounts.Type

/** A piece of a message's content, of whatever type. */
export const Block = Schema.Struct({
  type: Schema.String,
  text: Schema.optional(Schema.String),
  thinking: Schema.optional(Schema.String),
  id: Schema.optional(Schema.String),
  name: Schema.optional(Schema.String),
  input: Schema.optional(json),
  tool_use_id: Schema.optional(Schema.String),
  content: Schema.optional(json),
  is_error: Schema.optional(Schema.NullOr(Schema.Boolean))
})

export type Block = typeof Block.Type

export const Content = Schema.Union([Schema.String, Schema.Array(Block)])

const StreamEvent = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("message_start"),
    message: Schema.Struct({ id: Schema.String, model: Schema.String, usage: Schema.optional(TokenCounts) })
  }),
  Schema.Struct({ type: Schema.Literal("content_block_start"), index: Schema.Int, content_block: Block }),
  Schema.Struct({
    type: Schema.Literal("content_block_delta"),
    index: Schema.Int,
    delta: Schema.Struct({
      type: Schema.String,
      text: Schema.optional(Schema.String),
      thinking: Schema.optional(Schema.String),
      partial_json: Schema.optional(Schema.String)
    })
  }),
  Schema.Struct({ type: Schema.Literal("content_block_stop"), index: Schema.Int }),
  Schema.Struct({
    type: Schema.Literal("message_delta"),
    delta: Schema.Struct({ stop_reason: text }),
    usage: Schema.optional(TokenCounts)
  }),
  Schema.Struct({ type: Schema.Literal("message_stop") })
])

/** A whole block of the model's answer; the blocks of one answer come one by one, with its id. */
export const AssistantMessage = Schema.Struct({
  id: Schema.String,
  model: Schema.optional(Schema.String),
  content: Schema.Array(Block),
  stop_reason: text,
  usage: Schema.optional(TokenCounts)
})

export type AssistantMessage = typeof AssistantMessage.Type

const system = <const Subtype extends string, const Fields extends Schema.Struct.Fields>(
  subtype: Subtype,
  fields: Fields
) => Schema.Struct({ type: Schema.Literal("system"), subtype: Schema.Literal(subtype), ...fields })

export const CompactMetadata = Schema.Struct({
  trigger: Schema.Literals(["auto", "manual"]),
  pre_tokens: count,
  post_tokens: count
})

const ModelUsage = Schema.Struct({
  inputTokens: count,
  outputTokens: count,
  cacheReadInputTokens: count,
  cacheCreationInputTokens: count,
  costUSD: count
})

/** The end of what a prompt, or a notification, led to. */
export const Result = Schema.Struct({
  type: Schema.Literal("result"),
  subtype: Schema.String,
  is_error: Schema.Boolean,
  stop_reason: text,
  terminal_reason: text,
  result: text,
  errors: Schema.optional(Schema.Array(Schema.String)),
  api_error_status: count,
  structured_output: Schema.optional(json),
  user_message_uuid: text,
  user_message_uuids: Schema.optional(Schema.Array(Schema.String)),
  model_usage_since_last_result: Schema.optional(Schema.Record(Schema.String, ModelUsage))
})

export type Result = typeof Result.Type

export const PermissionRequest = Schema.Struct({
  subtype: Schema.Literal("can_use_tool"),
  tool_name: Schema.String,
  tool_use_id: Schema.String,
  input: Schema.JsonObject,
  permission_suggestions: Schema.optional(Schema.Array(Schema.JsonObject)),
  decision_reason: text,
  decision_reason_type: text,
  suppress_always_allow_rule: Schema.optional(Schema.Boolean)
})

export type PermissionRequest = typeof PermissionRequest.Type

/** A JSON-RPC message to the MCP server that the driver plays. */
export const McpMessage = Schema.Struct({
  id: Schema.optional(Schema.Union([Schema.String, Schema.Finite])),
  method: Schema.optional(Schema.String),
  params: Schema.optional(Schema.Struct({
    protocolVersion: Schema.optional(Schema.String),
    name: Schema.optional(Schema.String),
    arguments: Schema.optional(json),
    _meta: Schema.optional(Schema.Struct({ "claudecode/toolUseId": Schema.optional(Schema.String) }))
  }))
})

export type McpMessage = typeof McpMessage.Type

export const FromClaude = Schema.Union([
  Schema.Struct({ type: Schema.Literal("stream_event"), event: StreamEvent, ...parent }),
  Schema.Struct({
    type: Schema.Literal("assistant"),
    message: AssistantMessage,
    /** Set where the message is Claude Code's own, in place of an answer that failed. */
    error: text,
    ...parent
  }),
  Schema.Struct({
    type: Schema.Literal("user"),
    message: Schema.Struct({ content: Content }),
    tool_use_result: Schema.optional(json),
    ...parent
  }),
  system("init", {
    mcp_servers: Schema.optional(Schema.Array(Schema.Struct({ name: Schema.String, status: Schema.String })))
  }),
  /** What becomes of a message of the user: it waits, or the CLI has taken it. */
  Schema.Struct({ type: Schema.Literal("command_lifecycle"), command_uuid: Schema.String, state: Schema.String }),
  system("session_state_changed", { state: Schema.String }),
  system("compact_boundary", { uuid: Schema.String, compact_metadata: CompactMetadata }),
  system("api_retry", {
    attempt: Schema.Finite,
    max_retries: count,
    retry_delay_ms: count,
    error_status: count,
    error: text
  }),
  system("informational", { content: Schema.String, level: text }),
  system("background_tasks_changed", { tasks: Schema.Array(Schema.Struct({ task_type: Schema.String })) }),
  Result,
  Schema.Struct({
    type: Schema.Literal("control_request"),
    request_id: Schema.String,
    request: Schema.Union([
      PermissionRequest,
      Schema.Struct({ subtype: Schema.Literal("mcp_message"), message: McpMessage }),
      Schema.Struct({ subtype: Schema.Literal("hook_callback"), callback_id: Schema.String }),
      Schema.Struct({ subtype: Schema.String })
    ])
  }),
  Schema.Struct({ type: Schema.Literal("control_cancel_request"), request_id: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("control_response"),
    response: Schema.Struct({
      subtype: Schema.String,
      request_id: Schema.String,
      response: Schema.optional(json),
      error: text
    })
  })
])

export type FromClaude = typeof FromClaude.Type

export type StreamEvent = Extract<FromClaude, { readonly type: "stream_event" }>

export type ControlRequest = Extract<FromClaude, { readonly type: "control_request" }>

/** A message of the user; `uuid` is how the transcript and the results name it. */
export interface Prompt {
  readonly type: "user"
  readonly message: { readonly role: "user"; readonly content: Schema.Json }
  readonly parent_tool_use_id: null
  readonly session_id: ""
  readonly uuid: string
}

export const prompt = (uuid: string, content: Schema.Json): Prompt => ({
  type: "user",
  message: { role: "user", content },
  parent_tool_use_id: null,
  session_id: "",
  uuid
})
