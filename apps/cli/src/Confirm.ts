/**
 * Asks before something can't be undone.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Flag from "effect/unstable/cli/Flag"
import { UsageError } from "./Failure.ts"
import { Keyboard } from "./Keyboard.ts"
import { Screen } from "./Screen.ts"

/** The flag by which it isn't asked. */
export const yes = Flag.Boolean("yes").pipe(
  Flag.withAlias("y"),
  Flag.withDescription("Doesn't ask first"),
  Flag.withDefault(false)
)

/** Whether a person agrees at the terminal, by `y` or `yes`; without one it has to be said with --yes. */
export const confirm = Effect.fnUntraced(function*(question: string) {
  const keyboard = yield* Keyboard
  const { isSeen, note, noteLook } = yield* Screen
  if (!keyboard.isThere || !isSeen) {
    return yield* new UsageError({ problem: "there's no terminal to ask at whether that's meant: say so with --yes" })
  }
  const line = yield* keyboard.ask(note(`${noteLook.style.bold(question)} y yes, n no: `))
  if (Option.isNone(line)) yield* note("\n")
  return Option.isSome(line) && ["y", "yes"].includes(line.value.trim().toLowerCase())
})
