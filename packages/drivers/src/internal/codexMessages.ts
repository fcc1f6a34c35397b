/**
 * What of the app-server's protocol the driver speaks: JSON-RPC, one message a line, without its version field.
 *
 * The schemas are our own and hold only the fields that are used. A test compares them with the JSON Schema that the
 * program itself prints.
 */
import * as Schema from "effect/Schema"

const maybe = <S extends Schema.Top>(schema: S) => Schema.optional(Schema.NullOr(schema))

const text = Schema.String

// -----------------------------------------------------------------------------
// Items
// -----------------------------------------------------------------------------

export const FileUpdate = Schema.Struct({
  path: text,
  kind: Schema.Struct({ type: Schema.Literals(["add", "delete", "update"]), move_path: maybe(text) }),
  /** The content of a file that comes or goes, and otherwise the hunks of a unified diff. */
  diff: text
})

const item = <const Type extends string, const Fields extends Schema.Struct.Fields>(type: Type, fields: Fields) =>
  Schema.Struct({ type: Schema.Literal(type), id: text, ...fields })

/** A prompt, once the conversation holds it. */
export const UserMessage = item("userMessage", { clientId: maybe(text) })

export const AgentMessage = item("agentMessage", { text })

export const Reasoning = item("reasoning", { summary: Schema.Array(text), content: Schema.Array(text) })

export const CommandExecution = item("commandExecution", {
  command: text,
  cwd: text,
  status: Schema.Literals(["inProgress", "completed", "failed", "declined"]),
  aggregatedOutput: maybe(text),
  exitCode: maybe(Schema.Int)
})

export const FileChange = item("fileChange", {
  changes: Schema.Array(FileUpdate),
  status: Schema.Literals(["inProgress", "completed", "failed", "declined"])
})

export const DynamicToolCall = item("dynamicToolCall", {
  tool: text,
  arguments: Schema.Json,
  status: Schema.Literals(["inProgress", "completed", "failed"]),
  contentItems: maybe(Schema.Array(Schema.Json))
})

export const McpToolCall = item("mcpToolCall", {
  server: text,
  tool: text,
  arguments: Schema.Json,
  status: Schema.Literals(["inProgress", "completed", "failed"]),
  result: maybe(Schema.Struct({ content: Schema.Array(Schema.Json), structuredContent: maybe(Schema.Json) })),
  error: maybe(Schema.Struct({ message: text }))
})

/** A tool that starts or steers sub-agents, whose threads are the receivers. */
export const CollabAgentToolCall = item("collabAgentToolCall", {
  tool: text,
  status: Schema.Literals(["inProgress", "completed", "failed"]),
  receiverThreadIds: Schema.Array(text),
  prompt: maybe(text),
  agentsStates: Schema.Record(text, Schema.Json)
})

export const WebSearch = item("webSearch", { query: text, action: maybe(Schema.Json), results: maybe(Schema.Json) })

export const ImageView = item("imageView", { path: text })

export const ContextCompaction = item("contextCompaction", {})

/** The items that are made something of. */
export const ThreadItem = Schema.Union([
  UserMessage,
  AgentMessage,
  Reasoning,
  CommandExecution,
  FileChange,
  DynamicToolCall,
  McpToolCall,
  CollabAgentToolCall,
  WebSearch,
  ImageView,
  ContextCompaction
])

export type ThreadItem = typeof ThreadItem.Type

// -----------------------------------------------------------------------------
// What Codex tells
// -----------------------------------------------------------------------------

export const TokenCounts = Schema.Struct({
  totalTokens: Schema.Finite,
  inputTokens: Schema.Finite,
  cachedInputTokens: Schema.Finite,
  cacheWriteInputTokens: Schema.Finite,
  outputTokens: Schema.Finite,
  reasoningOutputTokens: Schema.Finite
})

export type TokenCounts = typeof TokenCounts.Type

export const TurnError = Schema.Struct({
  message: text,
  codexErrorInfo: Schema.optional(Schema.Json),
  additionalDetails: maybe(text)
})

export type TurnError = typeof TurnError.Type

const notification = <const Method extends string, const Fields extends Schema.Struct.Fields>(
  method: Method,
  params: Fields
) => Schema.Struct({ method: Schema.Literal(method), params: Schema.Struct({ threadId: text, ...params }) })

const delta = { turnId: text, itemId: text, delta: text }

export const notifications = [
  notification("turn/started", { turn: Schema.Struct({ id: text }) }),
  notification("turn/completed", {
    turn: Schema.Struct({
      id: text,
      status: Schema.Literals(["completed", "interrupted", "failed", "inProgress"]),
      error: maybe(TurnError)
    })
  }),
  notification("item/started", { turnId: text, item: ThreadItem }),
  notification("item/completed", { turnId: text, item: ThreadItem }),
  notification("item/agentMessage/delta", delta),
  notification("item/reasoning/summaryTextDelta", { ...delta, summaryIndex: Schema.Int }),
  notification("item/reasoning/textDelta", { ...delta, contentIndex: Schema.Int }),
  notification("item/commandExecution/outputDelta", delta),
  notification("thread/tokenUsage/updated", {
    turnId: text,
    tokenUsage: Schema.Struct({ total: TokenCounts })
  }),
  notification("turn/plan/updated", {
    turnId: text,
    plan: Schema.Array(
      Schema.Struct({ step: text, status: Schema.Literals(["pending", "inProgress", "completed"]) })
    )
  }),
  notification("error", { turnId: text, error: TurnError, willRetry: Schema.Boolean }),
  notification("serverRequest/resolved", { requestId: Schema.Union([text, Schema.Int]) }),
  notification("mcpServer/startupStatus/updated", { name: text, status: text, error: maybe(text) }),
  // Those of no thread are about the program's surroundings.
  notification("warning", { message: text })
] as const

export const Notification = Schema.Union(notifications)

export type Notification = typeof Notification.Type

// -----------------------------------------------------------------------------
// What Codex asks
// -----------------------------------------------------------------------------

export const serverRequests = [
  notification("item/commandExecution/requestApproval", {
    turnId: text,
    itemId: text,
    command: maybe(text),
    cwd: maybe(text),
    reason: maybe(text)
  }),
  notification("item/fileChange/requestApproval", { turnId: text, itemId: text, reason: maybe(text) }),
  notification("item/tool/call", { turnId: text, callId: text, tool: text, arguments: Schema.Json }),
  notification("item/tool/requestUserInput", {
    turnId: text,
    itemId: text,
    questions: Schema.Array(Schema.Struct({
      id: text,
      header: text,
      question: text,
      options: maybe(Schema.Array(Schema.Struct({ label: text, description: text })))
    }))
  }),
  notification("mcpServer/elicitation/request", {
    serverName: text,
    message: text,
    /** Says which tool, where the program itself asks whether it may be called. */
    _meta: maybe(Schema.Json)
  })
] as const

export const ServerRequest = Schema.Union(serverRequests)

export type ServerRequest = typeof ServerRequest.Type

/** In `_meta` of an elicitation: the program's own question about a tool call. */
export const ToolApproval = Schema.Struct({
  codex_approval_kind: Schema.Literal("mcp_tool_call"),
  tool_name: text,
  tool_params: Schema.optional(Schema.Json)
})

// -----------------------------------------------------------------------------
// What Codex is asked
// -----------------------------------------------------------------------------

const UserInput = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), text, text_elements: Schema.Array(Schema.Json) }),
  Schema.Struct({ type: Schema.Literal("image"), url: text })
])

export type UserInput = typeof UserInput.Type

const threadSettings = {
  cwd: text,
  model: Schema.optional(text),
  approvalPolicy: Schema.Literals(["untrusted", "never"]),
  sandbox: Schema.Literal("danger-full-access"),
  developerInstructions: Schema.optional(text),
  config: Schema.JsonObject
}

/** The parameters of each request, by its method. */
export const requests = {
  initialize: Schema.Struct({
    clientInfo: Schema.Struct({ name: text, version: text }),
    capabilities: Schema.Struct({ experimentalApi: Schema.Boolean, requestAttestation: Schema.Boolean })
  }),
  "thread/start": Schema.Struct({
    ...threadSettings,
    dynamicTools: Schema.Array(
      Schema.Struct({ type: Schema.Literal("function"), name: text, description: text, inputSchema: Schema.Json })
    )
  }),
  "thread/resume": Schema.Struct({ threadId: text, ...threadSettings, excludeTurns: Schema.Boolean }),
  "turn/start": Schema.Struct({
    threadId: text,
    clientUserMessageId: text,
    input: Schema.Array(UserInput),
    model: text,
    effort: Schema.optional(text),
    outputSchema: Schema.optional(Schema.Json),
    collaborationMode: Schema.optional(Schema.Struct({
      mode: Schema.Literal("default"),
      settings: Schema.Struct({
        model: text,
        reasoning_effort: Schema.NullOr(text),
        developer_instructions: Schema.Null
      })
    }))
  }),
  "turn/steer": Schema.Struct({
    threadId: text,
    expectedTurnId: text,
    clientUserMessageId: Schema.optional(text),
    input: Schema.Array(UserInput)
  }),
  "turn/interrupt": Schema.Struct({ threadId: text, turnId: text }),
  "thread/backgroundTerminals/clean": Schema.Struct({ threadId: text }),
  "thread/compact/start": Schema.Struct({ threadId: text })
} as const

export type Method = keyof typeof requests

/** What `thread/start` and `thread/resume` answer. */
export const ThreadAnswer = Schema.Struct({
  thread: Schema.Struct({ id: text }),
  model: text,
  reasoningEffort: maybe(text)
})

/** What `turn/start` answers. */
export const TurnAnswer = Schema.Struct({ turn: Schema.Struct({ id: text }) })

// -----------------------------------------------------------------------------
// Messages
// -----------------------------------------------------------------------------

const Id = Schema.Union([text, Schema.Int])

/** A line that Codex prints: an answer, a request or a notification. */
export const Message = Schema.Struct({
  id: Schema.optional(Id),
  method: Schema.optional(text),
  params: Schema.optional(Schema.Json),
  result: Schema.optional(Schema.Json),
  error: Schema.optional(Schema.Json)
})

export type RequestId = typeof Id.Type
