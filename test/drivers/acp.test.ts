/**
 * The driver of ACP agents, with an agent made with the protocol's own SDK, and with what is no agent.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import * as Acp from "@gangway/drivers/Acp"
import { Effect, Exit, Fiber, FileSystem, type Scope } from "effect"
import { chmodSync, writeFileSync } from "node:fs"
import * as Loopback from "../../apps/bridge/src/Loopback.ts"
import { makeLog, openHost, partsOf, textOf } from "../../packages/drivers/test/fixtures/turns.ts"
import { allow, failure, only, until } from "../conformance/driverWorld.ts"

const command = (...args: ReadonlyArray<string>): [string, ...Array<string>] => [
  process.execPath,
  `${import.meta.dirname}/fixtures/acpAgent.ts`,
  ...args
]

const make = (options: Acp.Options) => Effect.provide(Acp.Acp.make(options), Loopback.layer)

const world = Effect.fnUntraced(function*(...args: ReadonlyArray<string>) {
  const fs = yield* FileSystem.FileSystem
  const directory = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-acp-test-" }))
  const driver = yield* make({ command: command(...args) })
  let conversation: string | undefined
  const saveConversation = (name: string) => Effect.sync(() => void (conversation = name))
  const open = (options: { readonly conversation?: string; readonly established?: boolean } = {}) =>
    openHost(driver, { directory, saveConversation, ...options })
  return { directory, driver, open, conversation: () => conversation! }
})

const test = (name: string, body: Effect.Effect<void, unknown, BunServices.BunServices | Scope.Scope>) =>
  it.live(name, () => body.pipe(Effect.scoped, Effect.provide(BunServices.layer)), 60_000)

describe("an agent of the protocol that nobody knows", { concurrent: true }, () => {
  test(
    "is asked what it can do",
    Effect.gen(function*() {
      const { driver } = yield* world()
      assert.strictEqual(driver.version, "fixture 4.5.6")
      const { continuation, hostTools, images, reasoning } = driver.capabilities
      assert.deepStrictEqual({ continuation, hostTools, images, reasoning }, {
        continuation: false,
        hostTools: false,
        images: true,
        reasoning: true
      })
    })
  )

  test(
    "tells its answer in order and whole, and its warnings beside it",
    Effect.gen(function*() {
      const host = yield* (yield* world()).open()
      const log = makeLog("t1")
      const finished = yield* host.run(log, "speak")
      assert.strictEqual(finished.finishReason, "length")
      const parts = partsOf(log)
      assert.strictEqual(textOf(parts), Array.from({ length: 2_000 }, (_, n) => `${n} `).join(""))
      assert.deepInclude(only(parts, "notice")[0], { level: "warning", message: "Old settings: use new ones" })
      assert.deepStrictEqual(only(parts, "plan")[0]!.entries, [
        { content: "Look", status: "completed" },
        { content: "Leap", status: "in-progress" }
      ])
      assert.strictEqual(only(parts, "reasoning-delta")[0]!.delta, "Hm.")
      assert.deepInclude(only(parts, "file")[0], { mediaType: "image/png", data: "AAAA" })
      const starts = [...only(parts, "text-start"), ...only(parts, "reasoning-start")].map(({ id }) => id)
      assert.strictEqual(new Set(starts).size, 2)
      assert.deepStrictEqual(only(parts, "step-finished").map(({ usage }) => usage), [{ measured: false }])
    })
  )

  test(
    "gets terminals, whose output is its calls' result",
    Effect.gen(function*() {
      const host = yield* (yield* world()).open()
      const log = makeLog("t1")
      yield* host.run(log, "terminal")
      const [failed, first, done, second, killed] = JSON.parse(textOf(partsOf(log)))
      assert.deepInclude(failed, { exitCode: 3 })
      assert.deepInclude(first, { output: "out\nerr\n", truncated: false })
      assert.deepInclude(done, { exitCode: 0 })
      assert.deepInclude(second, { output: "$HOME with spaces\n" })
      assert.strictEqual(killed.exitCode === 0, false)
      const [result] = only(partsOf(log), "tool-result")
      assert.deepInclude(result, { result: "$HOME with spaces\n", isFailure: false })
      yield* host.supervisor.endStarted
      assert.deepStrictEqual(yield* host.supervisor.background, [])
    })
  )

  test(
    "gets files, and none of the system's",
    Effect.gen(function*() {
      const { directory, open } = yield* world()
      const fs = yield* FileSystem.FileSystem
      yield* fs.symlink("/proc/self/environ", `${directory}/link`)
      const host = yield* open()
      const log = makeLog("t1")
      yield* host.run(log, "files")
      assert.deepStrictEqual(JSON.parse(textOf(partsOf(log))), ["two", "refused", "refused", "refused"])
      assert.strictEqual(yield* fs.readFileString(`${directory}/new/file.txt`), "one\ntwo\nthree\n")
    })
  )

  test(
    "is never allowed more than the host allowed",
    Effect.gen(function*() {
      const host = yield* (yield* world()).open()
      const outcomes = (turn: string, decision: "allow" | "allow-always" | "deny") => {
        const log = makeLog(turn)
        return Effect.map(
          host.run(log, "permission", { approval: () => Effect.succeed({ decision }) }),
          () => JSON.parse(textOf(partsOf(log)))
        )
      }
      assert.deepStrictEqual(yield* outcomes("t1", "allow"), ["allow_once", "cancelled"])
      assert.deepStrictEqual(yield* outcomes("t2", "allow-always"), ["allow_once", "allow_always"])
      assert.deepStrictEqual(yield* outcomes("t3", "deny"), ["reject_once", "reject_always"])
    })
  )

  test(
    "says by its error's code what kind of failure it was",
    Effect.gen(function*() {
      const host = yield* (yield* world()).open()
      const ended = failure(yield* Effect.exit(host.run(makeLog("t1"), "refuse")))
      assert.deepInclude(ended, { _tag: "TurnFailed", kind: "rate-limit" })
    })
  )

  test(
    "carries on without telling what it kept, and the host is told so",
    Effect.gen(function*() {
      const { conversation, driver, open } = yield* world("--forgetful")
      assert.isTrue(driver.capabilities.continuation)
      const host = yield* open()
      const log = makeLog("t1")
      const running = yield* Effect.forkChild(host.run(log, "hang", allow))
      yield* until(() => textOf(partsOf(log)) === "Begun.")
      process.kill(host.processes[0]!.pid, "SIGKILL")
      assert.isTrue(Exit.isFailure(yield* Fiber.await(running)))
      yield* host.close
      // Another bridge, which knows what is stored.
      const again = yield* open({ conversation: conversation(), established: true })
      const finished = yield* again.resume(log, "hang")
      assert.strictEqual(finished.finishReason, "stop")
      assert.include(textOf(partsOf(log)), "Carry on")
      assert.include(only(partsOf(log), "notice").at(-1)!.message, "can't say what it kept")
    })
  )
})

describe("what is no agent of the protocol", { concurrent: true }, () => {
  const refusal = (options: Acp.Options) => Effect.map(Effect.exit(make(options)), failure)

  test(
    "is refused, with what to do about it",
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped({ prefix: "gangway-acp-test-" })
      const old = `${directory}/opencode`
      writeFileSync(old, "#!/bin/sh\necho 1.2.3\n")
      chmodSync(old, 0o755)
      const wrong = yield* refusal({ profile: "opencode", command: [old, "acp"] })
      assert.deepInclude(wrong, { _tag: "DriverError", kind: "wrong-version" })
      assert.include(wrong!.problem, "OpenCode 1.2.3")
      assert.include(wrong!.problem, "npm install --global opencode-ai@1.18.33")
      const missing = yield* refusal({ profile: "qwen", command: [`${directory}/nothing`, "--acp"] })
      assert.deepInclude(missing, { kind: "not-installed" })
      assert.include(missing!.problem, "@qwen-code/qwen-code@0.24.4")
      assert.deepInclude(yield* refusal({ command: [`${directory}/nothing`] }), { kind: "not-installed" })
      assert.deepInclude(yield* refusal({ command: ["true"] }), { kind: "protocol" })
      assert.deepInclude(yield* refusal({}), { kind: "options" })
      assert.deepInclude(yield* refusal({ command: ["true"], home: "relative" }), { kind: "options" })
    })
  )

  test(
    "ends the turn where it ends at its start",
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-acp-test-" }))
      const broken = `${directory}/opencode`
      writeFileSync(broken, "#!/bin/sh\ntest \"$1\" = --version && exec echo 1.18.40\necho BROKEN >&2\nexit 7\n")
      chmodSync(broken, 0o755)
      const driver = yield* make({ profile: "opencode", command: [broken, "acp"] })
      assert.strictEqual(driver.version, "1.18.40")
      const host = yield* openHost(driver, { directory })
      const ended = failure(yield* Effect.exit(host.run(makeLog("t1"), "x")))
      assert.deepInclude(ended, { _tag: "TurnFailed", kind: "agent-exit" })
      assert.include((ended as Error).message, "BROKEN")
      assert.include((ended as Error).message, "code 7")
    })
  )
})
