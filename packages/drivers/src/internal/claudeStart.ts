/**
 * How a session's CLI is started, and how it's found again: set to what the next prompt wants.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { type SessionOptions, TurnFailed } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { Conversation } from "./claudeConversation.ts"
import * as Launch from "./claudeLaunch.ts"
import type { Running, State, Wanted } from "./claudeListener.ts"
import type { Options } from "./claudeOptions.ts"
import { failed, type Handlers, start } from "./claudeProcess.ts"
import type { Work } from "./claudeRequests.ts"
import { inTime, patience } from "./jsonAgent.ts"

interface Agent {
  readonly program: string
  readonly options: Options
  readonly session: SessionOptions
  readonly conversation: Conversation
  readonly handlers: Handlers
}

/** The CLI is of no more use. */
export const retire = (state: State): void => {
  if (state.running !== undefined) state.retired = state.running.claude.process
  state.running = undefined
}

/** The CLI, started or told what it isn't set to yet. */
export const ready = Effect.fnUntraced(
  function*(state: State, agent: Agent, work: Work, wanted: Wanted): Effect.fn.Return<
    Running,
    Bridge.DriverError | Bridge.ContextLost | TurnFailed,
    Scope.Scope
  > {
    if (state.running?.claude.gone() === true) retire(state)
    const before = state.running
    if (before === undefined) return yield* launch(state, agent, work, wanted)
    const { claude, wanted: set } = before
    const tell = (request: Schema.JsonObject) =>
      Effect.flatMap(
        inTime(claude.ask(request)),
        Option.match({ onNone: () => Effect.fail(deaf(agent)), onSome: Effect.succeed })
      )
    if (schemaKey(set) !== schemaKey(wanted)) {
      // The form of the answer is told at the start only.
      retire(state)
      if (before.background > 0) {
        yield* work.emit({
          type: "notice",
          level: "warning",
          message:
            `Claude Code was started again for another form of answer: ${before.background} commands in the background were ended.`
        })
      }
      return yield* launch(state, agent, work, wanted)
    }
    if (set.model !== wanted.model) {
      yield* tell({ subtype: "set_model", model: wanted.model ?? null }).pipe(
        Effect.catchIf(
          ({ kind }) => kind === "protocol",
          ({ problem }) => Effect.fail(new TurnFailed({ kind: "invalid-request", message: problem }))
        )
      )
    }
    if (set.effort !== wanted.effort) {
      yield* tell({ subtype: "apply_flag_settings", settings: { effortLevel: wanted.effort ?? null } })
    }
    before.wanted = wanted
    return before
  }
)

const deaf = ({ program }: Agent, often = "") =>
  failed(
    "start",
    `Claude Code didn't answer within ${patience} seconds${often}: look whether '${program} -p' works in the sandbox, ` +
      "with the settings, the MCP servers and the network that it has there"
  )

/** Starts it, and once more where it doesn't answer: a turn doesn't wait for ever on what hangs at its start. */
const launch = Effect.fnUntraced(function*(state: State, agent: Agent, work: Work, wanted: Wanted) {
  const first = yield* startOnce(state, agent, wanted)
  if (Option.isSome(first)) return first.value
  retire(state)
  yield* work.emit({
    type: "notice",
    level: "warning",
    message: "Claude Code didn't answer when it was started, and is started again."
  })
  const second = yield* startOnce(state, agent, wanted)
  if (Option.isSome(second)) return second.value
  return yield* deaf(agent, ", twice")
})

const startOnce = Effect.fnUntraced(function*(state: State, agent: Agent, wanted: Wanted) {
  const { conversation, handlers, options, program, session } = agent
  // Two of them would write one transcript.
  if (state.retired !== undefined) yield* state.retired.end
  state.retired = undefined
  const settings: Launch.Start = { conversation: conversation.id, resume: yield* conversation.prepare, ...wanted }
  const claude = yield* start(session.processes, Launch.command(program, options, session, settings), handlers)
  const started: Running = { claude, wanted, background: 0, greeted: false }
  state.running = started
  return Option.as(yield* inTime(claude.ask(Launch.initialize(session, settings))), started)
})

const schemaKey = ({ responseFormat }: Wanted): string => JSON.stringify(responseFormat ?? null)
