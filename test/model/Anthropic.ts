/**
 * The Anthropic Messages API, streaming and not, with token counts and the list of models.
 */
import { randomUUID } from "node:crypto"
import type { Api, Frames, Whole } from "./Api.ts"
import type { Call, Conversation, Reply } from "./Script.ts"

interface Block {
  readonly type: string
  readonly text?: string
}

interface Body {
  readonly model: string
  readonly stream?: boolean
  readonly messages: ReadonlyArray<{
    readonly role: "user" | "assistant" | "system"
    readonly content: string | ReadonlyArray<Block>
  }>
}

export const Anthropic: Api = {
  read: (request) => {
    if (request.path === "/v1/models") {
      return { _tag: "Other", answer: { status: 200, json: { data: [], has_more: false } } }
    }
    if (request.path === "/v1/messages/count_tokens") {
      const tokens = Math.ceil(JSON.stringify(request.body).length / 4)
      return { _tag: "Other", answer: { status: 200, json: { input_tokens: tokens } } }
    }
    if (request.path !== "/v1/messages" || request.method !== "POST") return undefined
    const body = request.body as Body
    const conversation = conversationOf(body)
    return {
      _tag: "Call",
      conversation,
      side: errand(conversation),
      answer: (reply) => body.stream === true ? stream(body, reply) : message(body, reply),
      fail: (status, message) => ({
        status,
        json: { type: "error", error: { type: errorTypes[status] ?? "api_error", message } }
      })
    }
  }
}

const errorTypes: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  500: "api_error",
  529: "overloaded_error"
}

const conversationOf = (body: Body): Conversation => {
  const turns: Array<{ role: "user" | "assistant"; text: string }> = []
  let before: string | undefined
  for (const { role, content } of body.messages) {
    // Reminders that the agent puts between the turns.
    if (role === "system") continue
    const texts = typeof content === "string"
      ? [content]
      : content.filter((block) => block.type === "text").map((block) => block.text ?? "")
    if (role === "user") {
      for (const text of texts) turns.push({ role, text })
    } else {
      const text = texts.join("")
      // Claude Code's own words in place of an answer that it lost: the model never said them.
      if (text === "No response requested.") continue
      const last = turns.at(-1)
      if (before === "assistant" && last !== undefined) last.text += text
      else turns.push({ role, text })
    }
    before = role
  }
  return turns
}

// Calls that Claude Code makes for itself.
const errand = (conversation: Conversation): string | undefined => {
  const last = conversation.at(-1)?.text ?? ""
  if (last.includes("create a detailed summary of the conversation")) return "<summary>what was said so far</summary>"
  return undefined
}

const tool = (call: Call): { readonly name: string; readonly input: unknown } => {
  switch (call._tag) {
    case "bash":
      return { name: "Bash", input: { command: call.command, description: "a scripted command" } }
    case "write":
      return { name: "Write", input: { file_path: call.path, content: call.content } }
    case "edit":
      return { name: "Edit", input: { file_path: call.path, old_string: call.from, new_string: call.to } }
    case "read":
      return { name: "Read", input: { file_path: call.path } }
    case "tool":
      return { name: call.name, input: call.params }
  }
}

const id = (prefix: string) => `${prefix}_${randomUUID().replaceAll("-", "").slice(0, 24)}`

const stopReason = (reply: Reply) => reply.stop ?? (reply.calls.length > 0 ? "tool_use" : "end_turn")

const inputUsage = (reply: Reply) => ({
  input_tokens: reply.usage.input,
  cache_read_input_tokens: reply.usage.cacheRead,
  cache_creation_input_tokens: reply.usage.cacheWrite
})

const message = (body: Body, reply: Reply): Whole => ({
  status: 200,
  json: {
    id: id("msg"),
    type: "message",
    role: "assistant",
    model: body.model,
    content: [
      ...(reply.think === undefined ? [] : [{ type: "thinking", thinking: reply.think, signature: "c2lnbmVk" }]),
      ...(reply.text.length === 0 ? [] : [{ type: "text", text: reply.text.join("") }]),
      ...reply.calls.map((call) => ({ type: "tool_use", id: id("toolu"), ...tool(call) }))
    ],
    stop_reason: stopReason(reply),
    stop_sequence: null,
    usage: { ...inputUsage(reply), output_tokens: reply.usage.output }
  }
})

const stream = (body: Body, reply: Reply): Frames => {
  const frames: Array<string> = []
  const event = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`
  let index = 0
  const block = (start: object, deltas: ReadonlyArray<object>) => {
    frames.push(event("content_block_start", { index, content_block: start }))
    for (const delta of deltas) frames.push(event("content_block_delta", { index, delta }))
    frames.push(event("content_block_stop", { index }))
    index++
  }
  frames.push(event("message_start", {
    message: {
      id: id("msg"),
      type: "message",
      role: "assistant",
      model: body.model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { ...inputUsage(reply), output_tokens: 1 }
    }
  }))
  if (reply.think !== undefined) {
    block({ type: "thinking", thinking: "", signature: "" }, [
      { type: "thinking_delta", thinking: reply.think },
      { type: "signature_delta", signature: "c2lnbmVk" }
    ])
  }
  if (reply.text.length > 0) {
    block({ type: "text", text: "" }, reply.text.map((text) => ({ type: "text_delta", text })))
  }
  for (const call of reply.calls) {
    const { input, name } = tool(call)
    const json = JSON.stringify(input)
    const size = Math.max(8, Math.ceil(json.length / 8))
    block(
      { type: "tool_use", id: id("toolu"), name, input: {} },
      Array.from(
        { length: Math.ceil(json.length / size) },
        (_, i) => ({ type: "input_json_delta", partial_json: json.slice(i * size, (i + 1) * size) })
      )
    )
  }
  return {
    contentType: "text/event-stream",
    body: frames,
    end: [
      event("message_delta", {
        delta: { stop_reason: stopReason(reply), stop_sequence: null },
        usage: { ...inputUsage(reply), output_tokens: reply.usage.output }
      }),
      event("message_stop", {})
    ]
  }
}
