/**
 * The agents that the ACP driver knows: how they are started, and in what they differ from the protocol and from each
 * other. Each is a plain value; what it leaves out is as the protocol says.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { SessionOptions } from "@gangway/server/Driver"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Adapters from "./acpAdapters.ts"
import * as OpenCode from "./acpOpenCode.ts"
import type { Call } from "./acpTools.ts"
import type { Told } from "./acpUsage.ts"

/** A variable of the agent's environment as given so far, in plain text. */
export type Variables = (name: string) => string | undefined

/** What a profile's environment depends on. */
export interface Surroundings {
  readonly settings: SessionOptions["settings"]
  /** A file that holds the session's instructions. */
  readonly instructions: string | undefined
  /** A directory with nothing in it. */
  readonly empty: string
  readonly variable: Variables
}

export interface Profile {
  /** For people. */
  readonly title: string
  readonly command: readonly [program: string, ...args: Array<string>]
  /** The npm package, at the version that the tests run. */
  readonly install: string
  /** The versions that it takes. */
  readonly versions: { readonly pattern: RegExp; readonly words: string }
  /** Variables for each start; they may hold secrets that were given in others. */
  readonly env?: (surroundings: Surroundings) => Readonly<Record<string, string>>
  /** The method to log in by, and the variable that it needs. */
  readonly auth?: { readonly method: string; readonly variable: string }
  /** The mode in which the agent asks. Several start in one that hides what they do from the host. */
  readonly mode?: string
  /** What a conversation is opened with besides, as `_meta`. */
  readonly meta?: Schema.JsonObject
  /** Whether the instructions are in a file, which `env` names; otherwise they stand before the first prompt. */
  readonly instructionsFile?: boolean
  /** Whether a call's input is incomplete while the call is pending. */
  readonly announcesEarly?: boolean
  /** The tool of a call, where the agent doesn't name it. */
  readonly toolName?: (call: Call) => string | undefined
  /** What a finished call changed, where the agent tells it in its own way. */
  readonly changes?: (call: Call) => ReadonlyArray<typeof Bridge.FileChange.Type> | undefined
  /** How a call failed that the agent calls completed, for the end of its result; absent where it didn't. */
  readonly failure?: (call: Call) => string | undefined
  /** The plan in a call's result. */
  readonly plan?: (call: Call) => typeof Bridge.Plan.Type | undefined
  /** Of what the usage at a prompt's end is; absent, the agent tells each step's or nothing. */
  readonly usage?: Told
  /** The arguments that delete a conversation. */
  readonly forget?: (session: string) => ReadonlyArray<string>
  readonly capabilities: Partial<Bridge.Capabilities>
}

const ExitCode = Schema.Struct({ exitCode: Schema.NullOr(Schema.Finite) })
const decodeExitCode = Schema.decodeUnknownOption(ExitCode)

/** What all of them were seen to do. */
const common: Partial<Bridge.Capabilities> = { reasoning: true, approvals: true, fileChanges: true }

const opencode: Profile = {
  title: "OpenCode",
  command: ["opencode", "acp"],
  install: "opencode-ai@1.18.33",
  versions: { pattern: /^1\.18\.(?:3[3-9]|[4-9]\d)$/, words: "1.18.33 to 1.18.99" },
  env: OpenCode.env,
  instructionsFile: true,
  announcesEarly: true,
  toolName: OpenCode.toolName,
  changes: OpenCode.changes,
  failure: OpenCode.failure,
  plan: OpenCode.plan,
  usage: "last-step",
  forget: (session) => ["session", "delete", session],
  capabilities: { ...common, images: true, mcpServers: true, hostTools: true, continuation: true }
}

const gemini: Profile = {
  title: "Gemini CLI",
  command: ["gemini", "--acp"],
  install: "@google/gemini-cli@0.61.0",
  versions: { pattern: /^0\.61\.\d+$/, words: "0.61.x" },
  auth: { method: "gemini-api-key", variable: "GEMINI_API_KEY" },
  mode: "default",
  // Calls have ids like `run_shell_command__run_shell_command_1796081217683_0`.
  toolName: ({ id }) => /^([a-z]\w*?)(?:__\1)?[_-]\d+/.exec(id)?.[1],
  usage: "turn",
  capabilities: common
}

const qwen: Profile = {
  title: "Qwen Code",
  command: ["qwen", "--acp"],
  install: "@qwen-code/qwen-code@0.24.4",
  versions: { pattern: /^0\.24\.\d+$/, words: "0.24.x" },
  mode: "default",
  announcesEarly: true,
  failure: ({ fields }) => {
    const code = Option.getOrUndefined(decodeExitCode(fields.rawOutput))?.exitCode ?? 0
    return code === 0 ? undefined : `exit code ${code}`
  },
  capabilities: { ...common, continuation: true, usage: true }
}

const claudeAgentAcp: Profile = {
  title: "Claude Code's ACP adapter",
  command: ["claude-agent-acp"],
  install: "@agentclientprotocol/claude-agent-acp@0.101.0",
  versions: { pattern: /^0\.10\d\.\d+$/, words: "0.100.x to 0.109.x" },
  mode: "default",
  meta: Adapters.claudeMeta,
  announcesEarly: true,
  toolName: Adapters.claudeToolName,
  changes: Adapters.claudeChanges,
  capabilities: { ...common, continuation: true }
}

const codexAcp: Profile = {
  title: "Codex's ACP adapter",
  command: ["codex-acp"],
  install: "@agentclientprotocol/codex-acp@2.6.0",
  versions: { pattern: /^2\.[6-9]\.\d+$/, words: "2.6.x to 2.9.x" },
  // It asks for edits, and runs commands unasked in a sandbox of its own, in which they only read.
  mode: "read-only",
  failure: Adapters.codexFailure,
  capabilities: { ...common, approvals: false, continuation: true }
}

export const profiles = {
  opencode,
  gemini,
  qwen,
  "claude-agent-acp": claudeAgentAcp,
  "codex-acp": codexAcp
} satisfies Readonly<Record<string, Profile>>

export type ProfileName = keyof typeof profiles

export const profileNames = Object.keys(profiles) as ReadonlyArray<ProfileName>
