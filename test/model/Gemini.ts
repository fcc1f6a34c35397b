/**
 * The Gemini API, streaming only, as Gemini CLI speaks it.
 */
import type { Api, Frames } from "./Api.ts"
import { toolOf } from "./OpenAiChat.ts"
import type { Conversation, Reply } from "./Script.ts"

interface Body {
  readonly contents: ReadonlyArray<{
    readonly role: "user" | "model"
    readonly parts: ReadonlyArray<{ readonly text?: string }>
  }>
  readonly tools?: ReadonlyArray<{ readonly functionDeclarations?: ReadonlyArray<{ readonly name: string }> }>
}

export const Gemini: Api = {
  read: ({ body, method, path }) => {
    const [, model] = /^\/v1beta\/models\/([^/:]+):streamGenerateContent$/.exec(path) ?? []
    if (model === undefined || method !== "POST") return undefined
    const asked = body as Body
    const offered = (asked.tools ?? []).flatMap(({ functionDeclarations = [] }) => functionDeclarations)
    return {
      _tag: "Call",
      conversation: conversationOf(asked),
      side: offered.length === 0 ? "what was said so far" : undefined,
      answer: (reply) => stream(model, new Set(offered.map(({ name }) => name)), reply),
      fail: (status, message) => ({
        status,
        json: { error: { code: status, message, status: statuses[status] ?? "INTERNAL" } }
      })
    }
  }
}

const statuses: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE"
}

const conversationOf = (body: Body): Conversation => {
  const turns: Array<{ role: "user" | "assistant"; text: string }> = []
  let before: string | undefined
  for (const { parts, role } of body.contents) {
    const texts = parts.flatMap(({ text }) => text ?? [])
    const last = turns.at(-1)
    if (role === "user") { for (const text of texts) turns.push({ role, text }) }
    else if (before === "model" && last !== undefined) last.text += texts.join("")
    else turns.push({ role: "assistant", text: texts.join("") })
    before = role
  }
  return turns
}

const stream = (model: string, offered: ReadonlySet<string>, reply: Reply): Frames => {
  const { cacheRead, cacheWrite, input, output } = reply.usage
  const chunk = (parts: ReadonlyArray<object>, extra: object = {}) =>
    `data: ${
      JSON.stringify({
        candidates: [{ content: { role: "model", parts }, index: 0, ...extra }],
        usageMetadata: {
          promptTokenCount: input + cacheRead + cacheWrite,
          candidatesTokenCount: output,
          totalTokenCount: input + cacheRead + cacheWrite + output,
          cachedContentTokenCount: cacheRead
        },
        modelVersion: model
      })
    }\r\n\r\n`
  return {
    contentType: "text/event-stream",
    body: [
      ...(reply.think === undefined ? [] : [chunk([{ text: `**Thinking** ${reply.think}`, thought: true }])]),
      ...reply.text.map((text) => chunk([{ text }])),
      ...reply.calls.map((call) => {
        const { input, name } = toolOf(call, offered)
        return chunk([{ functionCall: { name, args: input } }])
      })
    ],
    end: [chunk([], { finishReason: reply.stop ?? "STOP" })]
  }
}
