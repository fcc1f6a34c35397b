/**
 * What the agents of running turns wait for, of all bridges: found, read, and answered from another terminal.
 */
import { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { connect } from "./Connect.ts"
import { UsageError } from "./Failure.ts"
import type { BridgeRecord } from "./Registry.ts"
import { waiting as inWords } from "./render/Overview.ts"
import * as Target from "./Target.ts"

/** Something that waits for an answer, and where. */
export interface Waiting {
  readonly bridge: Bridge.BridgeId
  readonly record: BridgeRecord
  readonly session: Bridge.SessionId
  readonly turn: Bridge.TurnId
  readonly waiting: Bridge.Waiting
}

/** What waits of some types: what is named by its id or how that begins, of the sessions that are named. */
export const find = Effect.fnUntraced(function*(options: {
  readonly named: Omit<Target.Named, "target">
  readonly id: Option.Option<string>
  readonly types: ReadonlyArray<Bridge.Waiting["type"]>
  /** What that is called, such as `approval`. */
  readonly noun: string
}): Effect.fn.Return<
  readonly [Waiting, ...Array<Waiting>],
  Effect.Error<ReturnType<typeof Target.candidates>>,
  Effect.Services<ReturnType<typeof Target.candidates>>
> {
  const { id, named, noun, types } = options
  const { named: candidates } = yield* Target.candidates(named)
  const all = candidates.flatMap(({ bridge: { bridge, record }, session: { latest, session } }): Array<Waiting> =>
    record === undefined || latest === undefined
      ? []
      : (latest.waiting ?? []).filter(({ type }) => types.includes(type)).map((waiting) => ({
        bridge,
        record,
        session,
        turn: latest.turn,
        waiting
      }))
  )
  const [first, ...others] = Option.isNone(id)
    ? all
    : Target.beginning(all, id.value, ({ waiting }) => waiting.id)
  if (first !== undefined) return [first, ...others]
  return yield* new UsageError({
    problem: Option.isSome(id)
      ? `no ${noun} ${id.value} is waited for${all.length === 0 ? "" : `: there are ${list(all)}`}`
      : `no ${noun} is waited for: 'gangway ps' says what is`
  })
})

/** The only one of what was found. */
export const only = ([first, ...others]: readonly [Waiting, ...Array<Waiting>]): Effect.Effect<Waiting, UsageError> =>
  others.length === 0
    ? Effect.succeed(first)
    : Effect.fail(new UsageError({ problem: `several are waited for, so name one: ${list([first, ...others])}` }))

const list = (all: ReadonlyArray<Waiting>): string =>
  all.map(({ session, waiting }) => `${waiting.id} (${inWords(waiting)}, session ${session})`).join(", ")

/** The turn that waits, and the part by which its agent asked. */
export const open = Effect.fnUntraced(function*(
  { bridge, record, session, turn, waiting }: Waiting,
  options: { readonly bridgeCommand: Option.Option<string>; readonly json: boolean }
) {
  const { client } = yield* connect({ bridge, agent: record.agent, ...options })
  const handle = client.session(session).turn(turn)
  const found = yield* handle.parts().pipe(
    Stream.map(({ part }) => part),
    Stream.filter((part) => asks(part, waiting)),
    Stream.runHead
  )
  if (Option.isSome(found)) return { handle, part: found.value }
  return yield* new UsageError({ problem: `turn ${turn} is over, and waits for nothing any more` })
})

/** A part that asks a host for something. */
export type Asking = typeof Bridge.ToolApprovalRequest.Type | typeof Bridge.Question.Type | typeof Bridge.ToolCall.Type

const asks = (part: Bridge.Part, { id, type }: Bridge.Waiting): part is Asking => {
  if (!Bridge.isKnown(part)) return false
  switch (type) {
    case "approval":
      return part.type === "tool-approval-request" && part.approvalId === id
    case "question":
      return part.type === "question" && part.questionId === id
    case "tool":
      return part.type === "tool-call" && part.id === id
  }
}
