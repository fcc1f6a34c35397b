/**
 * What each agent is expected to do: the suites assert it of the driver and with the real agent, and the table in
 * docs/agents.md is made of it.
 */
import { noCapabilities } from "@gangway/server/Driver"
import type { Profile, Untold } from "./driverWorld.ts"

/** What's expected of an agent. */
export type Expectations = Pick<Profile, "name" | "capabilities" | "tellsCutSteps" | "compactsAsTold"> & {
  readonly untold: ReadonlySet<Untold>
}

export const claudeCode: Expectations = {
  name: "Claude Code",
  capabilities: {
    reasoning: true,
    toolParams: true,
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
    usage: true,
    steering: true
  },
  tellsCutSteps: true,
  compactsAsTold: true,
  untold: new Set()
}

export const codex: Expectations = {
  name: "Codex",
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
    usage: true,
    steering: true
  },
  tellsCutSteps: false,
  compactsAsTold: false,
  untold: new Set()
}

// What agents of the protocol don't tell.
const acp = {
  tellsCutSteps: false,
  compactsAsTold: false,
  untold: new Set<Untold>(["cache-writes", "denials", "failures", "retries"])
}

export const opencode: Expectations = {
  ...acp,
  name: "OpenCode",
  capabilities: {
    ...noCapabilities,
    reasoning: true,
    hostTools: true,
    approvals: true,
    images: true,
    fileChanges: true,
    continuation: true,
    mcpServers: true
  }
}

export const gemini: Expectations = {
  ...acp,
  name: "Gemini CLI",
  capabilities: { ...noCapabilities, reasoning: true, approvals: true, fileChanges: true }
}

export const qwen: Expectations = {
  ...acp,
  name: "Qwen Code",
  capabilities: {
    ...noCapabilities,
    reasoning: true,
    approvals: true,
    fileChanges: true,
    continuation: true,
    usage: true
  }
}
