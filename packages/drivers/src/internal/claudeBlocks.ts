/**
 * The parts of what Claude Code tells whole: a block of an answer, a tool's result, a compaction.
 *
 * A block's id is its message's id and its place in it, as in the transcript, so that the log and the transcript can be
 * compared.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { fileChange } from "./claudeDiff.ts"
import type { Block, CompactMetadata, Content, TokenCounts } from "./claudeMessages.ts"
import { split } from "./deltas.ts"

type Part = Bridge.AgentPart

/** The MCP server that the driver plays, and so the beginning of its tools' names. */
export const hostServer = "host"
const hostPrefix = `mcp__${hostServer}__`

/** The host tool of that name, as the host knows it. */
export const hostTool = (name: string): string | undefined =>
  name.startsWith(hostPrefix) ? name.slice(hostPrefix.length) : undefined

export const usageOf = (counts: TokenCounts | undefined): Bridge.Usage => {
  if (counts === undefined) return { measured: false }
  const cacheRead = counts.cache_read_input_tokens ?? 0
  const cacheWrite = counts.cache_creation_input_tokens ?? 0
  const uncached = counts.input_tokens ?? 0
  return {
    measured: true,
    inputTokens: { total: uncached + cacheRead + cacheWrite, uncached, cacheRead, cacheWrite },
    outputTokens: { total: counts.output_tokens ?? 0 }
  }
}

/** Claude's word for why it stopped, as a finish reason. */
export const finishReason = (stopReason: string | null | undefined): string => {
  switch (stopReason) {
    case "end_turn":
    case "stop_sequence":
      return "stop"
    case "max_tokens":
    case "model_context_window_exceeded":
      return "length"
    case "tool_use":
      return "tool-calls"
    case "refusal":
      return "content-filter"
    default:
      return "unknown"
  }
}

export const by = (parent: string | null | undefined) => Predicate.isString(parent) ? { parent } : {}

export const blockId = (message: string, index: number): string => `${message}:${index}`

/** The parts of a whole block of an answer. */
export const blockParts = (message: string, index: number, block: Block, parent?: string | null): Array<Part> => {
  const id = blockId(message, index)
  switch (block.type) {
    case "text":
      return [
        { type: "text-start", id, ...by(parent) },
        ...split(block.text ?? "").map((delta): Part => ({ type: "text-delta", id, delta, ...by(parent) })),
        { type: "text-end", id, ...by(parent) }
      ]
    case "thinking":
      return [
        { type: "reasoning-start", id, ...by(parent) },
        ...split(block.thinking ?? "").map((delta): Part => ({ type: "reasoning-delta", id, delta, ...by(parent) })),
        { type: "reasoning-end", id, ...by(parent) }
      ]
    case "tool_use":
      return [toolCall(block, parent)]
    default:
      return []
  }
}

export const toolCall = ({ id = "", input = {}, name = "" }: Block, parent: string | null | undefined): Part => ({
  type: "tool-call",
  id,
  name: hostTool(name) ?? name,
  params: input,
  providerExecuted: hostTool(name) === undefined,
  ...by(parent)
})

/** What of a tool's structured result its text doesn't tell. */
const Details = Schema.Struct({
  filePath: Schema.optional(Schema.String),
  structuredPatch: Schema.optional(Schema.Json),
  stderr: Schema.optional(Schema.String),
  interrupted: Schema.optional(Schema.Boolean),
  backgroundTaskId: Schema.optional(Schema.String)
})

const decodeDetails = Schema.decodeUnknownOption(Details)

const resultOf = (content: Schema.Json | undefined): Schema.Json => {
  if (!Array.isArray(content)) return content ?? ""
  const texts = content.map((block) =>
    Predicate.isObject(block) && block["type"] === "text" ? block["text"] : undefined
  )
  return texts.every(Predicate.isString) ? texts.join("\n") : content
}

/** The parts of a tool's result; `name` is the tool's, as Claude Code knows it. */
export const resultParts = (
  block: Block,
  name: string,
  structured: unknown,
  parent?: string | null
): Array<Part> => {
  const id = block.tool_use_id ?? ""
  const isFailure = block.is_error === true
  const details = Option.getOrElse(decodeDetails(structured), () => ({}))
  const change = isFailure ? undefined : fileChange(structured, id)
  return [
    {
      type: "tool-result",
      id,
      name: hostTool(name) ?? name,
      result: resultOf(block.content),
      isFailure,
      providerExecuted: hostTool(name) === undefined,
      ...(Object.keys(details).length === 0 ? {} : { metadata: details as Schema.JsonObject }),
      ...by(parent)
    },
    ...(change === undefined ? [] : [{ ...change, ...by(parent) }])
  ]
}

export const compaction = (
  uuid: string,
  metadata: typeof CompactMetadata.Type,
  summary: string | undefined
): typeof Bridge.Compaction.Type => ({
  type: "compaction",
  trigger: metadata.trigger,
  ...(Predicate.isNumber(metadata.pre_tokens) ? { tokensBefore: metadata.pre_tokens } : {}),
  ...(Predicate.isNumber(metadata.post_tokens) ? { tokensAfter: metadata.post_tokens } : {}),
  ...(summary === undefined ? {} : { summary }),
  metadata: { uuid }
})

/** The summary in what Claude Code puts in place of a conversation that it compacted. */
export const summaryOf = (content: typeof Content.Type): string | undefined => {
  const text = Predicate.isString(content) ? content : content.map((block) => block.text ?? "").join("\n")
  const [, summary] = /\nSummary:\n([\s\S]*?)(?:\n\nIf you need specific details|$)/.exec(text) ?? []
  return summary
}
