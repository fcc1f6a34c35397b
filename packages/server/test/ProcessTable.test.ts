import { assert, describe, it } from "@effect/vitest"
import { liveness, ProcessTable } from "@gangway/server/ProcessTable"
import { Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { eventually, killAll, stateOf } from "./fixtures/processes.ts"

const run = (command: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) =>
  Effect.acquireRelease(
    Effect.callback<ChildProcess & { readonly pid: number; readonly firstLine: string }, Error>((resume) => {
      const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] })
      child.on("error", (error) => resume(Effect.fail(error)))
      child.stdout.on("data", (data: Buffer) =>
        resume(Effect.succeed(Object.assign(child, { pid: child.pid!, firstLine: data.toString().trim() }))))
    }),
    (child) =>
      Effect.sync(() =>
        child.kill("SIGKILL")
      )
  )

const perl = (script: string, env?: Record<string, string>) => run("perl", ["-e", `$| = 1; ${script}`], env)

describe("ProcessTable", () => {
  it.live("identifies a process until it has ended, zombie or not", () =>
    Effect.gen(function*() {
      const table = yield* ProcessTable
      const parent = yield* perl(
        `my $p = fork; if (!$p) { $SIG{TERM} = sub { exit }; sleep 1000; exit } print "$p\\n"; sleep 1000`
      )
      const child = Number(parent.firstLine)
      const self = yield* table.self
      const identity = yield* table.identify(child)
      assert.strictEqual(self.pid, process.pid)
      assert.strictEqual(identity!.boot, readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim())
      assert.strictEqual(identity!.pidNamespace, self.pidNamespace)
      assert.match(self.pidNamespace, /^pid:\[\d+\]$/)
      assert.isAtLeast(Number(identity!.start), Number(self.start))
      assert.strictEqual(yield* liveness(identity!), "alive")

      assert.isTrue(yield* table.signal(identity!, "SIGTERM"))
      yield* eventually("a zombie", Effect.sync(() => stateOf(child) === "Z"))
      assert.isUndefined(yield* table.identify(child))
      assert.isFalse((yield* table.list()).some(({ pid }) => pid === child))
      assert.strictEqual(yield* liveness(identity!), "gone")
      assert.isFalse(yield* table.signal(identity!, "SIGKILL"))
    }))

  it.live("takes a process of another boot for gone, and of another pid namespace for unknown", () =>
    Effect.gen(function*() {
      const self = yield* (yield* ProcessTable).self
      assert.strictEqual(yield* liveness(self), "alive")
      assert.strictEqual(yield* liveness({ ...self, start: `${Number(self.start) + 1}` }), "gone")
      assert.strictEqual(yield* liveness({ ...self, boot: "another" }), "gone")
      assert.strictEqual(yield* liveness({ ...self, pidNamespace: "another" }), "unknown")
      assert.strictEqual(yield* liveness({ ...self, boot: "another", pidNamespace: "another" }), "gone")
    }))

  it.live("never signals a process that isn't the one it was", () =>
    Effect.gen(function*() {
      const table = yield* ProcessTable
      const { pid } = yield* perl(`print "ready\\n"; sleep 1000`)
      const { start } = (yield* table.identify(pid))!
      assert.isFalse(yield* table.signal({ pid, start: `${Number(start) - 1}` }, "SIGKILL"))
      assert.strictEqual((yield* table.identify(pid))!.start, start)
      assert.isTrue(yield* table.signal({ pid, start }, "SIGKILL"))
    }))

  it.live("reads a process whose name looks like the fields after it", () =>
    Effect.gen(function*() {
      const table = yield* ProcessTable
      const { pid } = yield* perl(`$0 = ") Z 1 1 ("; print "ready\\n"; sleep 1000`)
      const found = (yield* table.list()).find((process) => process.pid === pid)
      assert.strictEqual(found!.parent, process.pid)
      assert.strictEqual(found!.start, (yield* table.identify(pid))!.start)
    }))

  it.live("names a process whose arguments can't be told by its program, and one without a name by its parent", () =>
    Effect.gen(function*() {
      const table = yield* ProcessTable
      const commandOf = (pid: number) =>
        Effect.map(table.list(), (list) => list.find((process) => process.pid === pid)?.command)
      const script = `print "$$\n"; sleep 1000`
      const bare = yield* run("perl", [
        "-e",
        `pipe my $r, my $w; print $w '$| = 1; ${script}'; close $w; open STDIN, "<&", $r; exec { $^X } ""`
      ])
      assert.strictEqual(yield* commandOf(Number(bare.firstLine)), "perl")
      const nameless = yield* perl(`if (!fork) { $0 = ""; ${script} } sleep 1000`)
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll([Number(nameless.firstLine)])))
      assert.strictEqual(yield* commandOf(Number(nameless.firstLine)), yield* commandOf(nameless.pid))
      assert.match((yield* commandOf(nameless.pid))!, /^perl -e /)
    }))

  it.live("lists processes with their parent, group, command, and the exact variable that was asked for", () =>
    Effect.gen(function*() {
      const table = yield* ProcessTable
      const name = "GANGWAY_TEST_MARK"
      const mine = yield* run("perl", ["-e", "$| = 1; print 'ready'; sleep 1000", "two words"], {
        [name]: "a b=c",
        [`X${name}`]: "wrong"
      })
      const other = yield* perl(`print "ready\\n"; sleep 1000`, { [`X${name}`]: "a", [`${name}2`]: "b" })
      const list = yield* table.list(name)
      const found = list.find(({ pid }) => pid === mine.pid)!
      assert.strictEqual(found.mark, "a b=c")
      assert.strictEqual(found.parent, process.pid)
      assert.strictEqual(found.group, list.find(({ pid }) => pid === process.pid)!.group)
      assert.strictEqual(found.command, "perl -e $| = 1; print 'ready'; sleep 1000 two words")
      assert.isUndefined(list.find(({ pid }) => pid === other.pid)!.mark)
      assert.isUndefined((yield* table.list()).find(({ pid }) => pid === mine.pid)!.mark)
    }))
})
