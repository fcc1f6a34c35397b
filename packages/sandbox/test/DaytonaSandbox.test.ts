import { Daytona } from "@daytona/sdk"
import * as BunServices from "@effect/platform-bun/BunServices"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { DaytonaSandbox, Executable, Sandbox } from "@gangway/sandbox"
import { Effect, Exit, Fiber, Option, Redacted, Schedule, Scope } from "effect"
import { TestClock } from "effect/testing"
import { readdirSync } from "node:fs"
import { DaytonaServer } from "../../../test/daytona/DaytonaServer.ts"
import { answersAreAsDocumented } from "../../../test/daytona/OpenApi.ts"
import { needed, processesOf } from "../../../test/daytona/Processes.ts"

const server = new DaytonaServer()
afterAll(() => server.close())

const account = { apiKey: Redacted.make(server.apiKey), apiUrl: server.apiUrl }

const make = (options: Omit<DaytonaSandbox.CreateOptions, "apiKey" | "apiUrl"> = {}) =>
  Effect.map(DaytonaSandbox.make({ ...account, ...options }), (sandbox) => ({
    sandbox,
    loopback: server.get(sandbox.id)
  }))

const reasonOf = <A, R>(effect: Effect.Effect<A, Sandbox.SandboxError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason._tag)

const eventually = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (done) => done, schedule: Schedule.spaced("10 millis") }),
    Effect.timeout("10 seconds")
  )

const quickly = { timeout: "10 seconds" } as const

describe("DaytonaSandbox", needed, () => {
  it.live("is made as it's asked to be, and deleted with its scope, with all that runs in it", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { loopback, sandbox } = yield* make({
        from: { image: "debian:12", resources: { cpu: 2, memory: 4, disk: undefined } },
        user: "agent",
        env: { COLOUR: "red" },
        labels: { team: "one" },
        public: true,
        autoStop: "61 seconds"
      }).pipe(Scope.provide(scope))
      const { body } = loopback
      assert.deepInclude(body, { user: "agent", env: { COLOUR: "red" }, public: true, autoStopInterval: 2 })
      assert.deepInclude(body, { cpu: 2, memory: 4 })
      assert.isUndefined(body.disk)
      assert.include(body.buildInfo?.dockerfileContent, "debian:12")
      assert.strictEqual(body.labels?.["team"], "one")
      const { stdout } = yield* sandbox.run({ ...quickly, command: ["sh", "-c", `echo "$COLOUR"`] })
      assert.strictEqual(stdout, "red\n")
      yield* sandbox.start({ command: ["sleep", "1000"], stdinLine: Redacted.make("x"), log: `${home(sandbox)}/log` })
      assert.isNotEmpty(processesOf(sandbox.id))

      yield* Scope.close(scope, Exit.void)
      assert.isFalse(server.sandboxes.has(sandbox.id))
      assert.isEmpty(processesOf(sandbox.id))
      assert.strictEqual(yield* reasonOf(sandbox.readFile("/etc/hostname")), "NotFound")
      assert.strictEqual(yield* reasonOf(sandbox.wake), "NotFound")
    }))

  it.live("is left alone where it's kept or was there before, and is found by its id", () =>
    Effect.gen(function*() {
      const { id } = yield* Effect.scoped(DaytonaSandbox.make({ ...account, keep: true }))
      assert.isTrue(server.sandboxes.has(id))
      const attached = yield* Effect.scoped(DaytonaSandbox.attach({ ...account, sandbox: id }))
      assert.strictEqual(attached.id, id)
      assert.isTrue(server.sandboxes.has(id))

      const [found, ...others] = yield* DaytonaSandbox.list(account)
      assert.isEmpty(others)
      assert.deepInclude(found, { id, name: id, state: "started" })
      yield* DaytonaSandbox.remove(id, account)
      assert.isEmpty(yield* DaytonaSandbox.list(account))
      yield* DaytonaSandbox.remove(id, account)

      // One that's about to stop can't be deleted yet.
      const { loopback } = yield* Effect.scoped(make({ keep: true }))
      const stopping = yield* Effect.forkChild(Effect.promise(() => server.stop(loopback)))
      yield* eventually(Effect.sync(() => loopback.state === "stopping"))
      yield* DaytonaSandbox.remove(loopback.id, account)
      yield* Fiber.join(stopping)
      assert.isFalse(server.sandboxes.has(loopback.id))
    }))

  it.live("leaves nothing behind where it doesn't start", () =>
    Effect.gen(function*() {
      server.created = "error"
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          server.created = "started"
        })
      )
      const before = new Set(server.sandboxes.keys())
      server.requests.length = 0
      const error = yield* Effect.flip(make())
      assert.strictEqual(error.operation, "create")
      assert.include(error.message, "no runner")
      assert.deepStrictEqual(new Set(server.sandboxes.keys()), before)
      assert.include(server.requests, "POST /api/sandbox")
      assert.strictEqual(server.requests.filter((request) => request.startsWith("DELETE ")).length, 1)
    }).pipe(Effect.scoped))

  it.live("tells apart who may not, what isn't there, and what can't be", () =>
    Effect.gen(function*() {
      const wrong = { ...account, apiKey: Redacted.make("dtn_wrong") }
      assert.strictEqual(yield* reasonOf(DaytonaSandbox.make(wrong)), "Denied")
      assert.strictEqual(yield* reasonOf(DaytonaSandbox.attach({ ...account, sandbox: "none" })), "NotFound")
      assert.strictEqual(yield* reasonOf(make({ autoStop: "-1 minutes" })), "Unsupported")
      const nowhere = { ...account, apiUrl: "http://127.0.0.1:1/api" }
      assert.strictEqual(yield* reasonOf(DaytonaSandbox.attach({ ...nowhere, sandbox: "any" })), "Transient")

      const { loopback, sandbox } = yield* make()
      loopback.unresolved = 1
      assert.strictEqual(yield* reasonOf(sandbox.readFile("/etc/hostname")), "Transient")
      assert.isTrue(Option.isNone(yield* sandbox.readFile(`${home(sandbox)}/none`)))
      const log = `${home(sandbox)}/log`
      const start = { command: ["true"], stdinLine: Redacted.make("x"), log } as const
      assert.strictEqual(yield* reasonOf(sandbox.start({ ...start, cwd: `${home(sandbox)}/none` })), "NotFound")
      assert.strictEqual(yield* reasonOf(sandbox.start({ ...start, log: home(sandbox) })), "Unsupported")
      assert.strictEqual(yield* reasonOf(sandbox.writeFile("/proc/none/file", new Uint8Array())), "NotFound")
    }).pipe(Effect.scoped))

  it.live("says of a line that can't be written nothing of the line, and leaves no session", () =>
    Effect.gen(function*() {
      const { loopback, sandbox } = yield* make()
      // Its input is refused for as long as it's tried.
      loopback.toolbox.pipeDelay = 60_000
      const secret = "a-secret-in-the-line"
      const error = yield* Effect.flip(
        sandbox.start({ command: ["cat"], stdinLine: Redacted.make(secret), log: `${home(sandbox)}/log` })
      )
      assert.strictEqual(error.reason._tag, "Transient")
      assert.isFalse(Bun.inspect(error, { depth: 20 }).includes(secret))
      // The server did say it.
      assert.isTrue(JSON.stringify(server.answers).includes(secret))
      assert.strictEqual(loopback.toolbox.sessionCount, 0)
    }).pipe(Effect.scoped))

  it.live("brings a program in once, of any size", () =>
    Effect.gen(function*() {
      const { sandbox } = yield* make()
      // About the size of a bridge.
      const content = new Uint8Array(50_000_000)
      content.set(new TextEncoder().encode("#!/bin/sh\necho here; exit\n"))
      const install = Executable.install({
        name: "program",
        directory: `${home(sandbox)}/programs`,
        build: () => Effect.succeedSome(content)
      }).pipe(Effect.provideService(Sandbox.Sandbox, sandbox), Effect.provide(BunServices.layer))
      const program = yield* install
      const result = yield* sandbox.run({ ...quickly, command: [program] })
      assert.deepStrictEqual(result, { exitCode: 0, stdout: "here\n" })
      server.requests.length = 0
      assert.strictEqual(yield* install, program)
      assert.isEmpty(server.requests.filter((request) => request.endsWith("/bulk-upload")))
      // Nothing is left of the upload.
      assert.isEmpty(readdirSync(`${home(sandbox)}/tmp`))
    }).pipe(Effect.scoped), 60_000)

  it.live("removes the session of a program that has ended, and takes a removed one's for killed", () =>
    Effect.gen(function*() {
      const { loopback, sandbox } = yield* make()
      const start = (...command: [string, ...Array<string>]) =>
        sandbox.start({ command, stdinLine: Redacted.make("x"), log: `${home(sandbox)}/log` })
      const short = yield* start("sh", "-c", "exit 4")
      const long = yield* start("sleep", "1000")
      const asked = eventually(Effect.map(short.exitCode, Option.isSome))
      yield* Effect.all(Array.from({ length: 8 }, () => asked), { concurrency: "unbounded" })
      assert.strictEqual(loopback.toolbox.sessionCount, 1)
      assert.deepStrictEqual(yield* short.exitCode, Option.some(4))
      assert.isTrue(Option.isNone(yield* long.exitCode))
      yield* Effect.promise(() => server.stop(loopback))
      assert.strictEqual(yield* reasonOf(long.exitCode), "NotRunning")
      assert.strictEqual(yield* sandbox.wake, "restarted")
      assert.deepStrictEqual(yield* long.exitCode, Option.some(137))
    }).pipe(Effect.scoped))

  it.live("wakes from each state, and says what became of its processes", () =>
    Effect.gen(function*() {
      const { loopback, sandbox } = yield* make()
      assert.strictEqual(yield* sandbox.wake, "already-running")
      yield* Effect.promise(() => server.stop(loopback))
      // Two hosts at once; and Daytona's own API isn't reached at first.
      loopback.unresolved = 2
      assert.deepStrictEqual(
        yield* Effect.all([sandbox.wake, sandbox.wake], { concurrency: "unbounded" }),
        ["restarted", "restarted"]
      )
      yield* Effect.promise(() => server.stop(loopback, "archived"))
      assert.strictEqual(yield* sandbox.wake, "restarted")

      // A stop that's under way.
      const stopping = yield* Effect.forkChild(Effect.promise(() => server.stop(loopback)))
      yield* eventually(Effect.sync(() => loopback.state === "stopping"))
      assert.strictEqual(yield* sandbox.wake, "restarted")
      yield* Fiber.join(stopping)

      yield* Effect.promise(() => server.stop(loopback, "error"))
      loopback.errorReason = "the runner was lost"
      const error = yield* Effect.flip(sandbox.wake)
      assert.strictEqual(error.reason._tag, "Unsupported")
      assert.include(error.message, "the runner was lost")
      loopback.recoverable = true
      assert.strictEqual(yield* sandbox.wake, "restarted")

      loopback.state = "paused"
      assert.strictEqual(yield* reasonOf(sandbox.readFile("/etc/hostname")), "NotRunning")
      assert.strictEqual(yield* sandbox.wake, "already-running")
    }).pipe(Effect.scoped), 60_000)

  it.live("is stopped where nobody uses it, and isn't where it's kept alive", () =>
    Effect.gen(function*() {
      const { minute } = server
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          server.minute = minute
        })
      )
      const { loopback, sandbox } = yield* make({ autoStop: "1 minute" })
      const keepAlive = sandbox.keepAlive!
      yield* keepAlive
      server.minute = 400
      const keeping = yield* keepAlive.pipe(Effect.repeat(Schedule.spaced("100 millis")), Effect.forkScoped)
      yield* Effect.sleep("1200 millis")
      assert.strictEqual(loopback.state, "started")
      yield* Fiber.interrupt(keeping)
      yield* eventually(Effect.sync(() => loopback.state === "stopped"))
      yield* Effect.promise(() => server.remove(loopback))
      assert.strictEqual(yield* reasonOf(keepAlive), "NotFound")
    }).pipe(Effect.scoped))

  it.live("never stops by itself where it's asked not to", () =>
    Effect.gen(function*() {
      const { loopback } = yield* make({ autoStop: 0 })
      assert.strictEqual(loopback.autoStop, 0)
      assert.strictEqual((yield* make()).loopback.autoStop, 15)
    }).pipe(Effect.scoped))
})

describe("keepAwake", () => {
  it.effect("keeps a sandbox awake for as long as its scope is open, whatever a call comes to", () =>
    Effect.gen(function*() {
      let calls = 0
      const keepAlive = Effect.suspend(() =>
        ++calls === 2
          ? new Sandbox.SandboxError({
            kind: "test",
            operation: "keepAlive",
            reason: new Sandbox.Transient({ problem: "not now" })
          })
          : Effect.void
      )
      const awake = (sandbox: Partial<Sandbox.Sandbox["Service"]>) =>
        Sandbox.keepAwake.pipe(Effect.provideService(Sandbox.Sandbox, sandbox as Sandbox.Sandbox["Service"]))
      yield* Effect.scoped(Effect.andThen(awake({ keepAlive }), TestClock.adjust("95 seconds")))
      assert.strictEqual(calls, 4)
      yield* TestClock.adjust("95 seconds")
      assert.strictEqual(calls, 4)
      yield* Effect.scoped(awake({}))
    }))
})

describe("the loopback Daytona", needed, () => {
  it.live("is as hard to use as the real one", () =>
    Effect.gen(function*() {
      const { loopback, sandbox } = yield* make()
      const daytona = new Daytona({ apiKey: server.apiKey, apiUrl: server.apiUrl, useDeprecatedPolling: true })
      yield* Effect.promise(async () => {
        const { process } = await daytona.get(sandbox.id)
        // Input is refused until its pipe is there, echoed unless that's suppressed, and has no end.
        await process.createSession("s")
        const send = (command: string, data: string) =>
          process.sendSessionCommandInput("s", command, data).then(() => 204, ({ statusCode }) => statusCode)
        const first = await process.executeSessionCommand("s", { command: "cat", runAsync: true })
        const statuses = new Set<number>()
        while (!statuses.has(204)) statuses.add(await send(first.cmdId, "a line"))
        assert.deepStrictEqual([...statuses], [500, 204])
        const output = async () => (await process.getSessionCommandLogs("s", first.cmdId)).output?.trim()
        while (await output() !== "a line\na line") await Bun.sleep(10)
        assert.isUndefined((await process.getSessionCommand("s", first.cmdId)).exitCode)
        // With the session goes what runs in it.
        assert.isNotEmpty(processesOf(sandbox.id))
        await process.deleteSession("s")
        while (processesOf(sandbox.id).length > 0) await Bun.sleep(10)

        // An exit code that was told ends the input; an `exit` of the session's own shell is never told.
        await process.createSession("t")
        const second = await process.executeSessionCommand("t", { command: "(exit 3)", runAsync: true })
        const exitCode = async (command: string) => (await process.getSessionCommand("t", command)).exitCode
        while (await exitCode(second.cmdId) !== 3) await Bun.sleep(10)
        await process.sendSessionCommandInput("t", second.cmdId, "x").then(
          () => assert.fail("it was taken"),
          ({ statusCode }) => assert.strictEqual(statusCode, 410)
        )

        // A command's text is its shell's input.
        const { result } = await process.executeCommand("cat\necho eaten")
        assert.strictEqual(result, "echo eaten")
        await process.executeCommand("sleep 5", undefined, undefined, 1).then(
          () => assert.fail("it ended"),
          ({ statusCode }) => assert.strictEqual(statusCode, 408)
        )
      })

      // The proxy asks for its token in each request, reaches nothing where nobody listens, and nothing that's stopped.
      const { headers, url } = yield* sandbox.endpoint(1)
      const token = Redacted.value(headers["X-Daytona-Preview-Token"]!)
      const status = (headers: Record<string, string>) =>
        Effect.promise(() => fetch(url, { headers, redirect: "manual" }).then(({ status }) => status))
      assert.strictEqual(yield* status({}), 307)
      assert.strictEqual(yield* status({ "X-Daytona-Preview-Token": "wrong" }), 307)
      assert.strictEqual(yield* status({ "X-Daytona-Preview-Token": token }), 502)
      yield* Effect.promise(() => server.stop(loopback))
      assert.strictEqual(yield* status({ "X-Daytona-Preview-Token": token }), 400)
      yield* sandbox.wake
      assert.strictEqual(yield* status({ "X-Daytona-Preview-Token": token }), 307)
    }).pipe(Effect.scoped))
})

answersAreAsDocumented(server)

const home = ({ id }: Sandbox.Sandbox["Service"]) => server.get(id).toolbox.home
