/**
 * Answering what a turn's agent asked of its hosts.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Session } from "../Session.ts"
import type * as Answers from "./answers.ts"
import type { Running, SessionCore } from "./sessionCore.ts"
import type { SessionLookup } from "./sessionLookup.ts"
import { scan } from "./turnScan.ts"

interface Found {
  readonly answers: Answers.Answers
  readonly running: Running | undefined
  readonly end: Bridge.End | undefined
}

const accepted = { accepted: true as const }

export const make = (core: SessionCore, lookup: SessionLookup): Pick<Session, "approve" | "submitToolResult"> => {
  const { answersOf, earlierEnd, heldOrBusy, latestStatus, requireFile } = lookup

  // The table of the latest turn's questions and answers: the running turn's, or what its log says.
  const findAnswers = Effect.fnUntraced(function*(turn: Bridge.TurnId) {
    const file = yield* requireFile
    const running = core.running()
    if (running !== undefined && running.turn === turn) {
      return { answers: running.answers, running, end: undefined } satisfies Found
    }
    const over = yield* earlierEnd(file, turn)
    if (over !== undefined) return yield* new Bridge.TurnEnded({ turn, end: over })
    const holding = yield* heldOrBusy
    const opened = holding.log()!
    const { end } = yield* latestStatus(holding)
    const answers = answersOf(opened)
    yield* Stream.runForEachArray(
      scan(opened.log),
      (parts) => Effect.sync(() => parts.forEach(({ part }) => answers.observe(part)))
    ).pipe(
      Effect.mapError((error) => new Bridge.LogUnavailable({ problem: error.message }))
    )
    return { answers, running: undefined, end } satisfies Found
  })

  const give = Effect.fnUntraced(function*(
    turn: Bridge.TurnId,
    { answers, end, running }: Found,
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
        const found = yield* findAnswers(turn)
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
        const found = yield* findAnswers(turn)
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
