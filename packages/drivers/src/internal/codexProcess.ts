/**
 * A running app-server of Codex: its messages one by one, and requests that it answers.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Messages from "./codexMessages.ts"

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

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Json))
const decodeMessage = Schema.decodeUnknownOption(Messages.Message)
const decodeNotification = Schema.decodeUnknownOption(Messages.Notification)
const decodeRequest = Schema.decodeUnknownOption(Messages.ServerRequest)

/** Starts the app-server. Its messages are handled by a fiber of the current scope. */
export const start = Effect.fnUntraced(function*(
  processes: AgentProcesses,
  command: AgentCommand,
  handlers: Handlers
): Effect.fn.Return<Codex, Bridge.DriverError, Scope.Scope> {
  const process = yield* processes.spawn(command)
  const waiting = new Map<Messages.RequestId, Deferred.Deferred<Schema.Json, Bridge.DriverError>>()
  let requests = 0
  let gone = false
  const write = (message: object) => process.write(`${JSON.stringify(message)}\n`)

  const codex: Codex = {
    process,
    ask: Effect.fnUntraced(function*(method, params) {
      if (gone) return yield* failed("exit", "Codex has ended")
      const id = requests++
      const answer = Deferred.makeUnsafe<Schema.Json, Bridge.DriverError>()
      waiting.set(id, answer)
      yield* write({ id, method, params })
      return yield* Deferred.await(answer)
    }),
    tell: (method) => write({ method }),
    answer: (id, result) => Effect.ignore(write({ id, result })),
    refuse: (id, message) => Effect.ignore(write({ id, error: { code: -32601, message } })),
    gone: () => gone
  }

  const take = (line: string): Effect.Effect<void> => {
    const json = Option.getOrUndefined(parse(line))
    const message = Option.getOrUndefined(decodeMessage(json))
    if (json === undefined || message === undefined) return Effect.void
    const { error, id, method, result = null } = message
    if (method === undefined) {
      const answer = id === undefined ? undefined : waiting.get(id)
      if (id === undefined || answer === undefined) return Effect.void
      waiting.delete(id)
      return Effect.asVoid(
        error === undefined
          ? Deferred.succeed(answer, result)
          : Deferred.fail(answer, failed("protocol", error.message))
      )
    }
    if (id === undefined) {
      return handlers.onNotification(codex, Option.getOrUndefined(decodeNotification(json)), json)
    }
    const request = Option.getOrUndefined(decodeRequest(json))
    return request === undefined
      ? codex.refuse(id, `${method} is not supported`)
      : handlers.onRequest(codex, id, request, json)
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
      yield* handlers.onExit(codex, problem)
    })),
    Effect.forkScoped
  )
  return codex
})

const howItEnded = Effect.fnUntraced(function*(process: AgentProcess) {
  // One that only closed its output is of no use any more.
  if (Option.isNone(yield* Effect.timeoutOption(process.exit, "2 seconds"))) yield* process.end
  const { code, signal } = yield* process.exit
  const stderr = (yield* process.stderr).trim()
  const how = signal === undefined ? `with code ${code}` : `by ${signal}`
  return `Codex ended ${how}${stderr === "" ? "" : `: ${stderr}`}`
})
