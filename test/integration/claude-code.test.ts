/**
 * A host, a bridge and the real Claude Code with a scripted model.
 */
import { installAgent } from "../installAgent.ts"
import { suite } from "./bridgedAgent.ts"

suite({
  name: "Claude Code",
  agent: await installAgent("claude-code"),
  options: ({ home, key, program, url }) => ({
    agent: "claude-code",
    command: program,
    apiKey: key,
    baseUrl: url,
    model: "scripted-model",
    configDirectory: home,
    env: {
      CLAUDE_CODE_MAX_RETRIES: "1",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      CLAUDE_CODE_TMPDIR: `${home}-temporary`
    }
  }),
  conversations: "projects",
  written: (content, command) => content.includes(`"command":"${command}`),
  shell: "Bash",
  hostTool: (name) => `mcp__host__${name}`,
  keyVariable: "ANTHROPIC_API_KEY",
  printed: (line) => line,
  tellsCost: true
})
