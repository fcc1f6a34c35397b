/**
 * What the driver of every real agent must do with messages that hosts send into a running turn.
 */
import { assert } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, Exit, Fiber, FileSystem, Stream } from "effect"
import { makeLog, partsOf, textOf, view } from "../../packages/drivers/test/fixtures/turns.ts"
import { script } from "../model/Script.ts"
import { allow, fileOf, killIn, messagesOf, only, type Profile, test, testOf, unpaired, until } from "./driverWorld.ts"

const id = (name: string) => Bridge.MessageId.make(name)

const prompt = (text: string): Bridge.Prompt => [{ type: "text", text }]

/** A command that says that it has begun, and ends once a file is there. */
const waitForGo = "echo begun >> done.txt; until [ -e go.txt ]; do sleep 0.1; done"

const saidBy = (log: ReturnType<typeof makeLog>) => partsOf(log).map((part) => part.type)

/** The cases, to be called in a suite. */
export const messageConformance = (profile: Profile) => {
  testOf(
    profile,
    "steering",
    "takes a message while it works, with its next call of the model",
    (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const host = yield* world.open()
        const log = makeLog("t1")
        const running = yield* Effect.forkChild(
          host.run(log, `Do it. ${script({ bash: waitForGo }, { text: "Went on." })}`, allow)
        )
        yield* until(() => only(partsOf(log), "tool-call").length === 1)
        yield* host.agent.steer!({ messageId: id("m1"), prompt: prompt("STEERED") })
        yield* fs.writeFileString(`${world.directory}/go.txt`, "")
        const { finishReason } = yield* Fiber.join(running)
        assert.strictEqual(finishReason, "stop")
        const [first, second, ...more] = yield* world.server.calls("Do it.")
        assert.deepStrictEqual(more, [])
        assert.notInclude(JSON.stringify(messagesOf(first!)), "STEERED")
        assert.include(JSON.stringify(messagesOf(second!)), "STEERED")
        assert.deepStrictEqual(only(partsOf(log), "user-message-delivered").map(({ messageId }) => messageId), ["m1"])
        assert.isBelow(saidBy(log).indexOf("user-message-delivered"), saidBy(log).indexOf("text-start"))
        assert.strictEqual(textOf(partsOf(log)), "Went on.")
      })
  )

  testOf(
    profile,
    "steering",
    "isn't done before it has worked on what it's told with its last answer",
    (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const log = makeLog("t1")
        const running = yield* Effect.forkChild(
          host.run(log, `Do it. ${script({ words: 100, delay: 30 }, { text: "And more." })}`, allow)
        )
        yield* until(() => textOf(partsOf(log)).includes("word5"))
        yield* host.agent.steer!({ messageId: id("m1"), prompt: prompt("STEERED") })
        const { finishReason } = yield* Fiber.join(running)
        assert.strictEqual(finishReason, "stop")
        // Some cut the answer short for it, others go on after it.
        assert.strictEqual((yield* world.server.calls("STEERED")).length, 1)
        assert.include(textOf(partsOf(log)), "word99")
        assert.deepStrictEqual(only(partsOf(log), "user-message-delivered").map(({ messageId }) => messageId), ["m1"])
        const said = saidBy(log)
        const countOf = (type: string) => said.filter((one) => one === type).length
        assert.strictEqual(countOf("text-end"), countOf("text-start"))
        assert.isBelow(said.indexOf("user-message-delivered"), said.lastIndexOf("text-delta"))
        // Without work there's nobody to be told.
        yield* Effect.ignore(host.agent.steer!({ messageId: id("m2"), prompt: prompt("TOO-LATE") }))
        yield* host.run(makeLog("t2"), `Again. ${script({ text: "Fine." })}`)
        assert.deepStrictEqual(yield* world.server.calls("TOO-LATE"), [])
      })
  )

  test(profile, "works on a further message in the same turn", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const log = makeLog("t1")
      yield* host.run(log, `FIRST ${script({ bash: "echo one" }, { text: "One." })}`, allow)
      const { finishReason } = yield* host.run(log, `SECOND ${script({ bash: "echo two" }, { text: "Two." })}`, {
        ...allow,
        message: id("m1")
      })
      assert.strictEqual(finishReason, "stop")
      const parts = partsOf(log)
      const said = JSON.stringify(messagesOf((yield* world.server.calls("SECOND")).at(-1)!))
      assert.isBelow(said.indexOf("FIRST"), said.indexOf("SECOND"))
      assert.isAtLeast(said.indexOf("FIRST"), 0)
      for (const type of ["text-start", "tool-call"] as const) {
        const ids = only(parts, type).map(({ id }) => id)
        assert.strictEqual(ids.length, 2)
        assert.strictEqual(new Set(ids).size, 2)
      }
    }))

  testOf(
    profile,
    "continuation",
    "tells which messages it has when its turn is continued",
    (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const log = makeLog("t1")
        const first = `FIRST ${script({ bash: "echo one >> one.txt" }, { text: "One." })}`
        yield* host.run(log, first, allow)
        const later = `SECOND ${script({ bash: "echo two >> done.txt; perl -e 'sleep 1000'" }, { text: "Two." })}`
        const running = yield* Effect.forkChild(
          host.run(log, later, { ...allow, message: id("m1") }),
          { startImmediately: true }
        )
        yield* killIn(world, host, "two")
        assert.isTrue(Exit.isFailure(yield* Fiber.await(running)))
        yield* host.supervisor.endAll
        const { messages } = yield* host.agent.reconcile!({
          turn: log.turn,
          attempt: 2,
          messages: [id("m1"), id("m2")],
          parts: Stream.fromIterable(view(log))
        })
        assert.deepStrictEqual(messages, profile.capabilities.steering ? new Set([id("m1")]) : undefined)
        const { finishReason } = yield* host.resume(log, first, allow)
        assert.strictEqual(finishReason, "stop")
        // What was finished in the prompt's part of the turn counts, and didn't run again.
        assert.strictEqual((yield* fileOf(`${world.directory}/one.txt`)).trim(), "one")
        assert.strictEqual(only(partsOf(log), "text-start").length >= 1, true)
        assert.include(textOf(partsOf(log)), "One.")
        const last = (yield* world.server.calls("SECOND")).at(-1)!
        assert.strictEqual(JSON.stringify(messagesOf(last)).split("SECOND").length, 2, "the message is there once")
        assert.deepStrictEqual(unpaired(messagesOf(last)), [])
      })
  )
}
