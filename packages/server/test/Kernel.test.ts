import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { ProcessTable } from "@gangway/server/ProcessTable"
import * as SessionLock from "@gangway/server/SessionLock"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Effect, FileSystem, type Scope } from "effect"
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually, isRunning, killAll, stateOf } from "./fixtures/processes.ts"

const source = new URL("fixtures/kernelProgram.ts", import.meta.url).pathname

interface Program {
  readonly child: ChildProcess & { readonly pid: number }
  /** Waits for a line. */
  readonly line: Effect.Effect<any, Error>
  readonly stdout: () => string
  readonly stderr: () => string
  readonly exited: Effect.Effect<number | null, Error>
}

const start = (command: string, args: ReadonlyArray<string>): Effect.Effect<Program, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] }) as Program["child"] & ChildProcess
      let text = ""
      let errors = ""
      child.stdout!.on("data", (data: Buffer) => text += data.toString())
      child.stderr!.on("data", (data: Buffer) => errors += data.toString())
      return {
        child,
        stdout: () => text,
        stderr: () => errors,
        line: eventually(
          `a line of ${args.join(" ")}`,
          Effect.sync(() => {
            const end = text.indexOf("\n")
            if (end < 0 && child.exitCode !== null) throw new Error(`exited with ${child.exitCode}: ${errors}`)
            if (end < 0) return undefined
            const line = text.slice(0, end)
            text = text.slice(end + 1)
            return JSON.parse(line)
          }),
          40
        ),
        exited: eventually(
          "its end",
          Effect.sync(() => (child.exitCode !== null || child.signalCode !== null) && { code: child.exitCode })
        ).pipe(Effect.map(({ code }) => code))
      }
    }),
    ({ child }) => Effect.sync(() => child.kill("SIGKILL"))
  )

const run = (act: string, argument = "") => start(process.execPath, [source, act, argument])

const temporary = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "gangway-kernel-"))),
  (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
)

const children = (pid: number): ReadonlyArray<number> =>
  readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, "latin1").split(" ").filter((entry) => entry !== "").map(
      Number
    )
  )

const live = (name: string, effect: Effect.Effect<void, unknown, Scope.Scope | FileSystem.FileSystem>) =>
  it.live(name, () => effect.pipe(Effect.provide(BunServices.layer)), 90_000)

const linux = process.platform === "linux"

describe.runIf(linux)("processes", { concurrent: true }, () => {
  live(
    "an orphan with an empty environment comes to the bridge, and is ended",
    Effect.gen(function*() {
      const program = yield* run("orphan")
      const { adopted, background } = yield* program.line
      assert.isTrue(adopted)
      const { ended, left, pid } = yield* program.line
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll([pid])))
      assert.deepStrictEqual(background.map((found: { pid: number }) => found.pid), [pid])
      assert.isTrue(ended.some((found: { pid: number }) => found.pid === pid))
      assert.deepStrictEqual(left, [])
      assert.isFalse(isRunning(pid))
      assert.strictEqual(yield* program.exited, 0)
    })
  )

  live(
    "an orphan that two sessions may have left is ended with the second, and the bridge's own children never",
    Effect
      .gen(function*() {
        const program = yield* run("two-sessions")
        const { pid, ...first } = yield* program.line
        yield* Effect.addFinalizer(() => Effect.sync(() => killAll([pid])))
        assert.isTrue(first.running)
        assert.isFalse(first.first.ended.some((found: { pid: number }) => found.pid === pid))
        const second = yield* program.line
        assert.isTrue(second.second.ended.some((found: { pid: number }) => found.pid === pid))
        assert.isFalse(isRunning(pid))
        assert.deepStrictEqual(yield* program.line, { own: true })
      })
  )

  live(
    "orphans that end are reaped, and no exit code of the program's own children is lost",
    Effect.gen(function*() {
      const program = yield* run("zombies")
      assert.deepStrictEqual(yield* program.line, { wrong: [] })
      yield* eventually("no zombies", Effect.sync(() => children(program.child.pid).length === 0))
    })
  )

  live(
    "an exit code that comes while the bridge is stopped isn't lost",
    Effect.gen(function*() {
      const program = yield* run("stopped")
      const { child } = yield* program.line
      // Its reaper has looked a few times.
      yield* Effect.sleep("2500 millis")
      for (let n = 0; n < 3; n++) {
        program.child.kill("SIGSTOP")
        yield* eventually("stopped", Effect.sync(() => stateOf(program.child.pid) === "T"))
        if (n === 0) {
          process.kill(child, "SIGKILL")
          yield* eventually("a zombie", Effect.sync(() => stateOf(child) === "Z"))
        }
        yield* Effect.sleep("1500 millis")
        program.child.kill("SIGCONT")
        yield* Effect.sleep("20 millis")
      }
      assert.deepStrictEqual(yield* program.line, { code: null })
    })
  )

  const asNobody = process.getuid?.() === 0 && ["/usr/bin/setpriv", "/bin/setpriv"].find(existsSync)
  describe.runIf(asNobody !== false && asNobody !== undefined)("as another user", () => {
    live(
      "everything works, and no process of that user reads the bridge's memory",
      Effect.gen(function*() {
        const directory = yield* temporary
        const fs = yield* FileSystem.FileSystem
        yield* fs.chmod(directory, 0o777)
        const bundle = join(directory, "program.js")
        const bun = join(directory, "bun")
        yield* fs.copyFile(process.execPath, bun)
        yield* fs.chmod(bun, 0o755)
        execFileSync(process.execPath, ["build", source, "--target=bun", `--outfile=${bundle}`])
        yield* fs.chmod(bundle, 0o644)
        const nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "env", `HOME=${directory}`]
        const runAs = (act: string, argument = "") =>
          start(asNobody as string, [...nobody, `TMPDIR=${directory}`, bun, bundle, act, argument])

        const orphan = yield* runAs("orphan")
        assert.isTrue((yield* orphan.line).adopted)
        const { ended, left, pid } = yield* orphan.line
        assert.isTrue(ended.some((found: { pid: number }) => found.pid === pid))
        assert.deepStrictEqual(left, [])
        assert.strictEqual(yield* orphan.exited, 0)

        const lock = yield* runAs("lock", join(directory, "session"))
        const acquired = yield* lock.line
        yield* Effect.addFinalizer(() => Effect.sync(() => killAll([acquired.child])))
        assert.strictEqual(acquired._tag, "Acquired")

        const memory = yield* runAs("memory")
        yield* memory.line
        const read = (pid: number) =>
          start(asNobody as string, [...nobody, "perl", "-e", `open my $m, "<", "/proc/${pid}/mem" or exit 13; exit 0`])
        assert.strictEqual(yield* (yield* read(memory.child.pid)).exited, 13)
        // The same test on a process that is dumpable, so that it's known to be one.
        const open = yield* start(asNobody as string, [...nobody, "perl", "-e", "$| = 1; print qq({}\n); sleep 1000"])
        yield* open.line
        assert.strictEqual(yield* (yield* read(open.child.pid)).exited, 0)
      })
    )
  })

  live(
    "where the C library can't be called there's a warning, and the portable services",
    Effect.gen(function*() {
      const directory = yield* temporary
      const program = yield* run("unloadable", join(directory, "session"))
      assert.strictEqual(yield* program.exited, 0)
      const output = program.stdout() + program.stderr()
      assert.match(output, /C library/)
      assert.include(output, `{"adopts":false,"self":true}\n{"_tag":"Acquired"}`)
    })
  )
})

describe.runIf(linux)("locks", { concurrent: true }, () => {
  live(
    "a session has one holder, and is free when that's killed, although its child lives on",
    Effect.gen(function*() {
      const directory = yield* temporary
      const session = join(directory, "session")
      const first = yield* run("lock", session)
      const acquired = yield* first.line
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll([acquired.child])))
      assert.strictEqual(acquired._tag, "Acquired")
      const second = yield* run("lock", session)
      const held = yield* second.line
      assert.strictEqual(held._tag, "Held")
      assert.strictEqual(held.holder.pid, first.child.pid)
      first.child.kill("SIGKILL")
      yield* first.exited
      assert.isTrue(isRunning(acquired.child))
      const third = yield* run("lock", session)
      const again = yield* third.line
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll([again.child])))
      assert.strictEqual(again._tag, "Acquired")
    })
  )

  live(
    "a bridge without the kernel's lock and one with it exclude each other",
    Effect.gen(function*() {
      const directory = yield* temporary
      const table = yield* ProcessTable
      const self = { launch: "portable", port: 2, ...yield* table.self }
      const kernel = yield* run("lock", join(directory, "one"))
      const { child } = yield* kernel.line
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll([child])))
      assert.strictEqual((yield* SessionLock.tryAcquire(join(directory, "one"), self))._tag, "Held")

      yield* StateDirectory.makeSessionDirectory(join(directory, "two"))
      assert.strictEqual((yield* SessionLock.tryAcquire(join(directory, "two"), self))._tag, "Acquired")
      const other = yield* run("lock", join(directory, "two"))
      assert.strictEqual((yield* other.line).holder.launch, "portable")
    })
  )

  live(
    "a holder of another pid namespace is dead if the kernel says so, and alive if only its file does",
    Effect.gen(
      function*() {
        const directory = yield* temporary
        const kernel = yield* run("lock", join(directory, "one"))
        const { child } = yield* kernel.line
        kernel.child.kill("SIGKILL")
        yield* kernel.exited
        killAll([child])
        const moved = (entry: string) => entry.replace(/pid:\[\d+\]/, "pid:[1]")
        const file = join(directory, "one", "lock-1")
        const entry = moved(readFileSync(file, "utf8"))
        assert.include(entry, "pid:[1]")
        writeFileSync(file, entry)

        const table = yield* ProcessTable
        const self = { launch: "portable", port: 2, ...yield* table.self }
        assert.strictEqual((yield* SessionLock.tryAcquire(join(directory, "one"), self))._tag, "Held")
        const again = yield* run("lock", join(directory, "one"))
        const acquired = yield* again.line
        yield* Effect.addFinalizer(() => Effect.sync(() => killAll([acquired.child])))
        assert.strictEqual(acquired._tag, "Acquired")
      }
    )
  )

  live(
    "no two programs have a lock at once",
    Effect.gen(function*() {
      const directory = yield* temporary
      const file = join(directory, "number")
      writeFileSync(file, "0")
      const programs = yield* Effect.forEach([1, 2, 3, 4], () => run("count", `${join(directory, "session")},${file}`))
      for (const program of programs) assert.deepStrictEqual(yield* program.line, { done: true }, program.stderr())
      assert.strictEqual(readFileSync(file, "utf8"), "80")
    })
  )
})
