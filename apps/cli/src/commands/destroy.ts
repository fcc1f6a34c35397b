/**
 * `gangway destroy`: removes a session.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import { confirm, yes } from "../Confirm.ts"
import { connect } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { Registry } from "../Registry.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"
import { printProcesses } from "../Watch.ts"

export const destroy = Command.make(
  "destroy",
  { target: Flags.target, ...Flags.namedSession, yes, json: Flags.json, bridgeCommand: Flags.bridgeCommand },
  Effect.fn("gangway.destroy")(function*({ bridgeCommand, json, yes, ...named }) {
    const registry = yield* Registry
    const { note, write } = yield* Screen
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({ named })
      const { bridge, session, surveyed } = found
      const question = `Destroy session ${session} of ${bridge}, in ${surveyed.directory}${
        Target.isRunning(surveyed) ? ", whose turn runs" : ""
      }, with its conversation?`
      if (!yes && !(yield* confirm(question))) return yield* note("gangway: nothing is destroyed\n")
      const { client } = yield* connect({ ...found, bridgeCommand, json })
      const { ended, left } = yield* client.session(session).destroy
      yield* registry.forgetSession(bridge, session)
      if (json) return yield* write(`${JSON.stringify({ bridge, session, ended, left })}\n`)
      yield* note(`gangway: session ${session} is destroyed\n`)
      yield* printProcesses({ ended, left })
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Stops a session and deletes its files and its conversation; the directory stays as it is"),
  Command.withExamples([
    { command: "gangway destroy s-1a2b", description: "Asks first" },
    { command: "gangway destroy --session s-1a2b3c4d --yes", description: "Doesn't, in a script" }
  ])
)
