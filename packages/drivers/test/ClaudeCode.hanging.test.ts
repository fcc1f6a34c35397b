import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import * as ClaudeCode from "@gangway/drivers/ClaudeCode"
import { Effect, Fiber, FileSystem } from "effect"
import { TestClock } from "effect/testing"
import { makeLog, openHost, partsOf } from "./fixtures/turns.ts"

const standIn = new URL("./fixtures/stand-in-claude.ts", import.meta.url).pathname

const open = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>) {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-stand-in-" }))
  const command = `${root}/claude`
  yield* fs.writeFileString(command, `#!/bin/sh\nexec "${process.execPath}" "${standIn}" "$@"\n`, { mode: 0o755 })
  const options = { command, configDirectory: root, env: { ...env, BUN_OPTIONS: "" } }
  const host = yield* openHost(yield* ClaudeCode.ClaudeCode.make(options), { directory: root })
  yield* Effect.addFinalizer(() => host.close)
  return host
})

const realMillis = (millis: number) => Effect.promise(() => new Promise((resolve) => setTimeout(resolve, millis)))

describe("a turn of Claude Code", () => {
  it.live("ends where the CLI comes to rest without a result, and not where it was at rest before", () =>
    Effect.gen(function*() {
      const host = yield* open({ STAND_IN_PROMPT: "no result" })
      assert.deepInclude(yield* Effect.flip(host.run(makeLog("t1"), "Hello")), {
        _tag: "TurnFailed",
        kind: "unknown",
        message: "Claude Code stopped without saying how the prompt ended."
      })
      const good = yield* open({})
      assert.deepInclude(yield* good.run(makeLog("t1"), "Hello"), { finishReason: "stop" })
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("ends where the CLI doesn't take up its prompt", () =>
    Effect.gen(function*() {
      const host = yield* open({ STAND_IN_PROMPT: "refused" })
      assert.deepInclude(yield* Effect.flip(host.run(makeLog("t1"), "Hello")), {
        _tag: "TurnFailed",
        message: "Claude Code didn't take up the prompt: it was refused."
      })
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.effect("goes on with another CLI where one doesn't answer at its start, and ends where that doesn't either", () =>
    Effect.gen(function*() {
      for (const deaf of [1, 2]) {
        const log = makeLog("t1")
        // The driver's own start is at the system's pace.
        const host = yield* Effect.provide(open({ STAND_IN_DEAF: String(deaf) }), BunServices.layer)
        const isAnswering = () => deaf < host.processes.length
        // Two minutes pass at once where nobody answers; where somebody does, hardly anything.
        const hurry = yield* Effect.forkScoped(Effect.forever(Effect.andThen(
          realMillis(5),
          Effect.suspend(() => TestClock.adjust(isAnswering() ? "10 millis" : "1 second"))
        )))
        const outcome = yield* Effect.result(host.run(log, "Hello"))
        assert.strictEqual(host.processes.length, 2)
        assert.strictEqual(partsOf(log)[0]?.type, "notice")
        if (deaf === 1) assert.strictEqual(outcome._tag, "Success")
        else {
          const failure = outcome._tag === "Failure" && outcome.failure as object
          assert.deepInclude(failure, { _tag: "DriverError", kind: "start" })
          assert.include(JSON.stringify(failure), "didn't answer within 120 seconds, twice: look whether")
        }
        yield* host.close
        yield* Fiber.interrupt(hurry)
      }
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
