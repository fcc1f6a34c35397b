/**
 * `gangway diff`: prints what has changed in a bridge's sandbox.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import { known } from "../Connect.ts"
import { patch } from "../copy/Pull.ts"
import * as Flags from "../Flags.ts"
import { printable } from "../render/Text.ts"
import { findCopy } from "../sandboxes/Enter.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"

export const diff = Command.make(
  "diff",
  { bridge: Flags.bridge },
  Effect.fn("gangway.diff")(function*(options) {
    const { bridge, sandbox } = yield* known(options.bridge)
    const { isTerminal, write } = yield* Screen
    const { copied } = yield* interruptible(findCopy(bridge, sandbox))
    const bytes = yield* interruptible(patch(copied))
    yield* write(isTerminal ? printable(new TextDecoder().decode(bytes)) : bytes)
  }, Effect.scoped)
).pipe(
  Command.withDescription("Prints what has changed in a sandbox since its directory was copied or pulled, as a patch"),
  Command.withExamples([
    { command: "gangway diff --bridge claude-code-1a2b3c4d | git apply --3way", description: "Applies it by hand" }
  ])
)
