/**
 * What an agent of the Agent Client Protocol sends, as far as the driver needs it. Updates of other kinds, and fields
 * that aren't named here, pass unnoticed: agents add their own, and leave out what the protocol asks for.
 */
import * as Schema from "effect/Schema"

/** Part of what was parsed from JSON, so it needs no check of its own. */
const json: Schema.Codec<Schema.Json> = Schema.Any

const maybe = <S extends Schema.Top>(schema: S) => Schema.optional(Schema.NullOr(schema))
const text = maybe(Schema.String)
const count = maybe(Schema.Finite)
const flag = maybe(Schema.Boolean)
const meta = { _meta: maybe(Schema.Record(Schema.String, json)) }

// ---------------------------------------------------------------------------
// Updates
// ---------------------------------------------------------------------------

/** A piece of content, of whatever type. */
export const ContentBlock = Schema.Struct({
  type: Schema.String,
  text,
  data: text,
  mimeType: text,
  uri: text,
  name: text,
  resource: maybe(json)
})

export type ContentBlock = typeof ContentBlock.Type

export const ToolContent = Schema.Struct({
  type: Schema.String,
  content: maybe(ContentBlock),
  path: text,
  oldText: text,
  newText: text,
  terminalId: text
})

export type ToolContent = typeof ToolContent.Type

const toolFields = {
  toolCallId: Schema.String,
  title: text,
  name: text,
  kind: text,
  status: text,
  content: maybe(Schema.Array(ToolContent)),
  locations: maybe(Schema.Array(Schema.Struct({ path: Schema.String }))),
  rawInput: maybe(json),
  rawOutput: maybe(json),
  ...meta
}

/** What an agent tells of a tool call, all at once or bit by bit. */
export const ToolFields = Schema.Struct(toolFields)

export type ToolFields = typeof ToolFields.Type

/** Tokens as agents count them. */
export const TokenCounts = Schema.Struct({
  inputTokens: count,
  outputTokens: count,
  totalTokens: count,
  thoughtTokens: count,
  cachedReadTokens: count,
  cachedWriteTokens: count
})

export type TokenCounts = typeof TokenCounts.Type

const update = <const Kind extends string, const Fields extends Schema.Struct.Fields>(kind: Kind, fields: Fields) =>
  Schema.Struct({ sessionUpdate: Schema.Literal(kind), ...fields })

const chunk = { content: ContentBlock, messageId: text, ...meta }

export const Update = Schema.Union([
  update("user_message_chunk", chunk),
  update("agent_message_chunk", chunk),
  update("agent_thought_chunk", chunk),
  update("tool_call", toolFields),
  update("tool_call_update", toolFields),
  update("plan", { entries: Schema.Array(Schema.Struct({ content: Schema.String, status: text })) }),
  update("usage_update", {
    used: count,
    cost: maybe(Schema.Struct({ amount: Schema.Finite, currency: Schema.String }))
  }),
  update("notice", { severity: text, title: Schema.String, description: text }),
  update("compaction_update", {
    compactionId: Schema.String,
    status: Schema.String,
    summary: maybe(Schema.Array(ContentBlock))
  })
])

export type Update = typeof Update.Type

export const SessionUpdate = Schema.Struct({ sessionId: Schema.String, update: Update })

// ---------------------------------------------------------------------------
// Answers
// ---------------------------------------------------------------------------

export const Initialized = Schema.Struct({
  protocolVersion: Schema.Finite,
  agentInfo: maybe(Schema.Struct({ name: text, version: text })),
  agentCapabilities: maybe(Schema.Struct({
    loadSession: flag,
    promptCapabilities: maybe(Schema.Struct({ image: flag, embeddedContext: flag })),
    mcpCapabilities: maybe(Schema.Struct({ http: flag, sse: flag }))
  })),
  authMethods: maybe(Schema.Array(Schema.Struct({ id: Schema.String })))
})

export type Initialized = typeof Initialized.Type

const ConfigOption = Schema.Struct({ id: Schema.String, category: text, currentValue: maybe(json) })

/** What `session/new` and `session/load` answer. */
export const SessionSettings = Schema.Struct({
  modes: maybe(Schema.Struct({
    currentModeId: text,
    availableModes: maybe(Schema.Array(Schema.Struct({ id: Schema.String })))
  })),
  models: maybe(Schema.Struct({ currentModelId: text })),
  configOptions: maybe(Schema.Array(ConfigOption))
})

export type SessionSettings = typeof SessionSettings.Type

export const NewSession = Schema.Struct({ sessionId: Schema.String, ...SessionSettings.fields })

export const Prompted = Schema.Struct({ stopReason: Schema.String, usage: maybe(TokenCounts), ...meta })

export type Prompted = typeof Prompted.Type

// ---------------------------------------------------------------------------
// Requests
// ---------------------------------------------------------------------------

export const PermissionOption = Schema.Struct({ optionId: Schema.String, name: text, kind: text })

export const PermissionRequest = Schema.Struct({
  sessionId: Schema.String,
  toolCall: ToolFields,
  options: Schema.Array(PermissionOption)
})

export type PermissionRequest = typeof PermissionRequest.Type

export const ReadTextFile = Schema.Struct({ path: Schema.String, line: count, limit: count })

export const WriteTextFile = Schema.Struct({ path: Schema.String, content: Schema.String })

export const CreateTerminal = Schema.Struct({
  command: Schema.String,
  args: maybe(Schema.Array(Schema.String)),
  cwd: text,
  env: maybe(Schema.Array(Schema.Struct({ name: Schema.String, value: Schema.String }))),
  outputByteLimit: count
})

export const TerminalRequest = Schema.Struct({ terminalId: Schema.String })
