/**
 * The host's tools as an MCP server, over HTTP on this machine: the one way that agents have in common to be given
 * tools.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Crypto from "effect/Crypto"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { LoopbackServer, type Response } from "../LoopbackServer.ts"
import { hostServer } from "./acpTools.ts"

/** Where the agent finds the server. */
export interface Endpoint {
  readonly url: string
  readonly authorization: string
}

/** Runs a host tool. */
export type CallTool = (name: string, params: Schema.Json) => Effect.Effect<{
  readonly result: Schema.Json
  readonly isFailure: boolean
}>

const Message = Schema.fromJsonString(Schema.Struct({
  id: Schema.optional(Schema.Union([Schema.String, Schema.Finite])),
  method: Schema.optional(Schema.String),
  params: Schema.optional(Schema.Struct({
    protocolVersion: Schema.optional(Schema.String),
    name: Schema.optional(Schema.String),
    arguments: Schema.optional(Schema.NullOr(Schema.Any as Schema.Codec<Schema.Json>))
  }))
}))
const decode = Schema.decodeUnknownOption(Message)

/** How often an agent that waits for a host is shown that its connection lives: clients give up a silent one. */
const keepAlive = Duration.seconds(15)

/**
 * Serves the tools until the scope closes. The agent shows a secret: other processes of the sandbox don't get to call
 * the host by finding a port.
 */
export const serve = Effect.fnUntraced(function*(
  tools: ReadonlyArray<Bridge.HostTool>,
  call: CallTool
): Effect.fn.Return<Endpoint, Bridge.DriverError, LoopbackServer | Crypto.Crypto | Scope.Scope> {
  const crypto = yield* Crypto.Crypto
  const loopback = yield* LoopbackServer
  const authorization = `Bearer ${Encoding.encodeBase64Url(yield* Effect.orDie(crypto.randomBytes(32)))}`

  const respond = (body: string): Response => {
    const message = Option.getOrUndefined(decode(body))
    if (message === undefined) return { status: 400 }
    const { id, method, params } = message
    // Notifications, and answers to what was never asked.
    if (id === undefined || method === undefined) return { status: 202 }
    const reply = (fields: object) => JSON.stringify({ jsonrpc: "2.0", id, ...fields })
    const whole = (fields: object): Response => ({
      status: 200,
      contentType: "application/json",
      body: reply(fields)
    })
    switch (method) {
      case "initialize":
        return whole({
          result: {
            protocolVersion: params?.protocolVersion ?? "2025-06-18",
            capabilities: { tools: {} },
            serverInfo: { name: hostServer, version: "1" }
          }
        })
      case "ping":
        return whole({ result: {} })
      case "tools/list":
        return whole({
          result: {
            tools: tools.map(({ description, name, parameters }) => ({ name, description, inputSchema: parameters }))
          }
        })
      case "tools/call":
        if (!tools.some(({ name }) => name === params?.name)) {
          return whole({ error: { code: -32_602, message: `there is no tool ${params?.name}` } })
        }
        return {
          status: 200,
          contentType: "text/event-stream",
          body: answered(call(params?.name ?? "", params?.arguments ?? {}), reply)
        }
      default:
        return whole({ error: { code: -32_601, message: `${method} is not supported` } })
    }
  }

  const url = yield* loopback.serve((request) =>
    Effect.sync((): Response => {
      if (request.authorization !== authorization) return { status: 401 }
      // The server has nothing to say by itself.
      return request.method === "POST" ? respond(request.body) : { status: 405 }
    })
  )
  return { url: `${url}/mcp`, authorization }
})

// Comments until the host has answered, then the answer.
const answered = (
  call: ReturnType<CallTool>,
  reply: (fields: object) => string
): Stream.Stream<string> =>
  Stream.merge(
    Stream.fromEffect(
      Effect.map(call, ({ isFailure, result }) => {
        const text = typeof result === "string" ? result : JSON.stringify(result)
        return `event: message\ndata: ${
          reply({ result: { content: [{ type: "text", text }], isError: isFailure } })
        }\n\n`
      })
    ),
    Stream.fromSchedule(Schedule.spaced(keepAlive)).pipe(
      Stream.map(() => ": waiting\n\n"),
      (later) => Stream.concat(Stream.succeed(": waiting\n\n"), later)
    ),
    { haltStrategy: "left" }
  )
