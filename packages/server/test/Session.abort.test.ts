import { assert, describe } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Schedule } from "effect"
import * as Puppet from "./fixtures/puppet.ts"
import { act, endOf, firstPart, read, session, started, test, turn, until } from "./fixtures/sessions.ts"

const aborts = (n: number) => ({ session, turn: turn(n) })

describe("an abort", () => {
  test(
    "ends the turn in whatever it's doing, and says the same when it's repeated",
    Effect.gen(function*() {
      const request = { approvalId: "a", toolCallId: "c", name: "Bash", params: {}, edits: false }
      const acts = {
        silent: Puppet.hangs,
        talking: Puppet.saysAndHangs("one"),
        calling: (turn) => Effect.as(turn.callHostTool({ id: "c", name: "x", params: {} }), { finishReason: "stop" }),
        asking: (turn) => Effect.as(turn.requestApproval(request), { finishReason: "stop" }),
        wondering: (turn) => Effect.as(turn.ask({ questionId: "q", questions: [] }), { finishReason: "stop" })
      } satisfies Record<string, Puppet.Act>
      const puppet = Puppet.make(acts)
      const { client } = yield* started(puppet)
      for (
        const [i, [name, awaited]] of [
          ["silent", undefined],
          ["talking", "step-finished"],
          ["calling", "tool-call"],
          ["asking", "tool-approval-request"],
          ["wondering", "question"]
        ].entries()
      ) {
        const id = turn(i)
        yield* client.StartTurn(act(i, name!))
        if (awaited !== undefined) yield* firstPart(client, id, awaited)
        const first = yield* client.AbortTurn({ session, turn: id, reason: "enough" })
        assert.deepInclude(first.end, { type: "aborted", reason: "host", message: "enough" })
        assert.deepStrictEqual(yield* endOf(client, id), first.end)
        const again = yield* client.AbortTurn({ session, turn: id, reason: "more than enough" })
        assert.deepStrictEqual(again, { end: first.end, ended: [], left: [] })
      }
    })
  )

  test(
    "is for the attempt that it names, and of a turn that there is",
    Effect.gen(function*() {
      const { client } = yield* started(
        Puppet.make({ hang: Puppet.hangs, nudge: Puppet.hangs, hi: Puppet.says("hello") })
      )
      assert.deepInclude(yield* Effect.flip(client.AbortTurn(aborts(1))), { _tag: "TurnNotFound" })
      yield* client.StartTurn(act(1, "hang"))
      const early = yield* Effect.flip(client.AbortTurn({ ...aborts(1), attempt: 2 }))
      assert.deepInclude(early, { _tag: "TurnConflict", field: "attempt", attempt: 1, state: "running" })
      yield* client.AbortTurn({ ...aborts(1), attempt: 1 })
      yield* client.StartTurn({ ...aborts(1), attempt: 2 })
      const late = yield* Effect.flip(client.AbortTurn({ ...aborts(1), attempt: 1 }))
      assert.deepInclude(late, { _tag: "TurnConflict", attempt: 2, state: "running" })
      // Of an earlier turn it says how that ended, and ends nothing.
      yield* client.StartTurn(act(2, "hang"))
      const earlier = yield* client.AbortTurn(aborts(1))
      assert.deepInclude(earlier.end, { type: "aborted", reason: "replaced" })
      assert.strictEqual((yield* client.StartTurn({ ...aborts(2) })).status, "running")
      const unknown = yield* Effect.flip(client.AbortTurn(aborts(3)))
      assert.deepInclude(unknown, { _tag: "TurnNotFound", latest: turn(2) })
    })
  )

  test(
    "of a turn that was finished changes nothing",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ hi: Puppet.says("hello") }))
      yield* client.StartTurn(act(1, "hi"))
      const end = yield* endOf(client, turn(1))
      assert.deepStrictEqual(yield* client.AbortTurn(aborts(1)), { end, ended: [], left: [] })
    })
  )

  // The queue is held up by a StartSession whose driver takes its time.
  const slowToOpen = Effect.gen(function*() {
    const gate = yield* Deferred.make<void>()
    let opening = 0
    const puppet = Puppet.make({ hang: Puppet.hangs, nudge: Puppet.hangs, hi: Puppet.says("hello") })
    const { open } = puppet.driver
    const driver: Puppet.Puppet["driver"] = {
      ...puppet.driver,
      open: (options) =>
        Effect.suspend(() => {
          opening++
          return opening === 1 ? open(options) : Effect.andThen(Deferred.await(gate), open(options))
        })
    }
    return { puppet: { ...puppet, driver }, go: Deferred.succeed(gate, undefined), opening: () => opening }
  })

  test(
    "overtakes all that waits, but the start of its own turn",
    Effect.gen(function*() {
      const { go, opening, puppet } = yield* slowToOpen
      const { client, start } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hang"))
      yield* client.AbortTurn(aborts(1))
      const order: Array<string> = []
      const fork = <A, E>(name: string, command: Effect.Effect<A, E>) =>
        Effect.forkChild(Effect.ensuring(command, Effect.sync(() => order.push(name))), { startImmediately: true })
      // What was set anew makes the driver open the conversation again, which takes as long as the test wants.
      const fibers: Array<Fiber.Fiber<unknown, unknown>> = [
        yield* fork("start session", client.StartSession({ ...start, settings: "user" }))
      ]
      yield* until("the second opening", () => opening() === 2)
      fibers.push(
        yield* fork("compact", Effect.ignore(client.Compact({ session }))),
        yield* fork("start 2", client.StartTurn(act(2, "hang"))),
        yield* fork("read state", Effect.ignore(client.ReadState({ session }))),
        yield* fork("abort 2", client.AbortTurn(aborts(2))),
        yield* fork("abort 1", client.AbortTurn(aborts(1)))
      )
      yield* Effect.sleep("50 millis")
      yield* go
      yield* Fiber.joinAll(fibers)
      assert.deepStrictEqual(order.slice(0, 2), ["start session", "abort 1"])
      assert.isBelow(order.indexOf("start 2"), order.indexOf("abort 2"))
      assert.deepInclude(yield* endOf(client, turn(2)), { type: "aborted", reason: "host" })
      // The repeat of a start that came late revives nothing.
      assert.strictEqual((yield* client.StartTurn({ ...act(2, "hang"), attempt: 1 })).status, "ended")
    })
  )

  test(
    "waits for the start of its turn that waits for another command, and ends it",
    Effect.gen(function*() {
      const { go, opening, puppet } = yield* slowToOpen
      const { client, start } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hi"))
      yield* read(client, turn(1))
      yield* client.StopSession({ session })
      assert.strictEqual(opening(), 1)
      const restarting = yield* Effect.forkChild(client.StartSession(start))
      yield* until("the opening", () => opening() === 2)
      const starting = yield* Effect.forkChild(client.StartTurn(act(2, "hang")), { startImmediately: true })
      const aborting = yield* Effect.forkChild(client.AbortTurn(aborts(2)), { startImmediately: true })
      yield* Effect.sleep("50 millis")
      yield* go
      yield* Fiber.join(restarting)
      assert.strictEqual((yield* Fiber.join(starting)).status, "started")
      assert.deepInclude((yield* Fiber.join(aborting)).end, { type: "aborted", reason: "host" })
    })
  )

  test(
    "doesn't wait for an agent that its turn's start waits for",
    Effect.gen(function*() {
      let hangsAt: "opening" | "comparing" | undefined
      let comparing = 0
      const puppet = Puppet.make({ hang: Puppet.hangs, hi: Puppet.says("hello") }, {
        reconcile: () => {
          comparing++
          return hangsAt === "comparing" ? Effect.never : Effect.succeed({ keep: 0, recovered: [], prompted: false })
        }
      })
      const { open } = puppet.driver
      let opening = 0
      const driver: Puppet.Puppet["driver"] = {
        ...puppet.driver,
        open: (options) =>
          Effect.suspend(() => {
            opening++
            return hangsAt === "opening" ? Effect.never : open(options)
          })
      }
      const { client, start } = yield* started({ ...puppet, driver })
      const abortedSoon = Effect.fnUntraced(function*(abort: Parameters<typeof client.AbortTurn>[0]) {
        const [duration, { end }] = yield* Effect.timed(client.AbortTurn(abort))
        assert.isBelow(Duration.toMillis(duration), 5_000)
        assert.deepInclude(end, { type: "aborted", reason: "host", message: "enough" })
        assert.deepStrictEqual(yield* endOf(client, turn(2)), end)
      })

      // The conversation is opened anew by the next turn, since one runs.
      yield* client.StartTurn(act(1, "hang"))
      yield* client.StartSession({ ...start, settings: "user" })
      hangsAt = "opening"
      const starting = yield* Effect.forkChild(client.StartTurn(act(2, "hi")))
      yield* until("the opening", () => opening === 2)
      yield* abortedSoon({ ...aborts(2), reason: "enough" })
      assert.deepStrictEqual(yield* Fiber.join(starting), { attempt: 1, from: 1, next: 1, status: "started" })
      // Nothing revives it but the next attempt.
      assert.strictEqual((yield* client.StartTurn({ ...act(2, "hi"), attempt: 1 })).status, "ended")

      // The same for an attempt that continues it, whatever it waits for.
      for (const [attempt, waits] of [[2, "opening"], [3, "comparing"]] as const) {
        hangsAt = waits
        const continuing = yield* Effect.forkChild(client.StartTurn({ ...act(2, "hi"), attempt }))
        yield* until(waits, () => waits === "opening" ? opening === 3 : comparing === 1)
        const other = yield* Effect.forkChild(Effect.flip(client.AbortTurn({ ...aborts(2), attempt: attempt - 1 })))
        yield* abortedSoon({ ...aborts(2), attempt, reason: "enough" })
        assert.deepInclude(yield* Fiber.join(continuing), { attempt, status: "continued" })
        assert.deepInclude(yield* Fiber.join(other), { _tag: "TurnConflict", attempt })
      }
      hangsAt = undefined
      assert.strictEqual((yield* client.StartTurn({ ...act(2, "hi"), attempt: 4 })).status, "continued")
      const { end, parts } = yield* read(client, turn(2))
      assert.strictEqual(end.end.type, "finished")
      assert.deepStrictEqual(puppet.heard, ["hang", "hi"])
      assert.deepStrictEqual(parts.slice(0, 2).map(({ part }) => part), [
        { type: "turn-continued", attempt: 2, keep: 0 },
        { type: "turn-continued", attempt: 3, keep: 1 }
      ])
    })
  )

  test(
    "by the end of its session doesn't wait for that agent either",
    Effect.gen(function*() {
      for (const what of ["stopped", "destroyed"] as const) {
        const puppet = Puppet.make({ hang: Puppet.hangs })
        const { open } = puppet.driver
        const driver: Puppet.Puppet["driver"] = {
          ...puppet.driver,
          // Its state would be read from the conversation, once that's open.
          capabilities: { ...puppet.driver.capabilities, state: false },
          open: (options) => puppet.opened.length > 0 ? Effect.never : open(options)
        }
        const { client, start } = yield* started({ ...puppet, driver })
        yield* client.StartTurn(act(1, "hang"))
        yield* client.StartSession({ ...start, settings: "user" })
        const starting = yield* Effect.forkChild(client.StartTurn(act(2, "hang")))
        // Whoever reads it sees the start get to where it waits.
        assert.deepInclude(yield* endOf(client, turn(1)), { type: "aborted", reason: "replaced" })
        const ending = what === "stopped" ? client.StopSession({ session }) : client.DestroySession({ session })
        const reading = yield* Effect.forkChild(
          Effect.retry(endOf(client, turn(2)), { schedule: Schedule.spaced("1 millis"), times: 5_000 })
        )
        const [duration] = yield* Effect.timed(ending)
        assert.isBelow(Duration.toMillis(duration), 5_000)
        assert.deepInclude(yield* Fiber.join(starting), { attempt: 1, status: "started" })
        if (what === "stopped") assert.deepInclude(yield* Fiber.join(reading), { type: "aborted", reason: what })
        assert.deepStrictEqual(puppet.heard, ["hang"])
      }
    })
  )
})

describe("an abort of a driver that", () => {
  const words = (turn: { readonly emit: (part: never) => Effect.Effect<void> }) =>
    turn.emit({ type: "text-delta", id: "t", delta: "late" } as never)

  test(
    "hangs when it's asked to stop takes 2 s, and 1 more where it can't be interrupted either",
    Effect.gen(function*() {
      const deaf = Effect.uninterruptible(Effect.never)
      const puppet = Puppet.make({ hi: Puppet.says("hello") }, (_) => ({ run: () => deaf, interrupt: deaf }))
      const { client, end } = yield* started(puppet)
      yield* client.StartTurn(act(1, "any"))
      const [duration, aborted] = yield* Effect.timed(client.AbortTurn(aborts(1)))
      assert.deepInclude(aborted.end, { type: "aborted", reason: "host" })
      assert.isAtLeast(Duration.toMillis(duration), 2900)
      assert.isBelow(Duration.toMillis(duration), 5000)
      // The session goes on, and the bridge's end waits no longer.
      yield* client.StartTurn(act(2, "any"))
      const [ending] = yield* Effect.timed(end)
      assert.isBelow(Duration.toMillis(ending), 6000)
    })
  )

  test(
    "breaks when it's asked to stop is no other",
    Effect.gen(function*() {
      const { client } = yield* started(
        Puppet.make({}, { run: () => Effect.never, interrupt: Effect.die(new Error("broken")) })
      )
      yield* client.StartTurn(act(1, "any"))
      assert.deepInclude((yield* client.AbortTurn(aborts(1))).end, { type: "aborted", reason: "host" })
    })
  )

  test(
    "goes on after its end has nothing of it in the next attempt",
    Effect.gen(function*() {
      const puppet = Puppet.make({}, {
        run: (turn) =>
          turn.attempt > 1
            ? Effect.never
            : Effect.uninterruptible(Effect.forever(Effect.andThen(words(turn), Effect.sleep(1)))),
        interrupt: Effect.void
      })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "any"))
      yield* firstPart(client, turn(1), "text-delta")
      const { end } = yield* client.AbortTurn(aborts(1))
      assert.deepInclude(end, { type: "aborted", reason: "host" })
      const { from } = yield* client.StartTurn({ ...aborts(1), attempt: 2 })
      yield* Effect.sleep("50 millis")
      yield* client.AbortTurn(aborts(1))
      const { parts } = yield* read(client, turn(1), from)
      assert.deepStrictEqual(parts.map(({ part }) => part.type), ["turn-continued"])
    })
  )
})
