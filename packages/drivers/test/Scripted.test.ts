import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Scripted } from "@gangway/drivers"
import { Effect, FileSystem, Schema } from "effect"
import { makeLog, openHost, partsOf, textOf } from "./fixtures/turns.ts"

const command = ["bun", `${import.meta.dirname}/fixtures/scripted-agent.ts`] as const

const scratch = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.makeTempDirectoryScoped({ prefix: "gangway-scripted-" })
  yield* fs.makeDirectory(`${root}/work`)
  return { home: `${root}/home`, directory: `${root}/work` }
})

const makeDriver = (options: Scripted.Options) =>
  Scripted.Scripted.make(options).pipe(Effect.provideService(Scripted.AgentCommand, [...command]))

const test = (name: string, body: Effect.Effect<void, any, any>, timeout?: number) =>
  it.live(name, () => body.pipe(Effect.scoped, Effect.provide(BunServices.layer)) as Effect.Effect<void, any>, timeout)

describe("Scripted", () => {
  test(
    "repeats the prompt without a script",
    Effect.gen(function*() {
      const { directory, home } = yield* scratch
      const host = yield* openHost(yield* makeDriver({ home }), { directory })
      const log = makeLog("t1")
      const finished = yield* host.run(log, "Good morning, gangway")
      assert.deepStrictEqual(finished, { finishReason: "stop", cost: undefined, output: undefined })
      assert.strictEqual(textOf(partsOf(log)), "Good morning, gangway")
    })
  )
})
void Schema
