/**
 * Keeps the sandbox from being stopped for want of use while a turn runs, with no host connected: see
 * `Bridge.KeepAwake`.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import * as Schedule from "effect/Schedule"
import type { Activity } from "./bridgeCore.ts"

/** Makes the request again and again while a turn runs, for ever; one that isn't answered until the next is given up. */
export const keepAwake = Effect.fnUntraced(function*(
  activity: Ref.Ref<Activity>,
  { every, headers, url }: Bridge.KeepAwake
) {
  // Loaded where it's asked for: a bridge is there sooner without.
  const { Fetch } = yield* Effect.promise(() => import("effect/unstable/http/FetchHttpClient"))
  const fetch = yield* Fetch
  const request = Effect.tryPromise((signal) =>
    fetch(url, {
      method: "HEAD",
      // Without its token, a proxy tells of a page where people log in.
      redirect: "manual",
      headers: Object.entries(headers).map(([name, value]) => [name, Redacted.value(value)]),
      signal
    })
  ).pipe(Effect.timeout(every), Effect.ignore)
  yield* Ref.get(activity).pipe(
    Effect.flatMap(({ turns }) => turns === 0 ? Effect.void : request),
    Effect.repeat(Schedule.fixed(every))
  )
})
