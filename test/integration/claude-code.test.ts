/**
 * A host, a bridge and the real Claude Code with a scripted model.
 */
import { installAgent } from "../installAgent.ts"
import { suite } from "./bridgedAgent.ts"

suite({
  name: "Claude Code",
  agent: await installAgent("claude-code"),
  options: ({ home, key, program, root, url }) => ({
    agent: "claude-code",
    command: program,
    apiKey: key,
    baseUrl: url,
    model: "scripted-model",
    configDirectory: home,
    env: {
      // It runs commands by login shells. A user's own start-up files have no place here: one that was killed with its
      // shell may have left a lock for which all later shells wait.
      HOME: root,
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
