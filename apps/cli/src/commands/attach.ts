/**
 * `gangway attach`: follows a turn that goes on, or reads one that's over.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect, findTurn, known } from "../Connect.ts"
import { UsageError } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { Registry } from "../Registry.ts"
import { interruptible } from "../Signals.ts"
import { decideWho, watch } from "../Watch.ts"

export const attach = Command.make(
  "attach",
  {
    session: Flags.session,
    turn: Flags.turn.pipe(Flag.withDescription("The turn's id; by default the session's latest")),
    from: Flag.Int("from").pipe(
      Flag.filter((from) => from > 0, () => "Expected a number from 1 on"),
      Flag.withDescription("The number of the first part; 1"),
      Flag.withMetavar("number"),
      Flag.withDefault(1)
    ),
    approvals: Flags.approvals.pipe(
      Flag.withDescription(
        "What the agent asks is asked at the terminal, denied, or left to other hosts (the default without one)"
      )
    ),
    json: Flags.json,
    bridge: Flags.bridge.pipe(Flag.withDescription("The bridge's id; by default the only one")),
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.attach")(function*({ bridgeCommand, from, json, session, ...options }) {
    const registry = yield* Registry
    const { agent, bridge } = yield* known(options.bridge)
    const approvals = yield* decideWho({ given: options.approvals, otherwise: "wait", stdinIsTaken: false })
    const record = Option.getOrUndefined(yield* registry.session(bridge, session))

    const { handle, turn } = yield* interruptible(Effect.gen(function*() {
      const { client, env } = yield* connect({ bridge, agent, bridgeCommand, json })
      const { latest, turn } = yield* findTurn(client, session, options.turn)
      // With what its session was started with, the turn is continued where its bridge dies, or has died.
      const continues = record !== undefined && (latest?.state === "running" || latest?.state === "aborted")
      const handle = continues
        ? (yield* client.startSession({ session, ...record, env })).turn(turn, { onBridgeDeath: "continue" })
        : client.session(session).turn(turn)
      return { handle, turn }
    }))

    yield* watch({
      names: { bridge, session, turn, flags: Flags.bridgeCommandAgain(bridgeCommand) },
      turn: Effect.succeed(handle),
      handle,
      from,
      directory: record?.directory,
      json,
      approvals
    }).pipe(
      Effect.mapError((error) =>
        error._tag === "PartsLost" && error.expected === from && error.next !== undefined
          ? new UsageError({ problem: `turn ${turn} has no part ${from}: its next one is ${error.next}` })
          : error
      )
    )
  }, Effect.scoped)
).pipe(
  Command.withDescription("Follows a turn from any of its parts to its end"),
  Command.withExamples([
    { command: "gangway attach --session s-1a2b3c4d", description: "Follows the session's latest turn from its start" },
    {
      command: "gangway attach --session s-1a2b3c4d --turn t-5e6f7a8b --from 42",
      description: "Follows it from part 42"
    }
  ])
)
