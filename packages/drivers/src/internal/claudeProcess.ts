/**
 * A running Claude Code: its messages one by one, and requests that it answers.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { FromClaude, type Prompt } from "./claudeMessages.ts"

export const driver = "claude-code"

export const failed = (kind: Bridge.DriverError["kind"], problem: string) =>
  new Bridge.DriverError({ driver, kind, problem })

export interface Claude {
  readonly process: AgentProcess
  readonly say: (message: Prompt) => Effect.Effect<void, Bridge.DriverError>
  /** Asks the CLI for something that isn't a prompt, and waits for its answer. */
  readonly ask: (request: Schema.JsonObject) => Effect.Effect<Schema.Json, Bridge.DriverError>
  /** Answers what the CLI asked. A CLI that is gone needs no answer. */
  readonly answer: (requestId: string, response: Schema.Json) => Effect.Effect<void>
  /** Tells the CLI that what it asked can't be answered. */
  readonly refuse: (requestId: string, error: string) => Effect.Effect<void>
  /** Whether it has ended. */
  readonly gone: () => boolean
}

export interface Handlers {
  /** Gets every message but answers to `ask`; the next one waits until it's done. `json` is the message as it came. */
  readonly onMessage: (claude: Claude, message: FromClaude | undefined, json: Schema.Json) => Effect.Effect<void>
  /** Called once, when all its messages were handled; says how it ended. */
  readonly onExit: (claude: Claude, problem: string) => Effect.Effect<void>
}

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))
const decode = Schema.decodeUnknownOption(FromClaude)

/** Starts the CLI. Its messages are handled by a fiber of the current scope. */
export const start = Effect.fnUntraced(function*(
  processes: AgentProcesses,
  command: AgentCommand,
  handlers: Handlers
): Effect.fn.Return<Claude, Bridge.DriverError, Scope.Scope> {
  const process = yield* processes.spawn(command)
  const waiting = new Map<string, Deferred.Deferred<Schema.Json, Bridge.DriverError>>()
  let requests = 0
  let gone = false
  const write = (message: object) => process.write(`${JSON.stringify(message)}\n`)

  const claude: Claude = {
    process,
    say: write,
    ask: Effect.fnUntraced(function*(request) {
      if (gone) return yield* failed("exit", "Claude Code has ended")
      const id = `gangway-${requests++}`
      const answer = Deferred.makeUnsafe<Schema.Json, Bridge.DriverError>()
      waiting.set(id, answer)
      yield* write({ type: "control_request", request_id: id, request })
      return yield* Deferred.await(answer)
    }),
    answer: (requestId, response) =>
      Effect.ignore(
        write({ type: "control_response", response: { subtype: "success", request_id: requestId, response } })
      ),
    refuse: (requestId, error) =>
      Effect.ignore(
        write({ type: "control_response", response: { subtype: "error", request_id: requestId, error } })
      ),
    gone: () => gone
  }

  const take = (line: string): Effect.Effect<void> => {
    const json = Option.getOrUndefined(parse(line))
    // Warnings of the runtime may come between the messages.
    if (!Predicate.isObject(json)) return Effect.void
    const message = Option.getOrUndefined(decode(json))
    if (message?.type !== "control_response") return handlers.onMessage(claude, message, json as Schema.Json)
    const { error, request_id, response, subtype } = message.response
    const answer = waiting.get(request_id)
    waiting.delete(request_id)
    if (answer === undefined) return Effect.void
    return Effect.asVoid(
      subtype === "success"
        ? Deferred.succeed(answer, response ?? null)
        : Deferred.fail(answer, failed("protocol", error ?? "Claude Code refused a request"))
    )
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
      yield* handlers.onExit(claude, problem)
    })),
    Effect.forkScoped
  )
  return claude
})

const howItEnded = Effect.fnUntraced(function*(process: AgentProcess) {
  // One that only closed its output is of no use any more.
  if (Option.isNone(yield* Effect.timeoutOption(process.exit, "2 seconds"))) yield* process.end
  const { code, signal } = yield* process.exit
  const stderr = (yield* process.stderr).trim()
  const how = signal === undefined ? `with code ${code}` : `by ${signal}`
  return `Claude Code ended ${how}${stderr === "" ? "" : `: ${stderr}`}`
})
