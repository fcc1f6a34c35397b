/**
 * The OpenAI Responses API, streaming and not, as Codex speaks it.
 */
import { randomUUID } from "node:crypto"
import type { Api, Frames, Whole } from "./Api.ts"
import type { Call, Conversation, Reply } from "./Script.ts"

interface Item {
  readonly type?: string
  readonly role?: "user" | "assistant" | "developer" | "system"
  readonly content?: string | ReadonlyArray<{ readonly type: string; readonly text?: string }> | null
}

interface Body {
  readonly model: string
  readonly stream?: boolean
  readonly input: string | ReadonlyArray<Item>
  readonly tools?: ReadonlyArray<{
    readonly type: string
    readonly name?: string
    readonly tools?: ReadonlyArray<{ readonly name: string }>
  }>
}

export const OpenAiResponses: Api = {
  read: (request) => {
    if (request.path !== "/v1/responses" || request.method !== "POST") return undefined
    const body = request.body as Body
    const conversation = conversationOf(body)
    return {
      _tag: "Call",
      conversation,
      side: errand(conversation),
      answer: (reply) => body.stream === true ? stream(body, reply) : response(body, reply),
      fail: (status, message) => ({
        status,
        json: {
          error: {
            type: types[status] ?? "server_error",
            code: message.includes("too long") ? "context_length_exceeded" : null,
            message
          }
        }
      })
    }
  }
}

const types: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  429: "rate_limit_error"
}

const conversationOf = ({ input }: Body): Conversation => {
  const turns: Array<{ role: "user" | "assistant"; text: string; calls?: number }> = []
  let before: string | undefined
  for (const item of typeof input === "string" ? [{ role: "user", content: input } as const] : input) {
    if (item.role === "developer" || item.role === "system") continue
    const { content } = item.role === undefined ? {} : item as Item
    const texts = typeof content === "string" ? [content] : (content ?? []).map(({ text = "" }) => text)
    // What the model said, thought and called is one turn of it; each item stands for itself here.
    const role = item.role ?? (item.type?.endsWith("_output") === true ? "tool" : "assistant")
    if (role === "user") {
      for (const text of texts) turns.push({ role, text })
    } else if (role === "assistant") {
      if (before !== "assistant") turns.push({ role, text: "", calls: 0 })
      const last = turns.at(-1)!
      last.text += texts.join("")
      if (item.type?.endsWith("_call") === true) last.calls = last.calls! + 1
    }
    before = role
  }
  return turns
}

// Calls that Codex makes for itself.
const errand = (conversation: Conversation): string | undefined =>
  conversation.at(-1)?.text.includes("CONTEXT CHECKPOINT COMPACTION") === true ? "what was said so far" : undefined

/** The call in Codex's names; it changes files by a command that it catches. */
const tool = (call: Call, { tools = [] }: Body): {
  readonly name: string
  readonly namespace?: string | undefined
  readonly input: unknown
} => {
  switch (call._tag) {
    case "bash":
      return { name: "exec_command", input: { cmd: call.command, yield_time_ms: 600_000 } }
    case "write":
      return patch([`*** Add File: ${call.path}`, ...lines("+", call.content)])
    case "edit":
      return patch([`*** Update File: ${call.path}`, "@@", ...lines("-", call.from), ...lines("+", call.to)])
    case "read":
      return { name: "exec_command", input: { cmd: `cat ${call.path}` } }
    case "tool": {
      const space = tools.find(({ name, tools = [] }) => tools.some((inner) => `${name}__${inner.name}` === call.name))
      return {
        name: space === undefined ? call.name : call.name.slice(`${space.name}__`.length),
        namespace: space?.name,
        input: call.params
      }
    }
  }
}

const patch = (body: ReadonlyArray<string>) => ({
  name: "exec_command",
  input: { cmd: ["apply_patch <<'PATCH'", "*** Begin Patch", ...body, "*** End Patch", "PATCH"].join("\n") }
})

const lines = (sign: string, text: string) =>
  (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n").map((line) => `${sign}${line}`)

const id = (prefix: string) => `${prefix}_${randomUUID().replaceAll("-", "").slice(0, 24)}`

const usage = ({ usage: { cacheRead, cacheWrite, input, output } }: Reply) => ({
  input_tokens: input + cacheRead + cacheWrite,
  input_tokens_details: { cached_tokens: cacheRead, cache_write_tokens: cacheWrite },
  output_tokens: output,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: input + cacheRead + cacheWrite + output
})

/** The items of an answer, each with the deltas it's streamed in. */
const itemsOf = (body: Body, reply: Reply) => [
  ...(reply.think === undefined
    ? []
    : [{
      item: {
        type: "reasoning",
        id: id("rs"),
        summary: [{ type: "summary_text", text: reply.think }],
        encrypted_content: "c2VjcmV0"
      },
      event: "response.reasoning_summary_text.delta",
      deltas: [reply.think]
    }]),
  ...(reply.text.length === 0
    ? []
    : [{
      item: {
        type: "message",
        id: id("msg"),
        role: "assistant",
        content: [{ type: "output_text", text: reply.text.join(""), annotations: [] }]
      },
      event: "response.output_text.delta",
      deltas: reply.text
    }]),
  ...reply.calls.map((call) => {
    const { input, name, namespace } = tool(call, body)
    const text = JSON.stringify(input)
    const size = Math.max(8, Math.ceil(text.length / 8))
    return {
      item: { type: "function_call", id: id("fc"), call_id: id("call"), name, namespace, arguments: text },
      event: "response.function_call_arguments.delta",
      deltas: Array.from({ length: Math.ceil(text.length / size) }, (_, i) => text.slice(i * size, (i + 1) * size))
    }
  })
]

const response = (body: Body, reply: Reply): Whole => ({
  status: 200,
  json: {
    id: id("resp"),
    object: "response",
    status: "completed",
    model: body.model,
    output: itemsOf(body, reply).map(({ item }) => item),
    usage: usage(reply)
  }
})

const stream = (body: Body, reply: Reply): Frames => {
  const frames: Array<string> = []
  let sequence = 0
  const event = (type: string, data: object) =>
    `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: sequence++, ...data })}\n\n`
  const made = { id: id("resp"), object: "response", model: body.model }
  frames.push(event("response.created", { response: { ...made, status: "in_progress", output: [] } }))
  const items = itemsOf(body, reply)
  for (const [output_index, { deltas, event: type, item }] of items.entries()) {
    const { id: item_id } = item
    frames.push(event("response.output_item.added", { output_index, item: begun(item) }))
    for (const delta of deltas) {
      frames.push(event(type, { item_id, output_index, content_index: 0, summary_index: 0, delta }))
    }
    frames.push(event("response.output_item.done", { output_index, item }))
  }
  const status = reply.stop === undefined ? "completed" : "incomplete"
  return {
    contentType: "text/event-stream",
    body: frames,
    end: [
      event(`response.${status}`, {
        response: {
          ...made,
          status,
          output: items.map(({ item }) => item),
          usage: usage(reply),
          ...(reply.stop === undefined ? {} : { incomplete_details: { reason: reply.stop } })
        }
      })
    ]
  }
}

// An item as it's announced, before its content.
const begun = (item: { readonly type: string }) =>
  item.type === "message"
    ? { ...item, content: [] }
    : item.type === "reasoning"
    ? { ...item, summary: [] }
    : { ...item, arguments: "" }
