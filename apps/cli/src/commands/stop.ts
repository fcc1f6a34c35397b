/**
 * `gangway stop`: stops a session, which can be gone on in.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import { connect } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"
import { printProcesses } from "../Watch.ts"

export const stop = Command.make(
  "stop",
  { target: Flags.target, ...Flags.namedSession, json: Flags.json, bridgeCommand: Flags.bridgeCommand },
  Effect.fn("gangway.stop")(function*({ bridgeCommand, json, ...named }) {
    const { note, write } = yield* Screen
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({ named, isMeant: ({ dormant }) => !dormant, noun: "session that is started" })
      const { bridge, session } = found
      const { client } = yield* connect({ ...found, bridgeCommand, json })
      const { ended, left } = yield* client.session(session).stop
      if (json) return yield* write(`${JSON.stringify({ bridge, session, ended, left })}\n`)
      yield* note(`gangway: session ${session} is stopped; 'gangway run' with --session ${session} goes on in it\n`)
      yield* printProcesses({ ended, left })
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Stops a session: its turn, its agent and all that that left running; what it knows stays"),
  Command.withExamples([{ command: "gangway stop s-1a2b", description: "Stops a session" }])
)
