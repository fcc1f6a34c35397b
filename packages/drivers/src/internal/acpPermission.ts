/**
 * What an agent asks before it uses a tool, as an approval request, and the host's decision as one of its options.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { Turn } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import type { PermissionRequest } from "./acpMessages.ts"
import { type Call, paramsOf } from "./acpTools.ts"

const editing = new Set(["edit", "delete", "move"])

/**
 * What is asked, without who asks.
 *
 * **Details**
 *
 * Agents don't say what their own "always" would allow, and so the rule is the bridge's: the very same input again, or,
 * for edits inside the working directory, all of those. The agent is only ever told that this call is allowed, so it
 * goes on asking, and the bridge answers in the host's place.
 */
export const approval = Effect.fnUntraced(function*(
  call: Call,
  name: string,
  directory: string
): Effect.fn.Return<
  Omit<Parameters<Turn["requestApproval"]>[0], "approvalId" | "parent">,
  never,
  FileSystem.FileSystem | Path.Path
> {
  const params = paramsOf(call)
  const { kind } = call.fields
  const paths = [
    ...call.proposed.flatMap(({ path }) => path ?? []),
    ...(call.fields.locations ?? []).map(({ path }) => path)
  ]
  let edits = Predicate.isString(kind) && editing.has(kind) && paths.length > 0
  for (const path of paths) edits &&= yield* isInside(path, directory)
  return {
    toolCallId: call.id,
    name,
    params,
    edits,
    rule: edits
      ? { key: "edits", title: "edits in the working directory" }
      : { key: JSON.stringify([name, params]), title: `${name} with the same input` }
  }
})

/** Whether a file is inside a directory, which is a real path, links followed; the file may be about to be made. */
export const isInside = Effect.fnUntraced(function*(file: string, directory: string) {
  const path = yield* Path.Path
  const real = yield* realPath(path.resolve(directory, file))
  return real === directory || real.startsWith(directory.endsWith("/") ? directory : `${directory}/`)
})

/** The most links that are followed, as many as the system follows. */
const maxLinks = 40

/** The real path of what is there of a path, and the rest as it is. */
export const realPath = Effect.fnUntraced(function*(file: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  let there = file
  let rest = ""
  for (let links = 0;;) {
    const real = yield* Effect.option(fs.realPath(there))
    if (real._tag === "Some") return rest === "" ? real.value : path.join(real.value, rest)
    // A link that leads nowhere would be followed when it's written.
    const link = yield* Effect.option(fs.readLink(there))
    const parent = path.dirname(there)
    if (link._tag === "Some" && links++ < maxLinks) there = path.resolve(parent, link.value)
    else if (parent === there) return path.join(there, rest)
    else {
      rest = path.join(path.basename(there), rest)
      there = parent
    }
  }
})

const selected = (optionId: string): Schema.JsonObject => ({ outcome: { outcome: "selected", optionId } })

/** The answer where nobody decides any more. */
export const cancelled: Schema.JsonObject = { outcome: { outcome: "cancelled" } }

/**
 * The answer for this call. Without an option that fits the agent is told that its call was called off: never that
 * more is allowed than the host allowed.
 */
export const answer = ({ options }: PermissionRequest, decision: Bridge.Decision): Schema.JsonObject => {
  const kinds = {
    allow: ["allow_once"],
    "allow-always": ["allow_once", "allow_always"],
    deny: ["reject_once", "reject_always"]
  }[decision]
  const [found] = kinds.flatMap((kind) => options.find((option) => option.kind === kind) ?? [])
  return found === undefined ? cancelled : selected(found.optionId)
}
