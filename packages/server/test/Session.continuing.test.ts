import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import type { PreviousAttempts } from "@gangway/server/Driver"
import { Effect, FileSystem, Redacted, Stream } from "effect"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  editSessionFile,
  endOf,
  firstPart,
  host,
  launch,
  prompt,
  read,
  session,
  sessionFile,
  started,
  test,
  turn,
  until
} from "./fixtures/sessions.ts"

const continues = { session, turn: turn(1), attempt: 2 }

describe("an aborted turn", () => {
  test(
    "is continued after a restart, with numbers that go on, and what is kept said first",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make({ work: Puppet.saysAndHangs("one") }))
      yield* first.client.StartTurn(act(1, "work"))
      yield* firstPart(first.client, turn(1), "step-finished")
      yield* first.end

      const puppet = Puppet.make({ nudge: Puppet.says("three") }, {
        reconcile: ({ parts }: PreviousAttempts) =>
          Effect.map(Stream.runCollect(parts), (before) => {
            assert.strictEqual(before.length, 4)
            return {
              keep: 4,
              prompted: true,
              recovered: [{ type: "text-start", id: "r" }, { type: "text-delta", id: "r", delta: "two" }],
              notice: "Look before you repeat."
            }
          })
      })
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      const { sessions } = yield* client.Hello(host)
      assert.deepStrictEqual(sessions[0]?.latest, { turn: turn(1), attempt: 1, state: "aborted" })
      assert.isTrue(sessions[0]?.dormant)
      assert.strictEqual((yield* Effect.flip(client.StartTurn(continues)))._tag, "SessionNotStarted")
      assert.deepStrictEqual(yield* client.StartSession(first.start), { resumed: true })
      assert.deepInclude(puppet.opened[0], { conversation: "conversation-s1", established: true })
      assert.deepInclude(yield* client.StartTurn(continues), { attempt: 2, from: 5, status: "continued" })
      assert.deepInclude(yield* client.StartTurn(continues), { attempt: 2, from: 5 })
      const { end, parts, types } = yield* read(client, turn(1))
      assert.deepStrictEqual(types.slice(4, 8), ["turn-continued", "text-start", "text-delta", "notice"])
      assert.deepStrictEqual(parts[4]?.part, { type: "turn-continued", attempt: 2, keep: 4 })
      assert.deepInclude(parts[5]?.part, { recovered: true })
      assert.notProperty(parts[8]?.part, "recovered")
      assert.deepStrictEqual(parts.map(({ n }) => n), parts.map((_, i) => i + 1))
      assert.deepInclude(end, { attempt: 2, next: parts.length + 1 })
      assert.strictEqual(end.end.type, "finished")
      // The prompt isn't sent again, and a nudge only once.
      assert.deepStrictEqual(puppet.heard, ["nudge"])
      const stale = yield* Effect.flip(
        Stream.runDrain(client.ReadTurn({ session, turn: turn(1), from: 7, attempt: 1 }))
      )
      assert.deepInclude(stale, { _tag: "PartNotFound", next: 5 })
    })
  )

  test(
    "marks all that is recovered, also what is held back as the beginning of a secret",
    Effect.gen(function*() {
      const recovered: ReadonlyArray<Bridge.AgentPart> = [
        { type: "text-start", id: "r" },
        { type: "text-delta", id: "r", delta: "a key is sk-" },
        { type: "text-end", id: "r" },
        { type: "text-start", id: "s" },
        { type: "text-delta", id: "s", delta: "or sk-" }
      ]
      const puppet = Puppet.make({ work: Puppet.saysAndHangs("one"), nudge: Puppet.says("two") }, {
        reconcile: () => Effect.succeed({ keep: 4, prompted: true, recovered })
      })
      const { client } = yield* started(puppet, { env: { KEY: Redacted.make("sk-123456789") } })
      yield* client.StartTurn(act(1, "work"))
      yield* firstPart(client, turn(1), "step-finished")
      yield* client.AbortTurn({ session, turn: turn(1) })
      const { from } = yield* client.StartTurn(continues)
      const { parts } = yield* read(client, turn(1), from + 1)
      assert.deepStrictEqual(
        parts.slice(0, 7).map(({ part }) => "delta" in part ? part.delta : part.type),
        ["text-start", "a key is ", "sk-", "text-end", "text-start", "or ", "sk-"]
      )
      assert.deepStrictEqual(
        parts.map(({ part }) => "recovered" in part),
        parts.map((_, index) => index < 7)
      )
    })
  )

  test(
    "is given its prompt where that never reached the agent, and can't be continued without it",
    Effect.gen(function*() {
      const puppet = Puppet.make(
        { hang: Puppet.hangs },
        { reconcile: () => Effect.succeed({ keep: 0, recovered: [], prompted: false }) }
      )
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hang"))
      yield* client.AbortTurn({ session, turn: turn(1) })
      const without = yield* Effect.flip(client.StartTurn(continues))
      assert.deepInclude(without, { _tag: "TurnConflict", field: "prompt", attempt: 1, state: "aborted" })
      assert.deepInclude(yield* client.StartTurn({ ...continues, prompt: prompt("hang") }), {
        attempt: 2,
        status: "continued"
      })
      yield* until("the prompt", () => puppet.heard.length === 2)
      assert.deepStrictEqual(puppet.heard, ["hang", "hang"])
    })
  )

  test(
    "is continued by its id and prompt alone, and not by a repeat of what started it",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hang: Puppet.hangs, nudge: Puppet.hangs })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hang"))
      yield* client.AbortTurn({ session, turn: turn(1) })
      assert.deepInclude(yield* client.StartTurn({ ...act(1, "hang"), attempt: 1 }), {
        attempt: 1,
        from: 1,
        status: "ended"
      })
      assert.deepInclude(yield* client.StartTurn(act(1, "hang")), { attempt: 2, from: 1, status: "continued" })
      yield* client.AbortTurn({ session, turn: turn(1), attempt: 2 })
      // What started either attempt revives neither.
      for (const attempt of [1, 2]) {
        const late = yield* Effect.result(client.StartTurn({ ...act(1, "hang"), attempt }))
        if (attempt === 2) assert.deepInclude(late, { _tag: "Success" })
        else assert.deepInclude(late, { _tag: "Failure" })
      }
      assert.strictEqual((yield* endOf(client, turn(1))).type, "aborted")
      assert.deepStrictEqual(puppet.heard, ["hang", "nudge"])
    })
  )

  test(
    "keeps the form of its answer where the host that continues it no longer has it",
    Effect.gen(function*() {
      const formats: Array<unknown> = []
      const notes: Puppet.Act = (turn) => Effect.suspend(() => (formats.push(turn.responseFormat), Effect.never))
      const puppet = Puppet.make({ work: notes, nudge: notes })
      const first = yield* started(puppet)
      const responseFormat = { type: "json", schema: { type: "object" } } as const
      yield* first.client.StartTurn({ ...act(1, "work"), responseFormat })
      yield* first.end
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      yield* client.StartSession(first.start)
      yield* client.StartTurn(continues)
      yield* until("the nudge", () => formats.length === 2)
      assert.deepStrictEqual(formats, [responseFormat, responseFormat])
    })
  )

  test(
    "stays as it was where the agent's conversation is lost, or can't be looked at",
    Effect.gen(function*() {
      let problem: Effect.Effect<never, Bridge.ContextLost | Bridge.DriverError> = Effect.fail(
        new Bridge.ContextLost({ session, problem: "its transcript is gone" })
      )
      const puppet = Puppet.make({ work: Puppet.saysAndHangs("one"), nudge: Puppet.says("two") }, {
        reconcile: () => Effect.suspend(() => problem)
      })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "work"))
      yield* firstPart(client, turn(1), "step-finished")
      yield* client.AbortTurn({ session, turn: turn(1) })
      const before = yield* read(client, turn(1))
      assert.deepInclude(yield* Effect.flip(client.StartTurn(continues)), {
        _tag: "ContextLost",
        problem: "its transcript is gone"
      })
      problem = Effect.die(new Error("torn"))
      assert.deepInclude(yield* Effect.flip(client.StartTurn(continues)), { _tag: "DriverError", driver: "puppet" })
      assert.deepStrictEqual(yield* read(client, turn(1)), before)
      assert.deepInclude(yield* client.StartTurn({ ...act(1, "work"), attempt: 1 }), {
        attempt: 1,
        from: 1,
        status: "ended"
      })
      // Another turn can be had.
      yield* client.StartTurn(act(2, "work"))
      assert.isDefined(yield* firstPart(client, turn(2), "step-finished"))
    })
  )

  test(
    "keeps the attempt that its session knows, also where its file has lost it",
    Effect.gen(function*() {
      const puppet = Puppet.make({ work: Puppet.saysAndHangs("one"), nudge: Puppet.says("two") })
      const first = yield* started(puppet)
      yield* first.client.StartTurn(act(1, "work"))
      yield* firstPart(first.client, turn(1), "step-finished")
      yield* first.end
      // As after a power cut: the third attempt was begun, and the file has only the start of the first.
      const fs = yield* FileSystem.FileSystem
      const path = `${first.sessionDirectory}/turns/t1.ndjson`
      const lines = (yield* fs.readFileString(path)).split("\n")
      yield* fs.writeFileString(path, lines.slice(0, 3).join("\n") + "\n{\"n\":3,")
      yield* editSessionFile(first.sessionDirectory, (file) => ({ ...file, latest: { turn: "t1", attempt: 3 } }))
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      yield* client.StartSession(first.start)
      const { end, parts } = yield* read(client, turn(1))
      assert.strictEqual(parts.length, 2)
      assert.deepInclude(end, { attempt: 3, next: 3 })
      assert.deepInclude(end.end, { type: "aborted", reason: "bridge-died" })
      const error = yield* Effect.flip(
        client.StartTurn({ ...continues, attempt: 3 }).pipe(
          Effect.flatMap(({ status }) => status === "ended" ? Effect.fail("ended" as const) : Effect.succeed(status))
        )
      )
      assert.strictEqual(error, "ended")
      assert.deepInclude(yield* Effect.flip(client.StartTurn(continues)), { _tag: "TurnConflict", attempt: 3 })
      assert.deepInclude(yield* client.StartTurn({ ...continues, attempt: 4 }), { attempt: 4, status: "continued" })
      assert.strictEqual((yield* read(client, turn(1))).end.attempt, 4)
      assert.strictEqual((yield* sessionFile(first.sessionDirectory)).latest.attempt, 4)
      // A reader that has more than is left is told where to read on.
      const stale = yield* Effect.flip(
        Stream.runDrain(client.ReadTurn({ session, turn: turn(1), from: 5, attempt: 1 }))
      )
      assert.deepInclude(stale, { _tag: "PartNotFound", next: 3 })
    })
  )

  test(
    "adds up what all its attempts used, and says whether all of it was measured",
    Effect.gen(function*() {
      const step: Puppet.Act = (turn) =>
        Effect.as(
          turn.emit({ type: "step-finished", usage: { measured: true, outputTokens: { total: 5 } } }),
          { finishReason: "stop" }
        )
      const cut: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          yield* step(turn)
          yield* step(turn)
          yield* turn.emit({ type: "text-delta", id: "t", delta: "the third" })
          return yield* Effect.never
        })
      const puppet = Puppet.make({ cut, nudge: step })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "cut"))
      yield* firstPart(client, turn(1), "text-delta")
      const { end } = yield* client.AbortTurn({ session, turn: turn(1) })
      assert.deepStrictEqual(end.usage, { measured: false, outputTokens: { total: 10 } })
      yield* client.StartTurn(continues)
      assert.deepInclude(yield* endOf(client, turn(1)), {
        type: "finished",
        usage: { measured: false, outputTokens: { total: 15 } }
      })
    })
  )
})

describe("what an agent asked in an attempt that was aborted", () => {
  const asks = (attempt: number): Puppet.Act => (turn) =>
    Effect.gen(function*() {
      const call = { id: `c${attempt}`, name: "weather", params: { city: "Bern" } }
      const approval = {
        approvalId: `a${attempt}`,
        toolCallId: "b1",
        name: "Bash",
        params: { command: "ls" },
        edits: false
      }
      const question = { questionId: `q${attempt}`, questions: [{ question: "Which?", options: [] }] }
      yield* Effect.all([turn.callHostTool(call), turn.requestApproval(approval), turn.ask(question)], {
        concurrency: 3
      })
      return { finishReason: "stop" }
    })

  test(
    "can't be answered any more, and is asked again under a new id that says what it replaces",
    Effect.gen(function*() {
      const puppet = Puppet.make({ work: asks(1), nudge: asks(2) })
      const first = yield* started(puppet)
      yield* first.client.StartTurn(act(1, "work"))
      yield* firstPart(first.client, turn(1), "question")
      // The bridge dies; what was pending is closed by the end.
      yield* first.end
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      const key = { session, turn: turn(1) }
      const answers = (n: number): ReadonlyArray<Effect.Effect<unknown, unknown>> => [
        client.SubmitToolResult({ ...key, toolCallId: `c${n}`, result: 1, isFailure: false }),
        client.Approve({ ...key, approvalId: `a${n}`, decision: "allow" }),
        client.SubmitToolResult({ ...key, toolCallId: `q${n}`, result: { "Which?": "this" }, isFailure: false })
      ]
      for (const answer of answers(1)) {
        assert.match(String(yield* Effect.flip(answer)), /^TurnEnded/)
      }
      yield* client.StartSession(first.start)
      yield* client.StartTurn(continues)
      yield* firstPart(client, turn(1), "turn-continued")
      yield* client.ReadTurn({ ...key, from: 5 }).pipe(
        Stream.takeUntil((event) => "parts" in event && event.parts.some(({ part }) => part.type === "question")),
        Stream.runDrain
      )
      // The closed ones aren't those that are asked now.
      for (const answer of answers(1)) {
        assert.match(String(yield* Effect.flip(answer)), /^(ToolCall|Approval)NotFound/)
      }
      for (const answer of answers(2)) assert.deepStrictEqual(yield* answer, { accepted: true })
      const { parts } = yield* read(client, turn(1))
      const replaces = parts.flatMap(({ part }) => "replaces" in part ? [part.replaces] : [])
      assert.deepStrictEqual(replaces.sort(), ["a1", "c1", "q1"])
      // After the end nothing of that has changed.
      for (const answer of answers(2)) assert.deepStrictEqual(yield* answer, { accepted: true })
    })
  )
})
