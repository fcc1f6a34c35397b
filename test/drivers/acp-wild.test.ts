/**
 * The driver of ACP agents, with an agent that breaks the protocol's rules: each turn ends, says why, and the next one
 * works.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import * as Acp from "@gangway/drivers/Acp"
import type { Turn } from "@gangway/server/Driver"
import { Deferred, Effect, Exit, Fiber, FileSystem, Option, type Scope } from "effect"
import { spawnSync } from "node:child_process"
import * as Loopback from "../../apps/bridge/src/Loopback.ts"
import { type Host, makeLog, openHost, partsOf, textOf } from "../../packages/drivers/test/fixtures/turns.ts"
import { allow, failure, kinds, only, until, waitForFile } from "../conformance/driverWorld.ts"

const world = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const directory = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-acp-wild-" }))
  const command = [process.execPath, `${import.meta.dirname}/fixtures/wildAgent.ts`] as const
  const driver = yield* Effect.provide(Acp.Acp.make({ command }), Loopback.layer)
  return { directory, open: openHost(driver, { directory }) }
})

const test = (name: string, body: Effect.Effect<void, unknown, BunServices.BunServices | Scope.Scope>) =>
  it.live(name, () => body.pipe(Effect.scoped, Effect.provide(BunServices.layer)), 60_000)

const run = Effect.fnUntraced(function*(host: Host, words: string, answers: Partial<Turn> | typeof allow = allow) {
  const log = makeLog("t1")
  const finished = yield* host.run(log, words, answers)
  const parts = partsOf(log)
  return { finished, parts, text: textOf(parts) }
})

const isFine = (host: Host) =>
  Effect.gen(function*() {
    assert.strictEqual((yield* run(host, "and now")).text, "fine")
  })

describe("an agent that breaks the protocol's rules", { concurrent: true }, () => {
  test(
    "is understood where it can be, whatever it says besides",
    Effect.gen(function*() {
      const host = yield* (yield* world).open
      const { finished, text } = yield* run(host, "noise")
      assert.strictEqual(text, "heard \ufffdwhole")
      assert.strictEqual(finished.finishReason, "other")
      yield* isFine(host)
    })
  )

  test(
    "says nothing more of a turn that it has answered",
    Effect.gen(function*() {
      const { directory, open } = yield* world
      const host = yield* open
      const { parts, text } = yield* run(host, "twice")
      yield* waitForFile(`${directory}/note.txt`, "told")
      assert.strictEqual(text, "once")
      assert.notInclude(kinds(parts), "tool-call")
      yield* isFine(host)
    })
  )

  test(
    "gets no leave but in its own turn and conversation",
    Effect.gen(function*() {
      const { directory, open } = yield* world
      const host = yield* open
      const late = yield* run(host, "late")
      yield* waitForFile(`${directory}/note.txt`, "cancelled")
      assert.notInclude(kinds(late.parts), "tool-approval-request")
      const foreign = yield* run(host, "foreign")
      assert.strictEqual(foreign.text, "cancelled")
      assert.notInclude(kinds(foreign.parts), "tool-approval-request")
    })
  )

  test(
    "gets the answer to what it asked last under an id that it uses twice",
    Effect.gen(function*() {
      const host = yield* (yield* world).open
      const { parts, text } = yield* run(host, "doubled", {
        approval: ({ toolCallId }: { readonly toolCallId: string }) =>
          toolCallId === "first" ? Effect.never : Effect.succeed({ decision: "allow" as const })
      })
      assert.strictEqual(text, "yes")
      assert.deepStrictEqual(only(parts, "tool-approval-response").length, 1)
    })
  )

  test(
    "is refused what it asks beyond measure, and gets the rest",
    Effect.gen(function*() {
      const host = yield* (yield* world).open
      const log = makeLog("t1")
      const decide = yield* Deferred.make<void>()
      const running = yield* Effect.forkChild(
        host.run(log, "many", { approval: () => Effect.as(Deferred.await(decide), { decision: "allow" as const }) })
      )
      yield* until(() => textOf(partsOf(log)) === "refused")
      yield* Deferred.succeed(decide, undefined)
      yield* Fiber.join(running)
      assert.strictEqual(textOf(partsOf(log)), "refused 256")
      assert.strictEqual(only(partsOf(log), "tool-approval-request").length, 256)
    })
  )

  test(
    "may call every call of its by the same id",
    Effect.gen(function*() {
      const host = yield* (yield* world).open
      const { parts } = yield* run(host, "again")
      const calls = only(parts, "tool-call")
      assert.deepStrictEqual(calls.map(({ params }) => params), [{ n: 0 }, { n: 1 }, { n: 2 }])
      assert.strictEqual(new Set(calls.map(({ id }) => id)).size, 3)
      assert.deepStrictEqual(
        only(parts, "tool-result").map(({ id, result }) => [id, result]),
        calls.map(({ id }, n) => [id, `saw ${n}`])
      )
    })
  )

  for (
    const [scene, problem] of [["endless", "longer than"], ["deep", "can't be taken"], ["orphan", "code 5"]] as const
  ) {
    test(
      `fails the turn where it's ${scene}, and the next one has another process`,
      Effect.gen(function*() {
        const host = yield* (yield* world).open
        const ended = failure(yield* Effect.exit(run(host, scene)))
        assert.deepInclude(ended, { _tag: "TurnFailed", kind: "agent-exit" })
        assert.include((ended as Error).message, problem)
        yield* host.supervisor.endAll
        yield* isFine(host)
        assert.strictEqual(host.processes.length, 2)
      })
    )
  }

  for (const [scene, said] of [["stubborn", "working"], ["deaf", "deaf"]] as const) {
    test(
      `is ended at an abort where it's ${scene}`,
      Effect.gen(function*() {
        const host = yield* (yield* world).open
        const log = makeLog("t1")
        const running = yield* Effect.forkChild(host.run(log, scene, allow))
        yield* until(() => textOf(partsOf(log)) === said)
        // As the bridge does: it asks, and doesn't wait for ever.
        const asked = yield* Effect.forkChild(host.agent.interrupt)
        assert.isTrue(Option.isNone(yield* Effect.timeoutOption(Fiber.await(running), "1 second")))
        yield* host.supervisor.endAll
        assert.isTrue(Exit.isFailure(yield* Fiber.await(running)))
        yield* Fiber.await(asked)
        yield* isFine(host)
      })
    )
  }

  test(
    "can't hold the bridge up by a pipe that it calls a file",
    Effect.gen(function*() {
      const { directory, open } = yield* world
      spawnSync("mkfifo", [`${directory}/pipe`])
      const host = yield* open
      assert.strictEqual((yield* run(host, "pipes")).text, Array.from({ length: 10 }, () => "refused").join(" "))
    })
  )

  test(
    "gets as much of a terminal's output as it asks for, all of it, and as many terminals as there are",
    Effect.gen(function*() {
      const host = yield* (yield* world).open
      const { text } = yield* run(host, "printing")
      assert.strictEqual(text, "40 true 300000|0 true |0 true |29")
    })
  )
})
