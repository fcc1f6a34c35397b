/**
 * What Claude Code asks while it works: whether it may use a tool, what the user says to a question, what a host tool
 * answers, and whether it may take up a prompt.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { Finished, Turn, TurnFailed } from "@gangway/server/Driver"
import type * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { hostTool } from "./claudeBlocks.ts"
import type { ControlRequest, PermissionRequest } from "./claudeMessages.ts"
import type { makeParts } from "./claudeParts.ts"
import * as Permission from "./claudePermission.ts"
import type { Claude } from "./claudeProcess.ts"
import { respond } from "./claudeTools.ts"

/** What the CLI works on: a turn, or a compaction. */
export interface Work {
  /** The id of the message that began it; empty until it's made. */
  id: string
  readonly emit: (part: Bridge.AgentPart) => Effect.Effect<void>
  /** Who is asked; a compaction asks nobody. */
  readonly turn: Turn | undefined
  readonly parts: ReturnType<typeof makeParts>
  /** What the CLI asked and waits for, by the request's id. */
  readonly asking: FiberMap.FiberMap<string>
  readonly done: Deferred.Deferred<Finished, TurnFailed>
  /** Whether the message was written. */
  sent: boolean
  /** Whether the CLI took it up. */
  started: boolean
  /** Whether the CLI said last that it's at rest. */
  resting: boolean
  /** That the CLI has taken the message up: one that came earlier might become a part of it. */
  readonly begun: Deferred.Deferred<void>
  /** What hosts sent meanwhile and the CLI was told, by the ids that the CLI has for it. */
  readonly told: Map<string, { readonly messageId: Bridge.MessageId; taken: boolean }>
  interrupted: boolean
  /** How it ended, once the result was there. It's done when the CLI is idle then. */
  outcome: { readonly finished: Finished } | { readonly failed: TurnFailed } | undefined
  /** Of the CLI's last message in place of an answer: what kind of error there was. */
  error: string | undefined
}

/** Who asked, and for what. Without work there's nobody to be asked. */
export interface Asked {
  readonly claude: Claude
  readonly work: Work | undefined
  readonly tools: ReadonlyArray<Bridge.HostTool>
  /** The session's. */
  readonly scope: Scope.Scope
}

/** Answers a request, or sees to it that it will be answered. */
export const answer = Effect.fnUntraced(function*(
  { request, request_id: id }: ControlRequest,
  { claude, scope, tools, work }: Asked
) {
  const turn = work?.turn
  if ("callback_id" in request) {
    return yield* claude.answer(
      id,
      work === undefined
        ? { continue: false, stopReason: "There is no prompt to work on: this waits for the next one." }
        : {}
    )
  }
  if ("tool_name" in request) {
    // The host runs its tools itself: it needs no approval of its own.
    if (hostTool(request.tool_name) !== undefined) {
      return yield* claude.answer(id, { behavior: "allow", updatedInput: request.input })
    }
    if (work === undefined || turn === undefined) {
      return yield* claude.answer(id, { behavior: "deny", message: "Nobody is there to be asked." })
    }
    yield* FiberMap.run(
      work.asking,
      id,
      Effect.flatMap(permit(work, turn, id, request), (permission) => claude.answer(id, permission))
    )
    return
  }
  if ("message" in request) {
    const response = Effect.flatMap(
      respond(request.message, tools, (call) => callHost(work, turn, call)),
      (mcp_response) => claude.answer(id, { mcp_response })
    )
    if (work === undefined) yield* Effect.forkIn(response, scope)
    else yield* FiberMap.run(work.asking, id, response)
    return
  }
  yield* claude.refuse(id, `${request.subtype} is not supported`)
})

const callHost = Effect.fnUntraced(function*(
  work: Work | undefined,
  turn: Turn | undefined,
  call: { readonly id: string; readonly name: string; readonly params: Schema.Json }
) {
  if (work === undefined || turn === undefined) return { result: "No turn is running.", isFailure: true }
  const parent = work.parts.parentOf(call.id)
  const result = yield* turn.callHostTool({ ...call, ...(parent === undefined ? {} : { parent }) })
  // Before the CLI tells it again.
  work.parts.answered(call.id)
  return result
})

const permit = Effect.fnUntraced(function*(
  work: Work,
  turn: Turn,
  id: string,
  request: PermissionRequest
): Effect.fn.Return<Schema.Json> {
  const parent = work.parts.parentOf(request.tool_use_id)
  const by = parent === undefined ? {} : { parent }
  const questions = Permission.questions(request)
  if (questions !== undefined) {
    const { answer, isFailure } = yield* turn.ask({
      questionId: id,
      toolCallId: request.tool_use_id,
      questions,
      ...by
    })
    const answers = isFailure ? undefined : Permission.answers(answer)
    return answers === undefined
      ? { behavior: "deny", message: typeof answer === "string" ? answer : JSON.stringify(answer) }
      : { behavior: "allow", updatedInput: { ...request.input, answers } }
  }
  const { decision, reason } = yield* turn.requestApproval({ ...Permission.approval(request), approvalId: id, ...by })
  return decision === "deny"
    ? { behavior: "deny", message: reason ?? "The host denied this call." }
    : { behavior: "allow", updatedInput: request.input }
})
