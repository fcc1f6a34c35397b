/**
 * What a person at the terminal types, line by line.
 */
import * as NodeStream from "@effect/platform-node-shared/NodeStream"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { openSync } from "node:fs"
import { ReadStream } from "node:tty"

export class Keyboard extends Context.Service<Keyboard, {
  /** Whether standard input is a terminal. */
  readonly isThere: boolean
  /** Reads from the terminal itself where standard input is something else; fails to where there's none. */
  readonly open: Effect.Effect<boolean>
  /**
   * Puts a question, and waits for the next line, without its end; none where there will be no more. What was typed
   * before anybody could see the question is no answer to it.
   */
  readonly ask: (question: Effect.Effect<void>) => Effect.Effect<Option.Option<string>>
}>()("@gangway/cli/Keyboard") {}

// By then, what waited in the terminal's buffer has been read.
const typedAhead = "100 millis"

export const layer: Layer.Layer<Keyboard> = Layer.effect(
  Keyboard,
  Effect.gen(function*() {
    const scope = yield* Effect.scope
    let source: NodeJS.ReadableStream = process.stdin
    let isReading = false
    let hasEnded = false
    let asked: Deferred.Deferred<Option.Option<string>> | undefined

    // A background job that reads from its terminal is stopped, so nothing is read before something is asked.
    const start = Effect.suspend(() => {
      if (isReading) return Effect.void
      isReading = true
      return NodeStream.fromReadable({ evaluate: () => source, closeOnDone: false }).pipe(
        Stream.decodeText(),
        Stream.splitLines,
        Stream.runForEach((line) =>
          Effect.sync(() => {
            if (asked !== undefined) Deferred.doneUnsafe(asked, Effect.succeedSome(line))
          })
        ),
        Effect.ignore,
        Effect.andThen(Effect.sync(() => {
          hasEnded = true
          if (asked !== undefined) Deferred.doneUnsafe(asked, Effect.succeedNone)
        })),
        Effect.forkIn(scope)
      )
    })

    return Keyboard.of({
      isThere: process.stdin.isTTY === true,
      open: Effect.sync(() => {
        try {
          source = new ReadStream(openSync("/dev/tty", "r"))
          return true
        } catch {
          return false
        }
      }),
      ask: (question) =>
        Effect.gen(function*() {
          yield* start
          yield* Effect.sleep(typedAhead)
          const answer = Deferred.makeUnsafe<Option.Option<string>>()
          asked = answer
          yield* question
          return hasEnded ? Option.none() : yield* Deferred.await(answer)
        }).pipe(Effect.ensuring(Effect.sync(() => void (asked = undefined))))
    })
  })
)
