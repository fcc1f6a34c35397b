/**
 * Connects to a bridge of the registry, on this machine or in a sandbox, and launches it where it doesn't run.
 */
import type { BridgeClient } from "@gangway/client"
import * as Launcher from "@gangway/client/Launcher"
import * as TokenStore from "@gangway/client/TokenStore"
import type { Bridge } from "@gangway/protocol"
import * as LocalSandbox from "@gangway/sandbox/LocalSandbox"
import { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import manifest from "../package.json" with { type: "json" }
import * as AgentOptions from "./AgentOptions.ts"
import * as BridgeProgram from "./BridgeProgram.ts"
import * as ConnectionNotes from "./ConnectionNotes.ts"
import { UsageError } from "./Failure.ts"
import { Registry, type SandboxRecord } from "./Registry.ts"
import { enter } from "./sandboxes/Enter.ts"

export const host = { name: "gangway", version: manifest.version }

/** Connects to a bridge that has this agent. */
export const connect = Effect.fnUntraced(function*(options: {
  readonly bridge: Bridge.BridgeId
  readonly agent: AgentOptions.Agent
  readonly bridgeCommand: Option.Option<string>
  /** The user that the agent of a bridge runs as that isn't known yet; absent, the bridge's own. */
  readonly agentUser?: string | undefined
  /** Where a bridge that isn't known yet runs; absent, on this machine. */
  readonly sandbox?: SandboxRecord | undefined
  /** Whether what's said of the connection is JSON. */
  readonly json: boolean
}) {
  const { agent, bridge, json } = options
  const registry = yield* Registry
  const known = yield* registry.bridge(bridge)
  if (Option.isSome(known) && known.value.agent !== agent) {
    return yield* new UsageError({
      problem: `bridge ${bridge} is for ${known.value.agent}: name another one with --bridge`
    })
  }
  const agentUser = Option.isSome(known) ? known.value.agentUser : options.agentUser
  if (options.agentUser !== undefined && options.agentUser !== agentUser) {
    return yield* new UsageError({
      problem: `the agent of bridge ${bridge} runs as ${
        agentUser === undefined ? "the bridge's own user" : `user ${agentUser}`
      }: name another one with --bridge`
    })
  }
  const record = Option.isSome(known) ? known.value.sandbox : options.sandbox
  const place = record === undefined
    ? yield* onThisMachine(bridge, options.bridgeCommand)
    : yield* enter({ bridge, record, bridgeCommand: options.bridgeCommand })
  const { agentHome, command, cwd, directoryOf, sandbox, stateDirectory } = place
  const { agentOptions, env } = yield* AgentOptions.fromEnvironment(agent, agentHome, record === undefined)
  if (Option.isNone(known)) {
    yield* registry.keepBridge(bridge, {
      agent,
      ...(agentUser === undefined ? {} : { agentUser }),
      ...(record === undefined ? {} : { sandbox: record })
    })
  }
  const launcher = yield* Launcher.make({ command, cwd }).pipe(
    Effect.provideService(Sandbox, sandbox),
    Effect.provide(TokenStore.layerFile(registry.tokens))
  )
  const { connecting, onStatus } = yield* ConnectionNotes.make({ json })
  const client = yield* connecting(launcher.connect({
    bridge,
    stateDirectory,
    agentOptions: agentUser === undefined ? agentOptions : { ...agentOptions, agentUser: toUser(agentUser) },
    host,
    onStatus
  }))
  return { client, env, directoryOf }
})

// A uid is a number.
const toUser = (given: string) => /^\d{1,9}$/.test(given) ? Number(given) : given

const onThisMachine = Effect.fnUntraced(function*(bridge: Bridge.BridgeId, bridgeCommand: Option.Option<string>) {
  const registry = yield* Registry
  return {
    ...registry.places(bridge),
    sandbox: yield* LocalSandbox.make,
    command: yield* BridgeProgram.find(bridgeCommand),
    // In a directory of its own the program takes no settings from the one that the user is in.
    cwd: registry.root,
    directoryOf: (directory: string) => directory
  }
})

/** The bridge that's meant, with its agent: the one that is named, or the only one. */
export const known = Effect.fnUntraced(function*(named: Option.Option<Bridge.BridgeId>) {
  const registry = yield* Registry
  const bridges = yield* registry.bridges
  const bridge = Option.getOrUndefined(named) ?? (bridges.length === 1 ? bridges[0] : undefined)
  if (bridge === undefined) {
    return yield* new UsageError({
      problem: bridges.length === 0
        ? "no bridge is known yet: 'gangway run' launches one"
        : `name the bridge with --bridge: ${bridges.join(", ")}`
    })
  }
  const record = yield* registry.bridge(bridge)
  if (Option.isNone(record)) {
    return yield* new UsageError({
      problem: `no bridge ${bridge} is known${bridges.length === 0 ? "" : `: there are ${bridges.join(", ")}`}`
    })
  }
  return { bridge, agent: record.value.agent, sandbox: record.value.sandbox }
})

/** The session's turn that's meant, its latest one by default, with its attempt as far as it's known. */
export const findTurn = Effect.fnUntraced(function*(
  client: BridgeClient.BridgeClient["Service"],
  session: Bridge.SessionId,
  turn: Bridge.TurnId | undefined
) {
  const { sessions } = yield* client.hello
  const found = sessions.find((summary) => summary.session === session)
  if (found === undefined) {
    return yield* new UsageError({ problem: `bridge ${client.bridge} has no session ${session}` })
  }
  const named = turn ?? found.latest?.turn
  if (named === undefined) return yield* new UsageError({ problem: `session ${session} has had no turn yet` })
  return { turn: named, latest: named === found.latest?.turn ? found.latest : undefined }
})

/** That a turn has no part of the number which its reader began with, in words of the command line. */
export const noSuchPart = <E extends { readonly _tag: string }>(
  error: E,
  turn: Bridge.TurnId,
  from: number
): E | UsageError => {
  const lost: { readonly _tag: string; readonly expected?: number; readonly next?: number | undefined } = error
  return lost._tag === "PartsLost" && lost.expected === from && lost.next !== undefined
    ? new UsageError({ problem: `turn ${turn} has no part ${from}: its next one is ${lost.next}` })
    : error
}
