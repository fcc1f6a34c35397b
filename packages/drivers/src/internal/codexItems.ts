/**
 * The parts of what Codex tells whole: a message, a reasoning, a call and its result.
 *
 * Codex doesn't tell which tool the model called, only what it led to: so a command is a call of `shell`, and a change
 * of files one of `apply_patch`, whatever the model's tools are named.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import type { ThreadItem, TokenCounts } from "./codexMessages.ts"
import { scriptOf } from "./codexShell.ts"
import { split } from "./deltas.ts"
import { hunksOf, unifiedDiff, wholeFile } from "./unifiedDiff.ts"

type Part = Bridge.AgentPart

/** An item that is a tool call. */
export type CallItem = Exclude<
  ThreadItem,
  { readonly type: "userMessage" | "agentMessage" | "reasoning" | "contextCompaction" }
>

export const isCall = (item: ThreadItem): item is CallItem =>
  item.type !== "userMessage" && item.type !== "agentMessage" && item.type !== "reasoning" &&
  item.type !== "contextCompaction"

export const by = (parent: string | undefined) => parent === undefined ? {} : { parent }

/** The names of the calls that Codex carries out itself. */
export const shell = "shell"
export const patch = "apply_patch"

export const mcpTool = (server: string, tool: string): string => `mcp__${server}__${tool}`

/** What was called: the tool's name and input. */
export const called = (item: CallItem): { readonly name: string; readonly params: Schema.Json } => {
  switch (item.type) {
    case "commandExecution":
      return { name: shell, params: { command: scriptOf(item.command), cwd: item.cwd } }
    case "fileChange":
      return {
        name: patch,
        params: {
          changes: item.changes.map(({ kind, path }) => ({
            path,
            kind: kind.type,
            ...(Predicate.isString(kind.move_path) ? { moveTo: kind.move_path } : {})
          }))
        }
      }
    case "dynamicToolCall":
      return { name: item.tool, params: item.arguments }
    case "mcpToolCall":
      return { name: mcpTool(item.server, item.tool), params: item.arguments }
    case "collabAgentToolCall":
      return { name: item.tool, params: Predicate.isString(item.prompt) ? { prompt: item.prompt } : {} }
    case "webSearch":
      return { name: "web_search", params: { query: item.query, action: item.action ?? null } }
    case "imageView":
      return { name: "view_image", params: { path: item.path } }
  }
}

export const toolCall = (item: CallItem, parent?: string): Part => ({
  type: "tool-call",
  id: item.id,
  ...called(item),
  providerExecuted: item.type !== "dynamicToolCall",
  ...by(parent)
})

interface Outcome {
  readonly result: Schema.Json
  readonly isFailure: boolean
  readonly metadata?: Schema.JsonObject
}

// What a model is told of a call that the host denied has no reason in it.
const denied = "The host denied this call."

const outcome = (item: CallItem, reason: string | undefined): Outcome => {
  const status = "status" in item ? item.status : "completed"
  const isFailure = status !== "completed"
  if (status === "declined") return { result: reason ?? denied, isFailure }
  switch (item.type) {
    case "commandExecution":
      return {
        result: item.aggregatedOutput ?? "",
        isFailure,
        ...(Predicate.isNumber(item.exitCode) ? { metadata: { exitCode: item.exitCode } } : {})
      }
    case "fileChange":
      return { result: isFailure ? "The change could not be made." : "The files were changed.", isFailure }
    case "dynamicToolCall":
      return { result: textOf(item.contentItems ?? []), isFailure }
    case "mcpToolCall":
      return Predicate.isNotNullish(item.error)
        ? { result: item.error.message, isFailure: true }
        : { result: textOf(item.result?.content ?? []), isFailure }
    case "collabAgentToolCall":
      return { result: item.agentsStates, isFailure }
    case "webSearch":
      return { result: item.results ?? null, isFailure }
    case "imageView":
      return { result: "The image was shown to the model.", isFailure }
  }
}

// Contents that are all text are told as text.
const textOf = (content: ReadonlyArray<Schema.Json>): Schema.Json => {
  const texts = content.map((one) => Predicate.isObject(one) ? one["text"] : undefined)
  return texts.every(Predicate.isString) ? texts.join("\n") : content
}

/** The parts of a call that has ended; `reason` is why the host denied it. */
export const resultParts = (item: CallItem, options: {
  readonly reason?: string | undefined
  readonly parent?: string | undefined
} = {}): Array<Part> => {
  const { name } = called(item)
  const done = outcome(item, options.reason)
  const parent = by(options.parent)
  return [
    {
      type: "tool-result",
      id: item.id,
      name,
      ...done,
      providerExecuted: item.type !== "dynamicToolCall",
      ...parent
    },
    ...(item.type === "fileChange" && item.status === "completed"
      ? item.changes.map((change): Part => ({ ...fileChange(change, item.id), ...parent }))
      : [])
  ]
}

type Update = Extract<ThreadItem, { readonly type: "fileChange" }>["changes"][number]

const fileChange = ({ diff, kind, path }: Update, toolCallId: string): typeof Bridge.FileChange.Type => {
  switch (kind.type) {
    case "add":
      return { type: "file-change", path, kind: "create", diff: unifiedDiff(path, true, wholeFile(diff)), toolCallId }
    case "delete":
      return { type: "file-change", path, kind: "delete", diff: deletion(path, diff), toolCallId }
    case "update": {
      const to = kind.move_path
      const hunks = diff.replace(/\n\nMoved to: [^\n]*$/, "")
      return {
        type: "file-change",
        path: to ?? path,
        kind: Predicate.isString(to) ? "move" : "update",
        ...(Predicate.isString(to) ? { from: path } : {}),
        diff: `--- ${path}\n+++ ${to ?? path}\n${hunks}`,
        toolCallId
      }
    }
  }
}

const nowhere = "/dev/null"

const deletion = (path: string, content: string): string =>
  `--- ${path}\n` + unifiedDiff(nowhere, false, hunksOf(content, "")).slice(`--- ${nowhere}\n`.length)

/** The texts of a reasoning: what is summed up, or else what is told raw. */
export const thoughts = (item: Extract<ThreadItem, { readonly type: "reasoning" }>): string =>
  (item.summary.length > 0 ? item.summary : item.content).join("\n\n")

/** The parts of a message or a reasoning that came whole. */
export const blockParts = (
  kind: "text" | "reasoning",
  id: string,
  text: string,
  parent?: string
): Array<Part> => [
  { type: `${kind}-start`, id, ...by(parent) },
  ...split(text).map((delta): Part => ({ type: `${kind}-delta`, id, delta, ...by(parent) })),
  { type: `${kind}-end`, id, ...by(parent) }
]

/** What was used between two counts of a thread's whole usage. */
export const usageBetween = (before: TokenCounts | undefined, after: TokenCounts): Bridge.Usage => {
  const since = (count: keyof TokenCounts) => after[count] - (before?.[count] ?? 0)
  const total = since("inputTokens")
  const cacheRead = since("cachedInputTokens")
  const cacheWrite = since("cacheWriteInputTokens")
  const reasoning = since("reasoningOutputTokens")
  return {
    measured: true,
    inputTokens: { total, uncached: Math.max(0, total - cacheRead - cacheWrite), cacheRead, cacheWrite },
    outputTokens: { total: since("outputTokens"), ...(reasoning > 0 ? { reasoning } : {}) }
  }
}

/** One call of the model is done; it's known by what its thread had used by then. */
export const stepFinished = (
  before: TokenCounts | undefined,
  after: TokenCounts,
  finishReason: string,
  parent?: string
): typeof Bridge.StepFinished.Type => ({
  type: "step-finished",
  usage: usageBetween(before, after),
  finishReason,
  metadata: { threadTokens: after.totalTokens },
  ...by(parent)
})

/** A call of the model that was cut before Codex wrote what it used; it's known by its first item. */
export const stepCut = (item: string): typeof Bridge.StepFinished.Type => ({
  type: "step-finished",
  usage: { measured: false },
  finishReason: "aborted",
  metadata: { item }
})
