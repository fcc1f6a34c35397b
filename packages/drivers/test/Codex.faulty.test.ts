/**
 * The driver of Codex, with a stand-in of which something is wrong.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import * as Codex from "@gangway/drivers/Codex"
import type { Bridge } from "@gangway/protocol"
import { TurnFailed } from "@gangway/server/Driver"
import { Effect, Fiber, FileSystem } from "effect"
import { TestClock } from "effect/testing"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { versionOf } from "../src/internal/agentProgram.ts"
import { wanted } from "../src/internal/codexProgram.ts"
import { isRunning } from "./fixtures/processes.ts"
import type { Deed } from "./fixtures/stand-in-codex.ts"
import { makeLog, openHost, partsOf, textOf } from "./fixtures/turns.ts"

const standIn = new URL("./fixtures/stand-in-codex.ts", import.meta.url).pathname
const thread = "019ad000-0000-7000-8000-000000000000"

const open = Effect.fnUntraced(function*(
  deeds: ReadonlyArray<Deed>,
  env: Readonly<Record<string, string>> = {},
  { conversation }: { readonly conversation?: string } = {}
) {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-stand-in-" }))
  const command = `${root}/codex`
  const start = `"${process.execPath}" "${standIn}" "$@"`
  // A program of a runtime keeps its standard output open.
  const outlived = `[ -z "$STAND_IN_OUTLIVED" ] || { ${start}; exec >&-; exec sleep 1000; }`
  yield* fs.writeFileString(command, `#!/bin/sh\n${outlived}\nexec ${start}\n`, { mode: 0o755 })
  yield* fs.writeFileString(`${root}/says.json`, JSON.stringify(deeds))
  if (conversation !== undefined) {
    const made = new Date(parseInt(thread.slice(0, 13).replace("-", ""), 16)).toISOString()
    const day = `${root}/sessions/${made.slice(0, 10).replaceAll("-", "/")}`
    yield* fs.makeDirectory(day, { recursive: true })
    const meta = { type: "session_meta", payload: { id: thread, cwd: root } }
    yield* fs.writeFileString(`${day}/rollout-1-${thread}.jsonl`, `${JSON.stringify(meta)}\n`)
  }
  const driver = yield* Codex.Codex.make({ command, home: root, env: { ...env, BUN_OPTIONS: "" } })
  const host = yield* openHost(driver, { directory: root, ...(conversation === undefined ? {} : { conversation }) })
  yield* Effect.addFinalizer(() => host.close)
  return { ...host, root }
})

const line = (method: string, params: object, id?: number | string) =>
  JSON.stringify({
    ...(id === undefined ? {} : { id }),
    method,
    params: { threadId: thread, turnId: "turn", ...params }
  })

const message = (id: string, text: string) => line("item/completed", { item: { type: "agentMessage", id, text } })

const command = (id: string, status: string) => ({
  item: { type: "commandExecution", id, command: "ls", cwd: "/", status, aggregatedOutput: "out", exitCode: 0 }
})

const realMillis = (millis: number) => Effect.promise(() => new Promise((resolve) => setTimeout(resolve, millis)))

describe("a turn of Codex", () => {
  for (const deaf of ["initialize", "thread/start", "thread/resume", "turn/start"]) {
    it.effect(`fails, saying what to look at, where Codex doesn't answer ${deaf}`, () =>
      Effect.gen(function*() {
        const conversation = deaf === "thread/resume" ? { conversation: `${thread}:key` } : {}
        // The driver's own start is at the system's pace.
        const host = yield* Effect.provide(open([], { STAND_IN_DEAF: deaf }, conversation), BunServices.layer)
        const hurry = yield* Effect.forkScoped(
          Effect.forever(Effect.andThen(realMillis(5), TestClock.adjust("1 second")))
        )
        const failure = yield* Effect.flip(host.run(makeLog("t1"), "Hello"))
        assert.deepInclude(failure, { _tag: "DriverError", kind: "start" })
        assert.include(String(failure.message), `'${deaf}' within 120 seconds`)
        assert.include(String(failure.message), "app-server' works in the sandbox")
        yield* host.close
        yield* Fiber.interrupt(hurry)
      }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
  }

  for (const dies of ["initialize", "initialized", "thread/start", "turn/start"]) {
    it.live(`fails where Codex ends at ${dies}, and the next one has another Codex`, () =>
      Effect.gen(function*() {
        const host = yield* open([message("m", "Hello.")], { STAND_IN_DIES: dies })
        const failure = yield* Effect.flip(host.run(makeLog("t1"), "Hello"))
        assert.include(failure.message, "Codex ended with code 3")
        const log = makeLog("t2")
        yield* host.run(log, "Hello")
        assert.strictEqual(textOf(partsOf(log)), "Hello.")
        assert.strictEqual(host.processes.length, 2)
      }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
  }

  it.live("passes over what it doesn't know, and tells each thing once", () =>
    Effect.gen(function*() {
      const host = yield* open([
        "{\"method\":\"item/compl",
        "null",
        "[]",
        "{}",
        "\u0000\ufffd",
        JSON.stringify({ id: 99, result: {} }),
        JSON.stringify({ id: "none", result: {} }),
        JSON.stringify({ id: 98, error: "no object" }),
        JSON.stringify({ method: "item/completed", params: null }),
        line("novelty", {}),
        `{"method":"novelty","params":${"[".repeat(200_000)}${"]".repeat(200_000)}}`,
        line("item/completed", { item: { type: "novelty", id: "n" } }),
        line("turn/completed", { turn: { id: "another", status: "completed" } }),
        // What has ended goes on, begins anew, ends again.
        line("item/agentMessage/delta", { itemId: "m", delta: "Hello." }),
        message("m", "Hello."),
        line("item/agentMessage/delta", { itemId: "m", delta: "Late." }),
        message("m", "Hello."),
        line("item/started", command("c", "inProgress")),
        line("item/started", command("c", "inProgress")),
        line("item/completed", command("c", "completed")),
        line("item/completed", command("c", "completed")),
        line("item/started", command("c", "inProgress")),
        line("item/completed", command("d", "completed")),
        line("item/started", command("d", "inProgress")),
        line("item/commandExecution/outputDelta", { itemId: "none", delta: "x" })
      ])
      const log = makeLog("t1")
      assert.deepInclude(yield* host.run(log, "Hello"), { finishReason: "stop" })
      assert.deepStrictEqual(
        partsOf(log).map((part) => "id" in part ? `${part.type} ${part.id}` : part.type),
        [
          "response-metadata turn",
          "text-start m",
          "text-delta m",
          "text-end m",
          "tool-call c",
          "tool-result c",
          "tool-call d",
          "tool-result d"
        ]
      )
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("answers each request once, however it's asked", () =>
    Effect.gen(function*() {
      const approval = line("item/commandExecution/requestApproval", { itemId: "c", command: "ls", cwd: "/" }, 1)
      const host = yield* open([
        line("item/started", command("c", "inProgress")),
        approval,
        approval,
        line("novelty", {}, "two"),
        // A call that's asked for before it's told.
        line("item/tool/call", { callId: "h", tool: "lookup", arguments: {} }, 3),
        line("item/started", {
          item: { type: "dynamicToolCall", id: "h", tool: "lookup", arguments: {}, status: "inProgress" }
        }),
        { answers: 3 },
        line("item/completed", {
          item: { type: "dynamicToolCall", id: "h", tool: "lookup", arguments: {}, status: "completed" }
        })
      ])
      const log = makeLog("t1")
      yield* host.run(log, "Hello", {
        // Not before it was asked again.
        approval: () => Effect.as(Effect.sleep("300 millis"), { decision: "allow" as const }),
        tool: () => Effect.succeed({ result: "found", isFailure: false })
      })
      const count = (type: string, id?: string) =>
        partsOf(log).filter((part) => part.type === type && (id === undefined || (part as { id: string }).id === id))
          .length
      assert.strictEqual(count("tool-approval-request"), 1)
      assert.strictEqual(count("tool-call", "h"), 1)
      assert.strictEqual(count("tool-result", "h"), 1)
      const answers = (yield* Effect.flatMap(FileSystem.FileSystem, (fs) => fs.readFileString(`${host.root}/answers`)))
        .trim().split("\n").map((line) => JSON.parse(line))
      assert.deepStrictEqual(answers.map(({ id }) => id).toSorted(), [1, 3, "two"])
      assert.include(answers.find(({ id }) => id === "two").error.message, "novelty")
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("takes no more requests than can be waited for", () =>
    Effect.gen(function*() {
      const ask = (id: number) => line("item/commandExecution/requestApproval", { itemId: `c${id}`, command: "ls" }, id)
      const host = yield* open([...Array.from({ length: 300 }, (_, id) => ask(id)), { answers: 300 - 256 }])
      const log = makeLog("t1")
      yield* host.run(log, "Hello")
      assert.strictEqual(partsOf(log).filter(({ type }) => type === "tool-approval-request").length, 256)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("ends where its end is told first", () =>
    Effect.gen(function*() {
      const host = yield* open([], { STAND_IN_ORDER: "end first" })
      assert.deepInclude(yield* host.run(makeLog("t1"), "Hello"), { finishReason: "stop" })
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("goes on while Codex floods its standard error", () =>
    Effect.gen(function*() {
      const host = yield* open([{ stderr: `${"x".repeat(64 * 1024)}\n`, times: 320 }, message("m", "Hello.")])
      const log = makeLog("t1")
      yield* host.run(log, "Hello")
      assert.strictEqual(textOf(partsOf(log)), "Hello.")
      assert.isAtMost((yield* host.processes[0]!.stderr).length, 16 * 1024)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  const ends: ReadonlyArray<
    readonly [what: string, deeds: ReadonlyArray<Deed>, message: string, env?: Readonly<Record<string, string>>]
  > = [
    ["closes its output and lives on", ["exit"], "Codex ended by SIGTERM", { STAND_IN_OUTLIVED: "yes" }],
    ["sends a line without an end", [{ repeat: "x".repeat(1024 * 1024), times: 66 }], "longer than 67108864 bytes"]
  ]
  for (const [what, deeds, message, env] of ends) {
    it.live(`fails where Codex ${what}, which is ended`, () =>
      Effect.gen(function*() {
        const host = yield* open(deeds, env)
        const failure = yield* Effect.flip(host.run(makeLog("t1"), "Hello"))
        assert.instanceOf(failure, TurnFailed)
        assert.deepInclude(failure, { kind: "agent-exit" })
        assert.include(failure.message, message)
        assert.isFalse(isRunning(host.processes[0]!.pid))
      }).pipe(Effect.scoped, Effect.provide(BunServices.layer)), 20_000)
  }

  it.live("fails where something that Codex says can't be handled, and Codex is ended", () =>
    Effect.gen(function*() {
      const host = yield* open([message("m", "Hello."), { answers: 1 }])
      const emit = (part: Bridge.AgentPart) =>
        part.type === "text-start" ? Effect.die(new Error("there's no such part")) : Effect.void
      assert.deepInclude(yield* Effect.flip(host.run(makeLog("t1"), "Hello", { emit })), {
        kind: "agent-exit",
        message: "Codex said what can't be taken: there's no such part"
      })
      assert.isFalse(isRunning(host.processes[0]!.pid))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("ends when it's interrupted, though Codex never answers the interrupt", () =>
    Effect.gen(function*() {
      const host = yield* open([{ answers: 1 }], { STAND_IN_DEAF: "turn/interrupt" })
      const log = makeLog("t1")
      const running = yield* Effect.forkScoped(Effect.flip(host.run(log, "Hello")))
      yield* Effect.repeat(realMillis(10), { until: () => partsOf(log).length > 0 })
      const interrupt = yield* Effect.forkScoped(host.agent.interrupt)
      yield* Effect.yieldNow
      assert.strictEqual(interrupt.pollUnsafe(), undefined)
      // As the bridge does when the agent has had its time.
      yield* host.supervisor.endAll
      assert.deepInclude(yield* Fiber.join(running), { _tag: "TurnFailed", message: "The turn was interrupted." })
      yield* Fiber.join(interrupt)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})

describe("a program that is asked for its version", () => {
  it.live("is ended, and what it started, where it neither answers nor heeds that it's to end", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const root = yield* fs.makeTempDirectoryScoped({ prefix: "gangway-deaf-" })
      const script = `trap '' TERM\necho $$ > ${root}/pids\n(while :; do sleep 1; done) & echo $! >> ${root}/pids\nwait`
      const asked = versionOf({ ...wanted, patience: "1 seconds" }, ChildProcess.make("sh", ["-c", script]))
      assert.deepInclude(yield* Effect.flip(asked), {
        kind: "start",
        problem: "'sh --version' didn't answer within 1 seconds"
      })
      const pids = (yield* fs.readFileString(`${root}/pids`)).trim().split("\n").map(Number)
      assert.strictEqual(pids.length, 2)
      for (const pid of pids) assert.isFalse(isRunning(pid))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("isn't read for ever", () =>
    Effect.gen(function*() {
      const asked = versionOf(wanted, ChildProcess.make("yes", ["codex-cli 9.9.9"]))
      assert.deepInclude(yield* Effect.flip(asked), { kind: "wrong-version" })
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
