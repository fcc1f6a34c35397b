/**
 * Docker containers that bridges run in: one each, kept until it's removed.
 */
import type { Bridge } from "@gangway/protocol"
import * as DockerSandbox from "@gangway/sandbox/DockerSandbox"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import { shortSum } from "../ChosenSandbox.ts"
import { Registry } from "../Registry.ts"
import { Screen } from "../Screen.ts"
import { isNotFound, type Kind, labelsOf } from "./Kind.ts"

// A place that any user of a container may write, and that outlives its stops.
const root = "/var/tmp/gangway"

// Others of the same name are another user's.
const nameOf = Effect.fnUntraced(function*(bridge: Bridge.BridgeId) {
  return `gangway-${bridge}-${yield* shortSum((yield* Registry).root)}`
})

const attach: Kind["find"] = ({ bridge, record }) =>
  Effect.gen(function*() {
    const container = record.from?.sandbox ?? (yield* nameOf(bridge))
    return yield* DockerSandbox.attach({ container })
  }).pipe(
    Effect.asSome,
    Effect.catchIf(
      (error) => isNotFound(error) && record.from?.sandbox === undefined,
      () => Effect.succeedNone
    )
  )

export const docker: Kind = {
  find: attach,
  enter: Effect.fnUntraced(function*({ bridge, record }) {
    const found = yield* attach({ bridge, record })
    const image = record.from?.image
    if (Option.isSome(found) || image === undefined) return Option.getOrThrow(found)
    const { note, noteLook } = yield* Screen
    yield* note(noteLook.style.dim(`gangway: creating a container of ${image}\n`))
    const name = yield* nameOf(bridge)
    return yield* DockerSandbox.make({
      name,
      image,
      labels: labelsOf({ bridge, record }),
      ...(record.copy ? {} : { mounts: [{ source: record.directory, target: record.directory }], ...asUser() }),
      keep: true
    }).pipe(
      // Another one is creating it: the name is taken before the container is there.
      Effect.catchIf(
        (error) => error.reason.problem.includes("already in use"),
        () =>
          Effect.retry(DockerSandbox.attach({ container: name }), {
            while: isNotFound,
            schedule: Schedule.spaced("100 millis"),
            times: 100
          })
      )
    )
  }),
  root: () => Effect.succeed(root),
  list: Effect.map(
    Effect.suspend(() => DockerSandbox.list()),
    (containers) =>
      containers.map(({ created, id, image, labels, name, status }) => ({
        id: id.slice(0, 12),
        name,
        words: [image, status],
        labels,
        created,
        state: ["created", "dead", "exited"].includes(status) ? "stopped" : status === "running" ? "running" : "other",
        attach: DockerSandbox.attach({ container: id }),
        remove: DockerSandbox.remove(id)
      }))
  )
}

// What the agent writes is the user's then. One without a name has no home either.
const asUser = () => {
  const [user, group] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0]
  return process.platform !== "linux" || user === 0
    ? {}
    : { user: `${user}:${group}`, env: { HOME: `${root}/home` } }
}
