/**
 * A session with Claude Code: the turns that it's given, and how they're steered and interrupted.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { type AgentSession, type SessionOptions, type Turn, TurnFailed } from "@gangway/server/Driver"
import type * as Crypto from "effect/Crypto"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { hostServer } from "./claudeBlocks.ts"
import * as Conversation from "./claudeConversation.ts"
import { makeListener, type State, type Wanted } from "./claudeListener.ts"
import { prompt } from "./claudeMessages.ts"
import type { Options } from "./claudeOptions.ts"
import { makeParts } from "./claudeParts.ts"
import { makePlan } from "./claudePlan.ts"
import { failed } from "./claudeProcess.ts"
import * as Prompt from "./claudePrompt.ts"
import type { Work } from "./claudeRequests.ts"
import { ready, retire } from "./claudeStart.ts"
import type * as Transcript from "./claudeTranscript.ts"
import { nudge } from "./prompts.ts"
import { compactionFailed, interrupted, outcome } from "./work.ts"

export interface Agent {
  readonly program: string
  readonly options: Options
  readonly home: ReturnType<typeof Transcript.homeOf>
}

const efforts: ReadonlySet<string> = new Set(["low", "medium", "high", "xhigh", "max"])

export const open = Effect.fnUntraced(function*(agent: Agent, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Crypto.Crypto | Scope.Scope
> {
  const scope = yield* Effect.scope
  if (options.mcpServers.some(({ name }) => name === hostServer)) {
    return yield* failed("options", `an MCP server can't be named '${hostServer}': the host's own tools have that name`)
  }

  const conversation = yield* Conversation.open(options, agent.home)
  const plan = makePlan()
  const state: State = { running: undefined, retired: undefined, current: undefined }
  const claude = {
    program: agent.program,
    options: agent.options,
    session: options,
    conversation,
    handlers: makeListener(state, conversation, { scope, tools: options.tools })
  }

  const perform = Effect.fnUntraced(function*(given: {
    readonly id: Effect.Effect<string>
    readonly turn: Turn | undefined
    readonly emit: Work["emit"]
    readonly content: Schema.Json
    readonly wanted: Wanted
  }) {
    const { content, turn, wanted } = given
    // Nothing may wait before this is there: an interrupt that came earlier would be missed.
    const work: Work = {
      id: "",
      turn,
      emit: given.emit,
      parts: makeParts({ plan }),
      asking: yield* FiberMap.make<string>(),
      done: Deferred.makeUnsafe(),
      sent: false,
      started: false,
      resting: false,
      begun: Deferred.makeUnsafe(),
      told: new Map(),
      interrupted: false,
      outcome: undefined,
      error: undefined
    }
    state.current = work
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (state.current === work) state.current = undefined
      })
    )
    const send = Effect.gen(function*() {
      work.id = yield* given.id
      const running = yield* Scope.provide(ready(state, claude, work, wanted), scope)
      if (work.interrupted) return
      work.sent = true
      yield* running.claude.say(prompt(work.id, content))
    })
    const finished = yield* outcome(work.done, send)
    yield* conversation.begin
    return finished
  }, Effect.scoped)

  // Where something doesn't end well, the bridge ends its processes.
  const orRetire = <A, E>(effect: Effect.Effect<A, E>) => Effect.onError(effect, () => Effect.sync(() => retire(state)))

  return {
    conversation: conversation.name,
    reconcile: conversation.compare,
    readState: conversation.state,

    run: Effect.fnUntraced(function*(turn) {
      const { effort } = turn
      if (effort !== undefined && !efforts.has(effort)) {
        const message = `Claude Code knows no effort '${effort}': it's one of ${[...efforts].join(", ")}.`
        return yield* new TurnFailed({ kind: "invalid-request", message })
      }
      return yield* perform({
        id: conversation.messageId(turn.turn, turn.message ?? turn.attempt),
        turn,
        emit: turn.emit,
        content: turn.continued?.prompted === true ? nudge : yield* Prompt.content(turn.prompt),
        wanted: { model: turn.model ?? agent.options.model, effort, responseFormat: turn.responseFormat?.schema }
      })
    }, orRetire),

    steer: Effect.fnUntraced(function*({ messageId, prompt: given }) {
      const work = state.current
      if (work?.turn === undefined) return
      const id = yield* conversation.messageId(work.turn.turn, messageId)
      const content = yield* Prompt.content(given)
      yield* Deferred.await(work.begun)
      const { running } = state
      if (running === undefined || work.interrupted || Deferred.isDoneUnsafe(work.done)) return
      work.told.set(id, { messageId, taken: false })
      yield* running.claude.say(prompt(id, content))
    }),

    interrupt: Effect.suspend(() => {
      const work = state.current
      if (work === undefined) return Effect.void
      work.interrupted = true
      const claude = state.running?.claude
      if (!work.sent || claude === undefined) return Effect.asVoid(Deferred.fail(work.done, interrupted))
      // A prompt that the CLI hasn't taken up yet is cancelled; one that it's just taking up isn't stopped by an
      // interrupt that comes too early, so it's sent until the turn has ended.
      return claude.ask({ subtype: "interrupt", cancel_queued: true }).pipe(
        Effect.flatMap((answer) =>
          Predicate.isObject(answer) && Array.isArray(answer["cancelled"]) && answer["cancelled"].includes(work.id)
            ? Deferred.fail(work.done, interrupted)
            : Effect.void
        ),
        Effect.repeat({
          schedule: Schedule.spaced("250 millis"),
          until: () => Deferred.isDone(work.done)
        }),
        Effect.ignore
      )
    }),

    compact: Effect.fnUntraced(function*(instructions) {
      if (!(yield* conversation.exists) && !conversation.begun()) return {}
      let summary: string | undefined
      yield* perform({
        id: conversation.newId,
        turn: undefined,
        emit: (part) =>
          Effect.sync(() => {
            if (part.type === "compaction") summary = part.summary
          }),
        content: `/compact ${instructions ?? ""}`.trimEnd(),
        wanted: state.running?.wanted ?? { model: agent.options.model, effort: undefined, responseFormat: undefined }
      }).pipe(Effect.catchTag("TurnFailed", compactionFailed(failed)))
      return summary === undefined ? {} : { summary }
    }, orRetire)
  }
})
