/**
 * `gangway pull`: makes here what has changed in a bridge's sandbox.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { known } from "../Connect.ts"
import * as Pull from "../copy/Pull.ts"
import * as Flags from "../Flags.ts"
import { printable } from "../render/Text.ts"
import { findCopy } from "../sandboxes/Enter.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"

export const pull = Command.make(
  "pull",
  { json: Flags.json.pipe(Flag.withDescription("Prints one JSON object a line, a file each")), bridge: Flags.bridge },
  Effect.fn("gangway.pull")(function*({ json, ...options }) {
    const { bridge, sandbox } = yield* known(options.bridge)
    const { note, write } = yield* Screen
    const { copied, directory } = yield* interruptible(findCopy(bridge, sandbox))
    // One that's cut off in the middle is finished by the next.
    const changes = yield* interruptible(Pull.pull(copied, directory))
    for (const { isNew, path, to } of changes) {
      const change = to === undefined ? "deleted" : isNew ? "new" : "changed"
      yield* write(json ? `${JSON.stringify({ change, path })}\n` : `${change}  ${printable(path)}\n`)
    }
    yield* note(
      `gangway: ${
        changes.length === 0 ? "there's nothing to pull" : `pulled ${changes.length} of the sandbox's files`
      } into ${directory}\n`
    )
  }, Effect.scoped)
).pipe(
  Command.withDescription("Makes here what has changed in a sandbox since its directory was copied or pulled"),
  Command.withExamples([
    { command: "gangway pull --bridge claude-code-1a2b3c4d", description: "Changes the files that were copied" }
  ])
)
