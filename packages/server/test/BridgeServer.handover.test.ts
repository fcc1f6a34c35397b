import { assert, describe } from "@effect/vitest"
import type { SessionOptions, Turn } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import { Deferred, Duration, Effect, Exit, Fiber, FileSystem } from "effect"
import { eventually, isRunning } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"
import { act, connect, hello, listening, listens, serve, start } from "./fixtures/served.ts"
import { directories, test } from "./fixtures/sessions.ts"

const acts = { hang: Puppet.saysAndHangs("one"), hi: Puppet.says("hello"), nudge: Puppet.says("two") }

// An older bridge with a turn that runs in s1, and with s2 idle; and the newer one that has just come.
const twoBridges = Effect.fnUntraced(function*(older = Puppet.make(acts), newer = Puppet.make(acts)) {
  const { directory, stateDirectory } = yield* directories
  const first = yield* serve(older, { stateDirectory, launch: "launch-0001" })
  yield* listening(stateDirectory)
  const host = yield* connect(first.port)
  yield* host.call("StartSession", start(directory))
  yield* host.call("StartSession", start(directory, "s2"))
  yield* host.call("StartTurn", act("hang"))
  const second = yield* serve(newer, { stateDirectory, launch: "launch-0002" })
  yield* listens(stateDirectory, "launch-0002")
  return { directory, stateDirectory, first, host, second, other: yield* connect(second.port) }
})

const key = { session: "s1", turn: "t1" }

describe("a bridge that was replaced", () => {
  test(
    "runs its turns to their end for its hosts, begins nothing, and exits after the last",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      const older = Puppet.make({
        hang: (turn) =>
          Effect.gen(function*() {
            yield* turn.callHostTool({ id: "c1", name: "x", params: {} })
            yield* Deferred.await(gate)
            yield* Puppet.say(turn, "done")
            return { finishReason: "stop" }
          })
      })
      const { directory, first, host, stateDirectory } = yield* twoBridges(older)
      for (
        const refused of [host.call("StartTurn", act("hang", "t2")), host.call("StartSession", start(directory, "s3"))]
      ) {
        assert.deepInclude(yield* refused, { _tag: "Replaced" })
      }
      // Also the repeat of what runs.
      assert.deepInclude(yield* host.call("StartTurn", act("hang")), { _tag: "Replaced" })
      // It takes answers, and is read.
      const answer = { ...key, toolCallId: "c1", result: 1, isFailure: false }
      assert.deepStrictEqual(yield* host.call("SubmitToolResult", answer), { accepted: true })
      assert.isUndefined(first.fiber.pollUnsafe())
      yield* Deferred.succeed(gate, undefined)
      const { end, numbers } = yield* host.read({ ...key, from: 1 })
      assert.deepStrictEqual(numbers, [1, 2, 3, 4, 5, 6])
      assert.deepInclude(end?.end, { type: "finished" })
      const [duration, exit] = yield* Effect.timed(Fiber.await(first.fiber))
      assert.isTrue(Exit.isSuccess(exit))
      assert.isBelow(Duration.toMillis(duration), 2000)
      assert.deepInclude(yield* host.closed, { code: 1001 })
      assert.strictEqual((yield* listening(stateDirectory)).launch, "launch-0002")
    })
  )

  test(
    "frees its sessions without a running turn within a second, and asks nobody for any",
    Effect.gen(function*() {
      const { directory, host, other, stateDirectory } = yield* twoBridges()
      const fs = yield* FileSystem.FileSystem
      // Nobody asks for it: it's free by itself.
      const directoryOf = `${stateDirectory}/sessions/s2`
      const isFree = Effect.gen(function*() {
        const lock = (yield* fs.readDirectory(directoryOf)).find((name) => /^lock-\d+$/.test(name))!
        return !(yield* fs.readFileString(`${directoryOf}/${lock}`)).includes("launch-0001")
      })
      yield* eventually("the end of its hold", isFree, 1.5)
      assert.deepStrictEqual(yield* other.call("StartSession", start(directory, "s2")), { resumed: true })
      yield* other.call("StartTurn", act("hang", "t1", "s2"))
      // The older one gets none of it back.
      for (
        const [tag, payload] of [
          ["StopSession", { session: "s2" }],
          ["DestroySession", { session: "s2" }],
          ["AbortTurn", { session: "s2", turn: "t1" }],
          ["ReadState", { session: "s2" }]
        ] as const
      ) {
        const busy = yield* host.call(tag, payload)
        assert.deepInclude(busy, { _tag: "SessionBusy", launch: "launch-0002" }, tag)
      }
      assert.isFalse(yield* fs.exists(`${stateDirectory}/sessions/s2/request.json`))
      assert.deepInclude(yield* other.call("StartTurn", act("hang", "t1", "s2")), { status: "running" })
      assert.deepInclude(yield* host.call("StartTurn", act("hang", "t1", "s2")), { _tag: "Replaced" })
    })
  )
})

describe("a bridge that was replaced, unasked,", () => {
  test(
    "frees a session whose driver hangs as it opens it at once, and one that it compacts after that",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const fs = yield* FileSystem.FileSystem
      const gate = yield* Deferred.make<void>()
      let compacting = false
      const compact = () =>
        Effect.suspend(() => {
          compacting = true
          return Effect.as(Deferred.await(gate), {})
        })
      const older = Puppet.make(acts, { compact })
      const { open } = older.driver
      let opening = false
      const driver: Puppet.Puppet["driver"] = {
        ...older.driver,
        open: (told) =>
          Effect.suspend(() => {
            if (told.session !== "s3") return open(told)
            opening = true
            return Effect.never
          })
      }
      const first = yield* serve({ ...older, driver }, { stateDirectory, launch: "launch-0001" })
      yield* listening(stateDirectory)
      const host = yield* connect(first.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartTurn", act("hang"))
      yield* host.call("StartSession", start(directory, "s2"))
      host.request("Compact", { session: "s2" })
      yield* eventually("the compaction", Effect.sync(() => compacting))
      const starter = yield* connect(first.port)
      const starting = yield* Effect.forkChild(starter.call("StartSession", start(directory, "s3")))
      yield* eventually("the opening", Effect.sync(() => opening))
      yield* serve(Puppet.make(acts), { stateDirectory, launch: "launch-0002" })
      yield* listens(stateDirectory, "launch-0002")
      assert.deepInclude(yield* Effect.timeout(Fiber.join(starting), "5 seconds"), { _tag: "Replaced" })
      assert.isFalse(yield* fs.exists(`${stateDirectory}/sessions/s3`))
      const isHeld = Effect.gen(function*() {
        const path = `${stateDirectory}/sessions/s2`
        const lock = (yield* fs.readDirectory(path)).find((name) => /^lock-\d+$/.test(name))!
        return (yield* fs.readFileString(`${path}/${lock}`)).includes("launch-0001")
      })
      assert.isTrue(yield* isHeld)
      yield* Deferred.succeed(gate, undefined)
      yield* eventually("the end of its hold", Effect.map(isHeld, (held) => !held), 5)
      // The turn of another session goes on all the while.
      assert.isUndefined(first.fiber.pollUnsafe())
    })
  )
})

describe("a newer bridge", () => {
  test(
    "lists an older one's turn as running, reads it as it goes on, and says where its answers belong",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      const older = Puppet.make({
        hang: (turn) =>
          Effect.gen(function*() {
            yield* Puppet.say(turn, "before")
            yield* Deferred.await(gate)
            yield* Puppet.say(turn, "after")
            return { finishReason: "stop" }
          })
      })
      const { first, other } = yield* twoBridges(older)
      const { sessions } = yield* other.call("Hello", hello)
      assert.deepInclude(sessions[0], { session: "s1", latest: { turn: "t1", attempt: 1, state: "running" } })
      const busy = { _tag: "SessionBusy", port: first.port, launch: "launch-0001" }
      for (
        const [tag, payload] of [
          ["Approve", { ...key, approvalId: "a", decision: "allow" }],
          ["SubmitToolResult", { ...key, toolCallId: "c", result: 1, isFailure: false }],
          ["SendMessage", { ...key, messageId: "m", prompt: [{ type: "text", text: "more" }] }],
          ["ReadState", { session: "s1" }]
        ] as const
      ) {
        assert.deepInclude(yield* other.call(tag, payload), busy, tag)
      }
      assert.deepInclude(yield* other.call("StartTurn", act("hi", "t2")), { _tag: "SessionNotStarted" })
      const { end, numbers } = yield* other.read({ ...key, from: 1 }, () => Deferred.doneUnsafe(gate, Effect.void))
      assert.deepStrictEqual(numbers, [1, 2, 3, 4, 5, 6, 7, 8])
      assert.deepInclude(end?.end, { type: "finished" })
    })
  )

  for (
    const [tag, payload, reason] of [
      ["StartSession", {}, "bridge-replaced"],
      ["AbortTurn", { turn: "t1" }, "host"],
      ["StopSession", {}, "stopped"],
      ["DestroySession", {}, "destroyed"]
    ] as const
  ) {
    test(
      `gets a session by ${tag}: its turn ends there as '${reason}', and the older bridge exits`,
      Effect.gen(function*() {
        const { directory, first, host, other } = yield* twoBridges()
        const reading = yield* Effect.forkChild(host.read({ ...key, from: 1 }))
        const outcome = yield* other.call(
          tag,
          tag === "StartSession" ? start(directory) : { session: "s1", ...payload }
        )
        assert.isUndefined(outcome._tag)
        const { end, numbers } = yield* Fiber.join(reading)
        assert.deepStrictEqual(numbers, [1, 2, 3, 4])
        assert.deepInclude(end?.end, { type: "aborted", reason })
        assert.isTrue(Exit.isSuccess(yield* Fiber.await(first.fiber)))
        if (tag === "AbortTurn") assert.deepInclude(outcome, { end: end?.end })
        if (tag === "StartSession") {
          const continued = yield* other.call("StartTurn", { ...key, attempt: 2 })
          assert.deepInclude(continued, { attempt: 2, from: 5, status: "continued" })
        }
        const { sessions } = yield* other.call("Hello", hello)
        assert.strictEqual(sessions.length, tag === "DestroySession" ? 1 : 2)
      })
    )
  }

  test(
    "reads a turn on while it waits for the session",
    Effect.gen(function*() {
      // Its agent talks on for as long as it may.
      const talks = (turn: Turn) => Effect.forever(Effect.delay(Puppet.say(turn, "more"), "50 millis"))
      const older = Puppet.make({ hang: talks }, { interrupt: Effect.void })
      const { directory, other, second } = yield* twoBridges(older)
      const reader = yield* connect(second.port)
      const starting = yield* Effect.forkChild(other.call("StartSession", start(directory)), { startImmediately: true })
      yield* Effect.sleep("300 millis")
      const waited: Array<boolean> = []
      const { end, numbers } = yield* reader.read({ ...key, from: 1 }, () => {
        waited.push(starting.pollUnsafe() === undefined)
      })
      assert.isTrue(waited[0])
      assert.deepInclude(end?.end, { type: "aborted", reason: "bridge-replaced" })
      assert.deepStrictEqual(numbers, numbers.map((_, i) => i + 1))
      assert.deepStrictEqual(yield* Fiber.join(starting), { resumed: true })
    })
  )

  test(
    "gets a session whose turn's start waits for its agent",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const older = Puppet.make(acts)
      const { open } = older.driver
      const driver: Puppet.Puppet["driver"] = {
        ...older.driver,
        open: (options) => older.opened.length > 0 ? Effect.never : open(options)
      }
      const first = yield* serve({ ...older, driver }, { stateDirectory, launch: "launch-0001" })
      yield* listening(stateDirectory)
      const host = yield* connect(first.port)
      yield* host.call("StartSession", start(directory))
      yield* host.call("StartTurn", act("hang"))
      yield* host.call("StartSession", { ...start(directory), settings: "user" })
      const starting = yield* Effect.forkChild(host.call("StartTurn", act("hang", "t2")))
      const reader = yield* connect(first.port)
      assert.deepInclude((yield* reader.read({ ...key, from: 1 })).end?.end, { type: "aborted", reason: "replaced" })

      const second = yield* serve(Puppet.make(acts), { stateDirectory, launch: "launch-0002" })
      yield* listens(stateDirectory, "launch-0002")
      const other = yield* connect(second.port)
      const [duration, outcome] = yield* Effect.timed(other.call("StartSession", start(directory)))
      assert.deepStrictEqual(outcome, { resumed: true })
      assert.isBelow(Duration.toMillis(duration), 6000)
      assert.deepInclude(yield* Fiber.join(starting), { attempt: 1, status: "started" })
      const { end } = yield* other.read({ session: "s1", turn: "t2", from: 1 })
      assert.deepInclude(end?.end, { type: "aborted", reason: "bridge-replaced" })
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(first.fiber)))
    })
  )

  test(
    "gets a session from a driver that hangs, whatever it was called for",
    Effect.forEach(
      [
        ["the first start of a session", "StartSession", { _tag: "Replaced" }],
        ["another start of it", "StartSession", { _tag: "Replaced" }],
        ["the opening before a compaction", "Compact", { _tag: "SessionBusy", launch: "launch-0002" }],
        ["the reading of its state", "ReadState", { _tag: "SessionBusy", launch: "launch-0002" }],
        ["the end of its session", "StopSession", { ended: [], left: [] }],
        ["the deletion of its conversation", "DestroySession", { _tag: "SessionBusy", launch: "launch-0002" }]
      ] as const,
      Effect.fnUntraced(function*([what, tag, answer]) {
        const { directory, stateDirectory } = yield* directories
        let isStuck = false
        let agent: AgentProcess | undefined
        const stuck = (told: SessionOptions) =>
          Effect.gen(function*() {
            agent = yield* told.processes.spawn({ command: "sleep", args: ["1000"], cwd: "/", env: {} })
            return yield* Effect.never
          })
        const older = Puppet.make(acts, { compact: () => Effect.succeed({}) })
        const { open } = older.driver
        const driver: Puppet.Puppet["driver"] = {
          ...older.driver,
          open: (told) => isStuck ? stuck(told) : open(told),
          forget: () => Effect.never
        }
        const first = yield* serve({ ...older, driver }, { stateDirectory, launch: "launch-0001" })
        yield* listening(stateDirectory)
        const host = yield* connect(first.port)
        // It stays as long as this runs, and so does the connection.
        yield* host.call("StartSession", start(directory, "s2"))
        yield* host.call("StartTurn", act("hang", "t1", "s2"))
        if (what === "the first start of a session") isStuck = true
        else {
          yield* host.call("StartSession", start(directory))
          yield* host.call("StartTurn", act("hang"))
          // What was set anew makes the driver open the conversation again, once no turn runs.
          yield* host.call("StartSession", { ...start(directory), settings: "user" })
          yield* host.call("AbortTurn", key)
          isStuck = true
        }
        const payload = tag === "StartSession" ? { ...start(directory), settings: "user" } : { session: "s1" }
        const waiting = yield* Effect.forkChild(host.call(tag, payload), { startImmediately: true })
        if (tag !== "DestroySession") yield* eventually("its wait", Effect.sync(() => agent !== undefined))

        const second = yield* serve(Puppet.make(acts), { stateDirectory, launch: "launch-0002" })
        yield* listens(stateDirectory, "launch-0002")
        const other = yield* connect(second.port)
        const [duration, outcome] = yield* Effect.timed(other.call("StartSession", start(directory)))
        assert.isBelow(Duration.toMillis(duration), 9000, what)
        assert.isUndefined(outcome._tag, what)
        assert.deepInclude(yield* Fiber.join(waiting), answer, what)
        if (agent !== undefined) assert.isFalse(isRunning(agent.pid), what)
        yield* other.call("StartTurn", act("hi", "t2"))
        assert.deepInclude((yield* other.read({ ...key, turn: "t2", from: 1 })).end?.end, { type: "finished" })
        yield* host.call("AbortTurn", { session: "s2", turn: "t1" })
        assert.isTrue(Exit.isSuccess(yield* Fiber.await(first.fiber)), what)
      }, Effect.scoped),
      { concurrency: "unbounded", discard: true }
    )
  )

  test(
    "takes nothing from an older one for a command that can't be",
    Effect.gen(function*() {
      const { directory, first, other } = yield* twoBridges()
      const conflict = yield* other.call("StartSession", { ...start(directory), permissions: "all" })
      assert.deepInclude(conflict, { _tag: "SessionConflict", field: "permissions" })
      assert.deepInclude(yield* other.call("AbortTurn", { session: "s1", turn: "t0" }), { _tag: "TurnNotFound" })
      assert.deepInclude(yield* other.call("AbortTurn", { ...key, attempt: 2 }), {
        _tag: "TurnConflict",
        attempt: 1,
        state: "running"
      })
      yield* Effect.sleep("1200 millis")
      assert.isUndefined(first.fiber.pollUnsafe())
      const { sessions } = yield* other.call("Hello", hello)
      assert.deepInclude(sessions[0].latest, { state: "running" })
    })
  )

  test(
    "is replaced in its turn, and the turn goes with the session",
    Effect.gen(function*() {
      const { directory, first, other, second, stateDirectory } = yield* twoBridges()
      yield* other.call("StartSession", start(directory))
      yield* Fiber.await(first.fiber)
      yield* other.call("StartTurn", act("hang", "t2"))
      const third = yield* serve(Puppet.make(acts), { stateDirectory, launch: "launch-0003" })
      yield* listens(stateDirectory, "launch-0003")
      const host = yield* connect(third.port)
      assert.deepStrictEqual(yield* host.call("StartSession", start(directory)), { resumed: true })
      assert.deepInclude((yield* host.call("AbortTurn", { session: "s1", turn: "t2" })).end, {
        reason: "bridge-replaced"
      })
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(second.fiber)))
    })
  )
})
