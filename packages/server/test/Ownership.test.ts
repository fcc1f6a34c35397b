import * as BunFileSystem from "@effect/platform-bun/BunFileSystem"
import { assert, describe, it } from "@effect/vitest"
import * as Bridge from "@gangway/protocol/Bridge"
import * as Ownership from "@gangway/server/Ownership"
import { portable, ProcessTable } from "@gangway/server/ProcessTable"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Effect, Exit, Fiber, FileSystem, PlatformError, Scope } from "effect"
import * as TestClock from "effect/testing/TestClock"
import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually, isRunning } from "./fixtures/processes.ts"

const b1 = Bridge.BridgeId.make("b1")

const file = (options: Partial<Bridge.ListeningFile> = {}): string =>
  `${JSON.stringify({ protocol: 1, bridge: "b1", launch: "launch-1", port: 4001, pid: process.pid, ...options })}\n`

/** A state directory in memory, and what was written to it. */
const inMemory = () => {
  const files = new Map<string, string>()
  const writes: Array<string> = []
  let full = false
  const stateDirectory = {
    path: "/state",
    listeningFile: "/state/listening.json",
    processFile: "/state/process.json",
    writeAtomic: (path: string, text: string) =>
      Effect.suspend(() => {
        if (full) return Effect.fail(new Bridge.LogUnavailable({ problem: "ENOSPC" }))
        files.set(path, text)
        writes.push(path)
        return Effect.void
      })
  } as unknown as StateDirectory.StateDirectory
  const fs = FileSystem.makeNoop({
    readFileString: (path) =>
      Effect.suspend(() => {
        const text = files.get(path)
        return text === undefined
          ? Effect.fail(PlatformError.systemError({ _tag: "NotFound", module: "FileSystem", method: "readFile" }))
          : Effect.succeed(text)
      })
  })
  return {
    files,
    written: (path: string) => writes.filter((write) => write === path).length,
    setFull: (value: boolean) => {
      full = value
    },
    stateDirectory,
    fs,
    listeningFile: stateDirectory.listeningFile,
    own: Ownership.make({ stateDirectory, bridge: b1, launch: "launch-1", port: 4001 }).pipe(
      Effect.provideService(FileSystem.FileSystem, fs)
    )
  }
}

const isReplaced = (ownership: Ownership.Ownership) => Effect.isFailure(ownership.check)

describe("Ownership", () => {
  it.effect("a newer bridge's file is noticed within a second, and never written over", () =>
    Effect.gen(function*() {
      const { files, listeningFile, own, written } = inMemory()
      const ownership = yield* own
      assert.deepStrictEqual(JSON.parse(files.get(listeningFile)!), JSON.parse(file()))
      const waiting = yield* Effect.forkChild(ownership.replaced)
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(waiting.pollUnsafe())
      assert.isFalse(ownership.isReplaced())
      assert.strictEqual(written(listeningFile), 1)

      files.set(listeningFile, file({ launch: "launch-2", port: 4002 }))
      assert.isFalse(ownership.isReplaced())
      yield* TestClock.adjust("1 second")
      assert.isTrue(ownership.isReplaced())
      yield* Fiber.join(waiting)
      assert.instanceOf(yield* Effect.flip(ownership.check), Bridge.Replaced)

      // Whatever becomes of the file.
      for (const text of [undefined, "", file()]) {
        if (text === undefined) files.delete(listeningFile)
        else files.set(listeningFile, text)
        yield* TestClock.adjust("1 minute")
        assert.isTrue(yield* isReplaced(ownership))
      }
      assert.strictEqual(written(listeningFile), 1)
    }))

  it.effect("looking doesn't wait for the second to be over", () =>
    Effect.gen(function*() {
      const { files, listeningFile, own } = inMemory()
      const ownership = yield* own
      yield* ownership.check
      files.set(listeningFile, file({ launch: "launch-2" }))
      assert.isTrue(yield* isReplaced(ownership))
      assert.isTrue(ownership.isReplaced())
    }))

  it.effect("the same launch with another port is another bridge", () =>
    Effect.gen(function*() {
      const { files, listeningFile, own } = inMemory()
      const ownership = yield* own
      files.set(listeningFile, file({ port: 4002 }))
      assert.isTrue(yield* isReplaced(ownership))
    }))

  it.effect("a file that's missing, damaged or of another bridge id is written again", () =>
    Effect.gen(function*() {
      const { files, listeningFile, own, written } = inMemory()
      const ownership = yield* own
      const bad = [
        undefined,
        "",
        "{",
        "{}",
        file().replace("4001", "\"4001\""),
        file({ bridge: "b2" as Bridge.BridgeId })
      ]
      for (const text of bad) {
        if (text === undefined) files.delete(listeningFile)
        else files.set(listeningFile, text)
        yield* TestClock.adjust("1 second")
        assert.strictEqual(files.get(listeningFile), file(), text)
        assert.isFalse(ownership.isReplaced())
      }
      assert.strictEqual(written(listeningFile), 1 + bad.length)
    }))

  it.effect("a file that can't be written is written when there's room, and none at the start is a failure", () =>
    Effect.gen(function*() {
      const { files, listeningFile, own, setFull } = inMemory()
      const ownership = yield* own
      files.delete(listeningFile)
      setFull(true)
      yield* TestClock.adjust("5 seconds")
      yield* ownership.check
      assert.isFalse(files.has(listeningFile))
      setFull(false)
      yield* TestClock.adjust("1 second")
      assert.strictEqual(files.get(listeningFile), file())

      const second = inMemory()
      second.setFull(true)
      assert.instanceOf(yield* Effect.flip(second.own), Bridge.LogUnavailable)
    }))

  it.effect("a bridge whose scope closed writes no more", () =>
    Effect.gen(function*() {
      const { files, listeningFile, own } = inMemory()
      const scope = yield* Scope.make()
      yield* Scope.provide(own, scope)
      yield* Scope.close(scope, Exit.void)
      // The file outlives its bridge.
      assert.strictEqual(files.get(listeningFile), file())
      files.delete(listeningFile)
      yield* TestClock.adjust("1 minute")
      assert.isFalse(files.has(listeningFile))
    }))

  it.live(
    "of 50 at once one isn't replaced in the end, the one that the file names, whoever deletes the file",
    () =>
      Effect.gen(function*() {
        const path = yield* temporary
        const stateDirectory = yield* StateDirectory.open({ path, bridge: b1 })
        const owners = yield* Effect.forEach(
          Array.from({ length: 50 }, (_, n) => n),
          (n) =>
            Effect.map(
              Ownership.make({ stateDirectory, bridge: b1, launch: `launch-${n}`, port: 5000 + n }),
              (ownership) => ({ ownership, launch: `launch-${n}` })
            ),
          { concurrency: "unbounded" }
        )
        const left = () => owners.filter(({ ownership }) => !ownership.isReplaced())
        // While they still sort it out.
        for (let n = 0; n < 20; n++) {
          Fs.rmSync(stateDirectory.listeningFile, { force: true })
          yield* Effect.sleep(7)
          assert.isAtLeast(left().length, 1)
          yield* Effect.ignore(owners[n]!.ownership.check)
        }
        yield* eventually("one", Effect.sync(() => left().length === 1))
        for (let n = 0; n < 3; n++) {
          yield* Effect.sleep("1 second")
          assert.strictEqual(left().length, 1)
        }
        const named = yield* left()[0]!.ownership.listening
        assert.strictEqual(named?.launch, left()[0]!.launch)
        assert.strictEqual(JSON.parse(Fs.readFileSync(stateDirectory.processFile, "utf8")).launch, named?.launch)
      }).pipe(Effect.provide(BunFileSystem.layer)),
    60_000
  )

  it.live("of 8 programs at once one stays, and a later one replaces it", () =>
    Effect.gen(function*() {
      const path = yield* temporary
      const start = (n: number) =>
        Effect.acquireRelease(
          Effect.sync(() =>
            spawn(process.execPath, [
              new URL("fixtures/owningBridge.ts", import.meta.url).pathname,
              path,
              `${5000 + n}`,
              `launch-${n}`
            ], { stdio: ["ignore", "ignore", "inherit"] })
          ),
          (child) => Effect.sync(() => child.kill("SIGKILL"))
        )
      const programs = yield* Effect.forEach([1, 2, 3, 4, 5, 6, 7, 8], start)
      const left = () => programs.filter((program) => program.exitCode === null)
      yield* eventually("one", Effect.sync(() => left().length === 1), 40)
      const named = () => JSON.parse(Fs.readFileSync(join(path, "listening.json"), "utf8"))
      yield* Effect.sleep("2 seconds")
      assert.strictEqual(left().length, 1)
      assert.strictEqual(named().pid, left()[0]!.pid)
      assert.deepStrictEqual(programs.filter(({ exitCode }) => exitCode !== null && exitCode !== 0), [])

      const newer = yield* start(9)
      yield* eventually("the newer one", Effect.sync(() => left().length === 0), 40)
      assert.isNull(newer.exitCode)
      assert.strictEqual(named().launch, "launch-9")
    }), 90_000)
})

const temporary = Effect.acquireRelease(
  Effect.sync(() => Fs.realpathSync(Fs.mkdtempSync(join(tmpdir(), "gangway-ownership-")))),
  (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
)

describe("freePort", () => {
  const named = { bridge: b1, launch: "launch-1", port: 4001, pid: 77 }
  const process = { launch: "launch-1", pid: 77, start: "1", boot: "boot", pidNamespace: "here" }
  const silent: Ownership.Probe = "none"

  interface Case {
    readonly probe?: Ownership.Probe | "silence"
    readonly file?: Partial<Bridge.ListeningFile> | undefined
    readonly process?: Partial<typeof process> | undefined
    /** What has the pid now. */
    readonly current?: { readonly start: string } | undefined
    readonly unkillable?: boolean
  }

  /** The outcome, and the pids that were killed. */
  const decide = Effect.fnUntraced(function*(options: Case) {
    const { files, fs, stateDirectory } = inMemory()
    if (!("file" in options && options.file === undefined)) {
      files.set(stateDirectory.listeningFile, file({ ...named, ...options.file }))
    }
    if (!("process" in options && options.process === undefined)) {
      files.set(stateDirectory.processFile, JSON.stringify({ ...process, ...options.process }))
    }
    let current = "current" in options ? options.current : { start: "1" }
    const killed: Array<number> = []
    const fiber = yield* Ownership.freePort({
      stateDirectory,
      bridge: b1,
      port: 4001,
      probe: options.probe === "silence" ? Effect.never : Effect.succeed(options.probe ?? silent)
    }).pipe(
      Effect.provideService(FileSystem.FileSystem, fs),
      Effect.provideService(ProcessTable, {
        ...portable,
        self: Effect.succeed({ pid: 1, start: "0", boot: "boot", pidNamespace: "here" }),
        identify: (pid) =>
          Effect.sync(() => current === undefined ? undefined : { ...process, pid, start: current.start }),
        signal: ({ pid, start }, signal) =>
          Effect.sync(() => {
            if (signal !== "SIGKILL" || start !== current?.start) return false
            killed.push(pid)
            if (options.unkillable !== true) current = undefined
            return true
          })
      }),
      Effect.exit,
      Effect.forkChild
    )
    yield* TestClock.adjust("1 minute")
    const exit = yield* Fiber.join(fiber)
    if (Exit.isSuccess(exit)) return { outcome: "bind", killed }
    const error = yield* Effect.flip(exit)
    assert.strictEqual(error.exitCode, 3)
    assert.include(error.message, "port: ")
    assert.notInclude(error.message, "\n")
    return { outcome: error.by, killed }
  })

  const cases: ReadonlyArray<readonly [name: string, options: Case, outcome: string, killed: ReadonlyArray<number>]> = [
    ["a bridge of the same id answers: it's used", { probe: "ours" }, "ours", []],
    ["something else answers: it's left alone", { probe: "other" }, "other", []],
    ["the named bridge doesn't answer: it's killed", {}, "bind", [77]],
    ["the named bridge says nothing for 10 s: it's killed", { probe: "silence" }, "bind", [77]],
    ["nothing is named", { file: undefined }, "none", []],
    ["another bridge is named", { file: { bridge: Bridge.BridgeId.make("b2") } }, "none", []],
    ["another port is named", { file: { port: 4002 } }, "none", []],
    ["the process of the named launch isn't known", { process: undefined }, "none", []],
    ["the process is that of another launch", { process: { launch: "launch-0" } }, "none", []],
    ["the process has another pid than the file says", { process: { pid: 78 } }, "none", []],
    ["the pid has another process now", { current: { start: "2" } }, "none", []],
    ["the process is gone, and something else has the port", { current: undefined }, "none", []],
    ["the process was of another boot", { process: { boot: "before" } }, "none", []],
    ["the process is of another pid namespace", { process: { pidNamespace: "elsewhere" } }, "none", []],
    ["the named process is this one", { file: { pid: 1 }, process: { pid: 1 } }, "none", []],
    ["the process doesn't end", { unkillable: true }, "none", [77]]
  ]
  for (const [name, options, outcome, killed] of cases) {
    it.effect(name, () =>
      Effect.gen(function*() {
        assert.deepStrictEqual<unknown>(yield* decide(options), { outcome, killed })
      }))
  }

  it.live("a stopped bridge is killed, and gone when the port may be bound", () =>
    Effect.gen(function*() {
      const path = yield* temporary
      const child = yield* Effect.acquireRelease(
        Effect.sync(() =>
          spawn(globalThis.process.execPath, [
            new URL("fixtures/owningBridge.ts", import.meta.url).pathname,
            path,
            "4001",
            "launch-1"
          ], { stdio: ["ignore", "pipe", "inherit"] })
        ),
        (child) => Effect.sync(() => child.kill("SIGKILL"))
      )
      yield* Effect.callback<void>((resume) => {
        child.stdout.once("data", () => resume(Effect.void))
      })
      child.kill("SIGSTOP")
      const stateDirectory = yield* StateDirectory.open({ path, bridge: b1 })
      yield* Ownership.freePort({ stateDirectory, bridge: b1, port: 4001, probe: Effect.succeed(silent) })
      assert.isFalse(isRunning(child.pid!))
    }).pipe(Effect.provide(BunFileSystem.layer)), 60_000)
})
