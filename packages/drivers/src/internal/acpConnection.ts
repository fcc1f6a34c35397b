/**
 * A running agent of the Agent Client Protocol: JSON-RPC over its standard input and output, one message a line.
 *
 * Messages are taken one after the other, so an agent that tells more than the log takes is slowed down by its own
 * pipe, and an answer comes after all that was told before it.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

export const driver = "acp"

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

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

const ErrorAnswer = Schema.Struct({
  code: Schema.Finite,
  message: Schema.String,
  data: Schema.optional(Schema.Any as Schema.Codec<Schema.Json>)
})
const decodeError = Schema.decodeUnknownOption(ErrorAnswer)

/** Starts the agent. Its messages are handled by a fiber of the current scope. */
export const start = Effect.fnUntraced(function*(
  processes: AgentProcesses,
  command: AgentCommand,
  handlers: Handlers
): Effect.fn.Return<Connection, Bridge.DriverError, Scope.Scope> {
  const process = yield* processes.spawn(command)
  const waiting = new Map<number, Deferred.Deferred<Schema.Json, RpcError | Bridge.DriverError>>()
  const answering = yield* FiberMap.make<string | number>()
  let requests = 0
  let gone = false
  const write = (message: object) => process.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)

  const connection: Connection = {
    process,
    request: Effect.fnUntraced(function*(method, params) {
      if (gone) return yield* failed("exit", "the agent has ended")
      const id = requests++
      const answer = Deferred.makeUnsafe<Schema.Json, RpcError | Bridge.DriverError>()
      waiting.set(id, answer)
      yield* write({ id, method, params })
      return yield* Deferred.await(answer)
    }),
    notify: (method, params) => Effect.ignore(write({ method, params })),
    gone: () => gone
  }

  const answer = (id: string | number, method: string, params: Schema.Json) =>
    FiberMap.run(
      answering,
      id,
      Effect.matchEffect(handlers.onRequest(connection, method, params), {
        onSuccess: (result) => write({ id, result }),
        onFailure: ({ code, data, message }) =>
          write({ id, error: { code, message, ...(data === undefined ? {} : { data }) } })
      }).pipe(Effect.ignore)
    )

  const take = (line: string): Effect.Effect<void> => {
    const message = Option.getOrUndefined(parse(line))
    // What isn't JSON-RPC is a warning that strayed onto standard output.
    if (!Predicate.isObject(message)) return Effect.void
    const { id, method } = message
    if (Predicate.isString(method)) {
      const params = (message["params"] ?? {}) as Schema.Json
      if (Predicate.isString(id) || Predicate.isNumber(id)) return Effect.asVoid(answer(id, method, params))
      if (method !== "$/cancel_request") return handlers.onNotification(connection, method, params)
      const taken = Predicate.isObject(params) ? params["requestId"] : undefined
      return Predicate.isString(taken) || Predicate.isNumber(taken) ? FiberMap.remove(answering, taken) : Effect.void
    }
    const asked = Predicate.isNumber(id) ? waiting.get(id) : undefined
    if (asked === undefined) return Effect.void
    waiting.delete(id as number)
    if (!("error" in message)) return Effect.asVoid(Deferred.succeed(asked, (message["result"] ?? null) as Schema.Json))
    const error = Option.getOrElse(decodeError(message["error"]), () => ({
      code: RpcCode.internal,
      message: "the agent refused a request"
    }))
    return Effect.asVoid(Deferred.fail(asked, new RpcError(error)))
  }

  // Its last messages may still be on their way when it has ended.
  yield* Effect.forkScoped(Effect.andThen(process.exit, Effect.sync(() => void (gone = true))))
  yield* process.lines.pipe(
    Stream.runForEach(take),
    Effect.matchEffect({
      onSuccess: () => howItEnded(process),
      // It would wait for ever on a pipe that nobody reads.
      onFailure: (error) => Effect.as(process.end, error.problem)
    }),
    Effect.flatMap(Effect.fnUntraced(function*(problem) {
      gone = true
      for (const answer of waiting.values()) yield* Deferred.fail(answer, failed("exit", problem))
      yield* FiberMap.clear(answering)
      yield* handlers.onExit(connection, problem)
    })),
    Effect.forkScoped
  )
  return connection
})

const howItEnded = Effect.fnUntraced(function*(process: AgentProcess) {
  // One that only closed its output is of no use any more.
  if (Option.isNone(yield* Effect.timeoutOption(process.exit, "2 seconds"))) yield* process.end
  const { code, signal } = yield* process.exit
  const stderr = (yield* process.stderr).trim()
  const how = signal === undefined ? `with code ${code}` : `by ${signal}`
  return `the agent ended ${how}${stderr === "" ? "" : `: ${stderr}`}`
})
