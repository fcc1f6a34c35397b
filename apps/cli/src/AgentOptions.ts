/**
 * The agents that a bridge is launched for, with the options that the user's environment has for them.
 */
import type { Launcher } from "@gangway/client"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"

export const Agent = Schema.Literals(["claude-code", "codex", "scripted"])

export type Agent = typeof Agent.Type

/** An agent as it's launched, and what its sessions get anew each time: the environment may have changed since. */
export interface Options {
  readonly agentOptions: Launcher.LaunchOptions["agentOptions"]
  readonly env: Readonly<Record<string, Redacted.Redacted<string>>>
}

/** What the environment says. An empty variable is none. */
export const fromEnvironment = Effect.fnUntraced(function*(agent: Agent, agentHome: string) {
  if (agent === "scripted") return { agentOptions: { agent, home: agentHome }, env: {} } satisfies Options
  const path = yield* Path.Path
  const secret = (name: string) =>
    Effect.map(
      Effect.option(Config.Redacted(name)),
      Option.filter((value) => Redacted.value(value) !== "")
    )
  const variable = (name: string) => Effect.map(secret(name), Option.map(Redacted.value))
  const pathOf = (name: string) => Effect.map(variable(name), Option.map((given) => path.resolve(given)))
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
      agent,
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
