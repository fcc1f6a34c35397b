/**
 * A host, a bridge and the real Codex with a scripted model.
 */
import { installAgent } from "../installAgent.ts"
import { suite } from "./bridgedAgent.ts"

suite({
  name: "Codex",
  agent: await installAgent("codex"),
  options: ({ home, key, program, root, url }) => ({
    agent: "codex",
    command: program,
    apiKey: key,
    baseUrl: `${url}/v1`,
    model: "scripted-model",
    home,
    // It runs commands by login shells: a user's own start-up files have no place here.
    env: { HOME: root }
  }),
  conversations: "sessions",
  written: (content, command) => (content.split(`{\\"cmd\\":\\"${command}`)[1] ?? "").includes("token_usage_record"),
  shell: "shell",
  hostTool: (name) => name,
  keyVariable: "OPENAI_API_KEY",
  printed: (line) => `${line}\n`,
  tellsCost: false
})
