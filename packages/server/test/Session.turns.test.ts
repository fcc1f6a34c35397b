import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import type { Turn } from "@gangway/server/Driver"
import { Effect, FileSystem, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  directories,
  editSessionFile,
  endOf,
  firstPart,
  launch,
  prompt,
  read,
  session,
  started,
  test,
  testClocked,
  turn,
  until
} from "./fixtures/sessions.ts"

const acts = { hi: Puppet.says("hello"), hang: Puppet.hangs }
const format = (title: string): Bridge.ResponseFormat => ({ type: "json", schema: { type: "object", title } })

describe("a turn", () => {
  test(
    "is numbered from 1, ends once, and is read from any number on",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make(acts))
      assert.deepInclude(yield* client.StartTurn(act(1, "hi")), { attempt: 1, from: 1, status: "started" })
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
      assert.deepInclude(yield* Effect.flip(read(client, turn(1), 6)), { _tag: "PartNotFound", next: 5 })
    })
  )

  test(
    "says at its start how far it has come",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ talk: Puppet.saysAndHangs("one"), nudge: Puppet.says("two") }))
      assert.isAtLeast((yield* client.StartTurn(act(1, "talk"))).next, 1)
      yield* firstPart(client, turn(1), "step-finished")
      const start = { ...act(1, "talk"), attempt: 1 }
      assert.deepStrictEqual(yield* client.StartTurn(start), { attempt: 1, from: 1, next: 5, status: "running" })
      yield* client.AbortTurn({ session, turn: turn(1) })
      assert.deepStrictEqual(yield* client.StartTurn(start), { attempt: 1, from: 1, next: 5, status: "ended" })
      const { next, ...continued } = yield* client.StartTurn({ ...start, attempt: 2 })
      assert.deepStrictEqual(continued, { attempt: 2, from: 5, status: "continued" })
      assert.isAtLeast(next, 6)
      const { end } = yield* read(client, turn(1))
      assert.strictEqual((yield* client.StartTurn({ ...start, attempt: 2 })).next, end.next)
    })
  )

  test(
    "gets the same answer however often it's started, whatever its state",
    Effect.gen(function*() {
      const puppet = Puppet.make({
        ...acts,
        fail: () => Effect.fail(new Bridge.TurnFailed({ kind: "auth", message: "no" }))
      })
      const { client } = yield* started(puppet)
      const repeats = Effect.fnUntraced(
        function*(n: number, name: string, status: "running" | "ended", state: Bridge.TurnState) {
          const start = act(n, name)
          for (const repeat of [{ ...start, attempt: 1 }, { session, turn: turn(n), attempt: 1 }]) {
            assert.deepInclude(yield* client.StartTurn(repeat), { attempt: 1, from: 1, status })
          }
          // Without an attempt, what was aborted would be continued.
          if (state !== "aborted") {
            for (const repeat of [start, { session, turn: turn(n) }]) {
              assert.deepInclude(yield* client.StartTurn(repeat), { attempt: 1, from: 1, status })
            }
            const next = yield* Effect.flip(client.StartTurn({ ...start, attempt: 2 }))
            assert.deepInclude(next, { _tag: "TurnConflict", field: "attempt", attempt: 1, state })
          }
          for (const attempt of [{}, { attempt: 1 }, { attempt: 2 }]) {
            const other = yield* Effect.flip(client.StartTurn({ ...start, prompt: prompt("other"), ...attempt }))
            assert.deepInclude(other, { _tag: "TurnConflict", field: "prompt", attempt: 1, state })
          }
          const far = yield* Effect.flip(client.StartTurn({ ...start, attempt: 3 }))
          assert.deepInclude(far, { _tag: "TurnConflict", field: "attempt", attempt: 1, state })
        }
      )
      yield* client.StartTurn(act(1, "hang"))
      yield* repeats(1, "hang", "running", "running")
      yield* client.AbortTurn({ session, turn: turn(1) })
      yield* repeats(1, "hang", "ended", "aborted")
      yield* client.StartTurn(act(2, "hi"))
      yield* read(client, turn(2))
      yield* repeats(2, "hi", "ended", "finished")
      yield* client.StartTurn(act(3, "fail"))
      yield* read(client, turn(3))
      yield* repeats(3, "fail", "ended", "failed")
      assert.deepStrictEqual(puppet.heard, ["hang", "hi", "fail"])
    })
  )

  test(
    "is the same only with the same format of its answer",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make(acts))
      const start = { ...act(1, "hang"), responseFormat: format("a") }
      yield* client.StartTurn(start)
      // Equal as JSON, whatever the order of its keys.
      const same = { type: "json", schema: { title: "a", type: "object" } } as const
      assert.strictEqual((yield* client.StartTurn({ ...start, responseFormat: same })).status, "running")
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
      for (
        const wrong of [
          act(1, "hang"),
          { ...start, responseFormat: format("b") },
          { session, turn: turn(1), responseFormat: format("b") }
        ]
      ) {
        assert.deepInclude(yield* Effect.flip(client.StartTurn(wrong)), {
          _tag: "TurnConflict",
          field: "format",
          state: "running"
        })
      }
      yield* client.StartTurn(act(2, "hang"))
      const added = yield* Effect.flip(client.StartTurn({ ...act(2, "hang"), responseFormat: format("a") }))
      assert.deepInclude(added, { _tag: "TurnConflict", field: "format" })
    })
  )

  test(
    "that's new begins at attempt 1, with a prompt",
    Effect.gen(function*() {
      const puppet = Puppet.make(acts)
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hang"))
      const second = yield* Effect.flip(client.StartTurn({ ...act(2, "hi"), attempt: 2 }))
      assert.deepInclude(second, { _tag: "TurnConflict", field: "attempt", attempt: 0 })
      const without = yield* Effect.flip(client.StartTurn({ session, turn: turn(2) }))
      assert.deepInclude(without, { _tag: "TurnConflict", field: "prompt", attempt: 0 })
      // Neither ended the one that runs.
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
      yield* client.StartTurn({ ...act(2, "hi"), attempt: 1 })
      yield* read(client, turn(2))
      assert.deepStrictEqual(puppet.heard, ["hang", "hi"])
    })
  )

  test(
    "ends the one that runs, as replaced",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make(acts))
      yield* client.StartTurn(act(1, "hang"))
      yield* client.StartTurn(act(2, "hi"))
      const aborted = yield* client.AbortTurn({ session, turn: turn(1) })
      assert.deepInclude(aborted.end, { type: "aborted", reason: "replaced" })
      assert.deepInclude(yield* Effect.flip(read(client, turn(1))), {
        _tag: "TurnNotFound",
        latest: turn(2),
        end: aborted.end
      })
    })
  )

  test(
    "never runs again after another, and ends nothing then",
    Effect.gen(function*() {
      const puppet = Puppet.make(acts)
      const { client, directory, end, stateDirectory } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hi"))
      yield* read(client, turn(1))
      yield* client.StartTurn(act(2, "hang"))
      const superseded = { _tag: "TurnSuperseded", turn: turn(1), latest: turn(2) } as const
      for (const again of [act(1, "hi"), { ...act(1, "hi"), attempt: 1 }, { session, turn: turn(1), attempt: 2 }]) {
        const error = yield* Effect.flip(client.StartTurn(again))
        assert.deepInclude(error, superseded)
        assert.deepInclude(error._tag === "TurnSuperseded" && error.end, { type: "finished", finishReason: "stop" })
      }
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(2) })).status, "running")
      assert.deepStrictEqual(puppet.heard, ["hi", "hang"])
      // After a restart it's the same.
      yield* end
      const { client: later } = yield* launch(puppet.driver, stateDirectory)
      yield* later.StartSession({ session, directory, permissions: "ask", settings: "none" })
      assert.deepInclude(yield* Effect.flip(later.StartTurn(act(1, "hi"))), superseded)
    })
  )

  test(
    "is remembered by how it ended, without what it answered",
    Effect.gen(function*() {
      const big = "x".repeat(10_000)
      const { client, sessionDirectory } = yield* started(
        Puppet.make({ ...acts, big: () => Effect.succeed({ finishReason: "stop", output: big } as never) })
      )
      yield* client.StartTurn({ ...act(1, "big"), responseFormat: format("a") })
      assert.deepInclude(yield* endOf(client, turn(1)), { type: "finished", output: big })
      yield* client.StartTurn(act(2, "hi"))
      const superseded = yield* Effect.flip(client.StartTurn(act(1, "big")))
      assert.notProperty(superseded._tag === "TurnSuperseded" && superseded.end, "output")
      yield* read(client, turn(2))
      const fs = yield* FileSystem.FileSystem
      for (const file of ["session.json", "earlier.ndjson"]) {
        assert.isBelow((yield* fs.readFileString(`${sessionDirectory}/${file}`)).length, 3000)
      }
    })
  )

  test(
    "is refused where its session has had 10,000",
    Effect.gen(function*() {
      const puppet = Puppet.make(acts)
      const first = yield* started(puppet)
      yield* first.client.StartTurn(act(0, "hi"))
      yield* read(first.client, turn(0))
      yield* first.end
      const end = { type: "finished", usage: { measured: true }, finishReason: "stop" }
      const earlier = Array.from({ length: 9_998 }, (_, i) => `${JSON.stringify({ turn: `t${i + 10}`, end })}\n`).join(
        ""
      )
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(`${first.sessionDirectory}/earlier.ndjson`, earlier)
      yield* editSessionFile(first.sessionDirectory, (file) => ({
        ...file,
        earlier: { turns: 9_998, bytes: earlier.length }
      }))
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      yield* client.StartSession(first.start)
      assert.strictEqual((yield* client.StartTurn(act(1, "hang"))).status, "started")
      const full = yield* Effect.flip(client.StartTurn(act(2, "hi")))
      assert.deepInclude(full, { _tag: "SessionFull", turns: 10_000 })
      // Its own turns are all as they were.
      assert.strictEqual((yield* client.StartTurn(act(1, "hang"))).status, "running")
      assert.strictEqual((yield* Effect.flip(client.StartTurn(act(10, "hi"))))._tag, "TurnSuperseded")
    })
  )

  test(
    "is refused where its session isn't there, or what it asks for can't be had",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make(acts, {}, { capabilities: Bridge.noCapabilities })
      const { client } = yield* launch(puppet.driver, stateDirectory)
      assert.strictEqual((yield* Effect.flip(client.StartTurn(act(1, "hi"))))._tag, "SessionNotFound")
      yield* client.StartSession({ session, directory, permissions: "ask", settings: "none" })
      const image: Bridge.Prompt = [{ type: "file", mediaType: "image/png", data: "" }]
      for (
        const [asked, capability] of [
          [{ ...act(1, "hi"), responseFormat: format("a") }, "structuredOutput"],
          [{ ...act(1, "hi"), effort: "high" }, "effort"],
          [{ session, turn: turn(1), prompt: image }, "images"]
        ] as const
      ) {
        assert.deepInclude(yield* Effect.flip(client.StartTurn(asked)), { _tag: "Unsupported", capability })
      }
      assert.deepStrictEqual(puppet.heard, [])
    })
  )

  test(
    "is read to its end by who reads it while another begins",
    Effect.gen(function*() {
      const words = "x".repeat(200 * 1024)
      const talks: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          for (let i = 0; i < 10; i++) yield* Puppet.say(turn, words)
          return { finishReason: "stop" }
        })
      const { client } = yield* started(Puppet.make({ ...acts, talk: talks }))
      yield* client.StartTurn(act(1, "talk"))
      yield* read(client, turn(1))
      let begun = false
      let numbers = 0
      const end = yield* client.ReadTurn({ session, turn: turn(1), from: 1 }).pipe(
        Stream.mapEffect((event) =>
          Effect.gen(function*() {
            if ("end" in event) return event
            numbers += event.parts.length
            // Its file is gone, and what memory holds of it isn't all that's missing.
            if (!begun) yield* client.StartTurn(act(2, "hi"))
            begun = true
            return undefined
          })
        ),
        Stream.runLast
      )
      assert.strictEqual(numbers, 40)
      assert.strictEqual(end._tag === "Some" && end.value?.next, 41)
      assert.strictEqual((yield* Effect.flip(read(client, turn(1))))._tag, "TurnNotFound")
    })
  )

  testClocked(
    "has all the time it needs where no host says otherwise",
    Effect.gen(function*() {
      const slow: Puppet.Act = (turn) =>
        Effect.andThen(Effect.sleep("3 hours"), Effect.as(Puppet.say(turn, "done"), { finishReason: "stop" }))
      const puppet = Puppet.make({ slow })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "slow"))
      yield* TestClock.adjust("179 minutes")
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
    })
  )
})

describe("an end", () => {
  test(
    "says why an agent failed, and is final",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({}))
      yield* client.StartTurn(act(1, "nothing"))
      assert.deepStrictEqual(yield* endOf(client, turn(1)), {
        type: "failed",
        error: { kind: "invalid-request", message: "no act 'nothing'" },
        usage: { measured: true }
      })
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "ended")
    })
  )

  const endless: Puppet.Act = (turn) =>
    Effect.forever(Effect.andThen(
      turn.emit({ type: "step-finished", usage: { measured: true, outputTokens: { total: 5 }, cost: 0.5 } }),
      Effect.sleep(1)
    ))

  for (
    const [limit, limits, tokens] of [
      ["steps", { steps: 3 }, 15],
      ["tokens", { tokens: 18 }, 20],
      ["cost", { cost: 1 }, 10],
      ["time", { time: 50 }, undefined]
    ] as const
  ) {
    test(
      `comes by the session's limit of ${limit}`,
      Effect.gen(function*() {
        const { client } = yield* started(Puppet.make({ endless }), { limits })
        yield* client.StartTurn(act(1, "endless"))
        const end = yield* endOf(client, turn(1))
        assert.deepInclude(end, { type: "aborted", reason: "limit", limit })
        if (tokens !== undefined) assert.strictEqual(end.usage.outputTokens?.total, tokens)
      })
    )
  }

  const step = (turn: Turn, finishReason?: string) =>
    Effect.andThen(
      turn.emit({ type: "text-delta", id: "t", delta: "a" }),
      turn.emit({ type: "step-finished", usage: { measured: true }, ...(finishReason && { finishReason }) })
    )

  test(
    "isn't a limit's where the step that reached it was the agent's last",
    Effect.gen(function*() {
      const { client } = yield* started(
        Puppet.make({
          done: (turn) => Effect.as(step(turn, "stop"), { finishReason: "stop" }),
          unsaid: (turn) => Effect.as(step(turn), { finishReason: "stop" }),
          tools: (turn) => Effect.as(step(turn, "tool-calls"), { finishReason: "stop" }),
          again: (turn) => Effect.as(Effect.andThen(step(turn, "stop"), step(turn, "stop")), { finishReason: "stop" })
        }),
        { limits: { steps: 1 } }
      )
      const ends: Array<string> = []
      for (const name of ["done", "unsaid", "tools", "again", "done"]) {
        yield* client.StartTurn(act(ends.length + 1, name))
        ends.push((yield* endOf(client, turn(ends.length + 1))).type)
      }
      assert.deepStrictEqual(ends, ["finished", "aborted", "aborted", "aborted", "finished"])
    })
  )

  test(
    "comes by the turn's timeout, before the session's limit of time",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make(acts), { limits: { time: 60_000 } })
      yield* client.StartTurn({ ...act(1, "hang"), timeout: 50 })
      const end = yield* endOf(client, turn(1))
      assert.deepInclude(end, { type: "aborted", reason: "timeout" })
      assert.notProperty(end, "limit")
    })
  )

  test(
    "comes within seconds of the time it was set to, also where that's more than a timer holds",
    Effect.gen(function*() {
      const puppet = Puppet.make(acts)
      const { client } = yield* started(puppet)
      yield* client.StartTurn({ ...act(1, "hang"), timeout: 2 ** 31 + 1000 })
      yield* until("the prompt", () => puppet.heard.length === 1)
      yield* Effect.sleep(50)
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
    })
  )
})

describe("raw events", () => {
  test(
    "are asked of the agent where the turn wants them, and are parts for all readers",
    Effect.gen(function*() {
      const echo: Puppet.Act = (turn) =>
        Effect.as(
          Effect.andThen(
            turn.raw ? turn.emit({ type: "raw", event: { native: true } }) : Effect.void,
            turn.emit({ type: "text-start", id: "t" })
          ),
          { finishReason: "stop" }
        )
      const { client } = yield* started(Puppet.make({ echo }))
      yield* client.StartTurn(act(1, "echo"))
      assert.deepStrictEqual((yield* read(client, turn(1))).types, ["text-start"])
      yield* client.StartTurn({ ...act(2, "echo"), raw: true })
      assert.deepStrictEqual((yield* read(client, turn(2))).types, ["raw", "text-start"])
      assert.deepStrictEqual((yield* read(client, turn(2))).types, ["raw", "text-start"])
    })
  )
})
