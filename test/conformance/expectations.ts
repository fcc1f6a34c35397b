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

/** What an agent of the Agent Client Protocol tells of a command. */
export interface Commands {
  /** Whether a call's input is the command, and not its title. */
  readonly tellsInput: boolean
  /** Whether a result is what it printed. */
  readonly tellsOutput: boolean
}

/** What's expected of an agent whose suite is shorter. */
export type Shorter = Pick<Expectations, "name" | "capabilities"> & Commands

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

export const opencode: Expectations & Commands = {
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
  },
  tellsCutSteps: false,
  compactsAsTold: false,
  untold: new Set(["cache-writes", "denials", "failures", "retries"]),
  tellsInput: true,
  tellsOutput: true
}

export const gemini: Shorter = {
  name: "Gemini CLI",
  capabilities: { ...noCapabilities, reasoning: true, approvals: true, fileChanges: true },
  tellsInput: false,
  tellsOutput: false
}

export const qwen: Shorter = {
  name: "Qwen Code",
  capabilities: {
    ...noCapabilities,
    reasoning: true,
    approvals: true,
    fileChanges: true,
    continuation: true,
    usage: true
  },
  tellsInput: true,
  tellsOutput: true
}

export const claudeAgentAcp: Shorter = {
  name: "Claude Code's ACP adapter",
  capabilities: { ...noCapabilities, reasoning: true, approvals: true, fileChanges: true, continuation: true },
  tellsInput: true,
  tellsOutput: true
}
