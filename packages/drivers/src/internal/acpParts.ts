/**
 * The parts that an agent's updates make, of a prompt that runs or of one that is told again when its conversation is
 * loaded.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Predicate from "effect/Predicate"
import type { ContentBlock, Prompted, ToolFields, Update } from "./acpMessages.ts"
import type { Profile } from "./acpProfiles.ts"
import {
  type Call,
  changesOf,
  hostTool,
  isInput,
  makeCall,
  merge,
  mergeAsked,
  nameOf,
  paramsOf,
  resultOf,
  textOf
} from "./acpTools.ts"
import { finishReason, usageOf, usageOfMeta, usageOfQuota } from "./acpUsage.ts"
import { planOf } from "./plan.ts"

type Part = Bridge.AgentPart

interface Told {
  readonly call: Call
  /** Whether its `tool-call` is there. */
  started: boolean
  ended: boolean
}

export interface Options {
  readonly profile: Profile | undefined
  /** The names of the host's tools. */
  readonly tools: ReadonlySet<string>
  /** Which of the conversation's prompts this is: blocks that the agent gives no id are counted under it. */
  readonly prompt: number
  /** What a terminal of the driver's has printed. */
  readonly outputOf: (terminal: string) => string | undefined
}

/**
 * Makes the parts of one prompt, update by update.
 *
 * A step is what the agent tells until all calls in it have their results and it tells something new, or until it says
 * what the step used.
 */
export const makeParts = (options: Options) => {
  const { profile } = options
  /** By the agent's ids; of those that it used several times, the last. */
  const calls = new Map<string, Told>()
  const uses = new Map<string, number>()
  /** How many calls have no result yet. */
  let waiting = 0
  /** Whether a step has begun that isn't finished. */
  let inStep = false
  let callsInStep = 0
  let steps = 0
  let block:
    | { readonly type: "text" | "reasoning"; readonly message: string | undefined; readonly id: string }
    | undefined
  const blocksOf = new Map<string, number>()

  let out: Array<Part> = []

  const endBlock = () => {
    if (block !== undefined) out.push({ type: `${block.type}-end`, id: block.id })
    block = undefined
  }

  const endStep = (usage: Bridge.Usage, reason: string) => {
    endBlock()
    inStep = false
    callsInStep = 0
    steps++
    out.push({ type: "step-finished", usage, finishReason: reason })
  }

  /** Something new of the model: what came before was another step, if all its calls have their results. */
  const begin = () => {
    if (inStep && callsInStep > 0 && waiting === 0) endStep({ measured: false }, "tool-calls")
    inStep = true
  }

  const chunk = (
    type: "text" | "reasoning",
    content: ContentBlock,
    message: string | undefined,
    meta: Parameters<typeof usageOfMeta>[0]
  ) => {
    const delta = textOf(content)
    if (delta === undefined) return file(content)
    if (delta !== "") {
      begin()
      if (block?.type !== type || block.message !== message) {
        endBlock()
        const of = message ?? String(options.prompt)
        const index = blocksOf.get(of) ?? 0
        blocksOf.set(of, index + 1)
        block = { type, message, id: `${of}:${index}` }
        out.push({ type: `${type}-start`, id: block.id })
      }
      out.push({ type: `${type}-delta`, id: block.id, delta })
    }
    const usage = usageOfMeta(meta)
    if (usage !== undefined) endStep(usage, waiting > 0 ? "tool-calls" : "stop")
  }

  const file = ({ data, mimeType }: ContentBlock) => {
    if (!Predicate.isString(data) || !Predicate.isString(mimeType)) return
    begin()
    endBlock()
    out.push({ type: "file", mediaType: mimeType, data })
  }

  const hostToolOf = (call: Call) => hostTool(nameIn(call), options.tools)

  const nameIn = (call: Call): string => profile?.toolName?.(call) ?? nameOf(call)

  const startCall = (told: Told) => {
    if (told.started) return
    told.started = true
    endBlock()
    const host = hostToolOf(told.call)
    out.push({
      type: "tool-call",
      id: told.call.id,
      name: host ?? nameIn(told.call),
      params: paramsOf(told.call),
      providerExecuted: host === undefined
    })
  }

  /** `begins` where it may be the first that is told of a call. */
  const toldOf = (fields: ToolFields, begins: boolean): Told => {
    const { toolCallId } = fields
    const before = calls.get(toolCallId)
    if (before !== undefined && !(before.ended && begins && !isOver(fields))) return before
    begin()
    callsInStep++
    waiting++
    // Some count their calls from one on again and again.
    const use = (uses.get(toolCallId) ?? 0) + 1
    uses.set(toolCallId, use)
    const call = makeCall({ ...fields, toolCallId: use === 1 ? toolCallId : `${toolCallId}#${use}` })
    const told: Told = { call, started: false, ended: false }
    calls.set(toolCallId, told)
    return told
  }

  const tool = (fields: ToolFields, begins: boolean) => {
    const told = toldOf(fields, begins)
    const { call } = told
    merge(call, fields)
    if (told.ended) return
    const { status } = call.fields
    const isComplete = status === "in_progress" || (profile?.announcesEarly !== true && isInput(call.fields.rawInput))
    // A host tool's call is told when it comes.
    if (isComplete && hostToolOf(call) === undefined) startCall(told)
    if (!isOver(call.fields)) return
    startCall(told)
    endCall(told, status === "failed")
  }

  const endCall = (told: Told, failed: boolean) => {
    told.ended = true
    waiting--
    const { call } = told
    const host = hostToolOf(call)
    const failure = profile?.failure?.(call)
    const result = resultOf(call, options.outputOf)
    out.push({
      type: "tool-result",
      id: call.id,
      name: host ?? nameIn(call),
      result: failure !== undefined && Predicate.isString(result) ? `${result}\n(${failure})`.trimStart() : result,
      isFailure: failed || failure !== undefined,
      providerExecuted: host === undefined
    })
    if (failed) return
    out.push(...profile?.changes?.(call) ?? changesOf(call))
    const plan = profile?.plan?.(call)
    if (plan !== undefined) out.push(plan)
  }

  const take = (update: Update): ReadonlyArray<Part> => {
    out = []
    switch (update.sessionUpdate) {
      case "agent_message_chunk":
        chunk("text", update.content, update.messageId ?? undefined, update._meta)
        break
      case "agent_thought_chunk":
        chunk("reasoning", update.content, update.messageId ?? undefined, update._meta)
        break
      case "tool_call":
      case "tool_call_update":
        tool(update, update.sessionUpdate === "tool_call")
        break
      case "plan":
        out.push(planOf(update.entries))
        break
      case "notice":
        out.push({
          type: "notice",
          level: update.severity === "info" ? "info" : "warning",
          message: [update.title, update.description].filter(Predicate.isNotNullish).join(": ")
        })
        break
      case "compaction_update":
        if (update.status !== "completed") break
        out.push({
          type: "compaction",
          trigger: "auto",
          ...(Predicate.isNotNullish(update.summary)
            ? { summary: update.summary.map((piece) => textOf(piece) ?? "").join("\n") }
            : {}),
          metadata: { id: update.compactionId }
        })
    }
    return out
  }

  return {
    take,

    /** The call that permission is asked for, and its `tool-call` where that wasn't there yet. */
    asked: (
      fields: ToolFields
    ): { readonly call: Call; readonly name: string; readonly parts: ReadonlyArray<Part> } => {
      out = []
      const told = toldOf(fields, true)
      mergeAsked(told.call, fields)
      if (hostToolOf(told.call) === undefined) startCall(told)
      return { call: told.call, name: nameIn(told.call), parts: out }
    },

    /** Whether a call was announced, and not yet with its whole input. */
    isAnnounced: (id: string): boolean => calls.get(id)?.started === false,

    /** The agent's id of a host tool's call that it told of and that nobody has taken. */
    hostCall: (name: string): string | undefined =>
      [...calls.values()].find(({ call, started }) => !started && hostToolOf(call) === name)?.call.id,

    /** Leaves a host tool's call to whoever runs it: it's told by the bridge, and its result too. */
    takeHostCall: (id: string): ReadonlyArray<Part> => {
      out = []
      endBlock()
      const told = [...calls.values()].find(({ call }) => call.id === id)
      if (told !== undefined) {
        if (!told.ended) waiting--
        told.started = true
        told.ended = true
      }
      return out
    },

    /** The parts that end the prompt; `prompted` is absent where it was cut. */
    close: (prompted: Prompted | undefined): ReadonlyArray<Part> => {
      out = []
      // Some end a turn where a call was denied, and say no more of that call.
      for (const one of prompted === undefined ? [] : calls.values()) {
        if (!one.started || one.ended) continue
        one.ended = true
        waiting--
        out.push({
          type: "tool-result",
          id: one.call.id,
          name: nameIn(one.call),
          result: "The agent told no result of this call.",
          isFailure: true,
          providerExecuted: true
        })
      }
      const told = prompted === undefined || prompted.stopReason === "cancelled"
        ? undefined
        : usageOf(prompted.usage) ?? usageOfQuota(prompted._meta)
      if (told === undefined) {
        if (inStep) endStep({ measured: false }, prompted === undefined ? "aborted" : finishReason(prompted.stopReason))
      } else if (profile?.usage !== undefined || steps === 0) {
        // What all steps used is told in the last one.
        endStep(told, finishReason(prompted!.stopReason))
      } else if (inStep) endStep({ measured: false }, finishReason(prompted!.stopReason))
      endBlock()
      return out
    }
  }
}

const isOver = ({ status }: ToolFields): boolean => status === "completed" || status === "failed"

export type Parts = ReturnType<typeof makeParts>
