import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Redacted, Ref } from "effect"
import { TestClock } from "effect/testing"
import { Fetch } from "effect/unstable/http/FetchHttpClient"
import type { Activity } from "../src/BridgeServer.ts"
import { keepAwake } from "../src/internal/keepAwake.ts"

describe("keepAwake", () => {
  it.effect("makes its request while a turn runs, whatever comes of it", () =>
    Effect.gen(function*() {
      const activity = yield* Ref.make<Activity>({ turns: 0, lastActiveAt: 0 })
      const requests: Array<readonly [url: unknown, token: string | null]> = []
      let given = 0
      // The second isn't answered, the third fails.
      const fetch = (url: unknown, init?: RequestInit) => {
        requests.push([url, new Headers(init?.headers).get("X-Token")])
        if (requests.length === 3) return Promise.reject(new Error("unreachable"))
        if (requests.length !== 2) return Promise.resolve(new Response(null, { status: 502 }))
        return new Promise<Response>((_, reject) =>
          init?.signal?.addEventListener("abort", () => {
            given++
            reject(new Error("given up"))
          })
        )
      }
      const fiber = yield* keepAwake(activity, {
        url: "https://a.example/",
        headers: { "X-Token": Redacted.make("secret") },
        every: Duration.seconds(30)
      }).pipe(Effect.provideService(Fetch, fetch as typeof globalThis.fetch), Effect.forkChild)
      // Promises settle in no time of the clock's.
      const settled = Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      const later = Effect.andThen(TestClock.adjust("30 seconds"), settled)
      const none = Effect.gen(function*() {
        yield* settled
        const before = requests.length
        yield* Effect.repeat(later, { times: 4 })
        assert.lengthOf(requests, before)
      })

      yield* none
      yield* Ref.set(activity, { turns: 1, lastActiveAt: 0 })
      while (requests.length < 5) yield* later
      assert.deepStrictEqual(
        new Set(requests.map((request) => request.join(" "))),
        new Set(["https://a.example/ secret"])
      )
      assert.strictEqual(given, 1)
      yield* Ref.set(activity, { turns: 0, lastActiveAt: 0 })
      yield* none
      yield* Fiber.interrupt(fiber)
    }))
})
