/**
 * `gangway abort`: ends a turn.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect, findTurn } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"
import { printAborted } from "../Watch.ts"

export const abort = Command.make(
  "abort",
  {
    target: Flags.target,
    ...Flags.named,
    reason: Flag.String("reason").pipe(Flag.withDescription("Told to whoever reads the turn"), Flag.optional),
    json: Flags.json,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.abort")(function*({ bridgeCommand, json, reason, ...named }) {
    const { write } = yield* Screen
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({ named, isMeant: Target.isRunning, noun: "running turn" })
      const { bridge, session } = found
      const { client } = yield* connect({ ...found, bridgeCommand, json })
      const { turn } = yield* findTurn(client, session, found.turn)
      const aborted = yield* client.session(session).turn(turn).abort({ reason: Option.getOrUndefined(reason) })
      if (json) yield* write(`${JSON.stringify({ bridge, session, turn, ...aborted })}\n`)
      else yield* printAborted(aborted)
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Ends a turn, with all that its agent runs"),
  Command.withExamples([
    { command: "gangway abort", description: "Ends the turn that runs, where it's the only one" },
    { command: "gangway abort s-1a2b --reason \"wrong branch\"", description: "Ends that of a session, and says why" }
  ])
)
