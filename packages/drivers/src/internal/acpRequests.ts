/**
 * What an agent asks for while it works on a turn: whether it may use a tool, and what a host tool answers.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { Turn, TurnFailed } from "@gangway/server/Driver"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Path from "effect/Path"
import * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import type { PermissionRequest, Prompted } from "./acpMessages.ts"
import type { Parts } from "./acpParts.ts"
import * as Permission from "./acpPermission.ts"

/** A turn that the agent works on. */
export interface Work {
  readonly turn: Turn
  parts: Parts
  readonly done: Deferred.Deferred<Prompted, TurnFailed>
  /** Done where the turn is to stop: who waits for a host gives up. */
  readonly stopped: Deferred.Deferred<void>
  /** Whether the agent has the prompt: what it tells is of this turn. */
  sent: boolean
}

/** How often and how long something is looked for that comes by another way. */
const often = Schedule.spaced("10 millis")

export const make = Effect.fnUntraced(function*(directory: string) {
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const lock = yield* Semaphore.make(1)
  /** How much the agent has asked for: a turn may be several prompts. */
  let count = 0

  /** Tells parts, one after the other, whoever has something to tell. */
  const emit = (work: Work, make: () => ReadonlyArray<Bridge.AgentPart>) =>
    lock.withPermit(Effect.suspend(() => Effect.forEach(make(), work.turn.emit, { discard: true })))

  const permit = Effect.fnUntraced(function*(work: Work, request: PermissionRequest) {
    const { toolCallId } = request.toolCall
    // It may be asked for before the call itself is told whole.
    yield* Effect.sync(() => work.parts.isAnnounced(toolCallId)).pipe(
      Effect.repeat({ schedule: often, while: (isAnnounced) => isAnnounced }),
      Effect.timeoutOption("250 millis")
    )
    if (yield* Deferred.isDone(work.stopped)) return Permission.cancelled
    let asked: ReturnType<Parts["asked"]> | undefined
    yield* emit(work, () => {
      asked = work.parts.asked(request.toolCall)
      return asked.parts
    })
    const { call, name } = asked!
    const approval = yield* Effect.provideContext(Permission.approval(call, name, directory), context)
    const approvalId = `${work.turn.attempt}-${++count}-${toolCallId}`
    return yield* Effect.raceFirst(
      Effect.map(
        work.turn.requestApproval({ ...approval, approvalId }),
        ({ decision }) => Permission.answer(request, decision)
      ),
      Effect.as(Deferred.await(work.stopped), Permission.cancelled)
    )
  })

  const callHost = Effect.fnUntraced(function*(work: Work, name: string, params: Schema.Json) {
    // The agent tells of its call about when it makes it.
    const told = yield* Effect.sync(() => work.parts.hostCall(name)).pipe(
      Effect.repeat({ schedule: often, until: (id) => id !== undefined }),
      Effect.timeoutOption("2 seconds")
    )
    const id = Option.getOrUndefined(told) ?? `host-${work.turn.attempt}-${++count}`
    yield* emit(work, () => work.parts.takeHostCall(id))
    return yield* Effect.raceFirst(
      work.turn.callHostTool({ id, name, params }),
      Effect.as(Deferred.await(work.stopped), { result: "The turn was interrupted.", isFailure: true })
    )
  })

  return { emit, permit, callHost }
})
