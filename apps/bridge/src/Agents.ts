/**
 * The agents that the bridge program can drive, by the `agent` of the launch line's agent options.
 *
 * @since 0.1.0
 */
import type { Bridge } from "@gangway/server"
import type { Driver, DriverDefinition } from "@gangway/server/Driver"
import { decodeAgentOptions, LaunchLineError } from "@gangway/server/LaunchLine"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import * as Loopback from "./Loopback.ts"

// A driver is loaded when it's asked for: the others would only make each start longer.
const agent = <Options extends Schema.Top & { readonly DecodingServices: never }, R>(
  name: string,
  load: () => Promise<DriverDefinition<Options, R>>
) => ({
  name,
  make: Effect.fnUntraced(function*(options: Bridge.AgentOptions) {
    const definition = yield* Effect.promise(load)
    const make = definition.make(yield* decodeAgentOptions(definition.options)(options))
    if (options.agentUser === undefined) return yield* make
    const { makeDriver } = yield* Effect.promise(() => import("@gangway/server/AgentUser"))
    return yield* makeDriver({ user: options.agentUser, name, make })
  })
})

// This very program, whether it runs compiled, bundled or from its sources. Bun reads settings and variables where it's
// started, and that's the session's directory, where anybody's files are.
const scriptedAgentCommand = Bun.isStandaloneExecutable
  ? [process.execPath, "scripted-agent"] as const
  : [process.execPath, "--no-env-file", "--config=/dev/null", Bun.main, "scripted-agent"] as const

const scripted = () =>
  import("@gangway/drivers/Scripted").then(({ AgentCommand, Scripted }) => ({
    ...Scripted,
    make: (options: Parameters<typeof Scripted.make>[0]) =>
      Effect.provideService(Scripted.make(options), AgentCommand, scriptedAgentCommand)
  }))

const agents = [
  agent("acp", () => import("@gangway/drivers/Acp").then(({ Acp }) => Acp)),
  agent("claude-code", () => import("@gangway/drivers/ClaudeCode").then(({ ClaudeCode }) => ClaudeCode)),
  agent("codex", () => import("@gangway/drivers/Codex").then(({ Codex }) => Codex)),
  agent("scripted", scripted)
]

/**
 * The driver that the agent options ask for.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeDriver = Effect.fnUntraced(function*(options: Bridge.AgentOptions) {
  const agent = agents.find(({ name }) => name === options.agent)
  if (agent === undefined) {
    const expected = `expected ${agents.map(({ name }) => `"${name}"`).join(" or ")}`
    return yield* new LaunchLineError({ field: "agentOptions.agent", expected })
  }
  const driver: Driver = yield* Effect.provide(agent.make(options), Loopback.layer)
  return driver
})
