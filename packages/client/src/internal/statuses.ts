/**
 * Telling a host what its client does about the connection.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ConnectOptions } from "../BridgeClient.ts"
import type { Status } from "../Status.ts"

export type Tell = (status: Status) => Effect.Effect<void>

// Where the host takes its time, the oldest of those that wait are left out.
const maxWaiting = 64

/**
 * Makes what tells each status, in order. The host deals with it in a fiber of the scope: what it does there may need the
 * very connection that it's told of. Where it's done at once, that's before anything else is done.
 */
export const make = Effect.fnUntraced(function*(
  onStatus: ConnectOptions["onStatus"]
): Effect.fn.Return<Tell, never, Scope.Scope> {
  if (onStatus === undefined) return () => Effect.void
  const scope = yield* Effect.scope
  const waiting: Array<Status> = []
  let isDealing = false

  const deal = Effect.gen(function*() {
    for (let status = waiting.shift(); status !== undefined; status = waiting.shift()) {
      const told = status
      yield* Effect.catchCause(
        Effect.suspend(() => onStatus(told)),
        (cause) => Effect.logWarning("onStatus failed", cause)
      )
    }
    isDealing = false
  })

  return (status) =>
    Effect.suspend(() => {
      waiting.push(status)
      if (waiting.length > maxWaiting) waiting.shift()
      if (isDealing) return Effect.void
      isDealing = true
      return Effect.forkIn(deal, scope, { startImmediately: true })
    })
})
