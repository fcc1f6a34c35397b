/**
 * How Claude Code is started: its arguments, its environment, and what it's told first.
 */
import type { SessionOptions } from "@gangway/server/Driver"
import type { AgentCommand } from "@gangway/server/Supervisor"
import * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import { hostServer } from "./claudeBlocks.ts"
import type { Options } from "./claudeOptions.ts"

/** What of a turn can't be told to a running CLI, or is cheaper to tell at its start. */
export interface Start {
  readonly conversation: string
  /** Whether the conversation has a transcript. */
  readonly resume: boolean
  readonly model: string | undefined
  readonly effort: string | undefined
  readonly responseFormat: Schema.JsonObject | undefined
}

const settingSources: Readonly<Record<SessionOptions["settings"], string>> = {
  none: "",
  project: "project,local",
  user: "user,project,local"
}

/** The command. No argument holds a secret or a text of the host's. */
export const command = (
  program: string,
  options: Options,
  session: SessionOptions,
  start: Start
): AgentCommand => ({
  command: program,
  args: [
    "-p",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--include-partial-messages",
    "--verbose",
    "--await-initialize",
    "--permission-prompt-tool=stdio",
    // Whatever the settings say: it's the host that is asked.
    "--permission-mode=manual",
    `--setting-sources=${settingSources[session.settings]}`,
    ...(session.settings === "none" ? ["--strict-mcp-config"] : []),
    start.resume ? `--resume=${start.conversation}` : `--session-id=${start.conversation}`,
    ...(start.model === undefined ? [] : [`--model=${start.model}`]),
    ...(start.effort === undefined ? [] : [`--effort=${start.effort}`])
  ],
  cwd: session.directory,
  env: {
    // A bridge that was started by another Claude Code isn't a part of that one's session.
    CLAUDECODE: undefined,
    CLAUDE_CODE_ENTRYPOINT: undefined,
    ...options.env,
    ...(options.apiKey === undefined ? {} : { ANTHROPIC_API_KEY: options.apiKey }),
    ...(options.authToken === undefined ? {} : { ANTHROPIC_AUTH_TOKEN: options.authToken }),
    ...(options.baseUrl === undefined ? {} : { ANTHROPIC_BASE_URL: options.baseUrl }),
    ...(options.configDirectory === undefined ? {} : { CLAUDE_CONFIG_DIR: options.configDirectory }),
    ...options.secretEnv,
    ...session.env,
    // The program that was checked stays the one that runs.
    DISABLE_AUTOUPDATER: "1",
    // By these the driver knows when all that a prompt led to is done, sub-agents in the background included.
    CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS: "1"
  }
})

/** The hook that is asked before the CLI takes up a prompt, the host's or one of its own. */
export const promptHook = "prompt"

// Longer than anything waits; in milliseconds, and still a number of 32 bits.
const forever = 2_000_000_000

const reveal = (secrets: Readonly<Record<string, Redacted.Redacted<string>>> | undefined) =>
  Object.fromEntries(Object.entries(secrets ?? {}).map(([name, value]) => [name, Redacted.value(value)]))

/** The first thing that the CLI is told, on its standard input: so no secret of an MCP server is an argument. */
export const initialize = (session: SessionOptions, start: Start): Schema.JsonObject => ({
  subtype: "initialize",
  hooks: { UserPromptSubmit: [{ hookCallbackIds: [promptHook], timeout: forever / 1000 }] },
  ...(session.tools.length === 0
    ? {}
    : {
      sdkMcpServers: [hostServer],
      sdkMcpServerConfigs: { [hostServer]: { timeout: forever, disableAutoBackground: true } }
    }),
  mcpServers: Object.fromEntries(
    session.mcpServers.map((server) => [
      server.name,
      server.type === "stdio"
        ? { type: server.type, command: server.command, args: server.args ?? [], env: reveal(server.env) }
        : { type: server.type, url: server.url, headers: reveal(server.headers) }
    ])
  ),
  ...(session.instructions === undefined ? {} : { appendSystemPrompt: session.instructions }),
  ...(start.responseFormat === undefined ? {} : { jsonSchema: start.responseFormat }),
  forwardSubagentText: true,
  promptSuggestions: false
})
