/**
 * The driver of ACP agents, with the real OpenCode and a scripted model.
 */
import * as Acp from "@gangway/drivers/Acp"
import { Effect } from "effect"
import * as Loopback from "../../apps/bridge/src/Loopback.ts"
import { driverConformance } from "../conformance/driver.ts"
import { fileOf, type Profile } from "../conformance/driverWorld.ts"
import { installAgent } from "../installAgent.ts"

const model = {
  reasoning: true,
  tool_call: true,
  modalities: { input: ["text", "image"], output: ["text"] },
  limit: { context: 128_000, output: 8_000 }
}

const opencode: Profile = {
  name: "OpenCode",
  agent: await installAgent("opencode"),
  make: ({ env = {}, home, program, url }) =>
    Acp.Acp.make({
      profile: "opencode",
      command: [program, "acp"],
      home,
      env: {
        OPENCODE_CONFIG_CONTENT: JSON.stringify({
          provider: {
            scripted: {
              npm: "@ai-sdk/openai-compatible",
              options: { baseURL: `${url}/v1`, apiKey: "sk-SECRET-key" },
              models: { "scripted-model": model, "model-one": model, "model-two": model }
            }
          },
          model: "scripted/scripted-model",
          small_model: "scripted/scripted-model"
        }),
        OPENCODE_DISABLE_MODELS_FETCH: "1",
        OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
        OPENCODE_DISABLE_DEFAULT_PLUGINS: "1",
        ...env
      }
    }).pipe(Effect.provide(Loopback.layer)),
  capabilities: {
    reasoning: true,
    toolParams: false,
    hostTools: true,
    approvals: true,
    questions: false,
    images: true,
    fileChanges: true,
    compaction: false,
    continuation: true,
    state: false,
    structuredOutput: false,
    mcpServers: true,
    effort: false,
    usage: false
  },
  shell: "bash",
  hostTool: (name) => `host_${name}`,
  fileOf: (params) => (params as { filePath: string }).filePath,
  effortOf: () => undefined,
  holdsCall: (written, command) => written.includes(`"input":{"command":"${command}`),
  structured: { answer: () => ({}), asks: () => false },
  tellsCutSteps: false,
  compactsAsTold: false,
  // A database, which it deletes rows of.
  ownFiles: /^\.local\/share\/opencode\/opencode\.db/,
  written: (home) =>
    Effect.map(
      Effect.forEach(["", "-wal"], (end) => fileOf(`${home}/.local/share/opencode/opencode.db${end}`)),
      (files) => files.join("")
    ),
  untold: new Set(["cache-writes", "denials", "failures", "retries"])
}

driverConformance(opencode)
