/**
 * What the lines of Codex's file tell of one turn, in the terms of the protocol's items.
 */
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { type CallItem, thoughts } from "./codexItems.ts"
import type { FileUpdate, TokenCounts } from "./codexMessages.ts"
import { scriptOfWords } from "./codexShell.ts"

/** What a line tells, where it's one that counts. */
export type Entry =
  | { readonly _tag: "Block"; readonly kind: "text" | "reasoning"; readonly id: string; readonly text: string }
  | { readonly _tag: "Call"; readonly item: CallItem }
  | { readonly _tag: "Result"; readonly item: CallItem }
  | { readonly _tag: "Step"; readonly before: TokenCounts | undefined; readonly after: TokenCounts }
  /** A call of the model whose usage was never written: Codex ended before. The id is that of its first item. */
  | { readonly _tag: "Cut"; readonly id: string }
  | { readonly _tag: "Compaction"; readonly id: string; readonly summary: string | undefined }
  /** That there is such an item or call. Parts of it may be in the log, though none can be made here. */
  | { readonly _tag: "Other"; readonly id: string }
  /** That the model was told something of a call. */
  | { readonly _tag: "Answered"; readonly id: string }

const text = Schema.String
const maybe = <S extends Schema.Top>(schema: S) => Schema.optional(Schema.NullOr(schema))

const item = <const Type extends string, const Fields extends Schema.Struct.Fields>(type: Type, fields: Fields) =>
  Schema.Struct({ type: Schema.Literal(type), id: text, ...fields })

const Status = Schema.Literals(["completed", "failed", "declined"])

const Change = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["add", "delete"]), content: text }),
  Schema.Struct({ type: Schema.Literal("update"), unified_diff: text, move_path: maybe(text) })
])

const Item = Schema.Union([
  item("UserMessage", { client_id: maybe(text) }),
  item("AgentMessage", { content: Schema.Array(Schema.Struct({ text })) }),
  item("Reasoning", { summary_text: Schema.Array(text), raw_content: Schema.Array(text) }),
  item("CommandExecution", {
    command: Schema.Array(text),
    cwd: text,
    status: Status,
    aggregated_output: maybe(text),
    exit_code: maybe(Schema.Int)
  }),
  item("FileChange", { changes: Schema.Record(text, Change), status: Status }),
  item("DynamicToolCall", {
    tool: text,
    arguments: Schema.Json,
    status: Status,
    content_items: maybe(Schema.Array(Schema.Json))
  }),
  item("McpToolCall", {
    server: text,
    tool: text,
    arguments: Schema.Json,
    status: Status,
    result: maybe(Schema.Struct({ content: Schema.Array(Schema.Json) })),
    error: maybe(Schema.Struct({ message: text }))
  }),
  item("ContextCompaction", {})
])

const Counts = Schema.Struct({
  total_tokens: Schema.Finite,
  input_tokens: Schema.Finite,
  cached_input_tokens: Schema.Finite,
  cache_write_input_tokens: Schema.Finite,
  output_tokens: Schema.Finite,
  reasoning_output_tokens: Schema.Finite
})

const line = <const Type extends string, P extends Schema.Top>(type: Type, payload: P) =>
  Schema.Struct({ type: Schema.Literal(type), payload })

const Line = Schema.Union([
  line("event_msg", Schema.Struct({ type: Schema.Literal("item_completed"), item: Item })),
  line("token_usage_record", Schema.Struct({ thread_token_usage: Counts })),
  line("compacted", Schema.Struct({ message: text })),
  line(
    "response_item",
    Schema.Struct({
      type: Schema.Literal("function_call"),
      name: text,
      namespace: maybe(text),
      arguments: text,
      call_id: text
    })
  ),
  line(
    "response_item",
    Schema.Struct({ type: Schema.Literal("custom_tool_call"), name: text, input: text, call_id: text })
  ),
  line(
    "response_item",
    Schema.Struct({ type: Schema.Literals(["function_call_output", "custom_tool_call_output"]), call_id: text })
  )
])

const decodeLine = Schema.decodeUnknownOption(Line)

/** An item of which nothing is known but its id. */
const decodeOther = Schema.decodeUnknownOption(
  line("event_msg", Schema.Struct({ type: Schema.Literal("item_completed"), item: Schema.Struct({ id: text }) }))
)
const parseArguments = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.JsonObject))

const toCounts = (counts: typeof Counts.Type): TokenCounts => ({
  totalTokens: counts.total_tokens,
  inputTokens: counts.input_tokens,
  cachedInputTokens: counts.cached_input_tokens,
  cacheWriteInputTokens: counts.cache_write_input_tokens,
  outputTokens: counts.output_tokens,
  reasoningOutputTokens: counts.reasoning_output_tokens
})

/**
 * The summary in the message that a compaction leaves, after the line with which Codex introduces it. OpenAI's own API
 * tells none.
 */
export const summaryIn = (message: string): string | undefined => {
  const summary = message.slice(message.indexOf("\n") + 1)
  return summary === "" ? undefined : summary
}

const decodeUri = Option.liftThrowable(decodeURIComponent)

/** The path in an address of a file. */
const pathOf = (address: string): string =>
  address.startsWith("file://")
    ? Option.getOrElse(decodeUri(address.slice("file://".length)), () => address)
    : address

const updateOf = ([path, change]: [string, typeof Change.Type]): typeof FileUpdate.Type =>
  change.type === "update"
    ? { path, kind: { type: change.type, move_path: change.move_path ?? null }, diff: change.unified_diff }
    : { path, kind: { type: change.type }, diff: change.content }

const callOf = (item: typeof Item.Type): CallItem | undefined => {
  const { id } = item
  switch (item.type) {
    case "CommandExecution":
      return {
        type: "commandExecution",
        id,
        command: scriptOfWords(item.command),
        cwd: pathOf(item.cwd),
        status: item.status,
        aggregatedOutput: item.aggregated_output,
        exitCode: item.exit_code
      }
    case "FileChange":
      return { type: "fileChange", id, changes: Object.entries(item.changes).map(updateOf), status: item.status }
    case "DynamicToolCall":
      return {
        type: "dynamicToolCall",
        id,
        tool: item.tool,
        arguments: item.arguments,
        status: item.status === "completed" ? "completed" : "failed",
        contentItems: item.content_items
      }
    case "McpToolCall":
      return {
        type: "mcpToolCall",
        id,
        server: item.server,
        tool: item.tool,
        arguments: item.arguments,
        status: item.status === "completed" ? "completed" : "failed",
        result: item.result,
        error: item.error
      }
    default:
      return undefined
  }
}

interface Called {
  readonly id: string
  readonly name: string
  readonly namespace: string | undefined
  readonly input: string
}

// A call that has no item: it's open, or of a tool that Codex tells nothing of.
const openCall = (
  { id, input, name, namespace }: Called,
  options: { readonly tools: ReadonlySet<string>; readonly directory: string }
): CallItem | undefined => {
  const params = Option.getOrElse(parseArguments(input), (): Schema.JsonObject => ({}))
  const command = params["cmd"] ?? params["command"]
  if (namespace?.startsWith("mcp__") === true) {
    const server = namespace.slice("mcp__".length)
    return { type: "mcpToolCall", id, server, tool: name, arguments: params, status: "inProgress" }
  }
  if (options.tools.has(name)) {
    return { type: "dynamicToolCall", id, tool: name, arguments: params, status: "inProgress" }
  }
  if (name === "apply_patch") return { type: "fileChange", id, changes: [], status: "inProgress" }
  const script = Array.isArray(command) ? scriptOfWords(command.map(String)) : command
  if (!Predicate.isString(script)) return undefined
  const cwd = params["workdir"]
  return {
    type: "commandExecution",
    id,
    command: script,
    cwd: Predicate.isString(cwd) ? cwd : options.directory,
    status: "inProgress"
  }
}

/** The ids that clients gave to what the user said. */
export const clientIds = (lines: ReadonlyArray<Schema.JsonObject>): ReadonlySet<string> =>
  new Set(lines.flatMap((json) => {
    const line = Option.getOrUndefined(decodeLine(json))
    if (line?.type !== "event_msg" || line.payload.item.type !== "UserMessage") return []
    return Predicate.isString(line.payload.item.client_id) ? [line.payload.item.client_id] : []
  }))

/**
 * What a conversation holds of the turn that one of `prompts` began, up to its end; nothing where it holds no such
 * message.
 */
export const entriesOf = (lines: ReadonlyArray<Schema.JsonObject>, options: {
  readonly prompts: ReadonlySet<string>
  readonly tools: ReadonlySet<string>
  readonly directory: string
}): ReadonlyArray<Entry> | undefined => {
  const known = lines.map((json) =>
    Option.getOrUndefined(decodeLine(json)) ??
      Option.getOrUndefined(Option.map(decodeOther(json), ({ payload }) => ({ type: "other", payload } as const)))
  ).filter(Predicate.isNotUndefined)
  const items = known.flatMap((line) => line.type === "event_msg" ? [line.payload.item] : [])
  const begins = (line: (typeof known)[number]) =>
    line.type === "event_msg" && line.payload.item.type === "UserMessage" &&
    Predicate.isString(line.payload.item.client_id) && options.prompts.has(line.payload.item.client_id)
  const start = known.findIndex(begins)
  if (start < 0) return undefined

  const calls = new Map(items.map((item) => [item.id, callOf(item)]))
  const called = new Set<string>()
  const entries: Array<Entry> = []
  const call = (id: string, item: CallItem | undefined) => {
    if (item === undefined || called.has(id)) return
    called.add(id)
    entries.push({ _tag: "Call", item })
  }
  let counted: TokenCounts | undefined
  let summary: string | undefined
  /** The first item of what the model said since it was counted last. */
  let uncounted: string | undefined
  const cut = () => {
    if (uncounted !== undefined) entries.push({ _tag: "Cut", id: uncounted })
    uncounted = undefined
  }
  for (const [at, line] of known.entries()) {
    if (line.type === "token_usage_record") {
      const after = toCounts(line.payload.thread_token_usage)
      if (at > start) entries.push({ _tag: "Step", before: counted, after })
      counted = after
      uncounted = undefined
    }
    if (at <= start) continue
    if (line.type === "compacted") summary = summaryIn(line.payload.message)
    else if (line.type === "other") {
      entries.push({ _tag: "Other", id: line.payload.item.id }, { _tag: "Answered", id: line.payload.item.id })
    } else if (line.type === "response_item") {
      const { payload } = line
      entries.push({ _tag: "name" in payload ? "Other" : "Answered", id: payload.call_id })
      if (!("name" in payload)) continue
      const { call_id: id, name } = payload
      uncounted ??= id
      const input = payload.type === "function_call" ? payload.arguments : payload.input
      const namespace = payload.type === "function_call" ? payload.namespace ?? undefined : undefined
      call(id, calls.get(id) ?? openCall({ id, name, namespace, input }, options))
    } else if (line.type === "event_msg") {
      const { item } = line.payload
      switch (item.type) {
        case "UserMessage":
          // Told to carry on, it calls the model anew.
          if (begins(line)) cut()
          break
        case "AgentMessage":
        case "Reasoning": {
          const kind = item.type === "Reasoning" ? "reasoning" : "text"
          const text = item.type === "Reasoning"
            ? thoughts({ type: "reasoning", id: item.id, summary: item.summary_text, content: item.raw_content })
            : item.content.map(({ text }) => text).join("")
          if (text === "") break
          uncounted ??= item.id
          entries.push({ _tag: "Block", kind, id: item.id, text })
          break
        }
        case "ContextCompaction":
          entries.push({ _tag: "Compaction", id: item.id, summary })
          break
        default: {
          const done = callOf(item)
          call(item.id, done)
          if (done !== undefined) entries.push({ _tag: "Result", item: done })
        }
      }
    }
  }
  cut()
  return entries
}
