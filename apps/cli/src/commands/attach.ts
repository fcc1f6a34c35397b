/**
 * `gangway attach`: follows a session, turn by turn, or one turn of it.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect, findTurn, noSuchPart } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { nextTurn } from "../NextTurn.ts"
import * as Policy from "../Policy.ts"
import { Registry } from "../Registry.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"
import { decideWho, exitWith, watch } from "../Watch.ts"

export const attach = Command.make(
  "attach",
  {
    target: Flags.target,
    ...Flags.named,
    once: Flag.Boolean("once").pipe(
      Flag.withDescription("Follows one turn, and exits by how it ended; so it does with --turn"),
      Flag.withDefault(false)
    ),
    from: Flags.from,
    approvals: Flags.approvals.pipe(
      Flag.withDescription(
        "What the agent asks is asked at the terminal, denied, or left to other hosts (the default without one)"
      )
    ),
    ...Policy.flags,
    json: Flags.jsonTurn,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.attach")(function*({ bridgeCommand, from, json, once, ...options }) {
    const registry = yield* Registry
    const { note, noteLook, write } = yield* Screen
    const approvals = yield* decideWho({ given: options.approvals, otherwise: "wait", stdinIsTaken: false })
    const { bridge, client, env, found, record } = yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({ named: options, isPreferred: Target.isRunning })
      const { bridge, session } = found
      const record = Option.getOrUndefined(yield* registry.session(bridge, session))
      return { ...(yield* connect({ ...found, bridgeCommand, json })), bridge, found, record }
    }))
    const { session } = found

    const follow = Effect.fnUntraced(function*(named: typeof found.turn, from: number) {
      const { handle, turn } = yield* interruptible(Effect.gen(function*() {
        const { latest, turn } = yield* findTurn(client, session, named)
        // With what its session was started with, the turn is continued where its bridge dies, or has died.
        const continues = record !== undefined && (latest?.state === "running" || latest?.state === "aborted")
        const handle = continues
          ? (yield* client.startSession({ session, ...record, env })).turn(turn, { onBridgeDeath: "continue" })
          : client.session(session).turn(turn)
        return { handle, turn }
      }))
      const line = yield* Effect.mapError(
        watch({
          names: { bridge, session, turn, flags: Flags.bridgeCommandAgain(bridgeCommand) },
          turn: Effect.succeed(handle),
          handle,
          from,
          directory: record?.directory,
          json,
          approvals,
          policy: options
        }),
        (error) => noSuchPart(error, turn, from)
      )
      return { ...line, turn }
    })

    let ended = yield* follow(found.turn, from)
    if (once || Option.isSome(options.turn)) return yield* exitWith(ended.end)
    while (true) {
      yield* note(noteLook.style.dim("gangway: waiting for the session's next turn; Ctrl-C leaves\n"))
      const next = yield* interruptible(nextTurn({ bridge, record: found.record, session, after: ended.turn }))
      if (next === undefined) {
        return yield* note(
          `gangway: nothing runs of session ${session} any more: 'gangway run' with --session ${session} goes on in it\n`
        )
      }
      if (json) yield* write(`${JSON.stringify({ session, turn: next.turn, attempt: next.attempt })}\n`)
      else yield* note(noteLook.style.dim(`gangway: turn ${next.turn}\n`))
      ended = yield* follow(next.turn, next.turn === ended.turn ? ended.next : 1)
    }
  }, Effect.scoped)
).pipe(
  Command.withDescription("Follows a session, one turn after the other, or a turn from any of its parts to its end"),
  Command.withExamples([
    { command: "gangway attach", description: "Follows the session that runs, where it's the only one" },
    { command: "gangway attach s-1a2b", description: "Follows a session: its latest turn, then those to come" },
    {
      command: "gangway attach --session s-1a2b3c4d --turn t-5e6f7a8b --from 42",
      description: "Follows one turn, from part 42 on"
    }
  ])
)
