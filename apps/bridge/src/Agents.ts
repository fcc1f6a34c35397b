/**
 * The agents that the bridge program can drive, by the `agent` of the launch line's agent options.
 *
 * @since 0.1.0
 */
import { ClaudeCode, Scripted } from "@gangway/drivers"
import type { Bridge } from "@gangway/server"
import * as AgentUser from "@gangway/server/AgentUser"
import type { Driver, DriverDefinition } from "@gangway/server/Driver"
import { decodeAgentOptions, LaunchLineError } from "@gangway/server/LaunchLine"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"

const agent = <Options extends Schema.Top & { readonly DecodingServices: never }, R>(
  definition: DriverDefinition<Options, R>
) => {
  const decode = decodeAgentOptions(definition.options)
  return {
    name: definition.name,
    make: Effect.fnUntraced(function*(options: Bridge.AgentOptions) {
      const make = definition.make(yield* decode(options))
      if (options.agentUser === undefined) return yield* make
      return yield* AgentUser.makeDriver({ user: options.agentUser, name: definition.name, make })
    })
  }
}

const claudeCode = agent(ClaudeCode.ClaudeCode)
const scripted = agent(Scripted.Scripted)
const agents = [claudeCode, scripted]

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
  const driver: Driver = yield* agent.make(options)
  return driver
})
