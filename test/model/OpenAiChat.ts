/**
 * The OpenAI chat completions API, streaming and not, as many agents speak it to models that aren't their maker's.
 */
import { randomUUID } from "node:crypto"
import type { Api, Frames, Whole } from "./Api.ts"
import type { Call, Conversation, Reply } from "./Script.ts"

interface Body {
  readonly model: string
  readonly stream?: boolean
  readonly tools?: ReadonlyArray<{ readonly function: { readonly name: string } }>
  readonly messages: ReadonlyArray<{
    readonly role: "user" | "assistant" | "system" | "developer" | "tool"
    readonly content?: string | null | ReadonlyArray<{ readonly type: string; readonly text?: string }>
  }>
}

export const OpenAiChat: Api = {
  read: (request) => {
    if (request.path !== "/v1/chat/completions" || request.method !== "POST") return undefined
    const body = request.body as Body
    const conversation = conversationOf(body)
    return {
      _tag: "Call",
      conversation,
      side: errand(body, conversation),
      answer: (reply) => body.stream === true ? stream(body, reply) : completion(body, reply),
      fail: (status, message) => ({
        status,
        json: { error: { message, type: errorTypes[status] ?? "server_error", param: null, code: null } }
      })
    }
  }
}

const errorTypes: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "invalid_request_error",
  429: "rate_limit_error"
}

const conversationOf = (body: Body): Conversation => {
  const turns: Array<{ role: "user" | "assistant"; text: string }> = []
  let before: string | undefined
  for (const { content, role } of body.messages) {
    if (role === "system" || role === "developer") continue
    const texts = typeof content === "string"
      ? [content]
      : (content ?? []).filter((block) => block.type === "text").map((block) => block.text ?? "")
    if (role === "user") { for (const text of texts) turns.push({ role, text }) }
    else if (role === "assistant") {
      const last = turns.at(-1)
      if (before === "assistant" && last !== undefined) last.text += texts.join("")
      else turns.push({ role, text: texts.join("") })
    }
    before = role
  }
  return turns
}

// Calls that agents make for themselves have no tools: titles, summaries, guesses at what the user says next.
const errand = (body: Body, conversation: Conversation): string | undefined => {
  if (body.tools !== undefined && body.tools.length > 0) return undefined
  const all = JSON.stringify(body.messages)
  if (/summar|compress|continuing our conversation/i.test(all)) return "what was said so far"
  return conversation.length === 0 ? undefined : "A title"
}

// The names that agents give the same tools, and those of their inputs: the first that is offered.
const families = {
  bash: [
    ["bash", ({ command }) => ({ command, description: "a scripted command" })],
    ["run_shell_command", ({ command }) => ({ command, description: "a scripted command", is_background: false })]
  ],
  write: [
    ["write", ({ content, path }) => ({ filePath: path, content })],
    ["write_file", ({ content, path }) => ({ file_path: path, content })]
  ],
  edit: [
    ["edit", ({ from, path, to }, offered) =>
      offered.has("write_file")
        ? { file_path: path, old_string: from, new_string: to }
        : { filePath: path, oldString: from, newString: to }],
    ["replace", ({ from, path, to }) => ({
      file_path: path,
      old_string: from,
      new_string: to,
      instruction: "a scripted edit"
    })]
  ],
  read: [
    ["read", ({ path }) => ({ filePath: path })],
    ["read_file", ({ path }) => ({ file_path: path })]
  ]
} satisfies {
  readonly [Tag in Exclude<Call["_tag"], "tool">]: ReadonlyArray<
    readonly [
      name: string,
      input: (call: Extract<Call, { readonly _tag: Tag }>, offered: ReadonlySet<string>) => object
    ]
  >
}

/** What a call is to an agent that offers those tools. */
export const toolOf = (
  call: Call,
  offered: ReadonlySet<string>
): { readonly name: string; readonly input: object } => {
  if (call._tag === "tool") return { name: call.name, input: call.params }
  const family = families[call._tag] as ReadonlyArray<
    readonly [string, (call: Call, offered: ReadonlySet<string>) => object]
  >
  const [name, input] = family.find(([name]) => offered.has(name)) ?? family[0]!
  return { name, input: input(call, offered) }
}

const id = (prefix: string) => `${prefix}_${randomUUID().replaceAll("-", "").slice(0, 24)}`

const finishReason = (reply: Reply) => reply.stop ?? (reply.calls.length > 0 ? "tool_calls" : "stop")

const usageOf = ({ usage: { cacheRead, cacheWrite, input, output } }: Reply) => ({
  prompt_tokens: input + cacheRead + cacheWrite,
  completion_tokens: output,
  total_tokens: input + cacheRead + cacheWrite + output,
  prompt_tokens_details: { cached_tokens: cacheRead }
})

const callsOf = (body: Body, reply: Reply) => {
  const offered = new Set((body.tools ?? []).map((tool) => tool.function.name))
  return reply.calls.map((call) => {
    const { input, name } = toolOf(call, offered)
    return { id: id("call"), name, json: JSON.stringify(input) }
  })
}

const completion = (body: Body, reply: Reply): Whole => ({
  status: 200,
  json: {
    id: id("chatcmpl"),
    object: "chat.completion",
    created: 0,
    model: body.model,
    choices: [{
      index: 0,
      message: {
        role: "assistant",
        content: reply.text.join(""),
        ...(reply.think === undefined ? {} : { reasoning_content: reply.think }),
        ...(reply.calls.length === 0 ? {} : {
          tool_calls: callsOf(body, reply).map(({ id, json, name }) => ({
            id,
            type: "function",
            function: { name, arguments: json }
          }))
        })
      },
      finish_reason: finishReason(reply)
    }],
    usage: usageOf(reply)
  }
})

const stream = (body: Body, reply: Reply): Frames => {
  const answer = id("chatcmpl")
  const chunk = (fields: object) =>
    `data: ${
      JSON.stringify({ id: answer, object: "chat.completion.chunk", created: 0, model: body.model, ...fields })
    }\n\n`
  const delta = (fields: object) => chunk({ choices: [{ index: 0, delta: fields, finish_reason: null }] })
  const frames = [delta({ role: "assistant", content: "" })]
  if (reply.think !== undefined) frames.push(delta({ reasoning_content: reply.think }))
  for (const content of reply.text) frames.push(delta({ content }))
  for (const [index, { id, json, name }] of callsOf(body, reply).entries()) {
    frames.push(delta({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] }))
    const size = Math.max(8, Math.ceil(json.length / 8))
    for (let at = 0; at < json.length; at += size) {
      frames.push(delta({ tool_calls: [{ index, function: { arguments: json.slice(at, at + size) } }] }))
    }
  }
  return {
    contentType: "text/event-stream",
    body: frames,
    end: [
      chunk({ choices: [{ index: 0, delta: {}, finish_reason: finishReason(reply) }] }),
      chunk({ choices: [], usage: usageOf(reply) }),
      "data: [DONE]\n\n"
    ]
  }
}
