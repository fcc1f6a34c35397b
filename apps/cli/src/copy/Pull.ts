/**
 * What has changed in a sandbox since its directory was copied, and how it comes back.
 */
import type { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import { UsageError } from "../Failure.ts"
import * as Copy from "./Copy.ts"
import * as Files from "./Files.ts"
import type { Change, Trees } from "./Trees.ts"

interface Copied {
  readonly sandbox: Sandbox["Service"]
  /** The bridge's own directory in it. */
  readonly root: string
  readonly copy: Copy.Copy
  readonly trees: Trees
}

/** What has changed in the sandbox since the copy, or since it was brought back last, as a patch. */
export const patch = Effect.fnUntraced(function*({ copy, root, sandbox, trees }: Copied) {
  const [base, theirs] = [Copy.baseOf(copy), stateOf(copy, "theirs")]
  yield* trees.keep(theirs, yield* Copy.readBack(sandbox, root, copy, trees), base)
  return yield* Effect.ensuring(trees.patch(base, theirs), trees.drop(theirs))
})

/**
 * Makes the sandbox's changes here, and gives them. What has changed here meanwhile stays: where both have changed the
 * same lines, or a file in ways that don't go together, nothing is changed, and the error says where.
 */
export const pull = Effect.fnUntraced(function*(copied: Copied, directory: string) {
  const { copy, root, sandbox, trees } = copied
  const [base, ours, theirs] = [Copy.baseOf(copy), stateOf(copy, "ours"), stateOf(copy, "theirs")]
  yield* Effect.addFinalizer(() => Effect.andThen(trees.drop(ours), trees.drop(theirs)))
  yield* trees.keep(theirs, yield* Copy.readBack(sandbox, root, copy, trees), base)
  yield* trees.keep(ours, yield* Files.read(directory), base)
  const merged = yield* trees.merge(ours, theirs)
  if ("conflicts" in merged) return yield* refuse(merged.conflicts.map((path) => `${path} has changed on both sides`))
  const changes = yield* trees.changes(ours, merged.tree)
  const deleted = new Set(changes.filter(({ to }) => to === undefined).map(({ path }) => path))
  const objections = yield* Effect.forEach(changes, (change) => Files.objection(directory, change, deleted))
  const problems = objections.filter((problem) => problem !== undefined)
  if (problems.length > 0) return yield* refuse(problems)
  // A deleted one makes room first.
  const inOrder = [...changes].sort((one, other) => Number(one.to !== undefined) - Number(other.to !== undefined))
  yield* Effect.forEach(inOrder, (change: Change) =>
    Effect.flatMap(
      change.to === undefined ? Effect.succeed(new Uint8Array()) : trees.content(change.to.blob),
      (content) => Files.change(directory, change, content)
    ))
  // What comes next is from here on. Where this isn't reached, the same again finds it all done.
  yield* trees.rename(theirs, base)
  return changes
}, Effect.scoped)

const stateOf = ({ id }: Copy.Copy, whose: "ours" | "theirs") => `${whose}/${id}-${process.pid}`

const refuse = (problems: ReadonlyArray<string>) => {
  const [first, ...others] = [...new Set(problems)]
  const more = others.length === 0 ? "" : `, and ${others.length} more like it`
  return new UsageError({
    problem: `nothing is pulled: ${first}${more}; commit or move away what is here and take it back to what was ` +
      "copied, or apply what 'gangway diff' prints with 'git apply --3way'"
  })
}
