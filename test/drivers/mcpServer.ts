/** An MCP server with one tool, which tells the token it was given. */
export const mcpServer = `
let pending = ""
process.stdin.on("data", (data) => {
  pending += data
  for (let at = pending.indexOf("\\n"); at >= 0; at = pending.indexOf("\\n")) {
    const { id, method, params } = JSON.parse(pending.slice(0, at))
    pending = pending.slice(at + 1)
    if (id === undefined) continue
    const result = method === "initialize"
      ? { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "p", version: "1" } }
      : method === "tools/list"
      ? { tools: [{ name: "ping", description: "Answers pong.", inputSchema: { type: "object" } }] }
      : { content: [{ type: "text", text: process.env.PING_TOKEN + " pong" }] }
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n")
  }
})
`
