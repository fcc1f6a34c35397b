/**
 * `gangway demo`: a turn that survives a lost connection and a killed bridge.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { tour } from "../demo/Tour.ts"
import { ExitWith } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { interruptible } from "../Signals.ts"

export const demo = Command.make(
  "demo",
  { json: Flags.json.pipe(Flag.withDescription("Prints what was counted, as one JSON object")) },
  Effect.fn("gangway.demo")(function*({ json }) {
    if (!(yield* interruptible(tour(json)))) return yield* new ExitWith({ exitCode: 1 })
  })
).pipe(
  Command.withDescription("Shows a turn that survives a lost connection and a killed bridge, in seconds"),
  Command.withExamples([{ command: "gangway demo", description: "Needs no credentials and no network" }])
)
