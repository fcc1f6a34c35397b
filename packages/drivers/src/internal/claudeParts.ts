/**
 * The parts that Claude Code's messages make.
 *
 * The main agent's answers are streamed, block by block; then each block comes whole. What sub-agents say, and what
 * the CLI got in one piece after a stream that broke, comes whole only.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Predicate from "effect/Predicate"
import {
  blockId,
  blockParts,
  by,
  compaction,
  finishReason,
  hostTool,
  resultParts,
  summaryOf,
  toolCall,
  usageOf
} from "./claudeBlocks.ts"
import type {
  AssistantMessage,
  Block,
  Content,
  FromClaude,
  Result,
  StreamEvent,
  TokenCounts
} from "./claudeMessages.ts"
import type { makePlan } from "./claudePlan.ts"

type Part = Bridge.AgentPart

const zero = { uncached: 0, cacheRead: 0, cacheWrite: 0, output: 0 }

/** The usage of a model call, and what else a result tells of the calls before it. */
const sinceLastResult = (result: Result) => {
  const sum = { ...zero, cost: 0 }
  for (const usage of Object.values(result.model_usage_since_last_result ?? {})) {
    sum.uncached += usage.inputTokens ?? 0
    sum.cacheRead += usage.cacheReadInputTokens ?? 0
    sum.cacheWrite += usage.cacheCreationInputTokens ?? 0
    sum.output += usage.outputTokens ?? 0
    sum.cost += usage.costUSD ?? 0
  }
  return sum
}

interface Answering {
  readonly id: string
  usage: TokenCounts
  stopReason: string | undefined
  /** The blocks that were streamed; the open ones are to be ended. */
  readonly streamed: Map<number, { readonly type: string; open: boolean }>
}

/**
 * Makes the parts of one turn, message by message.
 *
 * Each model call of the main agent becomes a `step-finished`. Of a sub-agent's calls only the input is told when they
 * happen; what else they used, and what the CLI's own errands did, is added to the last step when the result tells it.
 */
export const makeParts = (options: { readonly plan: ReturnType<typeof makePlan> }) => {
  /** The tools of calls, by the call's id, and the calls of blocks that are streamed, by the block's. */
  const names = new Map<string, string>()
  const callOf = new Map<string, string>()
  const parents = new Map<string, string>()
  const calls = new Set<string>()
  const answered = new Set<string>()
  /** How many blocks of a message came whole. */
  const wholes = new Map<string, number>()
  let answering: Answering | undefined
  /** A finished step that waits for the result: the last one of a turn. */
  let held: typeof Bridge.StepFinished.Type | undefined
  /** The sub-agents' calls whose end is yet to come, by the call that started the sub-agent. */
  const subSteps = new Map<string, { readonly id: string; readonly usage: TokenCounts | undefined }>()
  let told = { ...zero }
  let compacted: Extract<FromClaude, { readonly subtype: "compact_boundary" }> | undefined

  let out: Array<Part> = []
  const flush = () => {
    if (held !== undefined) out.push(held)
    held = undefined
  }
  const push = (...parts: ReadonlyArray<Part>) => {
    if (parts.length === 0) return
    flush()
    out.push(...parts)
  }
  const count = (usage: Bridge.Usage) => {
    told = {
      uncached: told.uncached + (usage.inputTokens?.uncached ?? 0),
      cacheRead: told.cacheRead + (usage.inputTokens?.cacheRead ?? 0),
      cacheWrite: told.cacheWrite + (usage.inputTokens?.cacheWrite ?? 0),
      output: told.output + (usage.outputTokens?.total ?? 0)
    }
  }
  const step = (id: string, usage: Bridge.Usage, reason: string, parent?: string): typeof Bridge.StepFinished.Type => {
    count(usage)
    return { type: "step-finished", usage, finishReason: reason, metadata: { message: id }, ...by(parent) }
  }
  // What came since the answer began is estimated by the CLI, and told by the result.
  const cutStep = (id: string, usage: TokenCounts) => step(id, { ...usageOf(usage), measured: false }, "aborted")

  const call = (block: Block, parent: string | null | undefined) => {
    const { id = "", name = "" } = block
    names.set(id, name)
    if (Predicate.isString(parent)) parents.set(id, parent)
    if (calls.has(id)) return
    calls.add(id)
    push(toolCall(block, parent))
  }

  const endBlock = (index: number) => {
    const block = answering?.streamed.get(index)
    if (answering === undefined || block?.open !== true) return
    block.open = false
    const id = blockId(answering.id, index)
    if (block.type === "text") push({ type: "text-end", id })
    else if (block.type === "thinking") push({ type: "reasoning-end", id })
  }

  const stopAnswering = () => {
    for (const index of answering?.streamed.keys() ?? []) endBlock(index)
    answering = undefined
  }

  const stream = ({ event, parent_tool_use_id }: StreamEvent) => {
    if (Predicate.isString(parent_tool_use_id)) return
    switch (event.type) {
      case "message_start":
        // What a stream that broke has begun is left as it is: the model is asked again.
        stopAnswering()
        answering = {
          id: event.message.id,
          usage: event.message.usage ?? {},
          stopReason: undefined,
          streamed: new Map()
        }
        return push({ type: "response-metadata", id: event.message.id, modelId: event.message.model })
      case "content_block_start": {
        if (answering === undefined) return
        const { content_block: block, index } = event
        const id = blockId(answering.id, index)
        answering.streamed.set(index, { type: block.type, open: true })
        if (block.type === "text") push({ type: "text-start", id })
        else if (block.type === "thinking") push({ type: "reasoning-start", id })
        else if (block.type === "tool_use") {
          const { name = "" } = block
          push({
            type: "tool-params-start",
            id: block.id ?? "",
            name: hostTool(name) ?? name,
            providerExecuted: hostTool(name) === undefined
          })
          callOf.set(id, block.id ?? "")
        }
        return
      }
      case "content_block_delta": {
        if (answering === undefined) return
        const { delta, index } = event
        const id = blockId(answering.id, index)
        if (delta.type === "text_delta") push({ type: "text-delta", id, delta: delta.text ?? "" })
        else if (delta.type === "thinking_delta") push({ type: "reasoning-delta", id, delta: delta.thinking ?? "" })
        else if (delta.type === "input_json_delta") {
          push({ type: "tool-params-delta", id: callOf.get(id) ?? "", delta: delta.partial_json ?? "" })
        }
        return
      }
      case "content_block_stop":
        return endBlock(event.index)
      case "message_delta":
        if (answering === undefined) return
        answering.usage = { ...answering.usage, ...event.usage }
        answering.stopReason = event.delta.stop_reason ?? undefined
        return
      case "message_stop": {
        if (answering === undefined) return
        const { id, stopReason, usage } = answering
        stopAnswering()
        // An interrupted answer is stopped by the CLI itself, before the model said why and what it used.
        const finished = stopReason === undefined
          ? cutStep(id, usage)
          : step(id, usageOf(usage), finishReason(stopReason))
        if (stopReason === "tool_use") push(finished)
        else {
          flush()
          held = finished
        }
      }
    }
  }

  const assistant = (message: AssistantMessage, parent: string | null | undefined) => {
    const known = answering?.id === message.id ? answering : undefined
    if (known === undefined && Predicate.isString(parent)) subStep(parent, message)
    for (const block of message.content) {
      const index = wholes.get(message.id) ?? 0
      wholes.set(message.id, index + 1)
      if (known?.streamed.has(index) === true) {
        endBlock(index)
        if (block.type !== "tool_use") continue
        push({ type: "tool-params-end", id: block.id ?? "" })
        call(block, parent)
      } else if (block.type === "tool_use") call(block, parent)
      else push(...blockParts(message.id, index, block, parent))
    }
    // An answer that wasn't streamed tells why it stopped in its blocks.
    if (known !== undefined || Predicate.isString(parent) || !Predicate.isString(message.stop_reason)) return
    if (unstreamed?.id !== message.id) endUnstreamed()
    unstreamed = message
  }

  let unstreamed: AssistantMessage | undefined
  const endUnstreamed = () => {
    if (unstreamed === undefined) return
    const { id, stop_reason, usage } = unstreamed
    unstreamed = undefined
    push(step(id, usageOf(usage), finishReason(stop_reason)))
  }

  const subStep = (parent: string, message: AssistantMessage) => {
    const before = subSteps.get(parent)
    if (before?.id === message.id) return
    endSubStep(parent)
    subSteps.set(parent, { id: message.id, usage: message.usage })
  }

  const endSubStep = (parent: string) => {
    const before = subSteps.get(parent)
    if (before === undefined) return
    subSteps.delete(parent)
    const { inputTokens } = usageOf(before.usage)
    const usage: Bridge.Usage = { measured: true, ...(inputTokens === undefined ? {} : { inputTokens }) }
    push(step(before.id, usage, "unknown", parent))
  }

  const user = (content: typeof Content.Type, structured: unknown, parent: string | null | undefined) => {
    if (compacted !== undefined) {
      push(compaction(compacted.uuid, compacted.compact_metadata, summaryOf(content)))
      compacted = undefined
    }
    if (Predicate.isString(content)) return
    for (const block of content) {
      if (block.type !== "tool_result") continue
      endUnstreamed()
      if (Predicate.isString(parent)) endSubStep(parent)
      const { tool_use_id: id = "" } = block
      endSubStep(id)
      const name = names.get(id) ?? "unknown"
      const parts = resultParts(block, name, structured, parent)
      // What a host answered is in the log already.
      if (!answered.has(id)) push(...parts)
      const plan = block.is_error === true ? undefined : options.plan(name, structured)
      if (plan !== undefined) push({ ...plan, metadata: { toolCallId: id }, ...by(parent) })
    }
  }

  const take = (message: FromClaude): ReadonlyArray<Part> => {
    out = []
    switch (message.type) {
      case "stream_event":
        stream(message)
        break
      case "assistant":
        if (!Predicate.isString(message.error) && message.message.model !== "<synthetic>") {
          assistant(message.message, message.parent_tool_use_id)
        }
        break
      case "user":
        user(message.message.content, message.tool_use_result, message.parent_tool_use_id)
        break
      case "system":
        switch (message.subtype) {
          case "compact_boundary":
            compacted = message
            break
          case "api_retry":
            push({
              type: "retry",
              attempt: message.attempt,
              ...(Predicate.isNumber(message.max_retries) ? { maxAttempts: message.max_retries } : {}),
              ...(Predicate.isNumber(message.retry_delay_ms) ? { delay: message.retry_delay_ms } : {}),
              message: [message.error_status, message.error].filter(Predicate.isNotNullish).join(" ")
            })
            break
          case "informational":
            push({
              type: "notice",
              level: message.level === "warning" ? "warning" : "info",
              message: message.content
            })
        }
    }
    return out
  }

  /** The parts that a result completes: the last step gets what the ones before didn't tell. */
  const close = (result: Result): ReadonlyArray<Part> => {
    out = []
    for (const parent of subSteps.keys()) endSubStep(parent)
    endUnstreamed()
    if (compacted !== undefined) {
      push(compaction(compacted.uuid, compacted.compact_metadata, undefined))
      compacted = undefined
    }
    const cut = answering
    stopAnswering()
    const sum = sinceLastResult(result)
    if (cut !== undefined) {
      flush()
      held = cutStep(cut.id, cut.usage)
    }
    const rest = {
      uncached: Math.max(0, sum.uncached - told.uncached),
      cacheRead: Math.max(0, sum.cacheRead - told.cacheRead),
      cacheWrite: Math.max(0, sum.cacheWrite - told.cacheWrite),
      output: Math.max(0, sum.output - told.output)
    }
    told = { ...zero }
    const used = rest.uncached + rest.cacheRead + rest.cacheWrite + rest.output > 0
    if (held === undefined && (used || sum.cost > 0)) held = { type: "step-finished", usage: { measured: true } }
    if (held !== undefined) {
      const { inputTokens, outputTokens } = held.usage
      held = {
        ...held,
        usage: {
          ...held.usage,
          ...(used
            ? {
              inputTokens: {
                total: (inputTokens?.total ?? 0) + rest.uncached + rest.cacheRead + rest.cacheWrite,
                uncached: (inputTokens?.uncached ?? 0) + rest.uncached,
                cacheRead: (inputTokens?.cacheRead ?? 0) + rest.cacheRead,
                cacheWrite: (inputTokens?.cacheWrite ?? 0) + rest.cacheWrite
              },
              outputTokens: { total: (outputTokens?.total ?? 0) + rest.output }
            }
            : {}),
          ...(sum.cost > 0 ? { cost: sum.cost } : {})
        }
      }
    }
    flush()
    return out
  }

  return {
    take,
    close,
    /** Takes note that a host answered a call: its result is in the log. */
    answered: (id: string) => void answered.add(id),
    /** The call that started the sub-agent which made that call. */
    parentOf: (id: string): string | undefined => parents.get(id)
  }
}
