/**
 * The driver of Claude Code, with the real CLI and a scripted model.
 */
import * as ClaudeCode from "@gangway/drivers/ClaudeCode"
import { Redacted } from "effect"
import { driverConformance, type Profile } from "../conformance/driver.ts"
import { installAgent } from "../installAgent.ts"

const claude: Profile = {
  name: "Claude Code",
  agent: await installAgent("claude-code"),
  make: ({ home, program, url }) =>
    ClaudeCode.ClaudeCode.make({
      command: program,
      apiKey: Redacted.make("sk-SECRET-key"),
      baseUrl: url,
      model: "scripted-model",
      configDirectory: home,
      // It would try ten times, and talk to its maker.
      env: { CLAUDE_CODE_MAX_RETRIES: "1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" }
    }),
  tools: { shell: "Bash", write: "Write", edit: "Edit" },
  hostTool: (name) => `mcp__host__${name}`
}

driverConformance(claude)
