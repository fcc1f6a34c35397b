/**
 * The ids of destroyed sessions, remembered for a day, so that a late repeat doesn't bring one back. Each has a file of
 * its own: bridges that destroy sessions at once don't undo each other.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Schema from "effect/Schema"
import type { StateDirectory } from "../StateDirectory.ts"
import type { BridgeContext } from "./bridgeContext.ts"

// When it was, in milliseconds since 1970.
const Destroyed = Schema.fromJsonString(Schema.Struct({ at: Schema.Finite }))

const remembered = Duration.toMillis(Duration.days(1))

export const make = Effect.fnUntraced(function*(
  state: StateDirectory
): Effect.fn.Return<BridgeContext["destroyed"], never, FileSystem.FileSystem> {
  const fs = yield* FileSystem.FileSystem
  const pathOf = (name: string) => `${state.destroyedDirectory}/${name}`

  const isRecent = Effect.fnUntraced(function*(name: string) {
    const text = yield* fs.readFileString(pathOf(name))
    const { at } = yield* Schema.decodeEffect(Destroyed)(text)
    return (yield* Clock.currentTimeMillis) - at < remembered
  }, (recent) => Effect.orElseSucceed(recent, () => false))

  const removeOld = Effect.flatMap(
    // What's being written has another name.
    Effect.map(fs.readDirectory(state.destroyedDirectory), (names) => names.filter(Schema.is(Bridge.SessionId))),
    Effect.forEach(
      (name) =>
        Effect.flatMap(
          isRecent(name),
          // Whatever has its place: what says nothing is of no use.
          (recent) => recent ? Effect.void : Effect.ignore(fs.remove(pathOf(name), { recursive: true, force: true }))
        ),
      { concurrency: 16, discard: true }
    )
  )

  return {
    has: isRecent,
    add: Effect.fnUntraced(function*(session: Bridge.SessionId) {
      yield* Effect.ignore(removeOld)
      const at = yield* Clock.currentTimeMillis
      yield* state.writeAtomic(pathOf(session), `${JSON.stringify({ at })}\n`, { sync: true })
    })
  }
})
