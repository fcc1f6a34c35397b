/**
 * What an agent works on in an attempt: the turn's prompt, and the messages that hosts send meanwhile.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"
import type { AgentSession, Finished, Turn, TurnFailed } from "../Driver.ts"
import type { Message, Messages } from "./messages.ts"

export type RunFailure = TurnFailed | Bridge.ContextLost | Bridge.DriverError

export interface TurnWork {
  /** Runs the turn until the agent has worked on all that was sent. No message is accepted any more then. */
  readonly run: (turn: Turn) => Effect.Effect<Finished, RunFailure>
  /** Logs a message, and lets the agent have it; `false` where the attempt takes none any more. */
  readonly send: (message: Message) => Effect.Effect<boolean, Bridge.TooManyMessages | Bridge.LogUnavailable>
}

// How long a driver may take to say what became of a message, once it's done with its run.
const leaveAfter = Duration.seconds(1)

export const make = Effect.fnUntraced(function*(options: {
  readonly agent: AgentSession
  readonly messages: Messages
  /** Whether the attempt is to end. */
  readonly isAborted: () => boolean
}): Effect.fn.Return<TurnWork, never, Scope.Scope> {
  const { agent, isAborted, messages } = options
  const steering = yield* FiberSet.make<void>()
  let running = false

  const runOnce = Effect.fnUntraced(function*(turn: Turn) {
    running = true
    const finished = yield* agent.run(turn)
    running = false
    yield* Effect.timeoutOption(FiberSet.awaitEmpty(steering), leaveAfter)
    yield* FiberSet.clear(steering)
    return finished
  })

  // A log that can't be written fails the attempt by itself.
  const next = Effect.catch(messages.next, () => Effect.never)

  return {
    run: Effect.fnUntraced(function*(turn) {
      let finished = yield* runOnce(turn)
      while (!isAborted()) {
        const message = yield* next
        if (message === undefined) break
        const { messageId, prompt } = message
        const more = yield* runOnce({ ...turn, prompt, message: messageId, continued: undefined })
        finished = more.cost === undefined ? more : { ...more, cost: more.cost + (finished.cost ?? 0) }
      }
      return finished
    }),
    send: Effect.fnUntraced(function*(message) {
      const accepted = yield* messages.accept(message)
      const { steer } = agent
      if (accepted && running && message.delivery === "steer" && steer !== undefined) {
        // What the agent doesn't take while it works it's given next, whatever went wrong.
        yield* FiberSet.run(steering, Effect.ignoreCause(Effect.suspend(() => steer(message))))
      }
      return accepted
    })
  }
})
