/**
 * A running Claude Code: its messages one by one, and requests that it answers.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { FromClaude, type Prompt } from "./claudeMessages.ts"
import * as JsonAgent from "./jsonAgent.ts"

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

const decode = Schema.decodeUnknownOption(FromClaude)

/** Starts the CLI. Its messages are handled by a fiber of the current scope. */
export const start = Effect.fnUntraced(function*(
  processes: AgentProcesses,
  command: AgentCommand,
  handlers: Handlers
): Effect.fn.Return<Claude, Bridge.DriverError, Scope.Scope> {
  const agent = yield* JsonAgent.start<Bridge.DriverError>(processes, command, { driver, title: "Claude Code" })
  const claude: Claude = {
    process: agent.process,
    say: agent.write,
    ask: (request) => agent.ask((number) => ({ type: "control_request", request_id: `gangway-${number}`, request })),
    answer: (requestId, response) =>
      Effect.ignore(
        agent.write({ type: "control_response", response: { subtype: "success", request_id: requestId, response } })
      ),
    refuse: (requestId, error) =>
      Effect.ignore(
        agent.write({ type: "control_response", response: { subtype: "error", request_id: requestId, error } })
      ),
    gone: agent.gone
  }
  yield* agent.listen({
    onMessage: (json) => {
      const message = Option.getOrUndefined(decode(json))
      if (message?.type !== "control_response") return handlers.onMessage(claude, message, json)
      const { error, request_id, response, subtype } = message.response
      return agent.settle(
        Number(/^gangway-(\d+)$/.exec(request_id)?.[1]),
        subtype === "success"
          ? Effect.succeed(response ?? null)
          : Effect.fail(failed("protocol", error ?? "Claude Code refused a request"))
      )
    },
    onExit: (problem) => handlers.onExit(claude, problem)
  })
  return claude
})
