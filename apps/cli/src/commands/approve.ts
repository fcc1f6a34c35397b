/**
 * `gangway approve`: decides from another terminal on what an agent asks to do.
 */
import type { Turn } from "@gangway/client"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Argument from "effect/unstable/cli/Argument"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { UsageError } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { askInTurn } from "../InTurn.ts"
import { oneLine } from "../render/Text.ts"
import * as Values from "../render/Values.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Waiting from "../Waiting.ts"

const says = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

export const approve = Command.make(
  "approve",
  {
    id: Argument.String("id").pipe(
      Argument.withDescription("The approval's id or how it begins; not needed where only one is waited for"),
      Argument.optional
    ),
    allow: says("allow", "Allows it this time"),
    always: says("always", "Allows it, and all that the agent's rule names, until the session is stopped"),
    deny: says("deny", "Denies it"),
    reason: Flag.String("reason").pipe(Flag.withDescription("Why it's denied, which the agent is told"), Flag.optional),
    ...Flags.named,
    json: Flags.json,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.approve")(function*({ bridgeCommand, id, json, reason, ...options }) {
    const { look, write } = yield* Screen
    const decision = yield* decide({ ...options, reason })
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Waiting.find({ named: options, id, types: ["approval"], noun: "approval" })
      if (decision === undefined) {
        return yield* askInTurn(found, { bridgeCommand, json, otherwise: "say --allow, --always or --deny" })
      }
      const one = yield* Waiting.only(found)
      const { bridge, session, turn, waiting } = one
      const { handle, part } = yield* Waiting.open(one, { bridgeCommand, json })
      if (part.type !== "tool-approval-request") return
      if (decision.decision === "allow-always" && part.rule === undefined) {
        return yield* new UsageError({
          problem: `the agent names no rule for ${oneLine(part.name)}: --allow allows it this time`
        })
      }
      yield* handle.approve({ approvalId: waiting.id, ...decision })
      const { name } = part
      yield* write(
        json
          ? `${JSON.stringify({ bridge, session, turn, id: waiting.id, name, ...decision })}\n`
          : `${oneLine(name)} ${Values.input(part.params, look)}: ${Values.decision({ ...decision, by: "host" })}\n`
      )
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Decides on what an agent asks to do: as the flags say, or asked for each at the terminal"),
  Command.withExamples([
    { command: "gangway approve", description: "Asks you about all that waits, one after the other" },
    { command: "gangway approve --allow", description: "Allows what waits, where that's one" },
    { command: "gangway approve toolu_01 --deny --reason \"Not on a Friday.\"", description: "Denies one of several" }
  ])
)

// What the flags say; nothing where they leave it to whoever is at the keyboard.
const decide = Effect.fnUntraced(function*(given: {
  readonly allow: boolean
  readonly always: boolean
  readonly deny: boolean
  readonly reason: Option.Option<string>
}): Effect.fn.Return<Turn.Approval | undefined, UsageError> {
  const { allow, always, deny, reason } = given
  const decisions = [
    ...(allow ? ["allow"] as const : []),
    ...(always ? ["allow-always"] as const : []),
    ...(deny ? ["deny"] as const : [])
  ]
  const [decision, ...others] = decisions
  if (others.length > 0) return yield* new UsageError({ problem: "--allow, --always and --deny exclude each other" })
  if (Option.isSome(reason) && decision !== "deny") return yield* new UsageError({ problem: "a --reason takes --deny" })
  if (decision === undefined) return undefined
  return { decision, ...(Option.isSome(reason) ? { reason: reason.value } : {}) }
})
