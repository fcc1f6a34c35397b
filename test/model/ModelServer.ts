/**
 * A model on 127.0.0.1 that plays what prompts script, for tests with real agents. It records every request.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as delay } from "node:timers/promises"
import { Anthropic } from "./Anthropic.ts"
import type { Api, Frames, ModelRequest, Whole } from "./Api.ts"
import { Gemini } from "./Gemini.ts"
import { OpenAiChat } from "./OpenAiChat.ts"
import { OpenAiResponses } from "./OpenAiResponses.ts"
import { type Conversation, makePlayer, say } from "./Script.ts"

/** The APIs that the server speaks; another one is added here. */
const apis: ReadonlyArray<Api> = [Anthropic, OpenAiChat, OpenAiResponses, Gemini]

/** A request that the server got, in order of arrival. */
export interface Recorded extends ModelRequest {
  /** Absent where it wasn't a call of the model. */
  readonly conversation: Conversation | undefined
  /** Whether it was an agent's own errand. */
  readonly side: boolean
}

export interface Server {
  /** Without a slash at the end. */
  readonly url: string
  readonly requests: Effect.Effect<ReadonlyArray<Recorded>>
  /** The model calls so far whose conversation holds a text, errands left out. */
  readonly calls: (text: string) => Effect.Effect<ReadonlyArray<Recorded>>
  /** Waits until `count` of them have come. */
  readonly waitForCalls: (text: string, count: number) => Effect.Effect<void>
}

export class ModelServer extends Context.Service<ModelServer, Server>()("test/ModelServer") {}

/** Starts a server; it ends with the scope. */
export const start: Effect.Effect<Server, never, Scope.Scope> = Effect.gen(function*() {
  const recorded: Array<Recorded> = []
  const play = makePlayer()
  const server = createServer((request, response) => {
    serve(request, response, recorded, play).catch(() => response.destroy())
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  const calls = (text: string) =>
    Effect.sync(() =>
      recorded.filter((one) =>
        one.conversation !== undefined && !one.side && one.conversation.some((turn) => turn.text.includes(text))
      )
    )
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: Effect.sync(() => [...recorded]),
    calls,
    waitForCalls: (text, count) =>
      calls(text).pipe(
        Effect.repeat({ until: (found) => found.length >= count, schedule: Schedule.spaced("20 millis") }),
        Effect.asVoid
      )
  }
})

export const layer: Layer.Layer<ModelServer> = Layer.effect(ModelServer, start)

const serve = async (
  request: IncomingMessage,
  response: ServerResponse,
  recorded: Array<Recorded>,
  play: ReturnType<typeof makePlayer>
) => {
  const chunks: Array<Buffer> = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  const text = Buffer.concat(chunks).toString("utf8")
  const path = (request.url ?? "/").split("?")[0]!
  // For tests of other processes, see main.ts.
  if (path === "/requests") return whole(response, { status: 200, json: recorded })
  const modelRequest: ModelRequest = {
    method: request.method ?? "GET",
    path,
    headers: request.headers as Record<string, string>,
    body: text === "" ? undefined : JSON.parse(text)
  }
  const read = apis.map((api) => api.read(modelRequest)).find((found) => found !== undefined)
  recorded.push({
    ...modelRequest,
    conversation: read?._tag === "Call" ? read.conversation : undefined,
    side: read?._tag === "Call" && read.side !== undefined
  })
  // Agents call home for many things; all are fine.
  if (read === undefined) return whole(response, { status: 200, json: {} })
  if (read._tag === "Other") return whole(response, read.answer)
  if (read.side !== undefined) return send(response, read.answer(say(read.side)), {})
  const played = play(read.conversation)
  if (played._tag === "Failure") return whole(response, read.fail(played.status, played.message))
  return send(response, read.answer(played.reply), played.reply)
}

const whole = (response: ServerResponse, answer: Whole) => {
  response.writeHead(answer.status, { "content-type": "application/json" })
  response.end(JSON.stringify(answer.json))
}

const send = async (
  response: ServerResponse,
  answer: Frames | Whole,
  pace: { readonly delay?: number; readonly hang?: boolean; readonly cut?: number | undefined }
) => {
  if ("json" in answer) return pace.hang === true ? undefined : whole(response, answer)
  response.writeHead(200, { "content-type": answer.contentType, "cache-control": "no-cache" })
  const frames = pace.hang === true ? answer.body : [...answer.body, ...answer.end]
  for (const [index, frame] of frames.entries()) {
    if (index === pace.cut) return response.destroy()
    if (pace.delay !== undefined && pace.delay > 0) await delay(pace.delay)
    if (response.destroyed) return
    response.write(frame)
  }
  if (pace.hang !== true) response.end()
}
