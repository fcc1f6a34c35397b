/**
 * Sending a message into a running turn.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type { Session } from "../Session.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import type { SessionCore } from "./sessionCore.ts"
import type { SessionLookup } from "./sessionLookup.ts"
import * as TurnTables from "./turnTables.ts"

export const make = (context: BridgeContext, core: SessionCore, lookup: SessionLookup): Session["sendMessage"] => {
  const { capabilities } = context.driver

  const sendNow: Session["sendMessage"] = Effect.fnUntraced(function*({ delivery: asked, messageId, prompt, turn }) {
    const { end, messages, running } = yield* TurnTables.find(core, lookup, turn)
    const before = yield* messages.repeated({ messageId, prompt, delivery: asked })
    if (before !== undefined) return { accepted: true as const, delivery: before }
    if (end !== undefined) return yield* new Bridge.TurnEnded({ turn, end })
    if (asked === "steer" && !capabilities.steering) return yield* lookup.unsupported("steering")
    if (!capabilities.images && Bridge.hasImage(prompt)) return yield* lookup.unsupported("images")
    const delivery = asked ?? (capabilities.steering ? "steer" : "queue")
    // Where the attempt takes none any more, it's ending; and what can't be logged ends it.
    const accepted = running !== undefined && (yield* Effect.catchTag(
      running.send({ messageId, prompt, delivery }),
      "LogUnavailable",
      () => Effect.succeed(false)
    ))
    if (accepted) return { accepted: true as const, delivery }
    return yield* new Bridge.TurnEnded({ turn, end: (yield* Deferred.await(running!.settled)).end })
  })

  return (payload) => core.queue.run({ name: "other" }, sendNow(payload))
}
