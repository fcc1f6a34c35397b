/**
 * What a host asks of a session and of a turn.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

const secret = Schema.RedactedFromValue(Schema.String)

/**
 * A tool that the host runs: the agent calls it, a host answers with `SubmitToolResult`.
 *
 * @category schemas
 * @since 0.1.0
 */
export const HostTool = Schema.Struct({
  name: Schema.String.check(Schema.isPattern(/^[a-zA-Z0-9_-]{1,64}$/)),
  description: Schema.String,
  /** JSON Schema of the tool's input, an object schema. */
  parameters: Schema.JsonObject
})

/** @category models @since 0.1.0 */
export type HostTool = typeof HostTool.Type

/**
 * An MCP server that the agent connects to.
 *
 * @category schemas
 * @since 0.1.0
 */
export const McpServer = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("stdio"),
    name: Schema.String,
    command: Schema.String,
    args: Schema.optional(Schema.Array(Schema.String)),
    env: Schema.optional(Schema.Record(Schema.String, secret))
  }),
  Schema.Struct({
    type: Schema.Literals(["http", "sse"]),
    name: Schema.String,
    url: Schema.String,
    headers: Schema.optional(Schema.Record(Schema.String, secret))
  })
])

/** @category models @since 0.1.0 */
export type McpServer = typeof McpServer.Type

/**
 * Which of the agent's own files count, such as CLAUDE.md and AGENTS.md and the agent's settings: none, the working
 * directory's, or also the user's.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Settings = Schema.Literals(["none", "project", "user"])

/** @category models @since 0.1.0 */
export type Settings = typeof Settings.Type

/**
 * What the agent may do without asking: nothing that asks by itself, edits of files, or all.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Permissions = Schema.Literals(["ask", "edits", "all"])

/** @category models @since 0.1.0 */
export type Permissions = typeof Permissions.Type

/**
 * Bounds of each turn of a session; the turn that reaches one and would go on is aborted with the reason `limit`. `time`
 * is in milliseconds and each attempt's own, `cost` in US dollars.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Limits = Schema.Struct({
  steps: Schema.optional(Schema.Int.check(Schema.isGreaterThan(0))),
  tokens: Schema.optional(Schema.Int.check(Schema.isGreaterThan(0))),
  cost: Schema.optional(Schema.Finite.check(Schema.isGreaterThan(0))),
  time: Schema.optional(Schema.Finite.check(Schema.isGreaterThan(0)))
})

/** @category models @since 0.1.0 */
export type Limits = typeof Limits.Type

/**
 * The options of a session. The first group is compared when a session is started again (a difference is
 * `SessionConflict`), everything else is replaced by the newest values from the next turn on.
 *
 * @category schemas
 * @since 0.1.0
 */
export const SessionOptions = Schema.Struct({
  /** Absolute path of the working directory in the sandbox; compared by its real path. */
  directory: Schema.String,
  /** Added to the agent's system prompt. */
  instructions: Schema.optional(Schema.String),
  tools: Schema.optional(Schema.Array(HostTool)),
  permissions: Schema.Literals(["ask", "edits", "all"]),
  /** Compared by each server's name and command or URL. */
  mcpServers: Schema.optional(Schema.Array(McpServer)),

  settings: Settings,
  model: Schema.optional(Schema.String),
  effort: Schema.optional(Schema.String),
  /** Secret values for the agent's environment, from its next start on; never stored. */
  env: Schema.optional(Schema.Record(Schema.String, secret)),
  /** Milliseconds after which an approval or a question nobody answered is denied; absent, it waits for ever. */
  approvalTimeout: Schema.optional(Schema.Finite.check(Schema.isGreaterThan(0))),
  limits: Schema.optional(Limits),
  /** Whether processes that the agent leaves running end with their turn; absent, they are kept until StopSession. */
  background: Schema.optional(Schema.Literals(["keep", "end"])),
  /** What `ReadState` of another bridge answered: the session carries that conversation on, if it has none yet. */
  state: Schema.optional(Schema.Json)
})

/** @category models @since 0.1.0 */
export type SessionOptions = typeof SessionOptions.Type

/**
 * A piece of a prompt: text, or a file with its content in Base64.
 *
 * @category schemas
 * @since 0.1.0
 */
export const PromptPart = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("file"),
    mediaType: Schema.String,
    data: Schema.String,
    fileName: Schema.optional(Schema.String)
  })
])

/** @category models @since 0.1.0 */
export type PromptPart = typeof PromptPart.Type

/**
 * A prompt: at least one piece.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Prompt = Schema.NonEmptyArray(PromptPart)

/** @category models @since 0.1.0 */
export type Prompt = typeof Prompt.Type

/**
 * Whether a prompt holds an image.
 *
 * @category guards
 * @since 0.1.0
 */
export const hasImage = (prompt: Prompt): boolean =>
  prompt.some((part) => part.type === "file" && part.mediaType.startsWith("image/"))

/**
 * The form of the turn's answer: JSON that fits a JSON Schema.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ResponseFormat = Schema.Struct({ type: Schema.Literal("json"), schema: Schema.JsonObject })

/** @category models @since 0.1.0 */
export type ResponseFormat = typeof ResponseFormat.Type
