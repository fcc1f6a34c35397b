/**
 * The driver of Codex, with the real app-server and a scripted model.
 */
import * as Codex from "@gangway/drivers/Codex"
import { Redacted } from "effect"
import { driverConformance } from "../conformance/driver.ts"
import type { Profile } from "../conformance/driverWorld.ts"
import { installAgent } from "../installAgent.ts"

const codex: Profile = {
  name: "Codex",
  agent: await installAgent("codex"),
  make: ({ env = {}, home, program, url }) =>
    Codex.Codex.make({
      command: program,
      apiKey: Redacted.make("sk-SECRET-key"),
      baseUrl: `${url}/v1`,
      model: "scripted-model",
      home,
      // It would try for long.
      config: {
        "model_providers.gangway.request_max_retries": 0,
        "model_providers.gangway.stream_max_retries": 1
      },
      env
    }),
  capabilities: {
    reasoning: true,
    toolParams: false,
    hostTools: true,
    approvals: true,
    questions: true,
    images: true,
    fileChanges: true,
    compaction: true,
    continuation: true,
    state: true,
    structuredOutput: true,
    mcpServers: true,
    effort: true,
    usage: true
  },
  shell: "shell",
  hostTool: (name) => name,
  fileOf: (params) => (params as { changes: [{ path: string }] }).changes[0].path,
  effortOf: (body) => (body as { reasoning?: { effort?: string } }).reasoning?.effort,
  holdsCall: (state, command) => state.includes(`{\\"cmd\\":\\"${command}`),
  structured: {
    answer: (value) => ({ text: JSON.stringify(value) }),
    asks: (body) => (body as { text?: { format?: unknown } }).text?.format !== undefined
  },
  tellsCutSteps: false,
  compactsAsTold: false,
  ownFiles: /^skills\/\.system\//
}

driverConformance(codex)
