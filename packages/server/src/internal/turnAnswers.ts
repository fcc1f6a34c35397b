/**
 * Answering what a turn's agent asked of its hosts.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type { Session } from "../Session.ts"
import type * as Answers from "./answers.ts"
import type { SessionCore } from "./sessionCore.ts"
import type { SessionLookup } from "./sessionLookup.ts"
import * as TurnTables from "./turnTables.ts"

const accepted = { accepted: true as const }

export const make = (core: SessionCore, lookup: SessionLookup): Pick<Session, "approve" | "submitToolResult"> => {
  const findTables = (turn: Bridge.TurnId) => TurnTables.find(core, lookup, turn)

  const give = Effect.fnUntraced(function*(
    turn: Bridge.TurnId,
    { answers, end, running }: TurnTables.TurnTables,
    kind: Answers.AskedKind,
    askedId: string,
    answer: Answers.Answer
  ) {
    // After the end an answer is only told what became of it.
    if (end !== undefined && answers.get(kind, askedId)?.logged === undefined) {
      return yield* new Bridge.TurnEnded({ turn, end })
    }
    yield* Effect.catchTag(
      answers.answer(kind, askedId, answer),
      "LogUnavailable",
      Effect.fnUntraced(function*(error) {
        if (running === undefined) return yield* error
        // The attempt takes no more, since it's ending; or its log can't be written, which ends it.
        const { end } = yield* Deferred.await(running.settled)
        return yield* new Bridge.TurnEnded({ turn, end })
      })
    )
    return accepted
  })

  const submitToolResult: Session["submitToolResult"] = ({ isFailure, result, toolCallId, turn }) =>
    core.queue.run(
      { name: "other" },
      Effect.gen(function*() {
        const found = yield* findTables(turn)
        const call = found.answers.get("tool", toolCallId)
        if (call !== undefined) {
          return yield* give(turn, found, "tool", toolCallId, {
            type: "tool-result",
            id: toolCallId,
            name: call.name,
            result,
            isFailure,
            providerExecuted: false
          })
        }
        if (found.answers.get("question", toolCallId) === undefined) {
          return yield* new Bridge.ToolCallNotFound({ turn, toolCallId })
        }
        return yield* give(turn, found, "question", toolCallId, {
          type: "question-answer",
          questionId: toolCallId,
          answer: result,
          isFailure,
          by: "host"
        })
      })
    )

  const approve: Session["approve"] = ({ approvalId, decision, reason, turn }) =>
    core.queue.run(
      { name: "other" },
      Effect.gen(function*() {
        const found = yield* findTables(turn)
        if (found.answers.get("approval", approvalId) === undefined) {
          return yield* new Bridge.ApprovalNotFound({ turn, approvalId })
        }
        return yield* give(turn, found, "approval", approvalId, {
          type: "tool-approval-response",
          approvalId,
          decision,
          ...(reason === undefined ? {} : { reason }),
          by: "host"
        })
      })
    )

  return { submitToolResult, approve }
}
