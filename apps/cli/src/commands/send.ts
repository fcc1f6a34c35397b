/**
 * `gangway send`: sends a message into a turn that runs.
 */
import { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Argument from "effect/unstable/cli/Argument"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect, findTurn } from "../Connect.ts"
import { UsageError } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"

export const send = Command.make(
  "send",
  {
    text: Argument.String("text").pipe(Argument.withDescription("What the agent is told")),
    target: Flags.target,
    ...Flags.named,
    message: Flag.String("message").pipe(
      Flag.withSchema(Bridge.MessageId),
      Flag.withDescription("The message's id: the same one again is the same message; by default a new one"),
      Flag.withMetavar("id"),
      Flag.optional
    ),
    delivery: Flag.Literals("delivery", Bridge.Delivery.literals).pipe(
      Flag.withDescription(
        "For the agent's next step, or for after what it does; by default the first where the agent can do that"
      ),
      Flag.optional
    ),
    json: Flags.json,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.send")(function*({ bridgeCommand, delivery, json, message, text, ...named }) {
    const screen = yield* Screen
    if (text.trim() === "") return yield* new UsageError({ problem: "the message is empty" })
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({ named, isMeant: Target.isRunning, noun: "running turn" })
      const { bridge, session } = found
      const { client } = yield* connect({ ...found, bridgeCommand, json })
      const { turn } = yield* findTurn(client, session, found.turn)
      const delivered = yield* client.session(session).turn(turn).send(text, {
        messageId: Option.getOrUndefined(message),
        delivery: Option.getOrUndefined(delivery)
      }).pipe(
        Effect.catchTag("TurnEnded", ({ end }) =>
          new UsageError({
            problem: `turn ${turn} is over (${end.type}): 'gangway run' with this --session starts the next one`
          }))
      )
      if (json) {
        return yield* screen.write(`${JSON.stringify({ bridge, session, turn, delivery: delivered })}\n`)
      }
      yield* screen.note(
        `gangway: turn ${turn} has the message; its agent gets it ${
          delivered === "steer" ? "with its next step" : "after what it does"
        }\n`
      )
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Sends a message into a turn that runs"),
  Command.withExamples([
    {
      command: "gangway send \"Leave the tests alone.\"",
      description: "Steers the turn that runs, where it's the only one"
    },
    {
      command: "gangway send \"Then the docs.\" s-1a2b --delivery queue",
      description: "Adds to what it's to do"
    }
  ])
)
