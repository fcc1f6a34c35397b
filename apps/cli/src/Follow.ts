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
import * as Stream from "effect/Stream"
import * as Answer from "./Answer.ts"
import type { Approvals } from "./Flags.ts"
import * as Policy from "./Policy.ts"
import * as Progress from "./Progress.ts"
import { lookFrom } from "./render/Style.ts"
import * as Transcript from "./render/Transcript.ts"
import { Screen } from "./Screen.ts"

export interface Options {
  readonly turn: Turn.Turn
  /** The number of the first part. */
  readonly from: number
  /** The session's directory. */
  readonly directory: string | undefined
  readonly json: boolean
  readonly approvals: Approvals
  /** What is decided before anybody is asked. */
  readonly policy: Policy.Policy
  /** Told of the number that comes after what was printed. */
  readonly onPrinted: (next: number) => void
}

// What's read ahead of what is printed; a slow terminal then holds the reading up.
const readAhead = 4096

// A question that an answer follows at once is history.
const settling = "150 millis"

// What is kept back while a person thinks. Beyond it the reading waits, and so does the news that another host decided.
const maxHeld = 256 * 1024

/** Follows a turn to its end, and gives the line that says how it ended. */
export const follow = Effect.fnUntraced(function*(options: Options) {
  const { json, turn } = options
  const screen = yield* Screen
  const answers = yield* Answer.make(turn)
  const scope = yield* Effect.scope
  const queue = yield* Stream.toQueue(turn.parts({ from: options.from }), { capacity: readAhead })
  const pending = new Map<string, Answer.Asked>()
  const progress = yield* Progress.make(lookFrom(screen.noteLook, options.directory))
  const transcript = Transcript.make(json ? "json" : "text", lookFrom(screen.look, options.directory))
  let approvals = options.approvals
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
      out += transcript.part(numbered)
      next = (numbered.last ?? n) + 1
      progress.see(part)
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
          break
      }
    }
    return out
  }

  const print = (text: string) => Effect.andThen(screen.write(text), Effect.sync(() => options.onPrinted(next)))

  // While a person thinks, what comes is kept back, so that the question stays what stands last.
  const ask = Effect.fnUntraced(function*(id: string, asked: Answer.Asked) {
    const asking = yield* Effect.forkIn(answers.atKeyboard(asked), scope)
    let held = ""
    while (pending.has(id)) {
      const isFull = held.length > maxHeld
      yield* Effect.raceFirst(Effect.asVoid(Fiber.await(asking)), isFull ? Effect.never : ready)
      if (asking.pollUnsafe() !== undefined) {
        const hasAnswered = yield* Fiber.join(asking)
        pending.delete(id)
        if (!hasAnswered) {
          approvals = "wait"
          yield* screen.note("gangway: input has ended: what the agent asks is left to other hosts\n")
        }
        break
      }
      if (taking?.pollUnsafe() === undefined) continue
      const parts = yield* Effect.onError(take, () => Fiber.interrupt(asking))
      if (parts === undefined) {
        yield* Fiber.interrupt(asking)
        yield* print(held)
        return false
      }
      held += accept(parts)
    }
    yield* Fiber.interrupt(asking)
    yield* print(held)
    return true
  })

  // Where it takes long, that's shown to whoever is at the terminal.
  const awaited = json ? ready : Effect.raceFirst(ready, progress.show)

  let isDenialTold = false
  const deny = Effect.fnUntraced(function*(asked: Answer.Asked) {
    if (!isDenialTold) {
      isDenialTold = true
      yield* screen.note(
        "gangway: what the agent asks is denied, for nobody is there to ask: " +
          "allow more with --permissions or --allow, or leave it to other hosts with --approvals wait\n"
      )
    }
    yield* answers.deny(asked)
  })

  while (true) {
    const first = [...pending].find(([, asked]) => approvals !== "wait" || Policy.decide(options.policy, asked))
    if (first === undefined) yield* awaited
    else {
      yield* Effect.timeoutOption(ready, settling)
      if (taking?.pollUnsafe() === undefined) {
        const [id, asked] = first
        const decision = Policy.decide(options.policy, asked)
        if (decision === undefined && approvals === "ask") {
          if (!(yield* ask(id, asked))) break
        } else {
          pending.delete(id)
          yield* decision === undefined ? deny(asked) : answers.decide(decision.request, decision.approval)
        }
        continue
      }
    }
    const parts = yield* take
    if (parts === undefined) break
    yield* print(accept(parts))
  }

  const line = yield* turn.endLine
  yield* screen.write(transcript.end(line))
  return line
}, Effect.scoped)
