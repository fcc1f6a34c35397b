/**
 * `gangway demo`: a turn that survives a lost connection and a killed bridge.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import { tour } from "../demo/Tour.ts"
import { ExitWith } from "../Failure.ts"
import { interruptible } from "../Signals.ts"

export const demo = Command.make(
  "demo",
  {},
  Effect.fn("gangway.demo")(function*() {
    if (!(yield* interruptible(tour))) return yield* new ExitWith({ exitCode: 1 })
  })
).pipe(Command.withDescription("Shows a turn that survives a lost connection and a killed bridge, in seconds"))
