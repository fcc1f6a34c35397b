/**
 * Waits for what a session does next.
 */
import type { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Peek from "./Peek.ts"
import type { BridgeRecord } from "./Registry.ts"

// A bridge isn't kept from exiting when it's idle, and none is launched for it.
const interval = "500 millis"

// What a bridge that dies or is busy looks like.
const passing: ReadonlySet<string> = new Set(["Disconnected", "Refused", "TimedOut", "Unreachable"])

/**
 * The next turn of a session, or the same one where it's continued; none where its bridge has exited or the session is
 * gone, so that nothing will come.
 */
export const nextTurn = Effect.fnUntraced(function*(options: {
  readonly bridge: Bridge.BridgeId
  readonly record: BridgeRecord
  readonly session: Bridge.SessionId
  /** The turn that has ended. */
  readonly after: Bridge.TurnId
}) {
  const { after, bridge, record, session } = options
  const place = yield* Peek.placeOf(bridge, record)
  if (place === undefined) return undefined
  while (true) {
    const seen = yield* Effect.gen(function*() {
      const running = yield* Peek.open(bridge, place)
      if (running === undefined) return { turn: undefined }
      return yield* running.client.hello.pipe(
        Effect.map(({ sessions }) => {
          const found = sessions.find((summary) => summary.session === session)
          if (found === undefined) return { turn: undefined }
          const { latest } = found
          return latest !== undefined && (latest.turn !== after || latest.state === "running")
            ? { turn: latest }
            : "wait"
        }),
        Effect.repeat({ while: (seen) => seen === "wait", schedule: Schedule.spaced(interval) })
      )
    }).pipe(
      Effect.scoped,
      // Another bridge may serve by now, or none.
      Effect.catchIf(
        (error) => error._tag === "BridgeUnavailable" && passing.has(error.reason._tag),
        () => Effect.as(Effect.sleep(interval), "wait" as const)
      )
    )
    if (seen !== "wait") return seen.turn
  }
})
