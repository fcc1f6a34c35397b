/**
 * A turn as the scripted agent's driver leads it: what the agent says goes to the bridge, what it asks is answered.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import { type Finished, type Turn, TurnFailed } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Pull from "effect/Pull"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { FromAgent, type ToAgent } from "../ScriptedAgent.ts"
import type { Script } from "./scriptedScript.ts"

/** The driver's name. */
export const name = "scripted"

export const failed = (kind: Bridge.DriverError["kind"], problem: string) =>
  new Bridge.DriverError({ driver: name, kind, problem })

/** An agent process that was told its conversation. */
export interface Running {
  readonly process: AgentProcess
  readonly lines: Pull.Pull<ReadonlyArray<string>, Bridge.DriverError>
  /** Whether it has ended. */
  gone: boolean
}

export const tell = ({ process }: Running, message: ToAgent) => process.write(`${JSON.stringify(message)}\n`)

class AgentEnded extends Data.TaggedError("AgentEnded")<{ readonly message: string }> {}

const agentEnded = Effect.fnUntraced(function*({ process }: Running) {
  const { code, signal } = yield* process.exit
  const stderr = (yield* process.stderr).trim()
  const how = signal === undefined ? `with code ${code}` : `by ${signal}`
  return yield* new AgentEnded({ message: `the agent ended ${how}${stderr === "" ? "" : `: ${stderr}`}` })
})

/** Takes the agent's messages until `take` answers one with a value. */
export const listen = Effect.fnUntraced(function*<A, E, R>(
  running: Running,
  take: (message: FromAgent) => Effect.Effect<A | undefined, E, R>
): Effect.fn.Return<A, E | AgentEnded | Bridge.DriverError, R> {
  let pieces: Array<string> = []

  const takeLine = Effect.fnUntraced(
    function*(line: string): Effect.fn.Return<A | undefined, E | Bridge.DriverError, R> {
      const message = yield* decodeLine(line)
      if (message.type !== "piece") return yield* take(message)
      pieces.push(message.text)
      if (!message.last) return undefined
      const whole = pieces.join("")
      pieces = []
      return yield* takeLine(whole)
    }
  )

  while (true) {
    const lines = yield* Pull.catchDone(running.lines, () => agentEnded(running))
    for (const line of lines) {
      const value = yield* takeLine(line)
      if (value !== undefined) return value
    }
  }
})

const decodeJson = Schema.decodeEffect(Schema.fromJsonString(Schema.Unknown))
const decodeMessage = Schema.decodeUnknownEffect(FromAgent)

// Lines of parts are many. The agent is of this very version, and its parts are not checked again.
const partsPrefix = `{"type":"parts",`

const decodeLine = (line: string): Effect.Effect<FromAgent, Bridge.DriverError> =>
  Effect.mapError(
    line.startsWith(partsPrefix)
      ? Effect.map(decodeJson(line), (parts) => parts as FromAgent)
      : Effect.flatMap(decodeJson(line), decodeMessage),
    () => failed("protocol", `the agent printed a line that is no message: ${line.slice(0, 200)}`)
  )

/** Runs a turn; `told` runs when the agent was told it. */
export const runTurn = Effect.fnUntraced(function*(
  running: Running,
  script: Script | undefined,
  turn: Turn,
  told: Effect.Effect<unknown>
): Effect.fn.Return<Finished, TurnFailed | Bridge.DriverError, Scope.Scope> {
  const asking = yield* FiberSet.make()
  const answer = <A extends Schema.Json>(id: string, ask: Effect.Effect<A>) =>
    FiberSet.run(asking, Effect.flatMap(ask, (answer) => Effect.ignore(tell(running, { type: "answer", id, answer }))))

  yield* tell(running, {
    type: "turn",
    turn: turn.turn,
    attempt: turn.attempt,
    prompt: turn.continued?.prompted === true ? undefined : turn.prompt,
    message: turn.message,
    script,
    model: turn.model,
    effort: turn.effort,
    responseFormat: turn.responseFormat,
    raw: turn.raw
  })
  yield* told

  const take = Effect.fnUntraced(function*(message: FromAgent): Effect.fn.Return<Finished | undefined, TurnFailed> {
    switch (message.type) {
      case "parts":
        for (const part of message.parts) yield* turn.emit(part)
        return undefined
      case "taken":
        yield* turn.delivered(Bridge.MessageId.make(message.id))
        return undefined
      case "call": {
        const { id, name, params } = message
        yield* answer(id, turn.callHostTool({ id, name, params }))
        return undefined
      }
      case "approval": {
        const { edits, id, name, params, reason, rule, toolCallId } = message
        yield* answer(
          id,
          turn.requestApproval({
            approvalId: id,
            toolCallId,
            name,
            params,
            edits,
            reason,
            rule: rule === undefined ? undefined : { key: rule, title: rule }
          }).pipe(Effect.map(({ decision, reason }) => reason === undefined ? { decision } : { decision, reason }))
        )
        return undefined
      }
      case "question":
        yield* answer(message.id, turn.ask({ questionId: message.id, questions: message.questions }))
        return undefined
      case "finished": {
        const { cost, finishReason, output } = message
        return { finishReason, cost, output }
      }
      case "failed":
        return yield* new TurnFailed({ kind: message.kind, message: message.message })
      case "interrupted":
        return yield* new TurnFailed({ kind: "unknown", message: "The turn was interrupted." })
      case "compacted":
      case "piece":
        return undefined
    }
  })

  return yield* Effect.catchTag(
    listen(running, take),
    "AgentEnded",
    ({ message }) => Effect.fail(new TurnFailed({ kind: "agent-exit", message }))
  )
}, Effect.scoped)
