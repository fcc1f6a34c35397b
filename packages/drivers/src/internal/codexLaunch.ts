/**
 * How Codex is started: its arguments, its environment, and what a thread is told first.
 */
import type { SessionOptions } from "@gangway/server/Driver"
import type { AgentCommand } from "@gangway/server/Supervisor"
import * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import type { requests } from "./codexMessages.ts"
import type { Options } from "./codexOptions.ts"

const openAi = "https://api.openai.com/v1"

/** The name of the model provider that the agent options describe. */
const provider = "gangway"

/** The command. No argument holds a secret or a text of the host's. */
export const command = (
  program: string,
  options: Options,
  session: SessionOptions,
  /** Where Codex keeps its databases. */
  database: string
): AgentCommand => ({
  command: program,
  args: [
    "app-server",
    ...overrides({
      // One of its own for each conversation, so that nothing of it is left when it's forgotten.
      sqlite_home: database,
      check_for_update_on_startup: false,
      // It writes the environment, with what is secret in it, into a file.
      "features.shell_snapshot": false,
      // By it the model can ask the user.
      "features.default_mode_request_user_input": true,
      suppress_unstable_features_warning: true,
      ...(session.settings === "user" ? {} : { "features.plugins": false })
    })
  ],
  cwd: session.directory,
  env: {
    ...options.env,
    ...(options.apiKey === undefined ? {} : { OPENAI_API_KEY: options.apiKey }),
    ...(options.home === undefined ? {} : { CODEX_HOME: options.home }),
    ...options.secretEnv,
    ...session.env
  }
})

// JSON's strings, numbers and truth values are TOML's too.
const overrides = (values: Readonly<Record<string, string | boolean>>): ReadonlyArray<string> =>
  Object.entries(values).flatMap(([key, value]) => ["-c", `${key}=${JSON.stringify(value)}`])

const reveal = (secrets: Readonly<Record<string, Redacted.Redacted<string>>> | undefined) =>
  Object.fromEntries(Object.entries(secrets ?? {}).map(([name, value]) => [name, Redacted.value(value)]))

const mcpServers = (session: SessionOptions): Schema.JsonObject =>
  Object.fromEntries(
    session.mcpServers.map((server) => [
      server.name,
      server.type === "stdio"
        ? { command: server.command, args: [...server.args ?? []], env: reveal(server.env) }
        : { url: server.url, http_headers: reveal(server.headers) }
    ])
  )

/**
 * What a thread is set to, told on standard input: so no secret of an MCP server is an argument.
 *
 * **Details**
 *
 * Under `untrusted` Codex asks before every command and every change of files. Under `on-request` it asks only where
 * the model wants it to. Its own sandbox is left out: what the host allowed is to work, and containers often lack
 * what it needs.
 */
export const thread = (
  options: Options,
  session: SessionOptions
): Omit<(typeof requests)["thread/resume"]["Type"], "threadId" | "excludeTurns"> => ({
  cwd: session.directory,
  ...(options.model === undefined ? {} : { model: options.model }),
  approvalPolicy: session.permissions === "all" ? "never" : "untrusted",
  sandbox: "danger-full-access",
  ...(session.instructions === undefined ? {} : { developerInstructions: session.instructions }),
  config: {
    ...(options.apiKey === undefined && options.baseUrl === undefined ? {} : {
      model_provider: provider,
      // With OpenAI by that name, Codex uses what only OpenAI's own API can do.
      [`model_providers.${provider}.name`]: options.baseUrl === undefined ? "OpenAI" : provider,
      [`model_providers.${provider}.base_url`]: options.baseUrl ?? openAi,
      [`model_providers.${provider}.wire_api`]: "responses",
      ...(options.apiKey === undefined ? {} : { [`model_providers.${provider}.env_key`]: "OPENAI_API_KEY" })
    }),
    ...(session.settings === "none" ? { project_doc_max_bytes: 0 } : {}),
    ...options.config,
    ...(session.mcpServers.length === 0 ? {} : { mcp_servers: mcpServers(session) })
  }
})
