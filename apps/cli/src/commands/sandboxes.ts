/**
 * `gangway sandboxes`: the sandboxes that Gangway created, of every kind.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import * as Flags from "../Flags.ts"
import { printable } from "../render/Text.ts"
import { account } from "../sandboxes/Daytona.ts"
import { kinds } from "../sandboxes/Enter.ts"
import { bridgeLabel, directoryLabel, isIdle, type Listed } from "../sandboxes/Kind.ts"
import { Screen } from "../Screen.ts"

const line = ({ id, labels, name, words }: Listed) =>
  [
    id,
    ...(name === id ? [] : [name]),
    ...words,
    ...(bridgeLabel in labels ? [`bridge ${labels[bridgeLabel]} in ${labels[directoryLabel]}`] : [])
  ].map(printable).join("  ")

const json = Flags.json.pipe(Flag.withDescription("Prints one JSON object a line, a sandbox each"))

const toJson = (kind: string, { created, id, labels, name, state }: Listed) =>
  JSON.stringify({
    kind,
    id,
    name,
    state,
    created,
    bridge: labels[bridgeLabel],
    directory: labels[directoryLabel]
  })

// Who has a key for Daytona needn't have Docker.
const listed = Effect.gen(function*() {
  const remote = (yield* kinds.daytona.list).map((listed) => ({ kind: kinds.daytona, name: "daytona", listed }))
  const { note } = yield* Screen
  const local = Option.isSome(yield* account)
    ? yield* Effect.catch(
      kinds.docker.list,
      (error) => Effect.as(note(`gangway: Docker isn't asked: ${printable(error.message)}\n`), [])
    )
    : yield* kinds.docker.list
  return [...local.map((listed) => ({ kind: kinds.docker, name: "docker", listed })), ...remote]
})

const list = Command.make(
  "list",
  { json },
  Effect.fn("gangway.sandboxes.list")(function*({ json }) {
    const { write } = yield* Screen
    for (const { listed: one, name } of yield* listed) yield* write(`${json ? toJson(name, one) : line(one)}\n`)
  }, Effect.scoped)
).pipe(Command.withDescription("Lists the sandboxes that Gangway created, with Docker and, for you, with Daytona"))

const prune = Command.make(
  "prune",
  {
    all: Flag.Boolean("all").pipe(
      Flag.withDescription("Removes also those that are used, or may be"),
      Flag.withDefault(false)
    ),
    json
  },
  Effect.fn("gangway.sandboxes.prune")(function*({ all, json }) {
    const { write } = yield* Screen
    for (const { kind, listed: one, name } of yield* listed) {
      if (!all && !(yield* isIdle(kind, one))) continue
      yield* one.remove
      yield* write(json ? `${toJson(name, one)}\n` : `removed ${line(one)}\n`)
    }
  }, Effect.scoped)
).pipe(
  Command.withDescription(
    "Removes sandboxes that Gangway created and nothing runs in, with what their sessions and copies hold"
  )
)

export const sandboxes = Command.make("sandboxes").pipe(
  Command.withDescription("Lists and removes the sandboxes that Gangway created"),
  Command.withExamples([
    { command: "gangway sandboxes list", description: "What there is, with Docker and with Daytona" },
    { command: "gangway sandboxes prune", description: "Removes those that nothing runs in" }
  ]),
  Command.withSubcommands([list, prune])
)
