/**
 * What a turn has used so far, from its parts: over all its attempts.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Schema from "effect/Schema"

/**
 * Adds up the steps of a turn as its parts go by.
 *
 * @category models
 * @since 0.1.0
 */
export interface TurnUsage {
  /** Takes the turn's next part. */
  readonly add: (part: Bridge.Part) => void
  /**
   * The usage of all the steps so far. It's not measured where parts follow the last `step-finished`, of a step that
   * was cut or of an agent that doesn't tell, nor where what the agent told isn't numbers. A given `cost` is the whole
   * turn's and takes the place of the steps'.
   */
  readonly total: (options: { readonly cost?: number | undefined }) => Bridge.Usage
  /** How many steps were finished. */
  readonly steps: () => number
  /** Whether the agent did anything: a step has begun. */
  readonly begun: () => boolean
}

const isUsage = Schema.is(Bridge.Usage)

// Parts by which the agent does nothing: they don't begin a step.
const idleParts: ReadonlySet<string> = new Set([
  "turn-continued",
  "notice",
  "raw",
  "tool-approval-response",
  "question-answer",
  "user-message",
  "user-message-delivered"
])

/**
 * Makes the sum of a turn without parts.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (): TurnUsage => {
  let usage = Bridge.zeroUsage
  let steps = 0
  let begun = false
  // Whether a step has begun, and whether one was cut by the end of an attempt.
  let open = false
  let cut = false
  return {
    add: (part) => {
      if (part.type === "step-finished") {
        usage = Bridge.addUsage(usage, isUsage(part.usage) ? part.usage : { measured: false })
        steps++
        begun = true
        open = false
        // The agent's conversation tells what the step used that the log lacked.
        if (part.recovered === true) cut = false
      } else if (part.type === "turn-continued") {
        cut = cut || open
        open = false
      } else if (!open) {
        open = !idleParts.has(part.type)
        begun ||= open
      }
    },
    total: ({ cost }) => {
      const isCost = cost === undefined || Number.isFinite(cost)
      return {
        ...usage,
        measured: usage.measured && !open && !cut && isCost,
        ...(cost === undefined || !isCost ? {} : { cost })
      }
    },
    steps: () => steps,
    begun: () => begun
  }
}
