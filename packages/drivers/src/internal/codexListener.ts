/**
 * What becomes of what Codex says: the parts of the turn that it works on, and the turn's end.
 */
import { type Finished, TurnFailed } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Path from "effect/Path"
import * as Schema from "effect/Schema"
import type { Conversation } from "./codexConversation.ts"
import { turnFailed } from "./codexOutcome.ts"
import type { Usages } from "./codexParts.ts"
import type { Codex, Handlers } from "./codexProcess.ts"
import { answer, type TurnEnd, type Work } from "./codexRequests.ts"
import * as Rollout from "./codexRollout.ts"
import { emitAll, interrupted } from "./work.ts"

/** An app-server that has a thread open. */
export interface Running {
  readonly codex: Codex
  /** What the thread is set to, where a turn says nothing. */
  readonly model: string
  readonly effort: string | null
  lastModel: string
  /** The effort of the last turn, which stays until another one is said. */
  lastEffort: string | null
}

/** What a session has to do with its app-server just now. */
export interface State {
  running: Running | undefined
  /** One that isn't used any more, and may not have ended yet. */
  retired: AgentProcess | undefined
  current: Work | undefined
  readonly usages: Usages
}

/** More warnings than that of one session aren't told. */
const maxWarnings = 100

/** Makes the handlers of a session's app-servers. */
export const makeListener = (
  state: State,
  conversation: Conversation,
  { context, directory }: {
    readonly context: Context.Context<FileSystem.FileSystem | Path.Path>
    readonly directory: string
  }
): Handlers => {
  /** What Codex warned of already. */
  const warned = new Set<string>()

  const warn = (work: Work, message: string) =>
    Effect.suspend(() => {
      if (warned.has(message) || warned.size >= maxWarnings) return Effect.void
      warned.add(message)
      return work.emit({ type: "notice", level: "warning", message })
    })

  const onNotification: Handlers["onNotification"] = Effect.fnUntraced(function*(codex, notification, json) {
    const { running } = state
    if (codex !== running?.codex) return
    const work = state.current
    if (work?.sent === true && work.turn?.raw === true) yield* work.emit({ type: "raw", event: json })
    if (notification === undefined) return
    const { method, params } = notification
    const mine = params.threadId === conversation.thread()
    switch (method) {
      case "turn/started":
        if (!mine || work?.sent !== true) return
        yield* name(work, params.turn.id)
        // Before any tool is called: what runs by now is Codex's own, such as what its launcher started.
        return yield* work.emit({ type: "response-metadata", id: params.turn.id, modelId: running.lastModel })
      case "turn/completed":
        if (!mine || work?.sent !== true) return
        if (work.id === undefined) work.early = params.turn
        else if (params.turn.id === work.id) yield* onCompleted(work, params.turn)
        return
      case "serverRequest/resolved":
        if (work !== undefined) yield* FiberMap.remove(work.asking, params.requestId)
        return
      case "warning":
        if (work !== undefined) yield* warn(work, params.message)
        return
      case "mcpServer/startupStatus/updated":
        if (work !== undefined && params.status === "failed") {
          yield* warn(work, `The MCP server '${params.name}' is not there: ${params.error ?? "it failed to start"}.`)
        }
        return
    }
    if (work?.id === undefined || mine && params.turnId !== work.id) {
      // What a thread had used before, told when it's resumed.
      if (method === "thread/tokenUsage/updated") state.usages.set(params.threadId, params.tokenUsage.total)
      return
    }
    let summary: string | undefined
    if (method === "item/completed" && mine) {
      conversation.begin()
      if (params.item.type === "userMessage") {
        const messageId = work.told.get(params.item.clientId ?? "")
        if (messageId !== undefined) yield* work.turn?.delivered(messageId) ?? Effect.void
      }
      if (params.item.type === "agentMessage") work.answer = params.item.text
      if (params.item.type === "contextCompaction") {
        summary = Rollout.summaryOf(yield* Effect.orElseSucceed(conversation.lines, () => []))
      }
    }
    yield* emitAll(work, work.parts.take(notification, summary))
  })

  return {
    onNotification,
    onRequest: (codex, id, request, json) =>
      Effect.suspend(() => {
        const work = state.current
        const raw = work?.turn?.raw === true ? work.emit({ type: "raw", event: json }) : Effect.void
        return Effect.andThen(raw, answer(id, request, { codex, work, directory }))
      }).pipe(Effect.provideContext(context)),
    onExit: Effect.fnUntraced(function*(codex, problem) {
      if (codex !== state.running?.codex) return
      state.running = undefined
      const work = state.current
      if (work === undefined) return
      yield* Deferred.fail(
        work.done,
        work.interrupted ? interrupted : new TurnFailed({ kind: "agent-exit", message: problem })
      )
    })
  }
}

/** Takes note of the id that Codex gave to its turn. */
export const name = Effect.fnUntraced(function*(work: Work, id: string) {
  if (work.id !== undefined) return
  work.id = id
  yield* Deferred.succeed(work.named, id)
  if (work.early?.id === id) yield* onCompleted(work, work.early)
})

const onCompleted = Effect.fnUntraced(function*(work: Work, { error, status }: TurnEnd) {
  yield* emitAll(work, work.parts.close(status === "completed"))
  if (work.interrupted) return yield* Deferred.fail(work.done, interrupted)
  if (status !== "completed") {
    return yield* Deferred.fail(work.done, status === "interrupted" ? interrupted : turnFailed(error))
  }
  return yield* Deferred.complete(work.done, finishedOf(work))
})

const parseOutput = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Json))

const finishedOf = ({ answer, turn }: Work): Effect.Effect<Finished, TurnFailed> => {
  if (turn?.responseFormat === undefined) return Effect.succeed({ finishReason: "stop" })
  return Option.match(parseOutput(answer), {
    onNone: () =>
      Effect.fail(
        new TurnFailed({ kind: "unknown", message: "Codex gave no answer in the form that was asked for." })
      ),
    onSome: (output) => Effect.succeed({ finishReason: "stop", output })
  })
}
