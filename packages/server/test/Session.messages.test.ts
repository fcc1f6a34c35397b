import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import type { AgentSession } from "@gangway/server/Driver"
import { Deferred, Effect, Fiber, Redacted, Stream } from "effect"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  endOf,
  firstPart,
  launch,
  prompt,
  read,
  session,
  started,
  test,
  turn,
  until
} from "./fixtures/sessions.ts"

const id = (name: string) => Bridge.MessageId.make(name)

const message = (name: string, text: string, delivery?: Bridge.Delivery) => ({
  session,
  turn: turn(1),
  messageId: id(name),
  prompt: prompt(text),
  ...(delivery === undefined ? {} : { delivery })
})

const sent = (parts: ReadonlyArray<Bridge.NumberedPart>) =>
  parts.flatMap(({ part }) =>
    part.type === "user-message" || part.type === "user-message-delivered" ? [[part.type, part.messageId]] : []
  )

const steers = { capabilities: { ...Bridge.noCapabilities, continuation: true, steering: true } }

/** An act that's done when the test says so. */
const waits = Effect.map(Deferred.make<void>(), (gate) => ({
  finish: Deferred.succeed(gate, undefined),
  act: ((turn) =>
    Effect.gen(function*() {
      yield* Puppet.say(turn, "working")
      yield* Deferred.await(gate)
      return { finishReason: "stop" }
    })) satisfies Puppet.Act as Puppet.Act
}))

/** Waits until the agent's first step is done. */
const working = (client: Parameters<typeof firstPart>[0]) => firstPart(client, turn(1), "step-finished")

describe("a message", () => {
  test(
    "that's queued is worked on in the same turn, after what came before",
    Effect.gen(function*() {
      const work = yield* waits
      const puppet = Puppet.make({ work: work.act, more: Puppet.says("more"), last: Puppet.says("last") })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "work"))
      yield* working(client)
      const accepted = { accepted: true, delivery: "queue" } as const
      assert.deepStrictEqual(yield* client.SendMessage(message("m1", "more")), accepted)
      assert.deepStrictEqual(yield* client.SendMessage(message("m2", "last", "queue")), accepted)
      assert.deepStrictEqual(puppet.heard, ["work"])
      yield* work.finish
      const { end, parts, types } = yield* read(client, turn(1))
      assert.deepStrictEqual(puppet.heard, ["work", "more", "last"])
      assert.deepInclude(end, { attempt: 1 })
      assert.deepInclude(end.end, { type: "finished", usage: { measured: true, outputTokens: { total: 15 } } })
      assert.deepStrictEqual(sent(parts), [
        ["user-message", "m1"],
        ["user-message", "m2"],
        ["user-message-delivered", "m1"],
        ["user-message-delivered", "m2"]
      ])
      assert.deepStrictEqual(parts[4]?.part, {
        type: "user-message",
        messageId: id("m1"),
        prompt: prompt("more"),
        delivery: "queue"
      })
      assert.isBelow(types.indexOf("user-message-delivered"), types.lastIndexOf("text-start"))
    })
  )

  test(
    "has one outcome, however often it's sent, also after its turn's end and a restart",
    Effect.gen(function*() {
      const work = yield* waits
      const puppet = Puppet.make({ work: work.act, more: Puppet.says("more") })
      const first = yield* started(puppet)
      yield* first.client.StartTurn(act(1, "work"))
      yield* working(first.client)
      const outcomes = yield* Effect.forEach(
        [message("m1", "more"), message("m1", "more"), message("m1", "more", "queue"), message("m1", "other")],
        (message) => Effect.result(first.client.SendMessage(message)),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(outcomes.map(({ _tag }) => _tag), ["Success", "Success", "Success", "Failure"])
      yield* work.finish
      const { parts } = yield* read(first.client, turn(1))
      assert.strictEqual(sent(parts).length, 2)
      assert.deepStrictEqual(puppet.heard, ["work", "more"])

      const check = Effect.fnUntraced(function*(client: typeof first.client) {
        assert.deepInclude(yield* client.SendMessage(message("m1", "more")), { delivery: "queue" })
        const prompt = yield* Effect.flip(client.SendMessage(message("m1", "other")))
        assert.deepInclude(prompt, { _tag: "MessageConflict", messageId: id("m1"), field: "prompt" })
        const delivery = yield* Effect.flip(client.SendMessage(message("m1", "more", "steer")))
        assert.deepInclude(delivery, { _tag: "MessageConflict", field: "delivery" })
        const late = yield* Effect.flip(client.SendMessage(message("m2", "more")))
        assert.deepInclude(late, { _tag: "TurnEnded", turn: turn(1) })
      })
      yield* check(first.client)
      yield* first.end
      const again = yield* launch(puppet.driver, first.stateDirectory)
      yield* check(again.client)
      const unknown = yield* Effect.flip(again.client.SendMessage({ ...message("m1", "more"), turn: turn(2) }))
      assert.strictEqual(unknown._tag, "TurnNotFound")
    })
  )

  test(
    "is on disk before the agent hears it",
    Effect.gen(function*() {
      const heard: Array<string | undefined> = []
      const work = yield* waits
      const { client } = yield* started(Puppet.make({
        work: work.act,
        more: () =>
          Effect.gen(function*() {
            heard.push((yield* Effect.orDie(delivered))?.part.type)
            return { finishReason: "stop" }
          })
      }))
      const delivered: Effect.Effect<Bridge.NumberedPart | undefined, unknown> = Effect.suspend(() =>
        firstPart(client, turn(1), "user-message-delivered")
      )
      yield* client.StartTurn(act(1, "work"))
      yield* working(client)
      yield* client.SendMessage(message("m1", "more"))
      assert.isDefined(yield* firstPart(client, turn(1), "user-message"))
      yield* work.finish
      yield* endOf(client, turn(1))
      assert.deepStrictEqual(heard, ["user-message-delivered"])
    })
  )

  test(
    "that steers is handed to the agent while it works",
    Effect.gen(function*() {
      const work = yield* waits
      const told: Array<string> = []
      let running: Parameters<Puppet.Act>[0] | undefined
      const puppet = Puppet.make(
        {
          work: (turn) => {
            running = turn
            return work.act(turn)
          }
        },
        {
          steer: ({ messageId }) =>
            Effect.suspend(() => {
              told.push(messageId)
              return running!.delivered(messageId)
            })
        },
        steers
      )
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "work"))
      yield* working(client)
      assert.deepStrictEqual(yield* client.SendMessage(message("m1", "left")), { accepted: true, delivery: "steer" })
      yield* firstPart(client, turn(1), "user-message-delivered")
      assert.deepInclude(yield* client.SendMessage(message("m1", "left", "steer")), { delivery: "steer" })
      yield* work.finish
      const { end, parts } = yield* read(client, turn(1))
      assert.strictEqual(end.end.type, "finished")
      assert.deepStrictEqual(told, ["m1"])
      assert.deepStrictEqual(puppet.heard, ["work"])
      assert.deepStrictEqual(sent(parts), [["user-message", "m1"], ["user-message-delivered", "m1"]])
    })
  )

  test(
    "that the agent can't take while it works, or whose driver breaks or hangs, is what it works on next",
    Effect.gen(function*() {
      const steer: ReadonlyArray<NonNullable<AgentSession["steer"]>> = [
        () => Effect.void,
        () => Effect.fail(new Bridge.TurnFailed({ kind: "unknown", message: "no" })),
        () => Effect.die("broken"),
        () => Effect.never
      ]
      for (const [i, how] of steer.entries()) {
        const work = yield* waits
        const puppet = Puppet.make({ work: work.act, more: Puppet.says("more") }, { steer: how }, steers)
        const { client } = yield* started(puppet)
        yield* client.StartTurn(act(1, "work"))
        yield* working(client)
        yield* client.SendMessage(message(`m${i}`, "more"))
        yield* work.finish
        const { end, parts } = yield* read(client, turn(1))
        assert.strictEqual(end.end.type, "finished")
        assert.deepStrictEqual(puppet.heard, ["work", "more"])
        assert.deepStrictEqual(sent(parts).map(([type]) => type), ["user-message", "user-message-delivered"])
      }
    })
  )

  test(
    "is refused where the agent can't do what it asks",
    Effect.gen(function*() {
      const work = yield* waits
      const { client } = yield* started(Puppet.make({ work: work.act }))
      yield* client.StartTurn(act(1, "work"))
      yield* working(client)
      const steered = yield* Effect.flip(client.SendMessage(message("m1", "more", "steer")))
      assert.deepInclude(steered, { _tag: "Unsupported", capability: "steering" })
      const image = { type: "file", mediaType: "image/png", data: "AAAA" } as const
      const shown = yield* Effect.flip(client.SendMessage({ ...message("m1", ""), prompt: [image] }))
      assert.deepInclude(shown, { _tag: "Unsupported", capability: "images" })
      yield* work.finish
      const { parts } = yield* read(client, turn(1))
      assert.deepStrictEqual(sent(parts), [])
    })
  )

  test(
    "is refused while too many wait",
    Effect.gen(function*() {
      const work = yield* waits
      const { client } = yield* started(Puppet.make({ work: work.act, more: Puppet.says("more") }))
      yield* client.StartTurn(act(1, "work"))
      yield* working(client)
      for (let i = 0; i < Bridge.maxWaitingMessages; i++) yield* client.SendMessage(message(`m${i}`, "more"))
      const refused = yield* Effect.flip(client.SendMessage(message("one-more", "more")))
      assert.deepInclude(refused, { _tag: "TooManyMessages", limit: 32 })
      yield* client.SendMessage(message("m0", "more"))
      yield* work.finish
      const { parts } = yield* read(client, turn(1))
      assert.strictEqual(sent(parts).length, 2 * 32)
    })
  )

  test(
    "that comes while its turn ends is told so, and what waits then isn't told as delivered",
    Effect.gen(function*() {
      const puppet = Puppet.make({ work: Puppet.saysAndHangs("working") }, { interrupt: Effect.never })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "work"))
      yield* working(client)
      yield* client.SendMessage(message("m1", "more"))
      const aborting = yield* Effect.forkChild(client.AbortTurn({ session, turn: turn(1) }), {
        startImmediately: true
      })
      const late = yield* Effect.flip(Effect.delay(client.SendMessage(message("m2", "more")), "100 millis"))
      assert.strictEqual(late._tag, "TurnEnded")
      yield* Fiber.join(aborting)
      const { end, parts } = yield* read(client, turn(1))
      assert.strictEqual(end.end.type, "aborted")
      assert.deepStrictEqual(sent(parts), [["user-message", "m1"]])
    })
  )

  test(
    "that comes as its turn's time is over is told so",
    Effect.gen(function*() {
      const puppet = Puppet.make({ work: Puppet.saysAndHangs("working") }, { interrupt: Effect.never })
      const { client } = yield* started(puppet)
      yield* client.StartTurn({ ...act(1, "work"), timeout: 400 })
      yield* working(client)
      // The agent has two seconds to stop by itself.
      const outcomes = yield* Effect.forEach(
        Array.from({ length: 12 }, (_, i) => message(`m${i}`, "more")),
        (message) => Effect.result(Effect.delay(client.SendMessage(message), "50 millis"))
      )
      const accepted = outcomes.filter(({ _tag }) => _tag === "Success").length
      const late = outcomes.flatMap((outcome) => outcome._tag === "Failure" ? [outcome.failure] : [])
      assert.isBelow(accepted, 12)
      for (const error of late) assert.deepInclude(error, { _tag: "TurnEnded" })
      const { end, parts } = yield* read(client, turn(1))
      assert.deepInclude(end.end, { type: "aborted", reason: "timeout" })
      assert.strictEqual(sent(parts).length, accepted)
    })
  )

  test(
    "to a turn before the latest is told how that ended",
    Effect.gen(function*() {
      const { client } = yield* started(Puppet.make({ one: Puppet.says("one"), two: Puppet.hangs }))
      yield* client.StartTurn(act(1, "one"))
      yield* endOf(client, turn(1))
      yield* client.StartTurn(act(2, "two"))
      const late = yield* Effect.flip(client.SendMessage(message("m1", "more")))
      assert.deepInclude(late, { _tag: "TurnEnded", turn: turn(1) })
    })
  )

  test(
    "has its secrets replaced in the log, reaches the agent with them, and is compared with them",
    Effect.gen(function*() {
      const work = yield* waits
      const puppet = Puppet.make({ work: work.act, "use hush-hush-0123": Puppet.says("more") })
      const first = yield* started(puppet, { env: { KEY: Redacted.make("hush-hush-0123") } })
      yield* first.client.StartTurn(act(1, "work"))
      yield* working(first.client)
      yield* first.client.SendMessage(message("m1", "use hush-hush-0123"))
      const other = yield* Effect.flip(first.client.SendMessage(message("m1", "use hush-hush-4567")))
      assert.strictEqual(other._tag, "MessageConflict")
      yield* work.finish
      const { parts } = yield* read(first.client, turn(1))
      assert.notInclude(JSON.stringify(parts), "hush-hush")
      assert.include(JSON.stringify(parts), "use [redacted:KEY]")
      assert.deepStrictEqual(puppet.heard, ["work", "use hush-hush-0123"])
      yield* first.end
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      assert.isTrue((yield* client.SendMessage(message("m1", "use hush-hush-0123"))).accepted)
      assert.strictEqual((yield* Effect.flip(client.SendMessage(message("m1", "take it"))))._tag, "MessageConflict")
    })
  )

  test(
    "that wasn't delivered when its bridge died is, once, by the attempt that continues its turn",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make({ work: Puppet.saysAndHangs("working") }))
      yield* first.client.StartTurn(act(1, "work"))
      yield* working(first.client)
      yield* first.client.SendMessage(message("m1", "more"))
      yield* first.end

      const told: Array<ReadonlyArray<string>> = []
      // The message's part is void, and said again.
      const puppet = Puppet.make({ nudge: Puppet.says("on"), more: Puppet.saysAndHangs("more") }, {
        reconcile: ({ messages }) =>
          Effect.sync(() => {
            told.push(messages)
            return { keep: 4, recovered: [], prompted: true }
          })
      })
      const second = yield* launch(puppet.driver, first.stateDirectory)
      yield* second.client.StartSession(first.start)
      yield* second.client.StartTurn({ session, turn: turn(1), attempt: 2 })
      yield* until("the message", () => puppet.heard.length === 2)
      assert.deepStrictEqual(puppet.heard, ["nudge", "more"])
      yield* second.client.SendMessage(message("m1", "more"))
      yield* second.end

      // An agent that was given it isn't given it again.
      const third = Puppet.make({ nudge: Puppet.says("on") }, {
        reconcile: ({ messages, parts }) =>
          Effect.map(Stream.runCollect(parts), (counted) => {
            told.push(messages)
            return { keep: counted.at(-1)!.n, recovered: [], prompted: true }
          })
      })
      const { client } = yield* launch(third.driver, first.stateDirectory)
      yield* client.StartSession(first.start)
      yield* client.StartTurn({ session, turn: turn(1), attempt: 3 })
      const { end, parts } = yield* read(client, turn(1))
      assert.strictEqual(end.end.type, "finished")
      assert.deepStrictEqual(third.heard, ["nudge"])
      assert.deepStrictEqual(told, [["m1"], ["m1"]])
      assert.deepStrictEqual(sent(parts), [
        ["user-message", "m1"],
        ["user-message", "m1"],
        ["user-message-delivered", "m1"]
      ])
    })
  )

  test(
    "that the conversation lacks is handed over again, and one that it holds isn't",
    Effect.gen(function*() {
      const work = yield* waits
      const first = yield* started(
        Puppet.make({ work: work.act, lost: Puppet.says("lost"), held: Puppet.hangs })
      )
      yield* first.client.StartTurn(act(1, "work"))
      yield* working(first.client)
      yield* first.client.SendMessage(message("m1", "lost"))
      yield* first.client.SendMessage(message("m2", "held"))
      yield* work.finish
      yield* first.client.ReadTurn({ session, turn: turn(1), from: 1 }).pipe(
        Stream.flatMap((event) => Stream.fromIterable("parts" in event ? event.parts : [])),
        Stream.filter(({ part }) => part.type === "user-message-delivered"),
        Stream.take(2),
        Stream.runDrain
      )
      yield* first.end
      const puppet = Puppet.make({ nudge: Puppet.says("on"), lost: Puppet.says("lost") }, {
        reconcile: () => Effect.succeed({ keep: 4, recovered: [], prompted: true, messages: new Set([id("m2")]) })
      })
      const { client } = yield* launch(puppet.driver, first.stateDirectory)
      yield* client.StartSession(first.start)
      const { from } = yield* client.StartTurn({ session, turn: turn(1), attempt: 2 })
      const { end, parts } = yield* read(client, turn(1), from)
      assert.strictEqual(end.end.type, "finished")
      assert.deepStrictEqual(puppet.heard, ["nudge", "lost"])
      assert.deepStrictEqual(sent(parts), [
        ["user-message", "m1"],
        ["user-message", "m2"],
        ["user-message-delivered", "m2"],
        ["user-message-delivered", "m1"]
      ])
    })
  )
})
