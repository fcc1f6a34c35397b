/**
 * What is said on standard error of the connection to the bridge: nothing while all is well.
 */
import { Status } from "@gangway/client"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as Failure from "./Failure.ts"
import { Screen } from "./Screen.ts"

const encode = Schema.encodeEffect(Status.Status)

/** What a person isn't told within this time isn't missed. */
const patience = "3 seconds"

/**
 * Makes what tells of each status: for people a line where something is wrong or takes long, and when it's over; as JSON
 * each status, on a line, `{"status":{"_tag":"Connecting"}}`.
 */
export const make = Effect.fnUntraced(function*({ json }: { readonly json: boolean }) {
  const screen = yield* Screen
  let isTroubled = false
  let toldReason = ""

  const isWorthALine = (status: Status.Status): boolean => {
    switch (status._tag) {
      case "Connecting":
        return false
      case "Launching":
      case "Connected":
        return isTroubled
      // The command's own last line says it.
      case "Unavailable":
        return false
      case "Reconnecting": {
        // An outage of minutes has many attempts: those that fail as the one before are told more and more rarely.
        const isNew = status.reason._tag !== toldReason
        toldReason = status.reason._tag
        return isNew || Number.isInteger(Math.log2(status.attempt))
      }
      case "Disconnected":
      case "Silent":
      case "Relaunching":
        return true
    }
  }

  const line = (text: string) => screen.tell(Failure.line(text))
  let latest: Status.Status | undefined

  const onStatus = Effect.fnUntraced(function*(status: Status.Status) {
    latest = status
    if (json) return yield* screen.tell(`${JSON.stringify({ status: yield* Effect.orDie(encode(status)) })}\n`)
    if (!isWorthALine(status)) return
    isTroubled = status._tag !== "Connected"
    if (!isTroubled) toldReason = ""
    yield* line(isTroubled ? Status.toMessage(status) : "connected again")
  })

  // What takes a while in the best of cases, such as the first start of a sandbox, is told to a person who waits.
  const tellIfSlow = Effect.suspend(() =>
    json || !screen.isSeen || isTroubled || latest === undefined
      ? Effect.void
      : line(`${Status.toMessage(latest)}, which takes a while`)
  )

  return {
    onStatus,
    /** Connects, and says what it does where that takes long. */
    connecting: <A, E, R>(connect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      Effect.flatMap(
        Effect.forkChild(Effect.delay(tellIfSlow, patience)),
        (telling) => Effect.ensuring(connect, Fiber.interrupt(telling))
      )
  }
})
