import { assert, describe } from "@effect/vitest"
import { Scripted, ScriptedAgent } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import { Effect, Fiber, FileSystem, Stream } from "effect"
import { check } from "./fixtures/checker.ts"
import { find, openScripted, test } from "./fixtures/scripted.ts"
import { makeLog, partsOf, textOf, view } from "./fixtures/turns.ts"

const id = (name: string) => Bridge.MessageId.make(name)

const prompt = (text: string): Bridge.Prompt => [{ type: "text", text }]

const waits = { type: "tool", name: "sh", command: ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"] } as const

const until = (condition: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() => condition() ? Effect.void : Effect.delay(until(condition), "10 millis"))

const delivered = (log: ReturnType<typeof makeLog>) =>
  find(log, "user-message-delivered").map(({ messageId }) => messageId)

describe("Scripted, with messages", () => {
  test("takes them between steps and plays what they script, before the steps that were to come", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const { directory, home, host } = yield* openScripted()
      const log = makeLog("t1")
      const script = Scripted.toPrompt({ steps: [{ actions: [waits] }, { actions: [{ type: "text", text: "last" }] }] })
      const running = yield* Effect.forkChild(host.run(log, script), { startImmediately: true })
      yield* until(() => find(log, "tool-call").length === 1)
      const more = Scripted.toPrompt({
        steps: [{ actions: [{ type: "text", text: "one" }] }, { actions: [{ type: "text", text: "two" }] }]
      })
      yield* host.agent.steer!({ messageId: id("m1"), prompt: prompt(more) })
      yield* host.agent.steer!({ messageId: id("m2"), prompt: prompt("three") })
      yield* fs.writeFileString(`${directory}/go`, "")
      yield* Fiber.join(running)
      assert.strictEqual(textOf(partsOf(log)), "onetwothreelast")
      assert.deepStrictEqual(delivered(log), ["m1", "m2"])
      const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
      check(log, journal, { steps: 5, seed: "" })
      // Late, it isn't taken, and isn't in the next turn.
      yield* host.agent.steer!({ messageId: id("m3"), prompt: prompt("late") })
      const next = makeLog("t2")
      yield* host.run(next, "next")
      assert.strictEqual(textOf(partsOf(next)), "next")
    }))

  test("goes on with one as a further prompt of the same turn", () =>
    Effect.gen(function*() {
      const { home, host } = yield* openScripted()
      const log = makeLog("t1")
      yield* host.run(log, "first")
      yield* host.run(log, "second", { message: id("m1") })
      assert.strictEqual(textOf(partsOf(log)), "firstsecond")
      const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
      check(log, journal, { steps: 2, seed: "" })
      assert.deepStrictEqual(
        journal.flatMap((entry) => entry.type === "turn" ? [[entry.nudged, entry.message]] : []),
        [[false, undefined], [false, "m1"]]
      )
    }))

  test("knows which it has after it died, and goes on with them where they stood", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const { directory, home, host } = yield* openScripted()
      const log = makeLog("t1")
      const script = Scripted.toPrompt({ steps: [{ actions: [waits] }, { actions: [{ type: "text", text: "last" }] }] })
      const running = yield* Effect.forkChild(host.run(log, script), { startImmediately: true })
      yield* until(() => find(log, "tool-call").length === 1)
      const hangs = Scripted.toPrompt({
        steps: [
          { actions: [{ type: "text", text: "held" }] },
          { actions: [{ type: "text", text: "cut" }, { type: "hang", attempts: [1] }] }
        ]
      })
      yield* host.agent.steer!({ messageId: id("m1"), prompt: prompt(hangs) })
      yield* fs.writeFileString(`${directory}/go`, "")
      yield* until(() => textOf(partsOf(log)).includes("cut"))
      yield* host.agent.steer!({ messageId: id("m2"), prompt: prompt("waits") })
      process.kill(host.processes.at(-1)!.pid, "SIGKILL")
      yield* Fiber.await(running)
      const { messages } = yield* host.agent.reconcile!({
        turn: log.turn,
        attempt: 2,
        messages: [id("m1"), id("m2")],
        parts: Stream.fromIterable(view(log))
      })
      assert.deepStrictEqual(messages, new Set([id("m1")]))
      yield* host.resume(log, script)
      assert.strictEqual(textOf(partsOf(log)), "heldcutlast")
      const journal = yield* ScriptedAgent.readJournal({ home, conversation: host.agent.conversation! })
      check(log, journal, { steps: 4, seed: "" })
    }))
})
