import { BunServices } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import { Bridge, BridgeServer } from "@gangway/server"
import { Deferred, Effect, Fiber, FileSystem, Layer, type Path, type Scope, Stream } from "effect"
import { RpcTest } from "effect/unstable/rpc"
import * as Puppet from "./fixtures/puppet.ts"

const bridge = Bridge.BridgeId.make("b1")
const session = Bridge.SessionId.make("s1")
const turn = (n: number) => Bridge.TurnId.make(`t${n}`)
const prompt = (text: string): Bridge.Prompt => [{ type: "text", text }]

const directories = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.makeTempDirectoryScoped()
  const directory = `${root}/work`
  yield* fs.makeDirectory(directory)
  return { directory, stateDirectory: `${root}/state` }
})

const connect = (puppet: Puppet.Puppet, stateDirectory: string) =>
  Effect.flatMap(
    Layer.build(BridgeServer.layerHandlers(puppet.driver, { bridge, stateDirectory })),
    (context) => Effect.provide(RpcTest.makeClient(Bridge.Rpcs), context)
  )

const started = Effect.fnUntraced(function*(puppet: Puppet.Puppet, options?: Partial<Bridge.SessionOptions>) {
  const { directory, stateDirectory } = yield* directories
  const client = yield* connect(puppet, stateDirectory)
  const start = { session, directory, permissions: "ask", settings: "none", ...options } as const
  yield* client.StartSession(start)
  return { client, start, directory, stateDirectory }
})

type Client = Effect.Success<ReturnType<typeof connect>>

const read = (client: Client, id: Bridge.TurnId, from = 1) =>
  Stream.runCollect(client.ReadTurn({ session, turn: id, from })).pipe(
    Effect.map((events) => {
      const parts: Array<Bridge.NumberedPart> = []
      let end: Bridge.EndLine | undefined
      for (const event of events) {
        if ("parts" in event) parts.push(...event.parts)
        else end = event
      }
      return { parts, end: end!, types: parts.map(({ part }) => part.type) }
    })
  )

// Waits for the first part of a type.
const firstPart = (client: Client, id: Bridge.TurnId, type: string) =>
  client.ReadTurn({ session, turn: id, from: 1 }).pipe(
    Stream.flatMap((event) => Stream.fromIterable("parts" in event ? event.parts : [])),
    Stream.filter(({ part }) => part.type === type),
    Stream.runHead,
    Effect.map((found) => found._tag === "Some" ? found.value : undefined)
  )

const hang: Puppet.Act = () => Effect.never

const test = <E>(
  name: string,
  body: Effect.Effect<void, E, FileSystem.FileSystem | Path.Path | Scope.Scope>
) => it.live(name, () => Effect.scoped(body).pipe(Effect.provide(BunServices.layer)))

describe("a turn", () => {
  test(
    "is numbered from 1, ends once, and is read from any number on",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hi: (turn) => Effect.as(Puppet.say(turn, "hello"), { finishReason: "stop" }) })
      const { client } = yield* started(puppet)
      const start = yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("hi") })
      assert.deepStrictEqual(start, { attempt: 1, from: 1, status: "started" })
      const all = yield* read(client, turn(1))
      assert.deepStrictEqual(all.parts.map(({ n }) => n), [1, 2, 3, 4])
      assert.deepStrictEqual(all.end, {
        end: { type: "finished", usage: { measured: true, outputTokens: { total: 5 } }, finishReason: "stop" },
        attempt: 1,
        next: 5
      })
      for (let from = 1; from <= 5; from++) {
        assert.deepStrictEqual((yield* read(client, turn(1), from)).parts, all.parts.slice(from - 1))
      }
      const beyond = yield* Effect.flip(read(client, turn(1), 6))
      assert.deepInclude(beyond, { _tag: "PartNotFound", next: 5 })
    })
  )

  test(
    "gets the same answer however often it's started",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hi: (turn) => Effect.as(Puppet.say(turn, "hello"), { finishReason: "stop" }), hang })
      const { client } = yield* started(puppet)
      const one = { session, turn: turn(1), prompt: prompt("hang") }
      yield* client.StartTurn(one)
      assert.strictEqual((yield* client.StartTurn(one)).status, "running")
      assert.strictEqual((yield* client.StartTurn({ ...one, attempt: 1 })).status, "running")
      yield* client.AbortTurn({ session, turn: turn(1) })
      // A late repeat can't revive what was aborted.
      assert.strictEqual((yield* client.StartTurn({ ...one, attempt: 1 })).status, "ended")
      const other = yield* Effect.flip(client.StartTurn({ ...one, prompt: prompt("other") }))
      assert.deepInclude(other, { _tag: "TurnConflict", field: "prompt", attempt: 1, state: "aborted" })
      const far = yield* Effect.flip(client.StartTurn({ ...one, attempt: 3 }))
      assert.deepInclude(far, { _tag: "TurnConflict", field: "attempt" })
      yield* client.StartTurn({ session, turn: turn(2), prompt: prompt("hi") })
      yield* read(client, turn(2))
      const superseded = yield* Effect.flip(client.StartTurn(one))
      assert.deepInclude(superseded, { _tag: "TurnSuperseded", latest: turn(2) })
      assert.deepStrictEqual(puppet.heard, ["hang", "hi"])
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(2) })).status, "ended")
      const again = yield* Effect.flip(client.StartTurn({ session, turn: turn(2), attempt: 2 }))
      assert.deepInclude(again, { _tag: "TurnConflict", field: "attempt", state: "finished" })
    })
  )

  test(
    "ends the one that runs, as replaced",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hi: (turn) => Effect.as(Puppet.say(turn, "hello"), { finishReason: "stop" }), hang })
      const { client } = yield* started(puppet)
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("hang") })
      yield* client.StartTurn({ session, turn: turn(2), prompt: prompt("hi") })
      const aborted = yield* client.AbortTurn({ session, turn: turn(1) })
      assert.deepInclude(aborted.end, { type: "aborted", reason: "replaced" })
      const gone = yield* Effect.flip(read(client, turn(1)))
      assert.deepInclude(gone, { _tag: "TurnNotFound", latest: turn(2) })
    })
  )

  test(
    "that fails says why, and is final",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({}))
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("nothing") })
      const { end } = yield* read(client, turn(1))
      assert.deepStrictEqual(end.end, {
        type: "failed",
        error: { kind: "invalid-request", message: "no act 'nothing'" },
        usage: { measured: true }
      })
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "ended")
    })
  )

  test(
    "is ended by its limits and by its timeout",
    Effect.gen(function*() {
      const endless: Puppet.Act = (turn) => Effect.forever(Effect.andThen(Puppet.say(turn, "more"), Effect.sleep(1)))
      const { client } = yield* started(Puppet.make({ endless, hang }), { limits: { steps: 3 } })
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("endless") })
      assert.deepInclude((yield* read(client, turn(1))).end.end, { type: "aborted", reason: "limit", limit: "steps" })
      yield* client.StartTurn({ session, turn: turn(2), prompt: prompt("hang"), timeout: 50 })
      assert.deepInclude((yield* read(client, turn(2))).end.end, { type: "aborted", reason: "timeout" })
    })
  )
})

describe("an aborted turn", () => {
  test(
    "is continued after a restart, with numbers that go on, and what is kept said first",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const first = Puppet.make({ work: (turn) => Effect.andThen(Puppet.say(turn, "one"), Effect.never) })
      const start = { session, directory, permissions: "ask", settings: "none" } as const
      yield* Effect.scoped(Effect.gen(function*() {
        const client = yield* connect(first, stateDirectory)
        yield* client.StartSession(start)
        yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("work") })
        yield* firstPart(client, turn(1), "step-finished")
      }))

      const second = Puppet.make(
        { nudge: (turn) => Effect.as(Puppet.say(turn, "three"), { finishReason: "stop" }) },
        {
          reconcile: ({ parts }) =>
            Effect.map(Stream.runCollect(parts), (before) => {
              assert.strictEqual(before.length, 4)
              return {
                keep: 4,
                prompted: true,
                recovered: [{ type: "text-start", id: "r" }, { type: "text-delta", id: "r", delta: "two" }]
              }
            })
        }
      )
      const client = yield* connect(second, stateDirectory)
      const hello = yield* client.Hello({ host: { name: "test", version: "1" }, protocol: 1 })
      assert.deepStrictEqual(hello.sessions[0]?.latest, { turn: turn(1), attempt: 1, state: "aborted" })
      assert.isTrue(hello.sessions[0]?.dormant)
      const notStarted = yield* Effect.flip(client.StartTurn({ session, turn: turn(1), attempt: 2 }))
      assert.strictEqual(notStarted._tag, "SessionNotStarted")
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      assert.deepInclude(second.opened[0], { conversation: "conversation-s1", established: true })
      const continued = yield* client.StartTurn({ session, turn: turn(1), attempt: 2 })
      assert.deepStrictEqual(continued, { attempt: 2, from: 5, status: "continued" })
      const { end, parts, types } = yield* read(client, turn(1))
      assert.deepStrictEqual(types.slice(4, 7), ["turn-continued", "text-start", "text-delta"])
      assert.deepStrictEqual(parts[4]?.part, { type: "turn-continued", attempt: 2, keep: 4 })
      assert.isTrue((parts[5]!.part as { recovered?: boolean }).recovered)
      assert.deepStrictEqual(parts.map(({ n }) => n), parts.map((_, i) => i + 1))
      assert.strictEqual(end.attempt, 2)
      assert.strictEqual(end.end.type, "finished")
      assert.deepStrictEqual(second.heard, ["nudge"])
      const stale = yield* Effect.flip(
        client.ReadTurn({ session, turn: turn(1), from: 7, attempt: 1 }).pipe(
          Stream.runDrain
        )
      )
      assert.deepInclude(stale, { _tag: "PartNotFound", next: 5 })
    })
  )

  test(
    "has what its agent asked asked again, under a new id",
    Effect.gen(function*() {
      const asks = (approvalId: string): Puppet.Act => (turn) =>
        Effect.gen(function*() {
          yield* turn.emit({ type: "tool-call", id: "c1", name: "Bash", params: { command: "ls" } })
          const { decision } = yield* turn.requestApproval({
            approvalId,
            toolCallId: "c1",
            name: "Bash",
            params: { command: "ls" },
            edits: false
          })
          return { finishReason: decision }
        })
      const puppet = Puppet.make({ work: asks("a1"), nudge: asks("a2") })
      const { client } = yield* started(puppet)
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("work") })
      yield* firstPart(client, turn(1), "tool-approval-request")
      yield* client.AbortTurn({ session, turn: turn(1) })
      const late = yield* Effect.flip(client.Approve({ session, turn: turn(1), approvalId: "a1", decision: "allow" }))
      assert.strictEqual(late._tag, "TurnEnded")
      yield* client.StartTurn({ session, turn: turn(1), attempt: 2 })
      const approval = { session, turn: turn(1), approvalId: "a2", decision: "allow" } as const
      yield* Effect.retry(client.Approve(approval), { while: (error) => error._tag === "ApprovalNotFound" })
      const { end, parts } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { type: "finished", finishReason: "allow" })
      const again = parts.find(({ part }) => part.type === "tool-approval-request" && part.approvalId === "a2")
      assert.deepInclude(again?.part, { replaces: "a1" })
    })
  )
})

describe("an answer", () => {
  const callsTool: Puppet.Act = (turn) =>
    Effect.gen(function*() {
      const answer = yield* turn.callHostTool({ id: "c1", name: "weather", params: { city: "Bern" } })
      return { finishReason: JSON.stringify(answer) }
    })

  test(
    "reaches the agent once, whoever gives it and however often",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ call: callsTool }))
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("call") })
      yield* firstPart(client, turn(1), "tool-call")
      const answer = (result: string) => ({ session, turn: turn(1), toolCallId: "c1", result, isFailure: false })
      const outcomes = yield* Effect.forEach(
        ["sun", "sun", "rain"],
        (result) => Effect.result(client.SubmitToolResult(answer(result))),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(outcomes.map(({ _tag }) => _tag), ["Success", "Success", "Failure"])
      const { end, types } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { finishReason: "{\"result\":\"sun\",\"isFailure\":false}" })
      assert.deepStrictEqual(types, ["tool-call", "tool-result"])
      // After the end it's the same.
      assert.deepStrictEqual(yield* client.SubmitToolResult(answer("sun")), { accepted: true })
      assert.strictEqual((yield* Effect.flip(client.SubmitToolResult(answer("rain"))))._tag, "AlreadyAnswered")
      const unknown = yield* Effect.flip(client.SubmitToolResult({ ...answer("sun"), toolCallId: "c2" }))
      assert.strictEqual(unknown._tag, "ToolCallNotFound")
    })
  )

  test(
    "is the deadline's where nobody gives one",
    Effect.gen(function*() {
      const ask: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          const approval = yield* turn.requestApproval({
            approvalId: "a1",
            toolCallId: "c1",
            name: "Bash",
            params: {},
            edits: false
          })
          const { answer, isFailure } = yield* turn.ask({ questionId: "q1", questions: [] })
          return { finishReason: `${approval.decision} ${approval.reason} ${answer} ${isFailure}` }
        })
      const { client } = yield* started(Puppet.make({ ask }), { approvalTimeout: 30 })
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("ask") })
      const { end, types } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { finishReason: "deny timeout timeout true" })
      assert.deepStrictEqual(types, [
        "tool-approval-request",
        "tool-approval-response",
        "question",
        "question-answer"
      ])
    })
  )

  test(
    "that allows for ever holds until the session is stopped",
    Effect.gen(function*() {
      let asked = 0
      const ask: Puppet.Act = (turn) =>
        Effect.map(
          turn.requestApproval({
            approvalId: `a${++asked}`,
            toolCallId: "c1",
            name: "Bash",
            params: {},
            edits: false,
            rule: { key: "Bash(ls)", title: "ls" }
          }),
          ({ decision }) => ({ finishReason: decision })
        )
      const { client, start } = yield* started(Puppet.make({ ask }))
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("ask") })
      yield* firstPart(client, turn(1), "tool-approval-request")
      yield* client.Approve({ session, turn: turn(1), approvalId: "a1", decision: "allow-always" })
      yield* read(client, turn(1))
      yield* client.StartTurn({ session, turn: turn(2), prompt: prompt("ask") })
      assert.deepStrictEqual((yield* read(client, turn(2))).types, [])
      yield* client.StopSession({ session })
      yield* client.StartSession(start)
      yield* client.StartTurn({ session, turn: turn(3), prompt: prompt("ask") })
      assert.isDefined(yield* firstPart(client, turn(3), "tool-approval-request"))
    })
  )
})

describe("a session", () => {
  test(
    "is the same when started again, and refuses another setting by its name",
    Effect.gen(function*() {
      const { client, directory, start } = yield* started(Puppet.make({}))
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      assert.deepStrictEqual(yield* client.StartSession({ ...start, directory: `${directory}/../work/` }), {
        resumed: true
      })
      const conflict = yield* Effect.flip(client.StartSession({ ...start, permissions: "all" }))
      assert.deepInclude(conflict, { _tag: "SessionConflict", field: "permissions" })
    })
  )

  test(
    "isn't in a directory that's missing, or in the bridge's own",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const client = yield* connect(Puppet.make({}), stateDirectory)
      const start = { session, permissions: "ask", settings: "none" } as const
      for (const wrong of ["relative", `${directory}/none`, stateDirectory, `${stateDirectory}/sessions`, "/"]) {
        const error = yield* Effect.flip(client.StartSession({ ...start, directory: wrong }))
        assert.strictEqual(error._tag, "DirectoryInvalid", wrong)
      }
      assert.deepStrictEqual((yield* client.Hello({ host: { name: "t", version: "1" }, protocol: 1 })).sessions, [])
    })
  )

  test(
    "that was stopped is dormant, and one that was destroyed is gone for a day",
    Effect.gen(function*() {
      const { client, start, stateDirectory } = yield* started(Puppet.make({ hang }))
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("hang") })
      const stopped = yield* client.StopSession({ session })
      assert.deepStrictEqual(stopped.state, { heard: ["hang"] })
      assert.deepInclude((yield* read(client, turn(1))).end.end, { type: "aborted", reason: "stopped" })
      const refused = yield* Effect.flip(client.StartTurn({ session, turn: turn(2), prompt: prompt("hang") }))
      assert.strictEqual(refused._tag, "SessionNotStarted")
      yield* client.StartSession(start)
      yield* client.DestroySession({ session })
      const fs = yield* FileSystem.FileSystem
      assert.deepStrictEqual(yield* fs.readDirectory(`${stateDirectory}/sessions`), [])
      assert.strictEqual((yield* Effect.flip(client.StartSession(start)))._tag, "SessionDestroyed")
      assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] })
      assert.deepStrictEqual(yield* client.StopSession({ session }), { ended: [], left: [] })
    })
  )

  test(
    "is compacted by all who ask at once, together",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      let times = 0
      const compact = () =>
        Effect.suspend(() => {
          times++
          return Effect.as(Deferred.await(gate), { summary: "short" })
        })
      const { client } = yield* started(Puppet.make({ hang }, { compact }))
      const both = yield* Effect.forkChild(
        Effect.all([client.Compact({ session }), client.Compact({ session })], { concurrency: 2 })
      )
      yield* Effect.repeat(Effect.yieldNow, { until: () => times === 1 })
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(yield* Fiber.join(both), [{ summary: "short" }, { summary: "short" }])
      assert.strictEqual(times, 1)
      yield* client.StartTurn({ session, turn: turn(1), prompt: prompt("hang") })
      assert.deepInclude(yield* Effect.flip(client.Compact({ session })), { _tag: "TurnRunning", turn: turn(1) })
    })
  )
})
