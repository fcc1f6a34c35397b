/**
 * A running agent of the Agent Client Protocol: JSON-RPC over its standard input and output.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as JsonAgent from "./jsonAgent.ts"

export const driver = "acp"

/** The most of an agent's requests that are answered beside each other; more are refused. */
const maxRequests = 256

export const failed = (kind: Bridge.DriverError["kind"], problem: string) =>
  new Bridge.DriverError({ driver, kind, problem })

/** An error answer, the agent's or ours. */
export class RpcError extends Data.TaggedError("RpcError")<{
  readonly code: number
  readonly message: string
  readonly data?: Schema.Json | undefined
}> {}

/** The codes that the protocol names. */
export const RpcCode = {
  methodNotFound: -32_601,
  invalidParams: -32_602,
  internal: -32_603,
  authRequired: -32_000,
  notFound: -32_002
} as const

export interface Connection {
  readonly process: AgentProcess
  /** Asks the agent, and waits for its answer. */
  readonly request: (method: string, params: object) => Effect.Effect<Schema.Json, RpcError | Bridge.DriverError>
  /** Tells the agent something. An agent that is gone needn't know. */
  readonly notify: (method: string, params: object) => Effect.Effect<void>
  /** Whether it has ended. */
  readonly gone: () => boolean
}

export interface Handlers {
  /** Gets every notification; the next message waits until it's done. */
  readonly onNotification: (connection: Connection, method: string, params: Schema.Json) => Effect.Effect<void>
  /** Answers a request, beside the messages that follow it; interrupted where the agent takes it back. */
  readonly onRequest: (
    connection: Connection,
    method: string,
    params: Schema.Json
  ) => Effect.Effect<Schema.Json, RpcError>
  /** Called once, when all its messages were handled; says how it ended. */
  readonly onExit: (connection: Connection, problem: string) => Effect.Effect<void>
}

const ErrorAnswer = Schema.Struct({
  code: Schema.Finite,
  message: Schema.String,
  data: Schema.optional(Schema.Any as Schema.Codec<Schema.Json>)
})
const decodeError = Schema.decodeUnknownOption(ErrorAnswer)

/** Waits for an answer without which nothing goes on only so long: the agent may have lost itself, or be none. */
export const inTime = <A, E>(
  method: string,
  seconds: number,
  answer: Effect.Effect<A, E>
): Effect.Effect<A, E | Bridge.DriverError> =>
  Effect.flatMap(
    JsonAgent.inTime(answer, seconds),
    Option.match({
      onNone: () =>
        Effect.fail(failed("start", `it didn't answer ${method} within ${Duration.format(Duration.seconds(seconds))}`)),
      onSome: Effect.succeed
    })
  )

/** Starts the agent. Its messages are handled by a fiber of the current scope. */
export const start = Effect.fnUntraced(function*(
  processes: AgentProcesses,
  command: AgentCommand,
  handlers: Handlers
): Effect.fn.Return<Connection, Bridge.DriverError, Scope.Scope> {
  const agent = yield* JsonAgent.start<RpcError>(processes, command, { driver, title: "the agent" })
  const answering = yield* FiberMap.make<string | number>()
  const write = (message: object) => agent.write(versioned(message))

  const connection: Connection = {
    process: agent.process,
    request: (method, params) => agent.ask((id) => versioned({ id, method, params })),
    notify: (method, params) => Effect.ignore(write({ method, params })),
    gone: agent.gone
  }

  const refuse = (id: string | number, { code, data, message }: RpcError) =>
    write({ id, error: { code, message, ...(data === undefined ? {} : { data }) } })

  // An id that is used again is answered once: what was asked first under it is taken for taken back.
  const answer = (id: string | number, method: string, params: Schema.Json) =>
    FiberMap.run(
      answering,
      id,
      Effect.matchEffect(handlers.onRequest(connection, method, params), {
        onSuccess: (result) => write({ id, result }),
        onFailure: (error) => refuse(id, error)
      }).pipe(
        Effect.catchDefect(() => refuse(id, new RpcError({ code: RpcCode.internal, message: `${method} failed` }))),
        Effect.ignore
      )
    )

  // While the agent takes no refusal, nothing more of it is read.
  const admit = (id: string | number, method: string, params: Schema.Json) =>
    Effect.flatMap(FiberMap.size(answering), (size) =>
      size < maxRequests
        ? Effect.asVoid(answer(id, method, params))
        : Effect.ignore(refuse(
          id,
          new RpcError({ code: RpcCode.internal, message: `${maxRequests} requests wait for an answer already` })
        )))

  const onMessage = (message: Schema.JsonObject): Effect.Effect<void> => {
    const { error, id, method, params, result = null } = message
    if (Predicate.isString(method)) {
      if (Predicate.isString(id) || Predicate.isNumber(id)) return admit(id, method, params ?? {})
      if (method !== "$/cancel_request") return handlers.onNotification(connection, method, params ?? {})
      const taken = Predicate.isObject(params) ? params["requestId"] : undefined
      return Predicate.isString(taken) || Predicate.isNumber(taken) ? FiberMap.remove(answering, taken) : Effect.void
    }
    if (!Predicate.isNumber(id)) return Effect.void
    if (!Predicate.isNotNullish(error)) return agent.settle(id, Effect.succeed(result))
    const refusal = Option.getOrElse(decodeError(error), () => ({
      code: RpcCode.internal,
      message: "the agent refused a request"
    }))
    return agent.settle(id, Effect.fail(new RpcError(refusal)))
  }

  yield* agent.listen({
    onMessage,
    onExit: (problem) => Effect.andThen(FiberMap.clear(answering), handlers.onExit(connection, problem))
  })
  return connection
})

const versioned = (message: object) => ({ jsonrpc: "2.0", ...message })
