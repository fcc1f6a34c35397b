/**
 * A running app-server of Codex: its messages one by one, and requests that it answers.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Messages from "./codexMessages.ts"
import * as JsonAgent from "./jsonAgent.ts"

export const driver = "codex"

export const failed = (kind: Bridge.DriverError["kind"], problem: string) =>
  new Bridge.DriverError({ driver, kind, problem })

export interface Codex {
  readonly process: AgentProcess
  /** Asks for something, and waits for its answer. What is refused is an error of the kind `protocol`. */
  readonly ask: <M extends Messages.Method>(
    method: M,
    params: (typeof Messages.requests)[M]["Type"]
  ) => Effect.Effect<Schema.Json, Bridge.DriverError>
  readonly tell: (method: "initialized") => Effect.Effect<void, Bridge.DriverError>
  /** Answers what Codex asked. One that is gone needs no answer. */
  readonly answer: (id: Messages.RequestId, result: Schema.Json) => Effect.Effect<void>
  /** Tells Codex that what it asked can't be answered. */
  readonly refuse: (id: Messages.RequestId, problem: string) => Effect.Effect<void>
  /** Whether it has ended. */
  readonly gone: () => boolean
}

export interface Handlers {
  /** Gets each notification, `undefined` where it's an unknown one; the next message waits until it's done. */
  readonly onNotification: (
    codex: Codex,
    notification: Messages.Notification | undefined,
    json: Schema.Json
  ) => Effect.Effect<void>
  /** Gets each request of a known kind. */
  readonly onRequest: (
    codex: Codex,
    id: Messages.RequestId,
    request: Messages.ServerRequest,
    json: Schema.Json
  ) => Effect.Effect<void>
  /** Called once, when all its messages were handled; says how it ended. */
  readonly onExit: (codex: Codex, problem: string) => Effect.Effect<void>
}

const refused = (error: Schema.Json) =>
  failed("protocol", Predicate.isObject(error) ? String(error["message"]) : JSON.stringify(error))

const decodeMessage = Schema.decodeUnknownOption(Messages.Message)
const decodeNotification = Schema.decodeUnknownOption(Messages.Notification)
const decodeRequest = Schema.decodeUnknownOption(Messages.ServerRequest)

/** Starts the app-server. Its messages are handled by a fiber of the current scope. */
export const start = Effect.fnUntraced(function*(
  processes: AgentProcesses,
  command: AgentCommand,
  handlers: Handlers
): Effect.fn.Return<Codex, Bridge.DriverError, Scope.Scope> {
  const agent = yield* JsonAgent.start<Bridge.DriverError>(processes, command, { driver, title: "Codex" })
  const codex: Codex = {
    process: agent.process,
    ask: (method, params) => agent.ask((id) => ({ id, method, params })),
    tell: (method) => agent.write({ method }),
    answer: (id, result) => Effect.ignore(agent.write({ id, result })),
    refuse: (id, message) => Effect.ignore(agent.write({ id, error: { code: -32601, message } })),
    gone: agent.gone
  }
  yield* agent.listen({
    onMessage: (json) => {
      const message = Option.getOrUndefined(decodeMessage(json))
      if (message === undefined) return Effect.void
      const { error, id, method, result = null } = message
      if (method === undefined) {
        return typeof id !== "number"
          ? Effect.void
          : agent.settle(id, Predicate.isNullish(error) ? Effect.succeed(result) : Effect.fail(refused(error)))
      }
      if (id === undefined) {
        return handlers.onNotification(codex, Option.getOrUndefined(decodeNotification(json)), json)
      }
      const request = Option.getOrUndefined(decodeRequest(json))
      return request === undefined
        ? codex.refuse(id, `${method} is not supported`)
        : handlers.onRequest(codex, id, request, json)
    },
    onExit: (problem) => handlers.onExit(codex, problem)
  })
  return codex
})
