/**
 * How an agent is started: its environment, and what it's told first.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { SessionOptions } from "@gangway/server/Driver"
import type { AgentCommand } from "@gangway/server/Supervisor"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import { failed } from "./acpConnection.ts"
import type { Endpoint } from "./acpHostTools.ts"
import type { Initialized } from "./acpMessages.ts"
import type { Options } from "./acpOptions.ts"
import type { Profile, Surroundings } from "./acpProfiles.ts"
import { hostServer } from "./acpTools.ts"

/** The agent that a driver drives. */
export interface Agent {
  readonly options: Options
  readonly profile: Profile | undefined
  /** The program and its arguments. */
  readonly command: readonly [string, ...Array<string>]
  /** For people. */
  readonly title: string
}

type Environment = AgentCommand["env"]

/** The variables that an agent gets, without what its profile adds. A home of its own leaves none of the user's. */
export const environment = (options: Options, session: Pick<SessionOptions, "env">): Environment => ({
  ...(options.home === undefined ? {} : {
    HOME: options.home,
    XDG_CACHE_HOME: undefined,
    XDG_CONFIG_HOME: undefined,
    XDG_DATA_HOME: undefined,
    XDG_STATE_HOME: undefined
  }),
  ...options.env,
  ...options.secretEnv,
  ...session.env
})

/** Looks a variable up, secret or not. */
export const variableOf = (environment: Environment) => (name: string): string | undefined => {
  const value = environment[name]
  return Redacted.isRedacted(value) ? Redacted.value(value) : value
}

/** The command. No argument holds a secret or a text of the host's. */
export const command = (
  { command: [program, ...args], options, profile }: Agent,
  session: SessionOptions,
  surroundings: Omit<Surroundings, "variable" | "settings">
): AgentCommand => {
  const given = environment(options, session)
  const added = profile?.env?.({ ...surroundings, settings: session.settings, variable: variableOf(given) }) ?? {}
  return {
    command: program,
    args,
    cwd: session.directory,
    env: {
      ...given,
      // What was secret stays so in what is made of it.
      ...Object.fromEntries(
        Object.entries(added).map(([name, value]) => [name, name in given ? Redacted.make(value) : value])
      )
    }
  }
}

/** What the driver can do for the agent: agents that are known have files and commands of their own. */
export const initialize = (profile: Profile | undefined) => ({
  protocolVersion: 1,
  clientCapabilities: {
    fs: { readTextFile: profile === undefined, writeTextFile: profile === undefined },
    terminal: profile === undefined,
    // Otherwise adapters tell their warnings as if they were the agent's answer.
    session: { notices: {}, compaction: {} }
  },
  clientInfo: { name: "gangway", title: "Gangway", version: "0.1.0" }
})

const pairs = (values: Readonly<Record<string, Redacted.Redacted<string>>> | undefined) =>
  Object.entries(values ?? {}).map(([name, value]) => ({ name, value: Redacted.value(value) }))

/** The session's MCP servers, and the host's tools as one more, on the agent's standard input: so no secret is an argument. */
export const mcpServers = Effect.fnUntraced(function*(
  { agentCapabilities }: Initialized,
  servers: ReadonlyArray<Bridge.McpServer>,
  host: Endpoint | undefined
): Effect.fn.Return<ReadonlyArray<Schema.JsonObject>, Bridge.DriverError> {
  const can = (type: "http" | "sse") => agentCapabilities?.mcpCapabilities?.[type] === true
  const missing = servers.find((server) => server.type !== "stdio" && !can(server.type))
  if (missing !== undefined) {
    return yield* failed("options", `the agent takes no MCP servers over ${missing.type}, such as '${missing.name}'`)
  }
  if (Predicate.isNotUndefined(host) && !can("http")) {
    return yield* failed("options", "the agent takes no MCP servers over HTTP, and so none of the host's tools")
  }
  return [
    ...servers.map((server) =>
      server.type === "stdio"
        ? { name: server.name, command: server.command, args: server.args ?? [], env: pairs(server.env) }
        : { type: server.type, name: server.name, url: server.url, headers: pairs(server.headers) }
    ),
    ...(host === undefined ? [] : [{
      type: "http",
      name: hostServer,
      url: host.url,
      headers: [{ name: "authorization", value: host.authorization }]
    }])
  ]
})
