/**
 * What becomes of what Claude Code says: the parts of the prompt that it works on, and the prompt's end.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { TurnFailed } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { Conversation } from "./claudeConversation.ts"
import type * as Launch from "./claudeLaunch.ts"
import type { FromClaude, Result } from "./claudeMessages.ts"
import { outcomeOf } from "./claudeOutcome.ts"
import type { Claude, Handlers } from "./claudeProcess.ts"
import { answer, type Work } from "./claudeRequests.ts"
import { emitAll, interrupted } from "./work.ts"

/** What a process is set to for its next work. */
export type Wanted = Pick<Launch.Start, "model" | "effort" | "responseFormat">

export interface Running {
  readonly claude: Claude
  wanted: Wanted
  /** The commands that run in the background. */
  background: number
  greeted: boolean
}

/** What a session has to do with its CLI just now. */
export interface State {
  running: Running | undefined
  /** One that isn't used any more, and may not have ended yet. */
  retired: AgentProcess | undefined
  current: Work | undefined
}

/** The states in which a prompt is over. */
const over: ReadonlySet<string> = new Set(["completed", "cancelled", "discarded", "refused"])

/** Makes the handlers of a session's CLIs. */
export const makeListener = (
  state: State,
  conversation: Conversation,
  { scope, tools }: { readonly scope: Scope.Scope; readonly tools: ReadonlyArray<Bridge.HostTool> }
): Handlers => {
  const onMessage: Handlers["onMessage"] = Effect.fnUntraced(function*(claude, message, json) {
    const { current: work, running } = state
    if (claude !== running?.claude) return
    if (work?.turn?.raw === true && !isPlumbing(json)) yield* work.emit({ type: "raw", event: json })
    if (message === undefined) return
    if (message.type === "control_request") return yield* answer(message, { claude, work, tools, scope })
    if (message.type === "system" && message.subtype === "background_tasks_changed") {
      running.background = message.tasks.filter(({ task_type }) => task_type === "local_bash").length
    }
    if (work === undefined) {
      // The hook keeps the agent from working without a prompt, unless the user's settings have hooks switched off.
      if (message.type === "stream_event" && message.event.type === "message_start") {
        yield* Effect.forkIn(Effect.ignore(claude.ask({ subtype: "interrupt" })), scope)
      }
      return
    }
    switch (message.type) {
      case "control_cancel_request":
        return yield* FiberMap.remove(work.asking, message.request_id)
      case "command_lifecycle":
        yield* onLifecycle(work, message.command_uuid, message.state)
        return
      case "result":
        return yield* onResult(work, message)
      case "assistant":
        if (Predicate.isString(message.error)) work.error = message.error
        break
      case "system":
        if (message.subtype === "session_state_changed") return yield* onState(work, message.state)
        if (message.subtype === "init") return yield* onInit(work, running, message)
        break
      case "user":
        yield* conversation.beginOnceWritten
        break
      case "stream_event":
        if (message.event.type === "message_stop") yield* conversation.beginOnceWritten
    }
    yield* emitAll(work, work.parts.take(message))
  })

  const onExit: Handlers["onExit"] = Effect.fnUntraced(function*(claude, problem) {
    if (claude !== state.running?.claude) return
    state.running = undefined
    const work = state.current
    if (work === undefined) return
    yield* complete(work)
    yield* Deferred.fail(
      work.done,
      work.interrupted ? interrupted : new TurnFailed({ kind: "agent-exit", message: problem })
    )
  })

  return { onMessage, onExit }
}

const complete = (work: Work) => {
  // What the CLI was told it takes up next, also where it's idle just now.
  const waits = [...work.told.values()].some(({ taken }) => !taken)
  if (work.outcome === undefined || (waits && "finished" in work.outcome)) return Effect.void
  return Effect.asVoid(
    "finished" in work.outcome
      ? Deferred.succeed(work.done, work.outcome.finished)
      : Deferred.fail(work.done, work.outcome.failed)
  )
}

const onResult = Effect.fnUntraced(function*(work: Work, result: Result) {
  yield* emitAll(work, work.parts.close(result))
  const mine = [result.user_message_uuid, ...(result.user_message_uuids ?? [])].some((id) =>
    id === work.id || work.told.has(id ?? "")
  )
  // Sub-agents in the background, and what was told about them, come after the prompt's own result.
  if (!mine && !work.interrupted && work.outcome === undefined) return
  const outcome = work.interrupted ? { failed: interrupted } : outcomeOf(result, {
    error: work.error,
    structured: work.turn?.responseFormat !== undefined,
    before: work.outcome !== undefined && "finished" in work.outcome ? work.outcome.finished : undefined
  })
  work.outcome = outcome
  if ("failed" in outcome) yield* complete(work)
})

const fail = (work: Work, message: string) =>
  Effect.asVoid(Deferred.fail(work.done, new TurnFailed({ kind: "unknown", message })))

// Its word that it's at rest is the last one about a prompt that it took up: no result would come after it.
const onState = (work: Work, state: string) => {
  work.resting = state === "idle"
  if (!work.resting) return Effect.void
  return work.outcome === undefined && work.started
    ? fail(work, "Claude Code stopped without saying how the prompt ended.")
    : complete(work)
}

const onLifecycle = Effect.fnUntraced(function*(work: Work, id: string, state: string) {
  if (state === "queued") return
  if (id === work.id) {
    yield* Deferred.succeed(work.begun, undefined)
    if (state === "started") work.started = true
    // One that isn't taken up is never heard of again.
    if (work.started || work.interrupted || !over.has(state)) return
    return yield* fail(work, `Claude Code didn't take up the prompt: it was ${state}.`)
  }
  const told = work.told.get(id)
  if (told === undefined || told.taken) return
  if (state !== "started") {
    // It won't be taken up any more.
    work.told.delete(id)
    return yield* work.resting ? complete(work) : Effect.void
  }
  told.taken = true
  yield* work.turn?.delivered(told.messageId) ?? Effect.void
})

const onInit = Effect.fnUntraced(function*(
  work: Work,
  running: Running,
  { mcp_servers = [] }: Extract<FromClaude, { readonly subtype: "init" }>
) {
  if (running.greeted) return
  running.greeted = true
  for (const { name, status } of mcp_servers) {
    if (status === "connected" || status === "pending") continue
    yield* work.emit({
      type: "notice",
      level: "warning",
      message: `The MCP server '${name}' is not there: ${status}.`
    })
  }
})

// What passes between the CLI and the driver, and not between the model and its user.
const isPlumbing = (json: Schema.Json): boolean =>
  Predicate.isObject(json) && (
    json["type"] === "command_lifecycle" || json["subtype"] === "session_state_changed" ||
    String(json["type"]).startsWith("control_")
  )
