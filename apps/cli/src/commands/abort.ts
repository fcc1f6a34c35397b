/**
 * `gangway abort`: ends a turn.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect, findTurn, known } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { interruptible } from "../Signals.ts"
import { printAborted } from "../Watch.ts"

export const abort = Command.make(
  "abort",
  {
    session: Flags.session,
    turn: Flags.turn.pipe(Flag.withDescription("The turn's id; by default the session's latest")),
    reason: Flag.String("reason").pipe(Flag.withDescription("Told to whoever reads the turn"), Flag.optional),
    bridge: Flags.bridge.pipe(Flag.withDescription("The bridge's id; by default the only one")),
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.abort")(function*({ bridgeCommand, reason, session, ...options }) {
    const { agent, bridge } = yield* known(options.bridge)
    yield* interruptible(Effect.gen(function*() {
      const { client } = yield* connect({ bridge, agent, bridgeCommand, json: false })
      const { turn } = yield* findTurn(client, session, options.turn)
      yield* printAborted(yield* client.session(session).turn(turn).abort({ reason: Option.getOrUndefined(reason) }))
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Ends a turn, with all that its agent runs"),
  Command.withExamples([
    { command: "gangway abort --session s-1a2b3c4d", description: "Ends the session's latest turn" }
  ])
)
