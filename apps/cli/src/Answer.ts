/**
 * Answers what an agent asks: at the keyboard, or with a no where nobody is there.
 */
import type { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Schema from "effect/Schema"
import * as Ask from "./Ask.ts"
import { Keyboard } from "./Keyboard.ts"
import { Screen } from "./Screen.ts"

/** What waits for an answer. */
export type Asked = typeof Bridge.ToolApprovalRequest.Type | typeof Bridge.Question.Type

/** Why an answer couldn't be given. */
export type AnswerFailed = Exclude<Turn.ApproveError | Turn.AnswerError, Bridge.AlreadyAnswered | Bridge.TurnEnded>

const nobody = "Nobody is there to ask."

/** Makes what answers for a turn. */
export const make = Effect.fnUntraced(function*(turn: Turn.Turn) {
  const keyboard = yield* Keyboard
  const screen = yield* Screen
  // Whether the cursor stands after a question.
  let isAsking = false

  // That it was settled otherwise is as good; the log says how.
  const settled = <E extends { readonly _tag: string }>(answering: Effect.Effect<void, E>) =>
    Effect.catchIf(
      answering,
      ({ _tag }) => _tag === "AlreadyAnswered" || _tag === "TurnEnded",
      () => Effect.void
    ) as Effect.Effect<void, Exclude<E, Bridge.AlreadyAnswered | Bridge.TurnEnded>>

  const approve = (approvalId: string, approval: Turn.Approval) => settled(turn.approve({ approvalId, ...approval }))
  const answer = (id: string, result: Schema.Json, isFailure: boolean) =>
    settled(turn.answer({ id, result, isFailure }))

  // Asks until a line is an answer; none at the end of input.
  const ask = Effect.fnUntraced(
    function*<A>(
      question: string,
      read: (line: string) => Effect.Effect<A | undefined>
    ): Effect.fn.Return<A | undefined> {
      const put = Effect.andThen(screen.note(question), Effect.sync(() => void (isAsking = true)))
      while (true) {
        const line = yield* keyboard.ask(put)
        if (Option.isNone(line)) return undefined
        isAsking = false
        const answer = yield* read(line.value)
        if (answer !== undefined) return answer
      }
    },
    Effect.ensuring(Effect.suspend(() => {
      // Something else is written where the answer would have been.
      const wasAsking = isAsking
      isAsking = false
      return wasAsking ? screen.note("\n") : Effect.void
    }))
  )

  const askApproval = Effect.fnUntraced(function*(request: typeof Bridge.ToolApprovalRequest.Type) {
    const approval = yield* ask(
      Ask.approvalPrompt(request, screen.noteLook),
      Effect.fnUntraced(function*(line) {
        const read = Ask.readApproval(line, request)
        if (read._tag === "View") yield* screen.note(Ask.viewApproval(request))
        return read._tag === "Decision" ? read.approval : undefined
      })
    )
    if (approval === undefined) return false
    yield* approve(request.approvalId, approval)
    return true
  })

  const askQuestions = Effect.fnUntraced(function*({ questionId, questions }: typeof Bridge.Question.Type) {
    const result: Record<string, Schema.Json> = {}
    for (const question of questions) {
      const answer = yield* ask(
        Ask.questionPrompt(question, questions.length > 1, screen.noteLook),
        (line) => Effect.sync(() => Ask.readAnswer(line, question))
      )
      if (answer === undefined) return false
      result[question.question] = answer
    }
    yield* answer(questionId, result, false)
    return true
  })

  return {
    /** Decides on a request. */
    decide: ({ approvalId }: typeof Bridge.ToolApprovalRequest.Type, approval: Turn.Approval) =>
      approve(approvalId, approval),
    /** Says no. */
    deny: (asked: Asked): Effect.Effect<void, AnswerFailed> =>
      asked.type === "question"
        ? answer(asked.questionId, nobody, true)
        : approve(asked.approvalId, { decision: "deny", reason: nobody }),
    /** Asks the person at the keyboard; `false` where there's none any more. */
    atKeyboard: (asked: Asked): Effect.Effect<boolean, AnswerFailed> =>
      asked.type === "question" ? askQuestions(asked) : askApproval(asked)
  }
})
