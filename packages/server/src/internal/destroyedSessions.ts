/**
 * The ids of destroyed sessions, remembered for a day, so that a late repeat doesn't bring one back.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Schema from "effect/Schema"
import type { StateDirectory } from "../StateDirectory.ts"
import type { BridgeContext } from "./bridgeContext.ts"

// Session ids, with when they were destroyed, in milliseconds since 1970.
const DestroyedFile = Schema.fromJsonString(Schema.Record(Schema.String, Schema.Finite))

const remembered = Duration.toMillis(Duration.days(1))

export const make = Effect.fnUntraced(function*(
  state: StateDirectory
): Effect.fn.Return<BridgeContext["destroyed"], never, FileSystem.FileSystem> {
  const fs = yield* FileSystem.FileSystem
  // Read anew each time: another bridge of this state directory may have written it.
  const read = fs.readFileString(state.destroyedFile).pipe(
    Effect.flatMap(Schema.decodeEffect(DestroyedFile)),
    Effect.orElseSucceed((): Readonly<Record<string, number>> => ({})),
    Effect.zip(Clock.currentTimeMillis),
    Effect.map(([all, now]) => Object.entries(all).filter(([, at]) => now - at < remembered))
  )
  return {
    has: (session) => Effect.map(read, (entries) => entries.some(([id]) => id === session)),
    add: Effect.fnUntraced(function*(session: Bridge.SessionId) {
      const entries = yield* read
      const now = yield* Clock.currentTimeMillis
      const text = JSON.stringify(Object.fromEntries([...entries, [session, now]]))
      yield* state.writeAtomic(state.destroyedFile, `${text}\n`, { sync: true })
    })
  }
})
