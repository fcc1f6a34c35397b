/**
 * How a session's app-server is started, and how it's found again: with the conversation's thread open.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { SessionOptions } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { Conversation } from "./codexConversation.ts"
import * as Launch from "./codexLaunch.ts"
import type { Running, State } from "./codexListener.ts"
import * as Messages from "./codexMessages.ts"
import type { Options } from "./codexOptions.ts"
import { type Codex, failed, type Handlers, start } from "./codexProcess.ts"
import { inTime, patience } from "./jsonAgent.ts"

const decodeThread = Schema.decodeUnknownOption(Messages.ThreadAnswer)

/** The app-server is of no more use. */
export const retire = (state: State): void => {
  if (state.running !== undefined) state.retired = state.running.codex.process
  state.running = undefined
}

/** The app-server, started where there's none. */
export const ready = (state: State, agent: {
  readonly program: string
  readonly options: Options
  readonly session: SessionOptions
  readonly conversation: Conversation
  readonly handlers: Handlers
}): Effect.Effect<Running, Bridge.DriverError | Bridge.ContextLost, Scope.Scope> =>
  Effect.suspend(() => {
    if (state.running?.codex.gone() === true) retire(state)
    return state.running === undefined ? launch(state, agent) : Effect.succeed(state.running)
  })

const launch = Effect.fnUntraced(function*(
  state: State,
  { conversation, handlers, options, program, session }: Parameters<typeof ready>[1]
) {
  // Two of them would write one conversation.
  if (state.retired !== undefined) yield* state.retired.end
  state.retired = undefined
  yield* conversation.check
  yield* conversation.prepare
  const command = Launch.command(program, options, session, conversation.database)
  const codex = yield* start(session.processes, command, handlers)
  state.running = { codex, model: "", effort: null, lastModel: "", lastEffort: null }
  yield* soon(codex, program, "initialize", {
    clientInfo: { name: "gangway", version: "0.1.0" },
    capabilities: { experimentalApi: true, requestAttestation: false }
  })
  yield* codex.tell("initialized")
  state.usages.clear()
  const settings = Launch.thread(options, session)
  const thread = conversation.thread()
  const isResumed = thread !== undefined && (yield* conversation.exists)
  const opened = isResumed
    ? yield* soon(codex, program, "thread/resume", { threadId: thread, excludeTurns: true, ...settings })
    : yield* soon(codex, program, "thread/start", { ...settings, dynamicTools: conversation.tools })
  const answered = Option.getOrUndefined(decodeThread(opened))
  if (answered === undefined) return yield* failed("protocol", "Codex opened a thread without saying its id")
  if (isResumed && answered.thread.id !== thread) {
    const problem = `Codex has another conversation in the place of ${thread}: ${answered.thread.id}`
    return yield* new Bridge.ContextLost({ session: session.session, problem })
  }
  if (conversation.named(answered.thread.id)) {
    yield* Effect.mapError(
      session.saveConversation(conversation.name()),
      ({ problem }) => failed("unknown", problem)
    )
  }
  const effort = answered.reasoningEffort ?? null
  const started: Running = { codex, model: answered.model, effort, lastModel: answered.model, lastEffort: effort }
  state.running = started
  return started
})

/** Asks for what a turn can't begin without: it isn't to wait for ever on what hangs. */
export const soon = <M extends Messages.Method>(
  codex: Codex,
  program: string,
  method: M,
  params: (typeof Messages.requests)[M]["Type"]
): Effect.Effect<Schema.Json, Bridge.DriverError> =>
  Effect.flatMap(
    inTime(codex.ask(method, params)),
    Option.match({
      onNone: () =>
        Effect.fail(failed(
          "start",
          `Codex didn't answer '${method}' within ${patience} seconds: look whether '${program} app-server' works in ` +
            "the sandbox, with the config.toml, the MCP servers and the network that it has there"
        )),
      onSome: Effect.succeed
    })
  )
