import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import { Deferred, Effect, Fiber, FileSystem, Option, Schedule, Stream } from "effect"
import { TestClock } from "effect/testing"
import { eventually } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  connect,
  directories,
  endOf,
  firstPart,
  host,
  launch,
  read,
  session,
  started,
  test,
  testClocked,
  turn
} from "./fixtures/sessions.ts"

const acts = { hi: Puppet.says("hello"), hang: Puppet.saysAndHangs("one"), nudge: Puppet.says("two") }
const id = (name: string) => Bridge.SessionId.make(name)

describe("after a restart", () => {
  test(
    "Hello lists the sessions, with the latest turn of each, its attempt and how it stands",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const first = yield* launch(Puppet.make(acts).driver, stateDirectory)
      const start = (name: string) => ({ session: id(name), directory, permissions: "ask", settings: "none" }) as const
      for (const name of ["empty", "finished", "cut", "continued"]) yield* first.client.StartSession(start(name))
      const run = (name: string, what: string) => first.client.StartTurn({ ...act(1, what), session: id(name) })
      yield* run("finished", "hi")
      yield* run("cut", "hang")
      yield* run("continued", "hang")
      yield* first.client.AbortTurn({ session: id("continued"), turn: turn(1) })
      yield* first.client.StartTurn({ session: id("continued"), turn: turn(1), attempt: 2 })
      const listed = yield* first.client.Hello(host)
      assert.deepStrictEqual(listed.sessions.map(({ dormant, session }) => [session, dormant]), [
        ["continued", false],
        ["cut", false],
        ["empty", false],
        ["finished", false]
      ] as never)
      yield* first.end
      const { client } = yield* launch(Puppet.make(acts).driver, stateDirectory)
      const { sessions } = yield* client.Hello(host)
      assert.deepStrictEqual(
        sessions.map(({ dormant, latest, session }) => [session, dormant, latest?.attempt, latest?.state]),
        [
          ["continued", true, 2, "finished"],
          ["cut", true, 1, "aborted"],
          ["empty", true, undefined, undefined],
          ["finished", true, 1, "finished"]
        ] as never
      )
      for (const { directory: listed } of sessions) assert.strictEqual(listed, directory)
    })
  )

  test(
    "Hello tells how far a running turn is, and what it waits for until that's answered",
    Effect.gen(function*() {
      const asks: Puppet.Act = (turn) =>
        Effect.as(
          Effect.all([
            turn.requestApproval({
              approvalId: "a1",
              toolCallId: "c0",
              name: "B".repeat(300),
              params: {},
              edits: false
            }),
            turn.ask({ questionId: "q1", questions: [{ question: "Which?", options: [] }] }),
            turn.callHostTool({ id: "c1", name: "weather", params: {} })
          ], { concurrency: "unbounded" }),
          { finishReason: "stop" }
        )
      const { client } = yield* started(Puppet.make({ asks }))
      yield* client.StartTurn(act(1, "asks"))
      const latest = Effect.map(client.Hello(host), ({ sessions }) => sessions[0]!.latest!)
      yield* eventually("all three wait", Effect.map(latest, ({ waiting }) => waiting?.length === 3))
      const before = yield* latest
      assert.deepStrictEqual(before.waiting, [
        { type: "approval", id: "a1", name: "B".repeat(200) },
        { type: "question", id: "q1" },
        { type: "tool", id: "c1", name: "weather" }
      ])
      assert.strictEqual(before.next, 4)
      yield* client.Approve({ session: id("s1"), turn: turn(1), approvalId: "a1", decision: "deny" })
      const after = yield* latest
      assert.deepStrictEqual(after.waiting?.map((one) => one.id), ["q1", "c1"])
      assert.strictEqual(after.next, 5)
      yield* client.AbortTurn({ session: id("s1"), turn: turn(1) })
      assert.deepStrictEqual(Object.keys(yield* latest), ["turn", "attempt", "state"])
    })
  )

  test(
    "Hello lists no more than 1,000 sessions",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.end
      const fs = yield* FileSystem.FileSystem
      const file = yield* fs.readFileString(`${first.sessionDirectory}/session.json`)
      for (let i = 0; i < 1_004; i++) {
        const directory = `${first.stateDirectory}/sessions/s${1000 + i}`
        yield* fs.makeDirectory(directory)
        yield* fs.writeFileString(`${directory}/session.json`, file.replace("\"s1\"", `"s${1000 + i}"`))
      }
      const { client } = yield* launch(Puppet.make(acts).driver, first.stateDirectory)
      assert.strictEqual((yield* client.Hello(host)).sessions.length, 1_000)
    })
  )

  test(
    "Hello is answered to many hosts at once by few looks at the sessions, and each is told what was there when it asked",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.end
      const fs = yield* FileSystem.FileSystem
      let reads = 0
      const counting: FileSystem.FileSystem = {
        ...fs,
        readFileString: (path, ...rest) => {
          if (path.endsWith("/session.json")) reads++
          return fs.readFileString(path, ...rest)
        }
      }
      const { client } = yield* Effect.provideService(
        launch(Puppet.make(acts).driver, first.stateDirectory),
        FileSystem.FileSystem,
        counting
      )
      yield* client.Hello(host)
      const once = reads
      reads = 0
      const hellos = yield* Effect.forEach(Array.from({ length: 50 }), () => Effect.forkScoped(client.Hello(host)))
      yield* client.StartSession({ ...first.start, session: id("s2") })
      const after = yield* client.Hello(host)
      assert.deepStrictEqual(after.sessions.map(({ session }) => session), ["s1", "s2"] as never)
      for (const hello of hellos) {
        assert.strictEqual((yield* Fiber.join(hello)).sessions[0]?.session as string | undefined, "s1")
      }
      assert.isAbove(once, 0)
      assert.isBelow(reads, 10 * once)
    })
  )

  test(
    "a session is dormant: it's read, aborted, stopped and destroyed, and runs nothing until it's started",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.client.StartTurn(act(1, "hang"))
      yield* firstPart(first.client, turn(1), "step-finished")
      yield* first.end
      const puppet = Puppet.make(acts)
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      for (
        const command of [
          client.StartTurn(act(2, "hi")),
          client.StartTurn(act(1, "hang")),
          client.Compact({ session })
        ] as ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>>
      ) assert.strictEqual((yield* Effect.flip(command))._tag, "SessionNotStarted")
      const { end, parts } = yield* read(client, turn(1))
      assert.strictEqual(parts.length, 4)
      assert.strictEqual(end.end.type, "aborted")
      const aborted = yield* client.AbortTurn({ session, turn: turn(1), reason: "late" })
      assert.deepStrictEqual(aborted, { end: end.end, ended: [], left: [] })
      assert.deepStrictEqual(yield* client.ReadState({ session }), { heard: [] })
      const answer = { session, turn: turn(1), toolCallId: "c", result: 1, isFailure: false }
      assert.strictEqual((yield* Effect.flip(client.SubmitToolResult(answer)))._tag, "ToolCallNotFound")
      assert.deepStrictEqual((yield* client.StopSession({ session })).state, { heard: [] })
      // What was only looked at has none of the options; what starts has them all.
      assert.strictEqual(puppet.opened.at(-1)?.permissions, "ask")
      assert.deepStrictEqual(yield* client.StartSession(first.start), { resumed: true })
      yield* client.StartTurn(act(2, "hi"))
      assert.strictEqual((yield* endOf(client, turn(2))).type, "finished")
      assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] })
    })
  )
})

describe("StopSession", () => {
  test(
    "ends the turn, gives the state, keeps the files, and makes the session dormant; again it's the same",
    Effect.gen(function*() {
      const { client, sessionDirectory, start } = yield* started(Puppet.make(acts))
      yield* client.StartTurn(act(1, "hang"))
      const stopped = yield* client.StopSession({ session })
      assert.deepStrictEqual(stopped, { state: { heard: ["hang"] }, ended: [], left: [] })
      assert.deepInclude(yield* endOf(client, turn(1)), { type: "aborted", reason: "stopped" })
      const refused = yield* Effect.flip(client.StartTurn(act(2, "hi")))
      assert.strictEqual(refused._tag, "SessionNotStarted")
      assert.isTrue((yield* client.Hello(host)).sessions[0]?.dormant)
      assert.deepStrictEqual(yield* client.StopSession({ session }), stopped)
      const fs = yield* FileSystem.FileSystem
      assert.include(yield* fs.readDirectory(`${sessionDirectory}/turns`), "t1.ndjson")
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      assert.deepStrictEqual(yield* client.StopSession({ session: id("unknown") }), { ended: [], left: [] })
    })
  )

  test(
    "says so where the state is too large to be given, and gives none where there's none",
    Effect.gen(function*() {
      const large = yield* started(Puppet.make(acts, { readState: Effect.succeed("ä".repeat(5 * 1024 * 1024)) }))
      const error = yield* Effect.flip(large.client.ReadState({ session }))
      assert.deepInclude(error, { _tag: "StateTooLarge", bytes: 10 * 1024 * 1024 + 2, limit: 8 * 1024 * 1024 })
      assert.deepStrictEqual(yield* large.client.StopSession({ session }), {
        stateTooLarge: true,
        ended: [],
        left: []
      })
      const none = yield* started(Puppet.make(acts, { readState: undefined }, { capabilities: Bridge.noCapabilities }))
      assert.deepInclude(yield* Effect.flip(none.client.ReadState({ session })), {
        _tag: "Unsupported",
        capability: "state"
      })
      assert.deepStrictEqual(yield* none.client.StopSession({ session }), { ended: [], left: [] })
    })
  )
})

describe("who reads a turn slowly", () => {
  test(
    "gets all of it, whatever becomes of its session meanwhile",
    Effect.gen(function*() {
      const words = "x".repeat(200 * 1024)
      const talk: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          for (let i = 0; i < 10; i++) yield* Puppet.say(turn, words)
          return { finishReason: "stop" }
        })
      for (const what of ["stop", "destroy"] as const) {
        const { client } = yield* started(Puppet.make({ talk }))
        yield* client.StartTurn(act(1, "talk"))
        yield* endOf(client, turn(1))
        let done = false
        let parts = 0
        const end = yield* client.ReadTurn({ session, turn: turn(1), from: 1 }).pipe(
          Stream.mapEffect((event) =>
            Effect.gen(function*() {
              if ("parts" in event) parts += event.parts.length
              if (!done) yield* what === "stop" ? client.StopSession({ session }) : client.DestroySession({ session })
              done = true
              return event
            })
          ),
          Stream.runLast
        )
        assert.deepInclude(Option.getOrThrow(end), { attempt: 1, next: 41 }, what)
        assert.strictEqual(parts, 40)
      }
    })
  )
})

describe("DestroySession", () => {
  test(
    "removes the session's files and its conversation, and leaves nothing that holds it",
    Effect.gen(function*() {
      const forgotten: Array<unknown> = []
      const puppet = Puppet.make(acts, {}, {
        forget: (what) => Effect.sync(() => void forgotten.push(what))
      })
      const { client, directory, stateDirectory } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hang"))
      yield* firstPart(client, turn(1), "step-finished")
      const reading = yield* Effect.forkChild(endOf(client, turn(1)))
      yield* client.DestroySession({ session })
      assert.deepInclude(yield* Fiber.join(reading), { type: "aborted", reason: "destroyed" })
      assert.deepStrictEqual(forgotten, [{ conversation: "conversation-s1", directory }])
      const fs = yield* FileSystem.FileSystem
      assert.deepStrictEqual(yield* fs.readDirectory(`${stateDirectory}/sessions`), [])
      for (
        const command of [
          client.StartTurn(act(2, "hi")),
          client.AbortTurn({ session, turn: turn(1) }),
          client.ReadState({ session }),
          read(client, turn(1))
        ] as ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>>
      ) assert.strictEqual((yield* Effect.flip(command))._tag, "SessionNotFound")
      // Again it's success.
      assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] })
      assert.deepStrictEqual(yield* client.DestroySession({ session: id("unknown") }), { ended: [], left: [] })
    })
  )

  test(
    "that can't forget the conversation fails, and can be repeated",
    Effect.gen(function*() {
      let fails = true
      const puppet = Puppet.make(acts, {}, {
        forget: () =>
          Effect.suspend(() =>
            fails
              ? Effect.fail(new Bridge.DriverError({ driver: "puppet", kind: "unknown", problem: "busy" }))
              : Effect.void
          )
      })
      const { client, stateDirectory } = yield* started(puppet)
      assert.deepInclude(yield* Effect.flip(client.DestroySession({ session })), {
        _tag: "DriverError",
        problem: "busy"
      })
      assert.strictEqual((yield* client.Hello(host)).sessions.length, 1)
      fails = false
      yield* client.DestroySession({ session })
      const fs = yield* FileSystem.FileSystem
      assert.deepStrictEqual(yield* fs.readDirectory(`${stateDirectory}/sessions`), [])
    })
  )

  test(
    "of another agent's session leaves its conversation to it",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.end
      const forgotten: Array<unknown> = []
      const puppet = Puppet.make(acts, {}, {
        name: "another",
        forget: (what) => Effect.sync(() => void forgotten.push(what))
      })
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      yield* client.DestroySession({ session })
      assert.deepStrictEqual([forgotten, (yield* client.Hello(host)).sessions], [[], []])
    })
  )

  testClocked(
    "is remembered for a day, over restarts, for each session that's destroyed",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const names = Array.from({ length: 20 }, (_, i) => id(`s${i}`))
      const start = (session: Bridge.SessionId) =>
        ({ session, directory, permissions: "ask", settings: "none" }) as const
      const client = yield* connect(Puppet.make(acts).driver, stateDirectory)
      yield* Effect.forEach(names, (name) => client.StartSession(start(name)), { concurrency: "unbounded" })
      yield* Effect.forEach(names, (session) => client.DestroySession({ session }), { concurrency: "unbounded" })
      yield* TestClock.adjust("23 hours")
      const later = yield* connect(Puppet.make(acts).driver, stateDirectory)
      for (const name of names) {
        assert.deepInclude(yield* Effect.flip(later.StartSession(start(name))), {
          _tag: "SessionDestroyed",
          session: name
        })
      }
      yield* TestClock.adjust("61 minutes")
      for (const name of names) assert.deepStrictEqual(yield* later.StartSession(start(name)), { resumed: false })
    })
  )
})

describe("a command", () => {
  test(
    "goes on when its host is gone",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const opening = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      const puppet = Puppet.make(acts)
      const client = yield* connect({
        ...puppet.driver,
        open: (options) =>
          Effect.andThen(
            Effect.andThen(Deferred.succeed(opening, undefined), Deferred.await(gate)),
            puppet.driver.open(options)
          )
      }, stateDirectory)
      const start = { session, directory, permissions: "ask", settings: "none" } as const
      const cut = yield* Effect.forkChild(client.StartSession(start))
      yield* Deferred.await(opening)
      yield* Fiber.interrupt(cut)
      yield* Deferred.succeed(gate, undefined)
      // It came first, so this one finds what it made.
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      const aborted = yield* Effect.forkChild(client.StartTurn(act(1, "hang")), { startImmediately: true })
      yield* Fiber.interrupt(aborted)
      const part = firstPart(client, turn(1), "step-finished")
      assert.isDefined(yield* Effect.retry(part, { schedule: Schedule.spaced("10 millis"), times: 500 }))
    })
  )
})
