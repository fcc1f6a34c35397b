/**
 * `gangway prune`: removes what is left of bridges that are gone.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { confirm, yes } from "../Confirm.ts"
import * as Flags from "../Flags.ts"
import { Registry } from "../Registry.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import { survey, type SurveyedBridge } from "../Survey.ts"
import * as Target from "../Target.ts"

export const prune = Command.make(
  "prune",
  {
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDescription("Says what it would remove, and removes nothing"),
      Flag.withDefault(false)
    ),
    yes,
    json: Flags.json.pipe(Flag.withDescription("Prints one JSON object a line, a bridge each")),
    bridge: Flags.named.bridge.pipe(Flag.withDescription("Only this bridge"))
  },
  Effect.fn("gangway.prune")(function*({ bridge, dryRun, json, yes }) {
    const registry = yield* Registry
    const { note, write } = yield* Screen
    const line = (one: SurveyedBridge) =>
      json
        ? `${
          JSON.stringify({ bridge: one.bridge, condition: one.condition, sessions: one.sessions, removed: !dryRun })
        }\n`
        : `${one.bridge}  ${summary(one)}\n`
    yield* interruptible(Effect.gen(function*() {
      const found = (yield* survey(yield* Target.bridges(bridge))).filter(isLeftOver)
      if (found.length === 0) return yield* note("gangway: there's nothing to prune\n")
      if (dryRun) return yield* write(found.map(line).join(""))
      if (!yes) {
        yield* note(found.map((one) => `  ${one.bridge}  ${summary(one)}\n`).join(""))
        const what = found.length === 1 ? "this bridge" : `these ${found.length} bridges`
        if (!(yield* confirm(`Remove what is left of ${what}, with all sessions?`))) {
          return yield* note("gangway: nothing is removed\n")
        }
      }
      for (const one of found) {
        // Somebody may have launched it meanwhile.
        const [now] = yield* survey([one.bridge])
        if (now === undefined || !isLeftOver(now)) continue
        yield* registry.forgetBridge(one.bridge)
        yield* write(line(one))
      }
    }))
  })
).pipe(
  Command.withDescription(
    "Removes what is left of bridges that don't run: their sessions, tokens and state directories"
  ),
  Command.withExamples([
    { command: "gangway prune --dry-run", description: "Says what there is to remove" },
    { command: "gangway prune", description: "Asks, and removes it" },
    { command: "gangway prune --bridge codex --yes", description: "Removes one bridge, without asking" }
  ])
)

// What's in a sandbox that is still there is removed with that, by 'gangway sandboxes prune'.
const isLeftOver = ({ condition, record }: SurveyedBridge): boolean =>
  condition === "no-sandbox" || (condition === "gone" && record?.sandbox === undefined)

const summary = ({ condition, sessions }: SurveyedBridge): string => {
  const interrupted = sessions.filter(({ latest }) => latest?.state === "interrupted")
  const count = `${sessions.length} session${sessions.length === 1 ? "" : "s"}`
  const words = interrupted.map(({ session }) => session).join(", ")
  return `${condition === "gone" ? "gone" : "its sandbox is gone"}, ${count}${
    interrupted.length === 0 ? "" : `, of which can be continued: ${words}`
  }`
}
