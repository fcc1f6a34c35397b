/**
 * A running agent that is spoken to in JSON over its standard input and output, a message a line, in which both sides
 * ask and answer.
 *
 * Messages are taken one after the other, so an agent that tells more than the log takes is slowed down by its own
 * pipe, and an answer comes after all that was told before it.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentCommand, AgentProcess, AgentProcesses } from "@gangway/server/Supervisor"
import * as Cause from "effect/Cause"
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

/** How many seconds an agent may take for an answer without which nothing goes on. */
export const patience = 120

/**
 * Waits for such an answer; none where it doesn't come in time. The seconds are counted one by one: while the machine is
 * frozen, the agent is as well.
 */
export const inTime = <A, E>(answer: Effect.Effect<A, E>, seconds = patience): Effect.Effect<Option.Option<A>, E> =>
  Effect.raceFirst(
    Effect.asSome(answer),
    Effect.as(Effect.repeat(Effect.sleep("1 second"), { times: seconds - 1 }), Option.none())
  )

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
      return yield* write(request(number)).pipe(
        Effect.andThen(Deferred.await(answer)),
        Effect.ensuring(Effect.sync(() => waiting.delete(number)))
      )
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
        Effect.matchCauseEffect({
          onSuccess: () => howItEnded(process, title),
          // It would wait for ever on a pipe that nobody reads.
          onFailure: (cause) =>
            Cause.hasInterrupts(cause) ? Effect.interrupt : Effect.as(process.end, problemOf(cause, title))
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

// What is too much for the bridge, such as what is nested too deeply to be written down, is no reason to wait for ever.
const problemOf = (cause: Cause.Cause<Bridge.DriverError>, title: string): string => {
  const error = Cause.squash(cause)
  if (error instanceof Bridge.DriverError) return error.problem
  return `${title} said what can't be taken: ${error instanceof Error ? error.message : String(error)}`
}

const howItEnded = Effect.fnUntraced(function*(process: AgentProcess, title: string) {
  let exit = yield* Effect.timeoutOption(process.exit, "2 seconds")
  if (Option.isNone(exit)) {
    // One that only closed its output is of no use any more. Nobody waits for one that can't be ended.
    yield* process.end
    exit = yield* Effect.timeoutOption(process.exit, "2 seconds")
  }
  const stderr = (yield* process.stderr).trim()
  const how = Option.match(exit, {
    onNone: () => "closed its output",
    onSome: ({ code, signal }) => signal === undefined ? `ended with code ${code}` : `ended by ${signal}`
  })
  return `${title} ${how}${stderr === "" ? "" : `: ${stderr}`}`
})
