/**
 * The host's tools as the MCP server that the driver plays for Claude Code.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import { hostServer } from "./claudeBlocks.ts"
import type { McpMessage } from "./claudeMessages.ts"

/** Answers a JSON-RPC message. `call` is given the id that the model gave its tool call. */
export const respond = Effect.fnUntraced(function*(
  { id, method, params }: McpMessage,
  tools: ReadonlyArray<Bridge.HostTool>,
  call: (call: { readonly id: string; readonly name: string; readonly params: Schema.Json }) => Effect.Effect<{
    readonly result: Schema.Json
    readonly isFailure: boolean
  }>
): Effect.fn.Return<Schema.Json> {
  const reply = (result: Schema.Json): Schema.Json => ({ jsonrpc: "2.0", id: id ?? 0, result })
  switch (method) {
    case "initialize":
      return reply({
        protocolVersion: params?.protocolVersion ?? "2025-06-18",
        capabilities: { tools: {} },
        serverInfo: { name: hostServer, version: "1" }
      })
    case "tools/list":
      return reply({
        tools: tools.map(({ description, name, parameters }) => ({
          name,
          description,
          inputSchema: parameters,
          // Otherwise the model only learns of a tool when it searches for it.
          _meta: { "anthropic/alwaysLoad": true }
        }))
      })
    case "tools/call": {
      const { result, isFailure } = yield* call({
        id: params?._meta?.["claudecode/toolUseId"] ?? `mcp-${id}`,
        name: params?.name ?? "",
        params: params?.arguments ?? {}
      })
      const text = typeof result === "string" ? result : JSON.stringify(result)
      return reply({ content: [{ type: "text", text }], isError: isFailure })
    }
    case undefined:
      return reply({})
    default:
      return id === undefined || method === "ping"
        ? reply({})
        : { jsonrpc: "2.0", id, error: { code: -32601, message: `${method} is not supported` } }
  }
})
