/**
 * A session with Codex: the turns that it's given, and how they're steered and interrupted.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { type AgentSession, type SessionOptions, type Turn, TurnFailed } from "@gangway/server/Driver"
import type * as Crypto from "effect/Crypto"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Path from "effect/Path"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Conversation from "./codexConversation.ts"
import { makeListener, name, type Running, type State } from "./codexListener.ts"
import * as Messages from "./codexMessages.ts"
import type { Options } from "./codexOptions.ts"
import { makeParts } from "./codexParts.ts"
import { failed } from "./codexProcess.ts"
import * as Prompt from "./codexPrompt.ts"
import type { Work } from "./codexRequests.ts"
import type * as Rollout from "./codexRollout.ts"
import { ready, retire, soon } from "./codexStart.ts"
import { nudge } from "./prompts.ts"
import { compactionFailed, interrupted, outcome } from "./work.ts"

export interface Agent {
  readonly program: string
  readonly options: Options
  readonly home: ReturnType<typeof Rollout.homeOf>
}

const efforts: ReadonlySet<string> = new Set(["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"])

const decodeTurn = Schema.decodeUnknownOption(Messages.TurnAnswer)

export const open = Effect.fnUntraced(function*(agent: Agent, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Crypto.Crypto | Scope.Scope
> {
  const scope = yield* Effect.scope
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const { directory } = options

  const sse = options.mcpServers.find(({ type }) => type === "sse")
  if (sse !== undefined) {
    return yield* failed(
      "options",
      `Codex can't speak SSE with the MCP server '${sse.name}': it takes 'stdio' and 'http'`
    )
  }

  const conversation = yield* Conversation.open(options, agent.home)
  const state: State = { running: undefined, retired: undefined, current: undefined, usages: new Map() }
  const codex = ready(state, {
    program: agent.program,
    options: agent.options,
    session: options,
    conversation,
    handlers: makeListener(state, conversation, { context, directory })
  }).pipe(Scope.provide(scope))

  const perform = Effect.fnUntraced(function*(given: {
    readonly turn: Turn | undefined
    readonly emit: Work["emit"]
    readonly send: (running: Running, thread: string) => Effect.Effect<string | undefined, Bridge.DriverError>
  }) {
    // Nothing may wait before this is there: an interrupt that came earlier would be missed.
    const work: Work = {
      id: undefined,
      named: Deferred.makeUnsafe(),
      told: new Map(),
      turn: given.turn,
      emit: given.emit,
      parts: makeParts({
        usages: state.usages,
        thread: conversation.thread,
        trigger: given.turn === undefined ? "manual" : "auto"
      }),
      asking: yield* FiberMap.make<Messages.RequestId>(),
      done: Deferred.makeUnsafe(),
      sent: false,
      interrupted: false,
      answer: undefined,
      early: undefined
    }
    state.current = work
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (state.current === work) state.current = undefined
      })
    )
    const send = Effect.gen(function*() {
      const running = yield* codex
      const thread = conversation.thread()
      if (work.interrupted || thread === undefined) return
      work.sent = true
      const id = yield* given.send(running, thread)
      if (id !== undefined) yield* name(work, id)
    })
    return yield* outcome(work.done, send)
  }, Effect.scoped)

  // Where something doesn't end well, the bridge ends its processes.
  const orRetire = <A, E>(effect: Effect.Effect<A, E>) => Effect.onError(effect, () => Effect.sync(() => retire(state)))

  const startTurn = Effect.fnUntraced(function*(
    turn: Turn,
    input: ReadonlyArray<Messages.UserInput>,
    running: Running,
    threadId: string
  ) {
    const model = turn.model ?? agent.options.model ?? running.model
    running.lastModel = model
    // Only with the whole mode said can an effort be taken back.
    const reset = turn.effort === undefined && running.lastEffort !== running.effort
    running.lastEffort = turn.effort ?? running.effort
    const answered = yield* soon(running.codex, agent.program, "turn/start", {
      threadId,
      clientUserMessageId: Prompt.messageId(threadId, turn.turn, turn.message ?? turn.attempt),
      input,
      model,
      ...(turn.effort === undefined ? {} : { effort: turn.effort }),
      ...(reset
        ? {
          collaborationMode: {
            mode: "default" as const,
            settings: { model, reasoning_effort: running.effort, developer_instructions: null }
          }
        }
        : {}),
      ...(turn.responseFormat === undefined ? {} : { outputSchema: turn.responseFormat.schema })
    })
    return Option.getOrUndefined(decodeTurn(answered))?.turn.id
  })

  return {
    conversation: conversation.name(),
    reconcile: conversation.compare,
    readState: conversation.state,

    run: Effect.fnUntraced(function*(turn) {
      const { effort } = turn
      if (effort !== undefined && !efforts.has(effort)) {
        const message = `Codex knows no effort '${effort}': it's one of ${[...efforts].join(", ")}.`
        return yield* new TurnFailed({ kind: "invalid-request", message })
      }
      const input = turn.continued?.prompted === true
        ? [Prompt.text(nudge)]
        : yield* Prompt.inputs(turn.prompt)
      return yield* perform({
        turn,
        emit: turn.emit,
        send: (running, threadId) => startTurn(turn, input, running, threadId)
      })
    }, orRetire),

    steer: Effect.fnUntraced(function*({ messageId, prompt }) {
      const work = state.current
      if (work?.turn === undefined) return
      const input = yield* Prompt.inputs(prompt)
      const expectedTurnId = yield* Deferred.await(work.named)
      const thread = conversation.thread()
      const { running } = state
      if (running === undefined || thread === undefined || work.interrupted || Deferred.isDoneUnsafe(work.done)) return
      const clientUserMessageId = Prompt.messageId(thread, work.turn.turn, messageId)
      work.told.set(clientUserMessageId, messageId)
      yield* running.codex.ask("turn/steer", { threadId: thread, expectedTurnId, clientUserMessageId, input })
    }),

    interrupt: Effect.suspend(() => {
      const work = state.current
      if (work === undefined) return Effect.void
      work.interrupted = true
      const codex = state.running?.codex
      const threadId = conversation.thread()
      if (!work.sent || codex === undefined || threadId === undefined) {
        return Effect.asVoid(Deferred.fail(work.done, interrupted))
      }
      // Codex refuses an interrupt that comes before the turn has begun, so it's sent until the turn has ended.
      const ask = Effect.suspend(() =>
        work.id === undefined ? Effect.void : Effect.ignore(codex.ask("turn/interrupt", { threadId, turnId: work.id }))
      )
      return ask.pipe(
        Effect.repeat({ schedule: Schedule.spaced("250 millis"), until: () => Deferred.isDone(work.done) }),
        // The turn's commands go on otherwise.
        Effect.andThen(Effect.ignore(codex.ask("thread/backgroundTerminals/clean", { threadId }))),
        Effect.asVoid
      )
    }),

    compact: Effect.fnUntraced(function*(instructions) {
      if (instructions !== undefined) {
        return yield* failed("options", "Codex compacts a conversation by its own rules only: leave out instructions")
      }
      if (conversation.thread() === undefined || !conversation.begun()) return {}
      let summary: string | undefined
      yield* perform({
        turn: undefined,
        emit: (part) =>
          Effect.sync(() => {
            if (part.type === "compaction") summary = part.summary
          }),
        send: ({ codex }, threadId) =>
          Effect.as(soon(codex, agent.program, "thread/compact/start", { threadId }), undefined)
      }).pipe(Effect.catchTag("TurnFailed", compactionFailed(failed)))
      return summary === undefined ? {} : { summary }
    }, orRetire)
  }
})
