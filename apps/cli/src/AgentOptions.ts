/**
 * The agents that a bridge is launched for, with the options that the user's environment has for them.
 */
import type { Launcher } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"

/** The agents that the ACP driver knows, with the variables that hold what's secret of theirs. */
const acpAgents = {
  gemini: ["GEMINI_API_KEY", "GOOGLE_API_KEY"],
  opencode: [
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "OPENAI_API_KEY",
    "OPENCODE_API_KEY",
    "OPENCODE_CONFIG_CONTENT",
    "OPENROUTER_API_KEY"
  ],
  qwen: ["DASHSCOPE_API_KEY", "OPENAI_API_KEY"]
} as const

const anyCommand = "acp:"

export const names = ["claude-code", "codex", "gemini", "opencode", "qwen", "scripted"] as const

/** An agent by its name, or `acp:` and the command of any that speaks the Agent Client Protocol. */
export type Agent = (typeof names)[number] | `acp:${string}`

const isAgent = (value: string): value is Agent =>
  names.some((name) => name === value) || (value.startsWith(anyCommand) && value.slice(anyCommand.length).trim() !== "")

export const Agent = Schema.String.pipe(
  Schema.refine(isAgent, { expected: `${names.join(", ")} or acp:COMMAND` })
)

/** The id of the agent's bridge, where no other is named. */
export const bridgeOf = (agent: Agent): Bridge.BridgeId =>
  Bridge.BridgeId.make(agent.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 64).replace(/-$/, ""))

/** An agent as it's launched, and what its sessions get anew each time: the environment may have changed since. */
export interface Options {
  readonly agentOptions: Launcher.LaunchOptions["agentOptions"]
  readonly env: Readonly<Record<string, Redacted.Redacted<string>>>
}

/** What the environment says. An empty variable is none, and so is a path where the agent runs elsewhere. */
export const fromEnvironment = Effect.fnUntraced(function*(agent: Agent, agentHome: string, isHere: boolean) {
  if (agent === "scripted") return { agentOptions: { agent, home: agentHome }, env: {} } satisfies Options
  const path = yield* Path.Path
  const secret = (name: string) =>
    Effect.map(
      Effect.option(Config.Redacted(name)),
      Option.filter((value) => Redacted.value(value) !== "")
    )
  const variable = (name: string) => Effect.map(secret(name), Option.map(Redacted.value))
  const pathOf = (name: string) =>
    isHere ? Effect.map(variable(name), Option.map((given) => path.resolve(given))) : Effect.succeedNone
  if (agent.startsWith(anyCommand)) {
    const command = agent.slice(anyCommand.length).trim().split(/\s+/)
    return { agentOptions: { agent: "acp", command }, env: {} } satisfies Options
  }
  if (agent === "gemini" || agent === "opencode" || agent === "qwen") {
    const env: Record<string, Redacted.Redacted<string>> = {}
    for (const name of acpAgents[agent]) Object.assign(env, present(name, yield* secret(name)))
    return { agentOptions: { agent: "acp", profile: agent, secretEnv: env }, env } satisfies Options
  }
  if (agent === "codex") {
    const apiKey = yield* secret("CODEX_API_KEY")
    return {
      agentOptions: {
        agent,
        ...present("apiKey", apiKey),
        ...present("baseUrl", yield* variable("OPENAI_BASE_URL")),
        ...present("home", yield* pathOf("CODEX_HOME"))
      },
      env: present("OPENAI_API_KEY", apiKey)
    } satisfies Options
  }
  const [apiKey, authToken] = [yield* secret("ANTHROPIC_API_KEY"), yield* secret("ANTHROPIC_AUTH_TOKEN")]
  const options: Options = {
    agentOptions: {
      agent: "claude-code",
      ...present("apiKey", apiKey),
      ...present("authToken", authToken),
      ...present("baseUrl", yield* variable("ANTHROPIC_BASE_URL")),
      ...present("configDirectory", yield* pathOf("CLAUDE_CONFIG_DIR"))
    },
    env: { ...present("ANTHROPIC_API_KEY", apiKey), ...present("ANTHROPIC_AUTH_TOKEN", authToken) }
  }
  return options
})

const present = <K extends string, A>(key: K, value: Option.Option<A>): { readonly [P in K]?: A } =>
  Option.match(value, { onNone: () => ({}), onSome: (value) => ({ [key]: value }) as { [P in K]: A } })
