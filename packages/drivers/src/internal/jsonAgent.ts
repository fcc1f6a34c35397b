/**
 * A running agent that is spoken to in JSON over its standard input and output, a message a line, in which both sides
 * ask and answer.
 *
 * Messages are taken one after the other, so an agent that tells more than the log takes is slowed down by its own
 * pipe, and an answer comes after all that was told before it.
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

/** `E` is what an answer can refuse with. */
export interface JsonAgent<E> {
  readonly process: AgentProcess
  readonly write: (message: object) => Effect.Effect<void, Bridge.DriverError>
  /** Sends what `request` makes of a number that no other has, and waits until that is settled. */
  readonly ask: (request: (number: number) => object) => Effect.Effect<Schema.Json, E | Bridge.DriverError>
  /** Settles a request by its answer. A number that nothing waits for is passed over. */
  readonly settle: (number: number, answer: Effect.Effect<Schema.Json, E>) => Effect.Effect<void>
  /** Whether it has ended. */
  readonly gone: () => boolean
  /** Handles its messages by a fiber of the current scope. To be called once. */
  readonly listen: (handlers: Handlers) => Effect.Effect<void, never, Scope.Scope>
}

export interface Handlers {
  /** Gets every message; the next one waits until it's done. What is no JSON object is none. */
  readonly onMessage: (message: Schema.JsonObject) => Effect.Effect<void>
  /** Called once, when all its messages were handled; says how it ended. */
  readonly onExit: (problem: string) => Effect.Effect<void>
}

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Unknown))

/** Starts the agent of a driver; the title is the agent in words, as the subject of a sentence. */
export const start = Effect.fnUntraced(function*<E>(
  processes: AgentProcesses,
  command: AgentCommand,
  { driver, title }: { readonly driver: string; readonly title: string }
): Effect.fn.Return<JsonAgent<E>, Bridge.DriverError, Scope.Scope> {
  const process = yield* processes.spawn(command)
  const waiting = new Map<number, Deferred.Deferred<Schema.Json, E | Bridge.DriverError>>()
  let requests = 0
  let gone = false
  const ended = (problem: string) => new Bridge.DriverError({ driver, kind: "exit", problem })
  const write = (message: object) => process.write(`${JSON.stringify(message)}\n`)

  // Its last messages may still be on their way when it has ended.
  yield* Effect.forkScoped(Effect.andThen(process.exit, Effect.sync(() => void (gone = true))))

  return {
    process,
    write,
    ask: Effect.fnUntraced(function*(request) {
      if (gone) return yield* ended(`${title} has ended`)
      const number = requests++
      const answer = Deferred.makeUnsafe<Schema.Json, E | Bridge.DriverError>()
      waiting.set(number, answer)
      yield* write(request(number))
      return yield* Deferred.await(answer)
    }),
    settle: (number, answer) => {
      const asked = waiting.get(number)
      waiting.delete(number)
      return asked === undefined ? Effect.void : Effect.asVoid(Deferred.complete(asked, answer))
    },
    gone: () => gone,
    listen: ({ onExit, onMessage }) =>
      process.lines.pipe(
        Stream.runForEach((line) => {
          const message = Option.getOrUndefined(parse(line))
          // Warnings of the agent's runtime may stray between the messages.
          return Predicate.isObject(message) ? onMessage(message as Schema.JsonObject) : Effect.void
        }),
        Effect.matchEffect({
          onSuccess: () => howItEnded(process, title),
          // It would wait for ever on a pipe that nobody reads.
          onFailure: (error) => Effect.as(process.end, error.problem)
        }),
        Effect.flatMap(Effect.fnUntraced(function*(problem) {
          gone = true
          for (const answer of waiting.values()) yield* Deferred.fail(answer, ended(problem))
          yield* onExit(problem)
        })),
        Effect.forkScoped,
        Effect.asVoid
      )
  }
})

const howItEnded = Effect.fnUntraced(function*(process: AgentProcess, title: string) {
  // One that only closed its output is of no use any more.
  if (Option.isNone(yield* Effect.timeoutOption(process.exit, "2 seconds"))) yield* process.end
  const { code, signal } = yield* process.exit
  const stderr = (yield* process.stderr).trim()
  const how = signal === undefined ? `with code ${code}` : `by ${signal}`
  return `${title} ended ${how}${stderr === "" ? "" : `: ${stderr}`}`
})
