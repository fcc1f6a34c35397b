/**
 * Asks a person about what waits, one after the other.
 */
import * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import * as Answer from "./Answer.ts"
import { UsageError } from "./Failure.ts"
import { Keyboard } from "./Keyboard.ts"
import * as Parts from "./render/Parts.ts"
import { lookFrom } from "./render/Style.ts"
import { Screen } from "./Screen.ts"
import * as Waiting from "./Waiting.ts"

/** Asks at the terminal about each; what is left out at the end of input goes on waiting. */
export const askInTurn = Effect.fnUntraced(function*(
  all: ReadonlyArray<Waiting.Waiting>,
  options: {
    readonly bridgeCommand: Option.Option<string>
    readonly json: boolean
    /** What to do where there's no terminal. */
    readonly otherwise: string
  }
) {
  const keyboard = yield* Keyboard
  const { isSeen, note, noteLook } = yield* Screen
  if (!keyboard.isThere || !isSeen) {
    return yield* new UsageError({ problem: `there's no terminal to ask at: ${options.otherwise}` })
  }
  for (const one of all) {
    const { handle, part } = yield* Waiting.open(one, options)
    if (part.type === "tool-call") continue
    const { style } = noteLook
    yield* note(style.dim(`session ${one.session}, turn ${one.turn}\n`))
    const [, asked] = Parts.render(Parts.initial, { n: 1, part }, lookFrom(noteLook, undefined))
    yield* note(asked)
    const answers = yield* Answer.make(handle)
    if (!(yield* answers.atKeyboard(part))) {
      return yield* note("gangway: input has ended: what is left goes on waiting\n")
    }
  }
})
