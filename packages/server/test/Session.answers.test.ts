import { assert, describe } from "@effect/vitest"
import type { Bridge } from "@gangway/server"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  endOf,
  firstPart,
  launch,
  read,
  session,
  sessionFile,
  started,
  test,
  testClocked,
  turn
} from "./fixtures/sessions.ts"

const key = { session, turn: turn(1) }

const submit = (result: unknown, toolCallId = "c1") => ({
  ...key,
  toolCallId,
  result: result as Bridge.Prompt[0]["type"],
  isFailure: false
})

const callsTool: Puppet.Act = (turn) =>
  Effect.map(
    turn.callHostTool({ id: "c1", name: "weather", params: { city: "Bern" } }),
    (answer) => ({ finishReason: JSON.stringify(answer) })
  )

const bash = { toolCallId: "b1", name: "Bash", params: { command: "ls" }, edits: false }

const asks = (approvalId: string, more: object = {}): Puppet.Act => (turn) =>
  Effect.map(
    turn.requestApproval({ ...bash, approvalId, ...more }),
    ({ decision, reason }) => ({ finishReason: `${decision} ${reason ?? ""}` })
  )

describe("an answer", () => {
  test(
    "reaches the agent once, whoever gives it and however often",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ call: callsTool }))
      yield* client.StartTurn(act(1, "call"))
      yield* firstPart(client, turn(1), "tool-call")
      const outcomes = yield* Effect.forEach(
        ["sun", "sun", "rain"],
        (result) => Effect.result(client.SubmitToolResult(submit(result))),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(outcomes.map(({ _tag }) => _tag), ["Success", "Success", "Failure"])
      const { end, types } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { finishReason: "{\"result\":\"sun\",\"isFailure\":false}" })
      assert.deepStrictEqual(types, ["tool-call", "tool-result"])
      // After the end it's the same.
      assert.deepStrictEqual(yield* client.SubmitToolResult(submit("sun")), { accepted: true })
      const other = yield* Effect.flip(client.SubmitToolResult(submit("rain")))
      const answer = { type: "tool-result", id: "c1", name: "weather", result: "sun", isFailure: false }
      assert.strictEqual(other._tag, "AlreadyAnswered")
      assert.deepInclude(other._tag === "AlreadyAnswered" && other.answer as object, answer)
      const unknown = yield* Effect.flip(client.SubmitToolResult(submit("sun", "c2")))
      assert.strictEqual(unknown._tag, "ToolCallNotFound")
    })
  )

  test(
    "is equal to another where it's the same JSON",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ call: callsTool }))
      yield* client.StartTurn(act(1, "call"))
      yield* firstPart(client, turn(1), "tool-call")
      yield* client.SubmitToolResult(submit({ a: 1, b: [{ c: 2, d: 3 }] }))
      yield* client.SubmitToolResult(submit({ b: [{ d: 3, c: 2 }], a: 1.0 }))
      for (const other of [{ a: 1, b: [{ c: 2 }, { d: 3 }] }, { a: "1", b: [{ c: 2, d: 3 }] }]) {
        assert.strictEqual((yield* Effect.flip(client.SubmitToolResult(submit(other))))._tag, "AlreadyAnswered")
      }
      const failure = { ...submit({ a: 1, b: [{ c: 2, d: 3 }] }), isFailure: true }
      assert.strictEqual((yield* Effect.flip(client.SubmitToolResult(failure)))._tag, "AlreadyAnswered")
    })
  )

  test(
    "may come before the agent waits for it, and is kept until it does",
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      const early: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          const call = { id: "c1", name: "weather", params: {} }
          yield* turn.emit({ type: "tool-call", ...call, providerExecuted: false })
          const approval = turn.requestApproval({ ...bash, approvalId: "a1" })
          const question = turn.ask({ questionId: "q1", questions: [] })
          // Asked, and not waited for until they're asked again.
          for (const asking of [Effect.asVoid(approval), Effect.asVoid(question)]) {
            yield* Fiber.interrupt(yield* Effect.forkChild(asking, { startImmediately: true }))
          }
          yield* Deferred.await(gate)
          const { result } = yield* turn.callHostTool(call)
          const { decision } = yield* approval
          const { answer } = yield* question
          return { finishReason: `${result} ${decision} ${answer}` }
        })
      const { client } = yield* started(Puppet.make({ early }))
      yield* client.StartTurn(act(1, "early"))
      yield* firstPart(client, turn(1), "question")
      yield* client.SubmitToolResult(submit("sun"))
      yield* client.Approve({ ...key, approvalId: "a1", decision: "allow" })
      yield* client.SubmitToolResult(submit("this", "q1"))
      yield* Deferred.succeed(gate, undefined)
      const { end, types } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { finishReason: "sun allow this" })
      assert.deepStrictEqual(types, [
        "tool-call",
        "tool-approval-request",
        "question",
        "tool-result",
        "tool-approval-response",
        "question-answer"
      ])
    })
  )

  test(
    "is on disk before the agent hears it",
    Effect.gen(function*() {
      const heard: Array<ReadonlyArray<string>> = []
      const { client } = yield* started(Puppet.make({
        ask: (turn) =>
          Effect.gen(function*() {
            yield* turn.requestApproval({ ...bash, approvalId: "a1" })
            heard.push((yield* Effect.orDie(soFar)).map(({ part }) => part.type))
            return { finishReason: "stop" }
          })
      }))
      const soFar: Effect.Effect<ReadonlyArray<Bridge.NumberedPart>, unknown> = Effect.suspend(() =>
        Effect.map(firstPart(client, turn(1), "tool-approval-response"), (part) => part === undefined ? [] : [part])
      )
      yield* client.StartTurn(act(1, "ask"))
      yield* firstPart(client, turn(1), "tool-approval-request")
      yield* client.Approve({ ...key, approvalId: "a1", decision: "allow" })
      yield* read(client, turn(1))
      assert.deepStrictEqual(heard, [["tool-approval-response"]])
    })
  )

  test(
    "to a question is a tool's result with the question's id",
    Effect.gen(function*() {
      const wonders: Puppet.Act = (turn) =>
        Effect.map(
          turn.ask({ questionId: "q1", questions: [{ question: "Which?", options: [{ label: "this" }] }] }),
          ({ answer }) => ({ finishReason: JSON.stringify(answer) })
        )
      const { client } = yield* started(Puppet.make({ wonder: wonders }))
      yield* client.StartTurn(act(1, "wonder"))
      yield* firstPart(client, turn(1), "question")
      const wrong = yield* Effect.flip(client.Approve({ ...key, approvalId: "q1", decision: "allow" }))
      assert.strictEqual(wrong._tag, "ApprovalNotFound")
      yield* client.SubmitToolResult(submit({ "Which?": "this" }, "q1"))
      const { end, parts } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { finishReason: "{\"Which?\":\"this\"}" })
      assert.deepInclude(parts[1]?.part, { type: "question-answer", questionId: "q1", by: "host", isFailure: false })
    })
  )

  test(
    "is the same after a restart: accepted again, told another, or too late",
    Effect.gen(function*() {
      const both: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          yield* turn.requestApproval({ ...bash, approvalId: "a1" })
          yield* turn.callHostTool({ id: "c1", name: "weather", params: {} })
          return { finishReason: "stop" }
        })
      const first = yield* started(Puppet.make({ both }))
      yield* first.client.StartTurn(act(1, "both"))
      yield* firstPart(first.client, turn(1), "tool-approval-request")
      yield* first.client.Approve({ ...key, approvalId: "a1", decision: "deny", reason: "not today" })
      yield* firstPart(first.client, turn(1), "tool-call")
      yield* first.end
      // The session is dormant there.
      const { client } = yield* launch(Puppet.make({}).driver, first.stateDirectory)
      const approve = (reason: string) => client.Approve({ ...key, approvalId: "a1", decision: "deny", reason })
      assert.deepStrictEqual(yield* approve("not today"), { accepted: true })
      const other = yield* Effect.flip(approve("never"))
      assert.deepInclude(other._tag === "AlreadyAnswered" && other.answer as object, { reason: "not today" })
      const late = yield* Effect.flip(client.SubmitToolResult(submit("sun")))
      assert.deepInclude(late._tag === "TurnEnded" && late.end, { type: "aborted" })
      const unknown = yield* Effect.flip(client.Approve({ ...key, approvalId: "a2", decision: "deny" }))
      assert.strictEqual(unknown._tag, "ApprovalNotFound")
      const missing = yield* Effect.flip(client.Approve({ session, turn: turn(9), approvalId: "a", decision: "deny" }))
      assert.deepInclude(missing, { _tag: "TurnNotFound", latest: turn(1) })
    })
  )

  test(
    "to a turn before the latest is told how that ended",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ call: callsTool, hang: Puppet.hangs }))
      yield* client.StartTurn(act(1, "call"))
      yield* firstPart(client, turn(1), "tool-call")
      yield* client.StartTurn(act(2, "hang"))
      const late = yield* Effect.flip(client.SubmitToolResult(submit("sun")))
      assert.deepInclude(late._tag === "TurnEnded" && late.end, { type: "aborted", reason: "replaced" })
    })
  )

  test(
    "that comes while the turn ends is told so",
    Effect.gen(function*() {
      const stubborn = yield* Deferred.make<void>()
      const puppet = Puppet.make({}, {
        run: (turn) => Effect.andThen(turn.callHostTool({ id: "c1", name: "x", params: {} }), Effect.never),
        interrupt: Effect.andThen(Deferred.succeed(stubborn, undefined), Effect.never)
      })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "any"))
      yield* firstPart(client, turn(1), "tool-call")
      const aborting = yield* Effect.forkChild(client.AbortTurn(key))
      yield* Deferred.await(stubborn)
      // The abort is being carried out: the answer's turn comes after it.
      const late = yield* Effect.flip(client.SubmitToolResult(submit("sun")))
      const { end } = yield* Fiber.join(aborting)
      assert.deepStrictEqual(late._tag === "TurnEnded" && late.end, end)
    })
  )

  testClocked(
    "is waited for as long as it takes, where no deadline is set",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ ask: asks("a1") }))
      yield* client.StartTurn(act(1, "ask"))
      yield* firstPart(client, turn(1), "tool-approval-request")
      yield* TestClock.adjust("30 days")
      yield* client.Approve({ ...key, approvalId: "a1", decision: "allow" })
      assert.deepInclude(yield* endOf(client, turn(1)), { finishReason: "allow " })
    })
  )

  testClocked(
    "is the deadline's where nobody gives one",
    Effect.gen(function*() {
      const ask: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          const approval = yield* turn.requestApproval({ ...bash, approvalId: "a1" })
          const { answer, isFailure } = yield* turn.ask({ questionId: "q1", questions: [] })
          return { finishReason: `${approval.decision} ${approval.reason} ${answer} ${isFailure}` }
        })
      const { client } = yield* started(Puppet.make({ ask }), { approvalTimeout: 60_000 })
      yield* client.StartTurn(act(1, "ask"))
      yield* firstPart(client, turn(1), "tool-approval-request")
      yield* TestClock.adjust("59 seconds")
      assert.strictEqual((yield* client.StartTurn({ ...key })).status, "running")
      yield* TestClock.adjust("1 second")
      yield* firstPart(client, turn(1), "question")
      yield* TestClock.adjust("60 seconds")
      const { end, parts } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { finishReason: "deny timeout timeout true" })
      assert.deepInclude(parts[1]?.part, { type: "tool-approval-response", decision: "deny", by: "timeout" })
      assert.deepInclude(parts[3]?.part, { type: "question-answer", isFailure: true, by: "timeout" })
      // A host's comes too late.
      const late = yield* Effect.flip(client.Approve({ ...key, approvalId: "a1", decision: "allow" }))
      assert.strictEqual(late._tag, "AlreadyAnswered")
    })
  )
})

describe("an approval", () => {
  const rule = { key: "Bash(ls)", title: "ls" }

  test(
    "is asked for as the session's permissions say",
    Effect.gen(function*() {
      const outcomes: Array<ReadonlyArray<string>> = []
      for (const permissions of ["ask", "edits", "all"] as const) {
        const { client } = yield* started(
          Puppet.make({ edit: asks("a1", { edits: true }), run: asks("a2") }),
          { permissions, approvalTimeout: 10 }
        )
        const types: Array<string> = []
        for (const [i, name] of ["edit", "run"].entries()) {
          yield* client.StartTurn(act(i, name))
          const end = yield* endOf(client, turn(i))
          types.push(end.type === "finished" ? end.finishReason : end.type)
        }
        outcomes.push(types)
      }
      assert.deepStrictEqual(outcomes, [
        ["deny timeout", "deny timeout"],
        ["allow ", "deny timeout"],
        ["allow ", "allow "]
      ])
    })
  )

  test(
    "for ever holds for what its rule says, over restarts, until the session is stopped",
    Effect.gen(function*() {
      const acts = {
        first: asks("a1", { rule }),
        same: asks("a2", { rule }),
        other: asks("a3", { rule: { key: "Bash(rm)", title: "rm" } }),
        single: asks("a4")
      }
      const first = yield* started(Puppet.make(acts), { approvalTimeout: 1000 })
      yield* first.client.StartTurn(act(1, "first"))
      assert.deepInclude((yield* firstPart(first.client, turn(1), "tool-approval-request"))?.part, { rule: "ls" })
      yield* first.client.Approve({ ...key, approvalId: "a1", decision: "allow-always" })
      assert.deepInclude(yield* endOf(first.client, turn(1)), { finishReason: "allow-always " })
      // It's the answer that counts: the same again is fine, a lesser one is another.
      const approve = (decision: Bridge.Decision) => first.client.Approve({ ...key, approvalId: "a1", decision })
      assert.deepStrictEqual(yield* approve("allow-always"), { accepted: true })
      assert.strictEqual((yield* Effect.flip(approve("allow")))._tag, "AlreadyAnswered")
      yield* first.client.StartTurn(act(2, "same"))
      assert.deepInclude(yield* read(first.client, turn(2)), { types: [] })
      yield* first.end

      const { client } = yield* launch(Puppet.make(acts).driver, first.stateDirectory)
      yield* client.StartSession(first.start)
      const outcomes: Array<string> = []
      for (const [i, name] of ["same", "other", "single"].entries()) {
        yield* client.StartTurn(act(i + 10, name))
        const end = yield* endOf(client, turn(i + 10))
        outcomes.push(end.type === "finished" ? end.finishReason : end.type)
      }
      assert.deepStrictEqual(outcomes, ["allow ", "deny timeout", "deny timeout"])
      yield* client.StopSession({ session })
      yield* client.StartSession(first.start)
      yield* client.StartTurn(act(20, "same"))
      assert.deepInclude(yield* endOf(client, turn(20)), { finishReason: "deny timeout" })
    })
  )

  test(
    "for ever is stored before it's accepted",
    Effect.gen(function*() {
      // The agent never takes notice of the answer.
      const deaf: Puppet.Act = (turn) =>
        Effect.andThen(turn.requestApproval({ ...bash, approvalId: "a1", rule }), Effect.never)
      const puppet = Puppet.make({ deaf, same: asks("a2", { rule }) })
      const first = yield* started(puppet)
      yield* first.client.StartTurn(act(1, "deaf"))
      yield* firstPart(first.client, turn(1), "tool-approval-request")
      yield* first.client.Approve({ ...key, approvalId: "a1", decision: "allow-always" })
      const { rules } = yield* sessionFile(first.sessionDirectory)
      assert.deepStrictEqual(rules, [rule])
    })
  )
})
