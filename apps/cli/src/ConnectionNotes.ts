/**
 * What is said on standard error of the connection to the bridge: nothing while all is well.
 */
import { Status } from "@gangway/client"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Failure from "./Failure.ts"
import { Screen } from "./Screen.ts"

const encode = Schema.encodeEffect(Status.Status)

/**
 * Makes what tells of each status: for people a line where something is wrong, and when it's over; as JSON each status, on
 * a line, `{"status":{"_tag":"Connecting"}}`.
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
      case "Relaunching":
        return true
    }
  }

  return (status: Status.Status): Effect.Effect<void> => {
    if (json) {
      return encode(status).pipe(
        Effect.orDie,
        Effect.flatMap((status) => screen.tell(`${JSON.stringify({ status })}\n`))
      )
    }
    if (!isWorthALine(status)) return Effect.void
    isTroubled = status._tag !== "Connected"
    if (!isTroubled) toldReason = ""
    return screen.tell(Failure.line(isTroubled ? Status.toMessage(status) : "connected again"))
  }
})
