/**
 * A session's conversation with its agent, as its driver has it open.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import type * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import type { AgentSession } from "../Driver.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import type { DriverCalls } from "./driverCalls.ts"
import type { Holding } from "./holding.ts"
import type { Started } from "./sessionOptions.ts"

export interface Conversation {
  /** Opens it, unless it's open with the options that count. Nothing runs of it. */
  readonly open: (
    holding: Holding,
    state?: Schema.Json
  ) => Effect.Effect<AgentSession, Bridge.DriverError | Bridge.ContextLost | Bridge.LogUnavailable>
  readonly close: Effect.Effect<void>
}

interface Opened {
  readonly agent: AgentSession
  readonly scope: Scope.Closeable
  /** What it was told that may change; absent where it was opened for a dormant session. */
  readonly told: Pick<Started, "env" | "mcpServers" | "settings"> | undefined
}

// How long a driver may take to check and open a conversation, and to compare it with the log.
const openTimeout = Duration.minutes(2)
// How long it may take to read its state.
const stateTimeout = Duration.minutes(1)

export const make = ({ calls, context, options: given, session }: {
  readonly context: BridgeContext
  readonly session: Bridge.SessionId
  readonly calls: DriverCalls
  /** Absent while the session is dormant. */
  readonly options: () => Started | undefined
}): Conversation => {
  const { driver } = context
  let opened: Opened | undefined

  const close = Effect.suspend(() => {
    const closing = opened
    opened = undefined
    return closing === undefined ? Effect.void : calls.close(closing.scope)
  })

  // What's nested too deep couldn't be written.
  const flat = <A, E>(told: Effect.Effect<A, E>) =>
    Effect.flatMap(told, (value): Effect.Effect<A, Bridge.DriverError> => {
      const problem = `what it told is nested more than ${Bridge.maxJsonDepth} deep`
      return Bridge.isTooDeep({ value })
        ? Effect.fail(new Bridge.DriverError({ driver: driver.name, kind: "unknown", problem }))
        : Effect.succeed(value)
    })

  // What a driver gives can be called without care.
  const guard = (agent: AgentSession): AgentSession => {
    const { compact, readState, reconcile, steer } = agent
    return {
      conversation: agent.conversation,
      run: (turn) => agent.run(turn),
      steer,
      interrupt: agent.interrupt,
      reconcile: reconcile === undefined
        ? undefined
        : (previous) =>
          calls.call("comparing the conversation", flat(Effect.suspend(() => reconcile(previous))), openTimeout),
      compact: compact === undefined
        ? undefined
        : (instructions) => calls.call("compacting", Effect.suspend(() => compact(instructions))),
      readState: readState === undefined ? undefined : calls.call("reading the state", flat(readState), stateTimeout)
    }
  }

  const open: Conversation["open"] = Effect.fnUntraced(function*(held, state) {
    const options = given()
    const told = options === undefined
      ? undefined
      : { env: options.env, mcpServers: options.mcpServers, settings: options.settings }
    if (opened !== undefined) {
      // Environment and headers wait for the agent's next start; which of the agent's own files count doesn't.
      const isWaiting = held.agentRuns() && told?.settings === opened.told?.settings
      if (Equal.equals(opened.told, told) || isWaiting) return opened.agent
      yield* held.supervisor.endStarted
      yield* close
    }
    yield* held.reaped
    const current = held.file()!
    if (current.driver.name !== driver.name) {
      const problem = `it was held with the agent '${current.driver.name}', this bridge drives '${driver.name}'`
      return yield* new Bridge.ContextLost({ session, problem })
    }
    const scope = yield* Scope.fork(context.scope)
    const opening = Effect.suspend(() =>
      driver.open({
        session,
        directory: current.directory,
        conversation: current.conversation,
        established: current.established,
        state: current.conversation === undefined ? state : undefined,
        instructions: options?.instructions,
        tools: options?.tools ?? [],
        permissions: options?.permissions ?? "ask",
        mcpServers: options?.mcpServers ?? [],
        settings: options?.settings ?? "none",
        env: options?.env ?? {},
        processes: held.processes,
        saveConversation: (conversation) => held.save((file) => ({ ...file, conversation }))
      })
    )
    const agent = yield* calls.call("opening the conversation", Scope.provide(opening, scope), openTimeout).pipe(
      Effect.tap(({ conversation }) =>
        conversation === undefined || conversation === held.file()?.conversation
          ? Effect.void
          : held.save((file) => ({ ...file, conversation }))
      ),
      Effect.onError(() => calls.close(scope))
    )
    opened = { agent: guard(agent), scope, told }
    return opened.agent
  })

  return { open, close }
}
