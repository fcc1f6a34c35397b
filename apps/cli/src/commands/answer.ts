/**
 * `gangway answer`: answers from another terminal what an agent asks its user, or calls a host for.
 */
import type { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Argument from "effect/unstable/cli/Argument"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import * as Ask from "../Ask.ts"
import { UsageError } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { askInTurn } from "../InTurn.ts"
import { waiting as inWords } from "../render/Overview.ts"
import * as Values from "../render/Values.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Waiting from "../Waiting.ts"

export const answer = Command.make(
  "answer",
  {
    id: Argument.String("id").pipe(
      Argument.withDescription("The question's or call's id or how it begins; not needed where only one is waited for"),
      Argument.optional
    ),
    say: Flag.String("say").pipe(
      Flag.withDescription("The answer to a question: an option's number, or words; once for each question, in order"),
      Flag.withMetavar("answer"),
      Flag.atLeast(0)
    ),
    result: Flag.String("result").pipe(
      Flag.withDescription("What a host's tool gave, as JSON"),
      Flag.withMetavar("json"),
      Flag.optional
    ),
    failure: Flag.Boolean("failure").pipe(
      Flag.withDescription("Says that the tool failed, and so did what --result has to say of it"),
      Flag.withDefault(false)
    ),
    ...Flags.named,
    json: Flags.json,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.answer")(function*({ bridgeCommand, failure, id, json, result, say, ...named }) {
    const { write } = yield* Screen
    if (say.length > 0 && Option.isSome(result)) {
      return yield* new UsageError({ problem: "--say and --result exclude each other" })
    }
    if (failure && Option.isNone(result)) return yield* new UsageError({ problem: "--failure takes a --result" })
    const given = Option.isSome(result) ? yield* parse(result.value) : undefined
    const byHand = say.length === 0 && given === undefined
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Waiting.find({
        named,
        id,
        // A tool isn't run by hand unless its result is at hand.
        types: byHand || say.length > 0 ? ["question"] : ["question", "tool"],
        noun: byHand || say.length > 0 ? "answer" : "answer or host tool"
      })
      if (byHand) return yield* askInTurn(found, { bridgeCommand, json, otherwise: "say it with --say, or --result" })
      const one = yield* Waiting.only(found)
      const { bridge, session, turn, waiting } = one
      const { handle, part } = yield* Waiting.open(one, { bridgeCommand, json })
      const answer = given !== undefined || part.type !== "question" ? given ?? null : yield* read(part, say)
      yield* handle.answer({ id: waiting.id, result: answer, isFailure: failure })
      yield* write(
        json
          ? `${JSON.stringify({ bridge, session, turn, ...waiting, answer, isFailure: failure })}\n`
          : `${inWords(waiting)}: ${Values.answer(answer)}\n`
      )
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Answers what an agent asks you: as the flags say, or asked at the terminal"),
  Command.withExamples([
    { command: "gangway answer", description: "Asks you what waits for an answer, one after the other" },
    {
      command: "gangway answer --say 2 --say \"Apple, Pear\"",
      description: "Answers two questions that come together"
    },
    { command: "gangway answer call_7 --result '{\"degrees\": 21}'", description: "Gives a host tool's result by hand" }
  ])
)

const parse = (text: string) =>
  Effect.mapError(
    Schema.decodeEffect(Schema.fromJsonString(Schema.Json))(text),
    () => new UsageError({ problem: "the --result isn't JSON" })
  )

const read = Effect.fnUntraced(function*({ questions }: typeof Bridge.Question.Type, said: ReadonlyArray<string>) {
  if (said.length !== questions.length) {
    return yield* new UsageError({
      problem: `there are ${questions.length} questions, so as many --say are needed: ${
        questions.map(({ question }) => question).join(" ")
      }`
    })
  }
  const answers: Record<string, Schema.Json> = {}
  for (const [index, question] of questions.entries()) {
    const answer = Ask.readAnswer(said[index]!, question)
    if (answer === undefined) return yield* new UsageError({ problem: `no answer is said to: ${question.question}` })
    answers[question.question] = answer
  }
  return answers
})
