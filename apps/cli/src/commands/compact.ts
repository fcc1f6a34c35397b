/**
 * `gangway compact`: shortens a session's conversation.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { Registry } from "../Registry.ts"
import { printable } from "../render/Text.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"

export const compact = Command.make(
  "compact",
  {
    target: Flags.target,
    ...Flags.namedSession,
    instructions: Flag.String("instructions").pipe(
      Flag.withDescription("What the agent is to keep in mind, in words"),
      Flag.optional
    ),
    json: Flags.json,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.compact")(function*({ bridgeCommand, instructions, json, ...named }) {
    const registry = yield* Registry
    const { note, write } = yield* Screen
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({ named })
      const { bridge, session } = found
      const { client, env } = yield* connect({ ...found, bridgeCommand, json })
      // Where it's dormant it's started again, with what it was started with.
      const record = Option.getOrUndefined(yield* registry.session(bridge, session))
      const handle = record === undefined
        ? client.session(session)
        : yield* client.startSession({ session, ...record, env })
      const compacted = yield* handle.compact({ instructions: Option.getOrUndefined(instructions) })
      if (json) return yield* write(`${JSON.stringify({ bridge, session, ...compacted })}\n`)
      yield* note(`gangway: the conversation of session ${session} is shorter now\n`)
      if (compacted.summary !== undefined) yield* write(`${printable(compacted.summary)}\n`)
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Shortens a session's conversation, and prints the summary that the agent goes on from"),
  Command.withExamples([
    { command: "gangway compact s-1a2b", description: "Shortens a session's conversation" },
    {
      command: "gangway compact --instructions \"Keep the list of failing tests.\"",
      description: "Says what matters, where there's only one session"
    }
  ])
)
