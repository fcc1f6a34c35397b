import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import type { AgentProcess } from "@gangway/server/Supervisor"
import { Deferred, Duration, Effect, Fiber } from "effect"
import { isRunning } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"
import { act, endOf, session, started, test, turn, until } from "./fixtures/sessions.ts"

const acts = { hi: Puppet.says("hello"), hang: Puppet.hangs }

// A session whose compaction goes on until the test lets it.
const compacting = Effect.gen(function*() {
  const gate = yield* Deferred.make<void>()
  let times = 0
  const compact = () =>
    Effect.suspend(() => {
      times++
      return Effect.as(Deferred.await(gate), { summary: `short ${times}` })
    })
  const puppet = Puppet.make(acts, { compact })
  const world = yield* started(puppet)
  const fiber = yield* Effect.forkChild(world.client.Compact({ session }))
  yield* until("the compaction", () => times === 1)
  return { ...world, puppet, fiber, go: Deferred.succeed(gate, undefined), times: () => times }
})

describe("a compaction", () => {
  test(
    "is one for all who ask while it goes on, and another for who asks later",
    Effect.gen(function*() {
      const { client, fiber, go, times } = yield* compacting
      const joined = yield* Effect.forkChild(client.Compact({ session }), { startImmediately: true })
      yield* Effect.sleep("30 millis")
      yield* go
      assert.deepStrictEqual(yield* Fiber.join(fiber), { summary: "short 1" })
      assert.deepStrictEqual(yield* Fiber.join(joined), { summary: "short 1" })
      assert.deepStrictEqual(yield* client.Compact({ session }), { summary: "short 2" })
      assert.strictEqual(times(), 2)
    })
  )

  test(
    "isn't begun while a turn runs, or by an agent that can't",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make(acts, { compact: undefined }))
      assert.deepInclude(yield* Effect.flip(client.Compact({ session })), {
        _tag: "Unsupported",
        capability: "compaction"
      })
      yield* client.StartTurn(act(1, "hang"))
      assert.deepInclude(yield* Effect.flip(client.Compact({ session })), { _tag: "TurnRunning", turn: turn(1) })
      assert.deepInclude(yield* Effect.flip(client.ReadState({ session })), { _tag: "TurnRunning", turn: turn(1) })
      const unknown = Bridge.SessionId.make("unknown")
      assert.strictEqual((yield* Effect.flip(client.Compact({ session: unknown })))._tag, "SessionNotFound")
    })
  )

  test(
    "is begun after a turn whose end was read, and so is the state read",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make(acts, { compact: () => Effect.succeed({}) }))
      for (let n = 1; n <= 3; n++) {
        yield* client.StartTurn(act(n, "hi"))
        yield* endOf(client, turn(n))
        yield* n % 2 === 0 ? client.Compact({ session }) : client.ReadState({ session })
      }
    })
  )

  test(
    "has the start of a turn wait, and nothing else",
    Effect.gen(function*() {
      const { client, fiber, go, puppet, start } = yield* compacting
      const starting = yield* Effect.forkChild(client.StartTurn(act(1, "hi")), { startImmediately: true })
      const reading = yield* Effect.forkChild(client.ReadState({ session }), { startImmediately: true })
      yield* Effect.sleep("50 millis")
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      const abort = client.AbortTurn({ session, turn: turn(2) })
      assert.strictEqual((yield* Effect.flip(abort))._tag, "TurnNotFound")
      for (const waiting of [starting, reading]) assert.isUndefined(waiting.pollUnsafe())
      assert.deepStrictEqual(puppet.heard, [])
      yield* go
      yield* Fiber.join(fiber)
      assert.strictEqual((yield* Fiber.join(starting)).status, "started")
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
      yield* Fiber.await(reading)
    })
  )

  test(
    "isn't waited for by an abort of a turn whose start waits for it, and goes on",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      let agent: AgentProcess | undefined
      const puppet = Puppet.make(acts, (told) => ({
        compact: () =>
          Effect.gen(function*() {
            agent = yield* told.processes.spawn({ command: "sleep", args: ["1000"], cwd: "/", env: {} })
            yield* Deferred.await(gate)
            return { summary: isRunning(agent.pid) ? "whole" : "its agent was ended" }
          })
      }))
      const { client } = yield* started(puppet)
      const fiber = yield* Effect.forkChild(client.Compact({ session }))
      yield* until("the compaction", () => agent !== undefined)
      const waits = (n: number, attempt: number) =>
        Effect.forkChild(client.StartTurn({ ...act(n, "hi"), attempt }), { startImmediately: true })
      const aborted = Effect.fnUntraced(function*(n: number, attempt?: number) {
        const [duration, { end }] = yield* Effect.timed(client.AbortTurn({ session, turn: turn(n), attempt }))
        assert.isBelow(Duration.toMillis(duration), 5_000)
        assert.deepInclude(end, { type: "aborted", reason: "host" })
        assert.deepStrictEqual(yield* endOf(client, turn(n)), end)
      })

      const first = yield* waits(1, 1)
      yield* aborted(1)
      assert.deepInclude(yield* Fiber.join(first), { attempt: 1, status: "started" })
      // An attempt that continues it, and an abort of the one before, which ends nothing.
      const second = yield* waits(1, 2)
      const other = yield* Effect.forkChild(
        Effect.flip(client.AbortTurn({ session, turn: turn(1), attempt: 1 })),
        { startImmediately: true }
      )
      yield* Effect.sleep("50 millis")
      assert.isUndefined(second.pollUnsafe())
      yield* aborted(1, 2)
      assert.deepInclude(yield* Fiber.join(second), { attempt: 2, status: "continued" })
      assert.deepInclude(yield* Fiber.join(other), { _tag: "TurnConflict", attempt: 2 })
      // What waits before such a start is replaced by its turn; what comes later still waits.
      const before = yield* waits(2, 1)
      const last = yield* waits(3, 1)
      yield* Effect.sleep("50 millis")
      const later = yield* Effect.forkChild(Effect.delay(client.StartTurn(act(4, "hi")), "100 millis"))
      yield* aborted(3)
      assert.strictEqual((yield* Fiber.join(before)).status, "started")
      assert.strictEqual((yield* Fiber.join(last)).status, "started")
      const replaced = yield* client.AbortTurn({ session, turn: turn(2) })
      assert.deepInclude(replaced.end, { type: "aborted", reason: "replaced" })
      yield* Effect.sleep("200 millis")
      assert.isUndefined(later.pollUnsafe())
      // Who asks for it again joins it.
      const joined = yield* Effect.forkChild(client.Compact({ session }), { startImmediately: true })
      yield* Effect.sleep("50 millis")
      assert.deepStrictEqual(puppet.heard, [])
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(yield* Fiber.join(fiber), { summary: "whole" })
      assert.deepStrictEqual(yield* Fiber.join(joined), { summary: "whole" })
      assert.strictEqual((yield* Fiber.join(later)).status, "started")
      assert.strictEqual((yield* endOf(client, turn(4))).type, "finished")
      assert.deepStrictEqual(puppet.heard, ["hi"])
    })
  )

  test(
    "is ended by StopSession, by DestroySession and at the bridge's end, and who asked for it is told",
    Effect.gen(function*() {
      for (const how of ["stop", "destroy"] as const) {
        const { client, fiber } = yield* compacting
        const waiting = yield* Effect.forkChild(client.StartTurn(act(1, "hi")), { startImmediately: true })
        yield* how === "stop" ? client.StopSession({ session }) : client.DestroySession({ session })
        assert.strictEqual((yield* Effect.flip(Fiber.join(fiber)))._tag, "SessionNotStarted")
        assert.match(String(yield* Effect.flip(Fiber.join(waiting))), /^SessionNot(Started|Found)/)
      }
      const { end, fiber } = yield* compacting
      yield* Effect.timeout(end, "3 seconds")
      assert.isTrue((yield* Fiber.await(fiber))._tag === "Failure")
    })
  )

  test(
    "that the driver never ends, also when it's interrupted, holds nothing up",
    Effect.gen(function*() {
      const puppet = Puppet.make(acts, { compact: () => Effect.uninterruptible(Effect.never) })
      const { client, start } = yield* started(puppet)
      const fiber = yield* Effect.forkChild(client.Compact({ session }), { startImmediately: true })
      yield* Effect.sleep("30 millis")
      yield* Effect.timeout(client.StopSession({ session }), "5 seconds")
      assert.strictEqual((yield* Effect.flip(Fiber.join(fiber)))._tag, "SessionNotStarted")
      yield* client.StartSession(start)
      yield* client.StartTurn(act(1, "hi"))
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
    })
  )
})
