/**
 * Reads a turn to its end, prints it, and gives what the agent asks to whoever decides.
 */
import type { Turn } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Pull from "effect/Pull"
import * as Queue from "effect/Queue"
import type * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Ask from "./Ask.ts"
import type { Approvals } from "./Flags.ts"
import { Keyboard } from "./Keyboard.ts"
import { renderEnd } from "./render/End.ts"
import * as Parts from "./render/Parts.ts"
import type { Look } from "./render/Style.ts"
import { Screen } from "./Screen.ts"

export interface Options {
  readonly turn: Turn.Turn
  /** The number of the first part. */
  readonly from: number
  /** The turn's attempt, as far as it's known. */
  readonly attempt: number
  /** The session's directory. */
  readonly directory: string | undefined
  readonly json: boolean
  readonly approvals: Approvals
  /** Told of the number that comes after what was printed. */
  readonly onPrinted: (next: number) => void
}

type Asked = typeof Bridge.ToolApprovalRequest.Type | typeof Bridge.Question.Type

// What's read ahead of what is printed; a slow terminal then holds the reading up.
const readAhead = 4096

// A question that an answer follows at once is history.
const settling = "150 millis"

// What is kept back while a person thinks. Beyond it the reading waits, and so does the news that another host decided.
const maxHeld = 256 * 1024

const nobody = "Nobody is there to ask."

/** Follows a turn to its end. */
export const follow = Effect.fnUntraced(function*(options: Options) {
  const { json, turn } = options
  const screen = yield* Screen
  const keyboard = yield* Keyboard
  const scope = yield* Effect.scope
  const queue = yield* Stream.toQueue(turn.parts({ from: options.from }), { capacity: readAhead })
  const pending = new Map<string, Asked>()
  const look: Look = {
    style: screen.look.style,
    directory: options.directory,
    // A terminal may change its width.
    get columns() {
      return screen.look.columns
    }
  }
  let approvals = options.approvals
  let state = Parts.initial
  let { attempt } = options
  let next = options.from

  // One chunk is always on its way: what races it is never what loses it.
  let taking: Fiber.Fiber<ReadonlyArray<Turn.TurnPart>, Turn.ReadError | Cause.Done> | undefined
  const ready = Effect.suspend(() => {
    if (taking !== undefined) return Effect.asVoid(Fiber.await(taking))
    return Effect.flatMap(Effect.forkIn(Queue.takeAll(queue), scope), (fiber) => {
      taking = fiber
      return Effect.asVoid(Fiber.await(fiber))
    })
  })

  // The parts that are ready, or nothing where there are no more.
  const take = Effect.suspend(() => {
    const fiber = taking!
    taking = undefined
    return Pull.catchDone(Fiber.join(fiber), () => Effect.undefined)
  })

  const accept = (parts: ReadonlyArray<Turn.TurnPart>): string => {
    let out = ""
    for (const numbered of parts) {
      const { n, part } = numbered
      if (json) out += `${JSON.stringify({ n, part })}\n`
      else {
        const [after, text] = Parts.render(state, numbered, look)
        state = after
        out += text
      }
      next = (numbered.last ?? n) + 1
      if (!Bridge.isKnown(part)) continue
      switch (part.type) {
        case "tool-approval-request":
          pending.set(part.approvalId, part)
          break
        case "question":
          pending.set(part.questionId, part)
          break
        case "tool-approval-response":
          pending.delete(part.approvalId)
          break
        case "question-answer":
          pending.delete(part.questionId)
          break
        // A continued turn asks again, by new ids.
        case "turn-continued":
          pending.clear()
          attempt = Math.max(attempt, part.attempt)
          break
      }
    }
    return out
  }

  const print = (text: string) => Effect.andThen(screen.write(text), Effect.sync(() => options.onPrinted(next)))

  // That it was settled otherwise is as good; the log says how.
  const settled = <E extends { readonly _tag: string }>(answering: Effect.Effect<void, E>) =>
    Effect.catchIf(
      answering,
      ({ _tag }) => _tag === "AlreadyAnswered" || _tag === "TurnEnded",
      () => Effect.void
    ) as Effect.Effect<void, Exclude<E, Bridge.AlreadyAnswered | Bridge.TurnEnded>>

  const deny = (asked: Asked) =>
    asked.type === "question"
      ? settled(turn.answer({ id: asked.questionId, result: nobody, isFailure: true }))
      : settled(turn.approve({ approvalId: asked.approvalId, decision: "deny", reason: nobody }))

  // Whether the cursor stands after a question.
  let isPrompting = false

  // Asks for lines until one of them is an answer; at the end of input, there's none.
  const askLine = <A>(prompt: string, read: (line: string) => Effect.Effect<A | undefined>) =>
    Effect.gen(function*() {
      while (true) {
        const line = yield* keyboard.ask(Effect.andThen(
          Effect.sync(() => {
            isPrompting = true
          }),
          screen.note(prompt)
        ))
        isPrompting = false
        if (line._tag === "None") return undefined
        const answer = yield* read(line.value)
        if (answer !== undefined) return answer
      }
    })

  const askAtKeyboard = Effect.fnUntraced(function*(asked: Asked) {
    if (asked.type === "tool-approval-request") {
      const decided = yield* askLine(
        Ask.approvalPrompt(asked, screen.noteLook),
        Effect.fnUntraced(function*(line) {
          const read = Ask.readApproval(line, asked)
          if (read._tag === "View") yield* screen.note(Ask.viewApproval(asked))
          return read._tag === "Decision" ? read : undefined
        })
      )
      if (decided === undefined) return false
      const { _tag: _, ...decision } = decided
      yield* settled(turn.approve({ approvalId: asked.approvalId, ...decision }))
      return true
    }
    const result: Record<string, Schema.Json> = {}
    for (const question of asked.questions) {
      const answer = yield* askLine(
        Ask.questionPrompt(question, asked.questions.length > 1, screen.noteLook),
        (line) => Effect.sync(() => Ask.readAnswer(line, question))
      )
      if (answer === undefined) return false
      result[question.question] = answer
    }
    yield* settled(turn.answer({ id: asked.questionId, result }))
    return true
  })

  const stopAsking = Effect.fnUntraced(function*(asking: Fiber.Fiber<unknown, unknown>) {
    yield* Fiber.interrupt(asking)
    if (isPrompting) yield* screen.note("\n")
    isPrompting = false
  })

  // While a person thinks, what comes is kept back, so that the question stays what stands last.
  const ask = Effect.fnUntraced(function*(id: string, asked: Asked) {
    const asking = yield* Effect.forkIn(askAtKeyboard(asked), scope)
    let held = ""
    while (pending.has(id)) {
      const isFull = held.length > maxHeld
      yield* Effect.raceFirst(Effect.asVoid(Fiber.await(asking)), isFull ? Effect.never : ready)
      if (asking.pollUnsafe() !== undefined) {
        const hasAnswered = yield* Fiber.join(asking)
        pending.delete(id)
        if (!hasAnswered) {
          approvals = "wait"
          yield* screen.note("\ngangway: input has ended: what the agent asks is left to other hosts\n")
        }
        break
      }
      if (taking?.pollUnsafe() === undefined) continue
      const parts = yield* Effect.onError(take, () => stopAsking(asking))
      if (parts === undefined) {
        yield* stopAsking(asking)
        yield* print(held)
        return false
      }
      held += accept(parts)
    }
    yield* stopAsking(asking)
    yield* print(held)
    return true
  })

  let isDenialTold = false
  while (true) {
    const [first] = pending
    if (first === undefined || approvals === "wait") yield* ready
    else {
      yield* Effect.timeoutOption(ready, settling)
      if (taking?.pollUnsafe() === undefined) {
        const [id, asked] = first
        if (approvals === "ask") {
          if (!(yield* ask(id, asked))) break
        } else {
          if (!isDenialTold) {
            isDenialTold = true
            yield* screen.note(
              "gangway: what the agent asks is denied, for nobody is there to ask: " +
                "allow more with --permissions, or leave it to other hosts with --approvals wait\n"
            )
          }
          pending.delete(id)
          yield* deny(asked)
        }
        continue
      }
    }
    const parts = yield* take
    if (parts === undefined) break
    yield* print(accept(parts))
  }

  const end = yield* turn.end
  yield* screen.write(
    json
      ? `${JSON.stringify({ end, attempt, next } satisfies Bridge.EndLine)}\n`
      : renderEnd(state, end, look)
  )
  return end
}, Effect.scoped)
