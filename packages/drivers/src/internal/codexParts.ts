/**
 * The parts that Codex's notifications make.
 *
 * A message and a reasoning are streamed, and come whole at their end; calls come whole when they start, and again when
 * they have ended. A model call is told by the growth of its thread's usage, after the calls that it led to.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Predicate from "effect/Predicate"
import * as Items from "./codexItems.ts"
import type { Notification, ThreadItem, TokenCounts, TurnError } from "./codexMessages.ts"
import { planOf } from "./plan.ts"

type Part = Bridge.AgentPart

/** What threads have used so far, by their ids. */
export type Usages = Map<string, TokenCounts>

/** The characters of a command's output that are kept until it ends. */
const maxOutput = 16 * 1024

interface Block {
  readonly kind: "text" | "reasoning"
  readonly parent: string | undefined
  /** The place of the text that comes: between two, there's an empty line. */
  place: number
}

/** Makes the parts of one turn, notification by notification. */
export const makeParts = (options: {
  readonly usages: Usages
  /** The session's own thread; the others are sub-agents'. */
  readonly thread: () => string | undefined
  readonly trigger: "auto" | "manual"
}) => {
  /** The blocks that have begun and not ended. */
  const blocks = new Map<string, Block>()
  /** The blocks of which something was told. */
  const told = new Set<string>()
  /** The calls that were told. */
  const calls = new Set<string>()
  /** The items that have ended: what's told of one after that, or again, is nothing new. */
  const ended = new Set<string>()
  /** The calls that have begun and not ended, with what they printed. */
  const open = new Map<string, { readonly item: Items.CallItem; readonly parent: string | undefined; output: string }>()
  const answered = new Set<string>()
  const denials = new Map<string, string>()
  /** The calls that started sub-agents, by the sub-agents' threads. */
  const parents = new Map<string, string>()
  /** The threads whose model has called something since it was last counted. */
  const calling = new Set<string>()
  let retries = 0

  const parentOf = (thread: string): string | undefined => {
    if (thread === options.thread()) return undefined
    const known = parents.get(thread)
    if (known !== undefined) return known
    // One that speaks before the call that starts it has said its name.
    const starting = [...open.values()].findLast(({ item }) => item.type === "collabAgentToolCall")?.item.id
    if (starting !== undefined) parents.set(thread, starting)
    return starting ?? thread
  }

  const endBlock = (id: string): ReadonlyArray<Part> => {
    const block = blocks.get(id)
    if (block === undefined) return []
    blocks.delete(id)
    return [{ type: `${block.kind}-end`, id, ...Items.by(block.parent) }]
  }

  const delta = (
    kind: Block["kind"],
    id: string,
    text: string,
    place: number,
    parent: string | undefined
  ): ReadonlyArray<Part> => {
    if (ended.has(id)) return []
    const before = blocks.get(id)
    const block = before ?? { kind, parent, place }
    const gap = block.place === place ? "" : "\n\n"
    block.place = place
    blocks.set(id, block)
    told.add(id)
    return [
      ...(before === undefined ? [{ type: `${kind}-start`, id, ...Items.by(parent) } as const] : []),
      { type: `${kind}-delta`, id, delta: gap + text, ...Items.by(parent) }
    ]
  }

  const started = (item: ThreadItem, thread: string): ReadonlyArray<Part> => {
    if (!Items.isCall(item) || ended.has(item.id) || open.has(item.id)) return []
    calling.add(thread)
    const parent = parentOf(thread)
    open.set(item.id, { item, parent, output: "" })
    follow(item)
    return call(item, parent)
  }

  const call = (item: Items.CallItem, parent: string | undefined): Array<Part> => {
    if (calls.has(item.id)) return []
    calls.add(item.id)
    return [Items.toolCall(item, parent)]
  }

  // Which sub-agents a call started is told when it has ended, or already at its start.
  const follow = (item: ThreadItem) => {
    if (item.type !== "collabAgentToolCall") return
    for (const thread of item.receiverThreadIds) if (!parents.has(thread)) parents.set(thread, item.id)
  }

  const completed = (item: ThreadItem, thread: string, summary: string | undefined): ReadonlyArray<Part> => {
    const parent = parentOf(thread)
    if (ended.has(item.id)) return []
    ended.add(item.id)
    switch (item.type) {
      case "userMessage":
        return []
      case "agentMessage":
      case "reasoning": {
        const kind = item.type === "reasoning" ? "reasoning" : "text"
        const text = item.type === "reasoning" ? Items.thoughts(item) : item.text
        if (told.has(item.id)) return endBlock(item.id)
        return text === "" ? [] : Items.blockParts(kind, item.id, text, parent)
      }
      case "contextCompaction":
        return [{
          type: "compaction",
          trigger: options.trigger,
          ...(summary === undefined ? {} : { summary }),
          metadata: { item: item.id },
          ...Items.by(parent)
        }]
      default: {
        follow(item)
        const parts = call(item, parent)
        open.delete(item.id)
        // What a host answered is in the log already.
        if (answered.has(item.id)) return parts
        return [...parts, ...Items.resultParts(item, { reason: denials.get(item.id), parent })]
      }
    }
  }

  const retry = ({ additionalDetails, message }: TurnError): ReadonlyArray<Part> => {
    retries++
    const [, attempt, maxAttempts] = /(\d+)\/(\d+)/.exec(message) ?? []
    return [
      // What a stream that broke has begun is left as it is: the model is asked again.
      ...[...blocks.keys()].flatMap(endBlock),
      {
        type: "retry",
        attempt: attempt === undefined ? retries : Number(attempt),
        ...(maxAttempts === undefined ? {} : { maxAttempts: Number(maxAttempts) }),
        message: additionalDetails ?? message
      }
    ]
  }

  return {
    /** `summary` is what a compaction left of the conversation. */
    take: (notification: Notification, summary?: string): ReadonlyArray<Part> => {
      const { params } = notification
      const parent = parentOf(params.threadId)
      switch (notification.method) {
        case "item/started":
          return started(notification.params.item, params.threadId)
        case "item/completed":
          return completed(notification.params.item, params.threadId, summary)
        case "item/agentMessage/delta":
          return delta("text", notification.params.itemId, notification.params.delta, 0, parent)
        case "item/reasoning/summaryTextDelta": {
          const { delta: text, itemId, summaryIndex } = notification.params
          return delta("reasoning", itemId, text, summaryIndex, parent)
        }
        case "item/reasoning/textDelta": {
          const { contentIndex, delta: text, itemId } = notification.params
          return delta("reasoning", itemId, text, contentIndex, parent)
        }
        case "item/commandExecution/outputDelta": {
          const call = open.get(notification.params.itemId)
          if (call !== undefined) call.output = (call.output + notification.params.delta).slice(-maxOutput)
          return []
        }
        case "thread/tokenUsage/updated": {
          const { total } = notification.params.tokenUsage
          const before = options.usages.get(params.threadId)
          options.usages.set(params.threadId, total)
          // It's told again where something else has changed.
          if (total.totalTokens === (before?.totalTokens ?? 0)) return []
          return [Items.stepFinished(before, total, calling.delete(params.threadId) ? "tool-calls" : "stop", parent)]
        }
        case "turn/plan/updated":
          return [{
            ...planOf(notification.params.plan.map(({ status, step }) => ({
              content: step,
              status: status === "inProgress" ? "in_progress" : status
            }))),
            ...Items.by(parent)
          }]
        case "error":
          return notification.params.willRetry ? retry(notification.params.error) : []
        default:
          return []
      }
    },

    /** The parts that end what the turn leaves open: in one that's finished, commands go on in the background. */
    close: (finished: boolean): ReadonlyArray<Part> => [
      ...[...blocks.keys()].flatMap(endBlock),
      ...[...open.values()].flatMap(({ item, output, parent }): ReadonlyArray<Part> => {
        if (!finished || item.type !== "commandExecution") return []
        const { name } = Items.called(item)
        return [{
          type: "tool-result",
          id: item.id,
          name,
          // What a command prints at first, Codex tells with its end only.
          result: output === "" ? "The command goes on in the background." : output,
          isFailure: false,
          providerExecuted: true,
          metadata: { background: true },
          ...Items.by(parent)
        }]
      })
    ],

    /** A call that has begun and not ended. */
    openCall: (id: string): Items.CallItem | undefined => open.get(id)?.item,
    /** The last call of an MCP server's tool that has begun and not ended. */
    openMcpCall: (server: string, tool: string): Items.CallItem | undefined =>
      [...open.values()].map(({ item }) => item).findLast((item) =>
        item.type === "mcpToolCall" && item.server === server && item.tool === tool
      ),
    parentOf,
    /** Takes note that a host is asked for a call: it's in the log. */
    called: (id: string) => void calls.add(id),
    /** Takes note that a host answered a call: its result is in the log. */
    answered: (id: string) => void answered.add(id),
    /** Takes note of why a host denied a call. */
    denied: (id: string, reason: string | undefined) => void (Predicate.isString(reason) && denials.set(id, reason))
  }
}
