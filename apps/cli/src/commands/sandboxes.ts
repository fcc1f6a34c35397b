/**
 * `gangway sandboxes`: the containers that Gangway created.
 */
import * as DockerSandbox from "@gangway/sandbox/DockerSandbox"
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { bridgeLabel, directoryLabel, isIdle } from "../Containers.ts"
import { printable } from "../render/Text.ts"
import { Screen } from "../Screen.ts"

const line = ({ id, image, labels, name, status }: DockerSandbox.CreatedContainer) =>
  [
    id.slice(0, 12),
    name,
    image,
    status,
    ...(bridgeLabel in labels ? [`bridge ${labels[bridgeLabel]} in ${labels[directoryLabel]}`] : [])
  ].map(printable).join("  ")

const list = Command.make(
  "list",
  {},
  Effect.fn("gangway.sandboxes.list")(function*() {
    const { write } = yield* Screen
    for (const container of yield* DockerSandbox.list()) yield* write(`${line(container)}\n`)
  })
).pipe(Command.withDescription("Lists the containers that Gangway created with Docker"))

const prune = Command.make(
  "prune",
  {
    all: Flag.Boolean("all").pipe(
      Flag.withDescription("Removes also those that are used, or may be"),
      Flag.withDefault(false)
    )
  },
  Effect.fn("gangway.sandboxes.prune")(function*({ all }) {
    const { write } = yield* Screen
    for (const container of yield* DockerSandbox.list()) {
      if (!all && !(yield* isIdle(container))) continue
      yield* DockerSandbox.remove(container.id)
      yield* write(`removed ${line(container)}\n`)
    }
  })
).pipe(
  Command.withDescription(
    "Removes containers that Gangway created and nothing runs in, with what their sessions hold"
  )
)

export const sandboxes = Command.make("sandboxes").pipe(
  Command.withDescription("Lists and removes the containers that Gangway created"),
  Command.withSubcommands([list, prune])
)
