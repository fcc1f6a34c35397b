import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import type { AgentSession } from "@gangway/server/Driver"
import { Deferred, Effect, Fiber, Redacted, type Schema } from "effect"
import { TestClock } from "effect/testing"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  connect,
  directories,
  endOf,
  firstPart,
  launch,
  read,
  session,
  sessionFile,
  started,
  test,
  testClocked,
  turn,
  until
} from "./fixtures/sessions.ts"

const secret = "hush-hush-0123"
const env = { KEY: Redacted.make(secret) }
const breaks = Effect.die(new Error(`broken by ${secret}`))

const nested = (depth: number): Schema.Json => {
  let json: Schema.Json = 1
  for (let i = 0; i < depth; i++) json = i % 2 === 0 ? [json] : { a: json }
  return json
}

const isClean = (error: unknown) => {
  const text = JSON.stringify(error) + String(error)
  assert.notInclude(text, secret)
  assert.include(text, "[redacted:KEY]")
}

describe("a driver that breaks", () => {
  test(
    "while it opens a conversation leaves nothing of a new session",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      let broken = true
      const good = Puppet.make({ hi: Puppet.says("hello") })
      const client = yield* connect(
        { ...good.driver, open: (options) => broken ? breaks : good.driver.open(options) },
        stateDirectory
      )
      const start = { session, directory, permissions: "ask", settings: "none", env } as const
      const error = yield* Effect.flip(client.StartSession(start))
      assert.deepInclude(error, { _tag: "DriverError", driver: "puppet", kind: "unknown" })
      isClean(error)
      assert.strictEqual((yield* Effect.flip(client.StartTurn(act(1, "hi"))))._tag, "SessionNotFound")
      broken = false
      // It's new, and may be another.
      assert.deepStrictEqual(yield* client.StartSession({ ...start, permissions: "all" }), { resumed: false })
      yield* client.StartTurn(act(1, "hi"))
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
    })
  )

  test(
    "while it runs a turn fails it, and the session goes on",
    Effect.gen(function*() {
      const puppet = Puppet.make({
        dies: () => breaks,
        throws: () => {
          throw new Error(`broken by ${secret}`)
        },
        fails: () => Effect.fail(new Bridge.TurnFailed({ kind: "rate-limit", message: `limit of ${secret}` })),
        shouts: () => Effect.fail(new Bridge.TurnFailed({ kind: "auth", message: "x".repeat(1_000_000) })),
        interrupts: () => Effect.interrupt,
        lies: () => Effect.succeed(undefined as never),
        unsayable: () => Effect.succeed({ finishReason: "stop", output: 1n } as never),
        endless: () => Effect.succeed({ finishReason: "stop", output: "x".repeat(Bridge.maxOutputBytes - 1) } as never),
        deep: () => Effect.succeed({ finishReason: "stop", output: nested(513) } as never),
        deeper: (turn) => Effect.as(turn.emit({ type: "raw", event: nested(50_000) }), { finishReason: "stop" }),
        asking: (turn) =>
          Effect.as(turn.callHostTool({ id: "c", name: "x", params: nested(50_000) }), { finishReason: "stop" }),
        wondering: (turn) =>
          Effect.as(
            turn.requestApproval({ approvalId: "a", toolCallId: "c", name: "x", params: nested(513), edits: false }),
            { finishReason: "stop" }
          ),
        unreadable: () => Effect.succeed({ finishReason: "stop", output: { of: [NaN] } } as never),
        lost: () => Effect.fail(new Bridge.ContextLost({ session, problem: `no ${secret}` }) as never),
        exits: () => Effect.fail(new Bridge.DriverError({ driver: "puppet", kind: "exit", problem: secret }) as never),
        flat: () => Effect.succeed({ finishReason: "stop", output: nested(512) } as never),
        hi: Puppet.says("hello")
      })
      const { client } = yield* started(puppet, { env })
      for (
        const [i, [name, kind]] of [
          ["dies", "unknown"],
          ["throws", "unknown"],
          ["fails", "rate-limit"],
          ["shouts", "auth"],
          ["interrupts", "unknown"],
          ["lies", "unknown"],
          ["unsayable", "unknown"],
          ["endless", "unknown"],
          ["deep", "unknown"],
          ["deeper", "unknown"],
          ["asking", "unknown"],
          ["wondering", "unknown"],
          ["unreadable", "unknown"],
          ["lost", "unknown"],
          ["exits", "agent-exit"]
        ].entries()
      ) {
        yield* client.StartTurn({ ...act(i, name!), responseFormat: { type: "json", schema: {} } })
        const end = yield* endOf(client, turn(i))
        assert.strictEqual(end.type === "failed" ? end.error.kind : end.type, kind, name)
        assert.notInclude(JSON.stringify(end), secret)
        assert.isBelow(JSON.stringify(end).length, 20_000, name)
      }
      for (const [i, name] of [[100, "hi"], [101, "flat"]] as const) {
        yield* client.StartTurn(act(i, name))
        assert.strictEqual((yield* endOf(client, turn(i))).type, "finished", name)
      }
    })
  )

  test(
    "at what it counted has used an unknown lot, and the session goes on",
    Effect.gen(function*() {
      const counts = (usage: object, cost: number): Puppet.Act => (turn) =>
        Effect.as(turn.emit({ type: "step-finished", usage: { measured: true, ...usage } }), {
          finishReason: "stop",
          cost
        })
      const puppet = Puppet.make({
        tokens: counts({ inputTokens: { total: NaN }, outputTokens: { total: 1 } }, 0.5),
        nothing: counts({ inputTokens: null }, 0.5),
        cost: counts({}, NaN)
      })
      const { client, directory, end, stateDirectory } = yield* started(puppet)
      for (const [i, name] of ["tokens", "nothing", "cost"].entries()) {
        yield* client.StartTurn(act(i, name))
        const { usage } = yield* endOf(client, turn(i))
        assert.deepStrictEqual(usage, { measured: false, ...(name === "cost" ? {} : { cost: 0.5 }) }, name)
      }
      yield* end
      const after = yield* connect(puppet.driver, stateDirectory)
      yield* after.StartSession({ session, directory, permissions: "ask", settings: "none" })
      assert.strictEqual((yield* endOf(after, turn(2))).type, "finished")
    })
  )

  const broken: Partial<AgentSession> = {
    compact: () => breaks,
    readState: breaks,
    reconcile: () => breaks
  }

  test(
    "at anything else is told so, without a secret, and the session goes on",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hang: Puppet.hangs, hi: Puppet.says("hello") }, broken, {
        forget: () => breaks
      })
      const { client, start } = yield* started(puppet, { env })
      yield* client.StartTurn(act(1, "hang"))
      yield* client.AbortTurn({ session, turn: turn(1) })
      for (
        const command of [
          client.Compact({ session }),
          client.ReadState({ session }),
          client.StartTurn({ session, turn: turn(1), attempt: 2 }),
          client.DestroySession({ session })
        ] as ReadonlyArray<Effect.Effect<unknown, unknown>>
      ) {
        const error = yield* Effect.flip(command)
        assert.include(JSON.stringify(error), "DriverError")
        isClean(error)
      }
      yield* client.StartSession(start)
      yield* client.StartTurn(act(2, "hi"))
      assert.strictEqual((yield* endOf(client, turn(2))).type, "finished")
      // Without a state to give it stops all the same.
      assert.deepStrictEqual(yield* client.StopSession({ session }), { ended: [], left: [] })
    })
  )
})

describe("a driver that tells what's nested too deep", () => {
  test(
    "is refused, and the session goes on",
    Effect.gen(function*() {
      let depth = 513
      const puppet = Puppet.make({ hang: Puppet.hangs, hi: Puppet.says("hello") }, {
        readState: Effect.sync(() => nested(depth)),
        reconcile: () =>
          Effect.sync(() => ({
            keep: 0,
            recovered: [{ type: "raw", event: nested(depth + 20) } as const],
            prompted: false
          }))
      })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hang"))
      yield* client.AbortTurn({ session, turn: turn(1) })
      for (depth of [513, 50_000]) {
        for (
          const command of [
            client.ReadState({ session }),
            client.StartTurn({ ...act(1, "hang"), attempt: 2 })
          ] as ReadonlyArray<Effect.Effect<unknown, Bridge.DriverError>>
        ) {
          const error = yield* Effect.flip(command)
          assert.strictEqual(error._tag, "DriverError")
          assert.strictEqual(error.problem, "what it told is nested more than 512 deep")
        }
      }
      depth = 512
      yield* client.ReadState({ session })
      yield* client.StartTurn(act(2, "hi"))
      assert.strictEqual((yield* endOf(client, turn(2))).type, "finished")
    })
  )

  test(
    "has hosts that do so refused without a transport too",
    Effect.gen(function*() {
      const puppet = Puppet.make({
        asks: (turn) => Effect.as(turn.callHostTool({ id: "c", name: "x", params: {} }), { finishReason: "stop" })
      })
      const { client, start } = yield* started(puppet)
      yield* client.StartTurn(act(1, "asks"))
      yield* firstPart(client, turn(1), "tool-call")
      const answer = (depth: number) =>
        client.SubmitToolResult({
          session,
          turn: turn(1),
          toolCallId: "c",
          result: nested(depth),
          isFailure: false
        })
      const tools = [{ name: "t", description: "d", parameters: { a: nested(50_000) } }]
      for (
        const refused of [
          client.StartSession({ ...start, tools }),
          client.StartSession({ ...start, state: nested(513) }),
          answer(513),
          answer(50_000)
        ]
      ) {
        assert.deepInclude(yield* Effect.flip(refused as Effect.Effect<unknown, Bridge.TooDeep>), {
          _tag: "TooDeep",
          limit: 512
        })
      }
      yield* answer(512)
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
    })
  )
})

describe("a driver that hangs", () => {
  testClocked(
    "while it opens a conversation has two minutes, also where it can't be interrupted",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const opening = yield* Deferred.make<void>()
      const puppet = Puppet.make({}, {}, {
        open: () => Effect.andThen(Deferred.succeed(opening, undefined), Effect.uninterruptible(Effect.never))
      })
      const client = yield* connect(puppet.driver, stateDirectory)
      const starting = yield* Effect.forkChild(
        Effect.flip(client.StartSession({ session, directory, permissions: "ask", settings: "none" }))
      )
      yield* Deferred.await(opening)
      yield* TestClock.adjust("119 seconds")
      assert.isUndefined(starting.pollUnsafe())
      yield* TestClock.adjust("1 second")
      // Its scope has a second to close.
      yield* Effect.forkChild(Effect.forever(Effect.andThen(TestClock.adjust("1 second"), Effect.yieldNow)))
      assert.deepInclude(yield* Fiber.join(starting), {
        _tag: "DriverError",
        problem: "opening the conversation took longer than 2m"
      })
      yield* Effect.forkDetach(Effect.forever(Effect.andThen(TestClock.adjust("1 second"), Effect.yieldNow)))
    })
  )

  test(
    "while it closes one holds up neither the session's stop nor the bridge's end",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      const deaf: Puppet.Puppet["driver"] = {
        ...puppet.driver,
        open: (options) =>
          Effect.andThen(Effect.addFinalizer(() => Effect.uninterruptible(Effect.never)), puppet.driver.open(options))
      }
      const { client, end, start } = yield* started({ ...puppet, driver: deaf })
      yield* Effect.timeout(client.StopSession({ session }), "5 seconds")
      yield* client.StartSession(start)
      yield* client.StartTurn(act(1, "hi"))
      yield* read(client, turn(1))
      yield* Effect.timeout(end, "5 seconds")
    })
  )
})

describe("a driver that was left behind", () => {
  test(
    "writes nothing of its session once that's let go",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      const { client, sessionDirectory, start } = yield* started(puppet)
      yield* client.StartTurn(act(1, "hi"))
      yield* read(client, turn(1))
      yield* client.StopSession({ session })
      const [left] = puppet.opened
      const late = Effect.gen(function*() {
        const before = yield* sessionFile(sessionDirectory)
        assert.strictEqual((yield* Effect.flip(left!.saveConversation("stale")))._tag, "LogUnavailable")
        const command = { command: "true", args: [], cwd: start.directory, env: {} }
        assert.strictEqual((yield* Effect.flip(left!.processes.spawn(command)))._tag, "DriverError")
        assert.deepStrictEqual(yield* sessionFile(sessionDirectory), before)
      })
      yield* late
      // Nor where somebody else has it.
      yield* client.StartSession(start)
      yield* late
    })
  )
})

describe("a driver", () => {
  test(
    "has its parts logged after those before, whoever emits them, and waits for no reader",
    Effect.gen(function*() {
      const talk: Puppet.Act = (turn) =>
        Effect.as(
          Effect.forEach(
            Array.from({ length: 10 }, (_, i) => i),
            (i) => turn.emit({ type: "text-delta", id: `${i}`, delta: "x" }),
            { concurrency: "unbounded" }
          ),
          { finishReason: "stop" }
        )
      const { client } = yield* started(Puppet.make({ talk }))
      yield* client.StartTurn(act(1, "talk"))
      const { parts } = yield* read(client, turn(1))
      assert.deepStrictEqual(parts.map(({ part }) => "id" in part && part.id), parts.map((_, i) => `${i}`))
    })
  )

  test(
    "may name its conversation late, and is told it when it opens it again",
    Effect.gen(function*() {
      const puppet = Puppet.make({ nudge: Puppet.hangs }, (options) => ({
        conversation: options.conversation,
        run: (turn) =>
          Effect.gen(function*() {
            yield* Effect.orDie(options.saveConversation("named-late"))
            yield* turn.emit({ type: "text-start", id: "t" })
            return { finishReason: "stop" }
          })
      }))
      const { client, start } = yield* started(puppet)
      yield* client.StartTurn(act(1, "any"))
      yield* read(client, turn(1))
      yield* client.StopSession({ session })
      yield* client.StartSession(start)
      assert.deepStrictEqual(puppet.opened.map(({ conversation }) => conversation).slice(0, 1), [undefined])
      assert.deepInclude(puppet.opened.at(-1), { conversation: "named-late", established: true })
    })
  )

  test(
    "is told that its conversation is established once a part of its agent came out, in whatever turn",
    Effect.gen(function*() {
      const silent: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          yield* turn.emit({ type: "notice", level: "info", message: "about to start" })
          yield* turn.emit({ type: "raw", event: {} })
          yield* turn.emit({ type: "notice", level: "info", message: "started" })
          return yield* Effect.never
        })
      const puppet = Puppet.make({ silent, hi: Puppet.says("hello"), nudge: Puppet.hangs })
      const first = yield* started(puppet)
      let bridge: Effect.Success<ReturnType<typeof launch>> = first
      const told = Effect.fnUntraced(function*(restart: boolean) {
        if (restart) {
          yield* bridge.end
          bridge = yield* launch(puppet.driver, first.stateDirectory)
        } else yield* bridge.client.StopSession({ session })
        const before = puppet.opened.length
        yield* bridge.client.StartSession(first.start)
        return puppet.opened[before]!.established
      })
      const after = Effect.fnUntraced(function*(n: number, name: string, type: string, attempt = 1) {
        yield* bridge.client.StartTurn({ ...act(n, name), attempt })
        yield* firstPart(bridge.client, turn(n), type)
      })

      yield* after(1, "silent", "raw")
      assert.isFalse(yield* told(true))
      yield* after(1, "silent", "turn-continued", 2)
      assert.isFalse(yield* told(false))
      yield* after(2, "silent", "raw")
      assert.isFalse(yield* told(true))
      yield* after(3, "hi", "text-start")
      assert.isTrue(yield* told(false))
      yield* after(4, "silent", "raw")
      assert.isTrue(yield* told(true))
    })
  )

  test(
    "isn't told a prompt twice: of one that may have reached it, it's told to go on",
    Effect.gen(function*() {
      const told: Array<unknown> = []
      const puppet = Puppet.make({}, {
        run: (turn) => Effect.suspend(() => (told.push([turn.attempt, turn.continued?.prompted]), Effect.never))
      })
      const { client } = yield* started(puppet)
      yield* client.StartTurn(act(1, "work"))
      yield* until("the prompt", () => told.length === 1)
      yield* client.AbortTurn({ session, turn: turn(1) })
      yield* client.StartTurn({ ...act(1, "work"), attempt: 2 })
      yield* firstPart(client, turn(1), "turn-continued")
      yield* until("the nudge", () => told.length === 2)
      assert.deepStrictEqual(told, [[1, undefined], [2, true]])
    })
  )
})
