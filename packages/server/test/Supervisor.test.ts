import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { ProcessTable, type RunningProcess } from "@gangway/server/ProcessTable"
import * as Supervisor from "@gangway/server/Supervisor"
import { Effect, Fiber, Redacted, Stream } from "effect"
import { spawn as spawnProcess } from "node:child_process"
import { readFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as processTree from "../src/internal/processTree.ts"
import { daemon, eventually, isRunning, killAll, marked, stateOf } from "./fixtures/processes.ts"

const marker = (): { readonly name: string; readonly value: string } => ({
  name: Supervisor.markerName,
  value: crypto.randomUUID()
})

const redact = (text: string) => text.replaceAll("hush-hush", "[redacted:KEY]")

/** A supervisor, and what remains of its session's processes, counted by the marker. */
const make = Effect.gen(function*() {
  const mark = marker()
  yield* Effect.addFinalizer(() => Effect.sync(() => killAll(marked(mark.name, mark.value))))
  const supervisor = yield* Supervisor.make({ driver: "test", marker: mark, redact })
  const spawn = (command: string, args: ReadonlyArray<string>, env: Supervisor.AgentCommand["env"] = {}) =>
    supervisor.processes.spawn({ command, args, cwd: tmpdir(), env })
  return {
    ...supervisor,
    marker: mark,
    leftovers: Effect.sync(() => marked(mark.name, mark.value)),
    spawn,
    perl: (script: string, env?: Supervisor.AgentCommand["env"]) => spawn("perl", ["-e", `$| = 1; ${script}`], env),
    bash: (script: string) => spawn("bash", ["-c", script])
  }
})

/** The first lines that a process prints; it may go on. */
const head = (process: Supervisor.AgentProcess, count: number) =>
  process.lines.pipe(Stream.take(count), Stream.runCollect)

const firstPid = (process: Supervisor.AgentProcess) => Effect.map(head(process, 1), ([line]) => Number(line))

const all = (process: Supervisor.AgentProcess) => Stream.runCollect(process.lines)

/** A process of a made-up table; its start time is ten times its pid. */
const fake = (pid: number, parent: number, options: Partial<RunningProcess> = {}): RunningProcess => ({
  pid,
  parent,
  group: pid,
  start: `${pid * 10}`,
  command: "fake",
  ending: false,
  mark: undefined,
  ...options
})

const looking = (tree: processTree.ProcessTree, list: ReadonlyArray<RunningProcess>) =>
  processTree.look(tree, { list, self: 1, mark: "mine", isOrphan: () => false }).map(({ process }) => process.pid).sort(
    (a, b) => a - b
  )

const rooted = (pid: number) => {
  const tree = processTree.make()
  processTree.addRoot(tree, { pid, start: `${pid * 10}`, command: "fake", running: true })
  return tree
}

describe("whose a process is", () => {
  it("is known by descent, by group and by marker, and never the bridge itself", () => {
    const list = [
      fake(1, 0, { mark: "mine" }),
      fake(2, 1),
      fake(10, 1),
      fake(11, 10),
      fake(12, 11, { group: 11 }),
      // Of the group that 11 leads, with another parent.
      fake(13, 1, { group: 11 }),
      fake(14, 1, { mark: "mine" }),
      fake(15, 14),
      fake(16, 1, { mark: "another's" })
    ]
    assert.deepStrictEqual(looking(rooted(10), list), [10, 11, 12, 13, 14, 15])
  })

  it("is remembered when its parents are gone", () => {
    const tree = rooted(10)
    looking(tree, [fake(10, 1), fake(11, 10), fake(12, 11)])
    assert.deepStrictEqual(looking(tree, [fake(12, 1)]), [12])
    assert.deepStrictEqual(looking(tree, [fake(12, 1), fake(13, 12)]), [12, 13])
  })

  it("is not inherited with a pid, nor with a group's id", () => {
    const tree = rooted(10)
    looking(tree, [fake(10, 1), fake(11, 10, { group: 10 })])
    // Somebody else has both pids by now, the first as the leader of another group 10.
    assert.deepStrictEqual(
      looking(tree, [fake(10, 1, { start: "500" }), fake(11, 1, { start: "501", group: 10 }), fake(12, 10)]),
      []
    )
  })

  it("is left by a turn unless it started below the agent before the turn's first tool call", () => {
    const tree = rooted(10)
    const left = (list: ReadonlyArray<RunningProcess>) =>
      processTree.look(tree, { list, self: 1, mark: "mine", isOrphan: () => false })
        .flatMap(({ left, process }) => left ? [process.pid] : []).sort((a, b) => a - b)
    const agent = fake(10, 1)
    const helpers = [fake(11, 10), fake(12, 11)]
    tree.acted = Infinity
    assert.deepStrictEqual(left([agent, ...helpers]), [])
    // In the clock tick of the call, and later; below the agent or a helper, in its group only, and by the marker.
    tree.acted = 130
    const tools = [
      fake(13, 10),
      fake(14, 12),
      fake(15, 14),
      fake(16, 1, { group: 11, start: "120" }),
      fake(17, 1, { mark: "mine", start: "120" })
    ]
    assert.deepStrictEqual(left([agent, ...helpers, ...tools]), [13, 14, 15, 16, 17])
    // They're what they were in the next turn, with what they start.
    tree.acted = Infinity
    assert.deepStrictEqual(left([agent, ...helpers, ...tools, fake(18, 15)]), [13, 14, 15, 16, 17, 18])
    // A helper of a helper that has ended is kept by nobody.
    assert.deepStrictEqual(left([agent, fake(12, 1)]), [12])
  })

  it("is known by a group whose first process is gone", () => {
    assert.deepStrictEqual(looking(rooted(10), [fake(11, 1, { group: 10 })]), [11])
  })
})

const test = (
  name: string,
  effect: Effect.Effect<void, unknown, Effect.Services<typeof make> | BunServices.BunServices>
) => it.live(name, () => effect.pipe(Effect.provide(BunServices.layer)), 60_000)

describe("output", () => {
  test(
    "characters survive being written byte by byte",
    Effect.gen(function*() {
      const { perl } = yield* make
      const text = "a😀é漢\u{10FFFF}z"
      const process = yield* perl(
        `for my $byte (split //, "${text}\\n") { syswrite STDOUT, $byte; select undef, undef, undef, 0.002 }`
      )
      assert.deepStrictEqual(yield* all(process), [text])
    })
  )

  test(
    "lines end with LF or CRLF, the last with the output, and may be empty or a megabyte long",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(
        `print "one\\r\\n\\n", "x" x 1048576, "\\n", "y" x 999999, "é\\r\\n", "cr\\rin the middle\\n", "last"`
      )
      const lines = yield* all(process)
      assert.strictEqual(lines.length, 6)
      assert.deepStrictEqual([lines[0], lines[1], lines[4], lines[5]], ["one", "", "cr\rin the middle", "last"])
      assert.isTrue(lines[2] === "x".repeat(1_048_576))
      assert.isTrue(lines[3] === `${"y".repeat(999_999)}é`)
    })
  )

  test(
    "a line over 64 MiB fails the lines, and the process goes on",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(
        `print "first\\n"; print "x" x 1048576 for 1 .. 65; print "\\nafter\\n" x 100000; exit 4`
      )
      const seen: Array<string> = []
      const error = yield* process.lines.pipe(
        Stream.runForEach((line) => Effect.sync(() => seen.push(line))),
        Effect.flip
      )
      assert.deepStrictEqual(seen, ["first"])
      assert.strictEqual(error.kind, "protocol")
      assert.include(error.message, `${64 * 1024 * 1024}`)
      assert.deepStrictEqual(yield* process.exit, { code: 4, signal: undefined })
    })
  )

  test(
    "a consumer that takes nothing stops the process, and then gets all of it",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(
        `my $line = "x" x 1023 . "\\n"; for my $n (1 .. 20000) { print $line; print STDERR "." if $n % 100 == 0 }`
      )
      // It stands still once its pipe is full.
      const written = Effect.map(process.stderr, (dots) => dots.length * 100 * 1024)
      let before = -1
      let same = 0
      const stopped = yield* eventually(
        "standing still",
        Effect.gen(function*() {
          yield* Effect.sleep("100 millis")
          const now = yield* written
          same = now === before ? same + 1 : 0
          before = now
          return now > 0 && same === 5 ? now : undefined
        })
      )
      assert.isBelow(stopped, 4 * 1024 * 1024)
      assert.strictEqual((yield* all(process)).length, 20_000)
      assert.strictEqual((yield* process.exit).code, 0)
    })
  )

  test(
    "lines end soon after the process, although a descendant keeps the output open",
    Effect.gen(function*() {
      const { background, bash } = yield* make
      const process = yield* bash(`perl -e 'sleep 1000' & for n in $(seq 1000); do echo $n; done; exit 3`)
      const lines = yield* all(process)
      assert.strictEqual(lines.length, 1000)
      assert.deepStrictEqual(yield* process.exit, { code: 3, signal: undefined })
      // The failure of the agent ends nothing by itself.
      assert.deepStrictEqual((yield* background).map(({ command }) => command), ["perl -e sleep 1000"])
    })
  )

  test(
    "lines end although a descendant writes on and on, and nobody blocks on what isn't read",
    Effect.gen(function*() {
      const { background, perl } = yield* make
      const process = yield* perl(
        `if (!fork) { open my $f, ">>", "/dev/null"; while (1) { print "chatter\\n" x 100; print STDERR "e" x 1000 } } exit`
      )
      assert.isAbove((yield* all(process)).length, 0)
      const [chatter] = yield* background
      assert.isDefined(chatter)
      yield* eventually("running", Effect.sync(() => stateOf(chatter!.pid) === "R"))
    })
  )

  test(
    "the last 16 KiB of standard error are kept, with secrets replaced",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(`print STDERR "0123456789abcde\\n" x 10000, "key hush-hush\\n", "é" x 8188; exit 1`)
      assert.strictEqual((yield* process.exit).code, 1)
      const stderr = yield* eventually(
        "all of it",
        Effect.map(process.stderr, (text) => text.endsWith("é".repeat(8188)) && text)
      )
      assert.isAtMost(Buffer.byteLength(stderr), 16 * 1024)
      // The tail begins in the middle of the secret: half of it would show if it were cut before it's replaced.
      assert.notInclude(stderr, "hush")
    })
  )
})

describe("input", () => {
  test(
    "standard input stays open until the process has ended",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(`while (<STDIN>) { print "got $_"; exit 7 if /stop/ } print "end of input\\n"`)
      const lines = yield* Effect.forkChild(all(process))
      yield* process.write("1\n")
      yield* Effect.sleep("300 millis")
      yield* process.write("😀\nst")
      yield* process.write("op\n")
      assert.deepStrictEqual(yield* Fiber.join(lines), ["got 1", "got 😀", "got stop"])
      assert.deepStrictEqual(yield* process.exit, { code: 7, signal: undefined })
      const error = yield* Effect.flip(process.write("more\n"))
      assert.strictEqual(error.kind, "exit")
    })
  )

  test(
    "ending the input is seen after all that was written before",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(`my $bytes = 0; $bytes += length while <STDIN>; print "$bytes\\n"`)
      for (let n = 0; n < 20; n++) yield* process.write(`${"x".repeat(99_999)}\n`)
      yield* process.endInput
      assert.deepStrictEqual(yield* all(process), ["2000000"])
    })
  )

  test(
    "who writes to a process that reads nothing waits, and is told when it's gone",
    Effect.gen(function*() {
      const { perl } = yield* make
      const process = yield* perl(`print "ready\\n"; sleep 1000`)
      let written = 0
      const writer = yield* Effect.forkChild(Effect.flip(Effect.forever(
        Effect.tap(process.write("x".repeat(100_000)), () => Effect.sync(() => written++))
      )))
      yield* eventually(
        "a full pipe",
        Effect.gen(function*() {
          const before = written
          yield* Effect.sleep("500 millis")
          return before > 0 && before === written
        })
      )
      assert.isAtMost(written, 20)
      yield* process.end
      assert.strictEqual((yield* Fiber.join(writer)).kind, "exit")
      assert.deepStrictEqual(yield* process.exit, { code: undefined, signal: "SIGTERM" })
    })
  )
})

describe("start", () => {
  test(
    "a process is listed by its own command, whatever starts it",
    Effect.gen(function*() {
      const { endAll, spawn } = yield* make
      for (let n = 0; n < 20; n++) {
        yield* spawn("sleep", [`${1000 + n}`])
        assert.deepStrictEqual((yield* endAll).ended.map(({ command }) => command), [`sleep ${1000 + n}`])
      }
    })
  )

  test(
    "what ends at once is told from what can't be started",
    Effect.gen(function*() {
      const { bash } = yield* make
      for (const code of [0, 1, 126, 127]) {
        const process = yield* bash(`echo "setpriv" >&2; echo "setpriv: nothing of it" >&2; exit ${code}`)
        assert.deepStrictEqual(yield* process.exit, { code, signal: undefined })
        yield* eventually("its words", Effect.map(process.stderr, (text) => text.endsWith("nothing of it\n")))
      }
    })
  )

  test(
    "a command that isn't there is not installed; other failures say what failed, without arguments",
    Effect.gen(
      function*() {
        const { processes, spawn } = yield* make
        const missing = yield* Effect.flip(spawn("gangway-no-such-agent", ["hush-hush"]))
        assert.strictEqual(missing.kind, "not-installed")
        assert.strictEqual(missing.message, "test: gangway-no-such-agent was not found")
        for (const [command, args] of [[tmpdir(), []], ["echo", ["nul\0"]], ["echo", ["x".repeat(3e6)]]] as const) {
          const error = yield* Effect.flip(spawn(command, [...args, "hush-hush"]))
          assert.strictEqual(error.kind, "start")
          assert.notInclude(JSON.stringify(error), "hush")
          assert.isBelow(error.message.length, 200)
        }
        const directory = yield* Effect.flip(
          processes.spawn({ command: "echo", args: [], cwd: "/no/such/directory", env: {} })
        )
        assert.strictEqual(directory.kind, "start")
        assert.include(directory.problem, "/no/such/directory")
      }
    )
  )

  test(
    "a process has the bridge's environment, what is added to it, and the session's marker",
    Effect.gen(function*() {
      const { marker, perl } = yield* make
      const process = yield* perl(
        `print join("|", $ENV{PATH}, $ENV{GANGWAY_SESSION}, $ENV{KEY}, exists $ENV{HOME} ? 1 : 0, getpgrp() == $$ ? 1 : 0), "\\n"`,
        { KEY: Redacted.make("hush-hush"), HOME: undefined }
      )
      assert.deepStrictEqual(yield* all(process), [`${globalThis.process.env.PATH}|${marker.value}|hush-hush|0|1`])
    })
  )

  it.live("a program that was given no spawner is told so by the first process that it wants to start", () =>
    Effect.gen(function*() {
      const { spawn } = yield* make
      const error = yield* Effect.flip(spawn("echo", []))
      assert.strictEqual(error.kind, "start")
      assert.include(error.problem, "ChildProcessSpawner")
    }).pipe(Effect.scoped))

  test(
    "tells how a process ended",
    Effect.gen(function*() {
      const { perl } = yield* make
      for (
        const [script, expected] of [
          ["exit 0", { code: 0, signal: undefined }],
          ["exit 41", { code: 41, signal: undefined }],
          ["kill KILL => $$; sleep 10", { code: undefined, signal: "SIGKILL" }],
          ["kill SEGV => $$; sleep 10", { code: undefined, signal: "SIGSEGV" }]
        ] as const
      ) {
        assert.deepStrictEqual(yield* (yield* perl(script)).exit, expected)
      }
    })
  )
})

describe("end", { concurrent: true }, () => {
  test(
    "ends children in sessions of their own that ignore SIGTERM, and says what it ended",
    Effect.gen(function*() {
      const { background, bash, endAll, leftovers } = yield* make
      const process = yield* bash(
        `setsid perl -e '$SIG{TERM} = "IGNORE"; sleep 1000 while 1; # hush-hush ${"x".repeat(300)}' &
       perl -e '$SIG{TERM} = "IGNORE"; $| = 1; print "ready\n"; sleep 1000 while 1' & wait`
      )
      yield* head(process, 1)
      // Once they're what they will be.
      const arePerl = (found: Supervisor.Ended["ended"]) => found.every(({ command }) => command.startsWith("perl"))
      const running = yield* eventually(
        "both",
        Effect.map(background, (found) => found.length === 2 && arePerl(found) && found)
      )
      const ended = yield* endAll
      assert.deepStrictEqual(yield* leftovers, [])
      assert.deepStrictEqual(ended.left, [])
      assert.sameDeepMembers(
        ended.ended.filter(({ pid }) => pid !== process.pid) as Array<unknown>,
        running as Array<unknown>
      )
      assert.isTrue(ended.ended.some(({ pid }) => pid === process.pid))
      const long = ended.ended.find(({ command }) => command.includes("hush") || command.includes("[redacted:KEY]"))!
      assert.strictEqual(long.command.length, 200)
      assert.include(long.command, "[redacted:KEY]")
      assert.deepStrictEqual(yield* process.exit, { code: undefined, signal: "SIGTERM" })
      assert.deepStrictEqual(yield* endAll, { ended: [], left: [] })
    })
  )

  test(
    "a daemon is background work until it's ended",
    Effect.gen(function*() {
      const { background, endAll, endBackground, leftovers, perl } = yield* make
      const process = yield* perl(`system "perl", "-e", <<'END'; sleep 1000;\n${daemon}\nEND`)
      const pid = yield* firstPid(process)
      yield* eventually("its parents' end", Effect.map(leftovers, (found) => found.length === 2))
      assert.deepStrictEqual((yield* background).map((found) => found.pid), [pid])
      assert.deepStrictEqual((yield* endBackground).ended.map((found) => found.pid), [pid])
      assert.deepStrictEqual(yield* leftovers, [process.pid])
      assert.deepStrictEqual((yield* endAll).ended.map((found) => found.pid), [process.pid])
      assert.deepStrictEqual(yield* leftovers, [])
    })
  )

  test(
    "a stopped process gets its SIGTERM, and time to act on it",
    Effect.gen(function*() {
      const { endAll, perl } = yield* make
      const process = yield* perl(
        `$SIG{TERM} = sub { print "asked to end\\n"; exit 5 }; print "ready\\n"; kill STOP => $$; sleep 1000`
      )
      const lines = yield* Effect.forkChild(all(process))
      yield* eventually("stopped", Effect.sync(() => stateOf(process.pid) === "T"))
      yield* endAll
      assert.deepStrictEqual(yield* Fiber.join(lines), ["ready", "asked to end"])
      assert.deepStrictEqual(yield* process.exit, { code: 5, signal: undefined })
    })
  )

  test(
    "a process that forks on and on is ended, whatever its group",
    Effect.gen(function*() {
      const { endAll, leftovers, perl } = yield* make
      for (const setsid of ["", "setsid() if $n++ % 5 == 0;"]) {
        // Each generation ends at once, so that whoever looks finds another pid each time; for 6 s, then it sits.
        const process = yield* perl(
          `use POSIX "setsid"; $SIG{TERM} = "IGNORE"; my $n = 0; my $until = time + 6;
         if (!fork) { while (time < $until) { exit if fork; ${setsid} select undef, undef, undef, 0.02 } sleep 1000 while 1 }
         print "ready\\n"; sleep 1000 while 1`
        )
        yield* head(process, 1)
        const { ended, left } = yield* endAll
        assert.deepStrictEqual(left, [])
        assert.isAbove(ended.length, 1)
        assert.deepStrictEqual(yield* leftovers, [])
      }
    })
  )

  test(
    "a process that cleared its environment is found by its parents, also once they're gone",
    Effect.gen(function*() {
      const { background, bash, endAll } = yield* make
      const process = yield* bash(
        `(env -i perl -MPOSIX=setsid -e 'setsid(); $SIG{TERM} = "IGNORE"; $| = 1; print "$$\n"; sleep 1000 while 1' & wait) & wait`
      )
      const pid = yield* firstPid(process)
      const parent = Number(/\d+ \(.*\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "latin1"))![1])
      assert.isTrue((yield* background).some((found) => found.pid === pid))
      globalThis.process.kill(parent, "SIGKILL")
      yield* eventually("another parent", Effect.sync(() => !isRunning(parent)))
      assert.isTrue((yield* background).some((found) => found.pid === pid))
      const { ended, left } = yield* endAll
      assert.deepStrictEqual(left, [])
      assert.isTrue(ended.some((found) => found.pid === pid))
      assert.isFalse(isRunning(pid))
    })
  )

  test(
    "a member of the agent's group is found after the agent, with a cleared environment",
    Effect.gen(function*() {
      const { bash, endAll } = yield* make
      const process = yield* bash(`env -i perl -e '$| = 1; print "$$\n"; sleep 1000' &`)
      const pid = yield* firstPid(process)
      yield* process.exit
      assert.deepStrictEqual((yield* endAll).ended.map((found) => found.pid), [pid])
      assert.isFalse(isRunning(pid))
    })
  )

  test(
    "ending one process leaves the session's others alone",
    Effect.gen(function*() {
      const { bash, endAll, leftovers, perl } = yield* make
      const first = yield* bash(`setsid perl -e 'sleep 1000' & setsid perl -e 'sleep 1000' & wait`)
      const second = yield* perl("sleep 1000")
      yield* eventually("all four", Effect.map(leftovers, (found) => found.length === 4))
      const { ended, left } = yield* first.end
      assert.strictEqual(ended.length, 3)
      assert.deepStrictEqual(left, [])
      assert.deepStrictEqual(yield* leftovers, [second.pid])
      yield* endAll
    })
  )

  test(
    "ending what was started leaves what that left in the background",
    Effect.gen(function*() {
      const { background, bash, endAll, endStarted, leftovers } = yield* make
      yield* bash(`setsid perl -e 'sleep 1000' & perl -e 'sleep 1000' & wait`)
      const before = yield* eventually("all three", Effect.map(leftovers, (found) => found.length === 3 && found))
      const { ended, left } = yield* endStarted
      assert.deepStrictEqual([ended.length, left.length], [1, 0])
      const rest = before.filter((pid) => pid !== ended[0]?.pid)
      assert.deepStrictEqual(yield* leftovers, rest)
      assert.deepStrictEqual((yield* background).map(({ pid }) => pid).sort(), [...rest].sort())
      yield* endAll
    })
  )

  test(
    "closing the scope ends everything, and nothing can be started after",
    Effect.gen(function*() {
      const { leftovers, processes } = yield* Effect.scoped(Effect.gen(function*() {
        const made = yield* make
        yield* made.bash(`setsid perl -e '$SIG{TERM} = "IGNORE"; sleep 1000 while 1' & wait`)
        yield* made.perl("sleep 1000")
        yield* eventually("all three", Effect.map(made.leftovers, (found) => found.length === 3))
        return made
      }))
      assert.deepStrictEqual(yield* leftovers, [])
      const error = yield* Effect.flip(processes.spawn({ command: "sleep", args: ["1000"], cwd: tmpdir(), env: {} }))
      assert.strictEqual(error.kind, "start")
      assert.deepStrictEqual(yield* leftovers, [])
    })
  )

  test(
    "an agent is asked to end when its bridge is killed, and what's left is found by the marker",
    Effect.gen(function*() {
      const mark = marker()
      yield* Effect.addFinalizer(() => Effect.sync(() => killAll(marked(mark.name, mark.value))))
      const bridge = spawnProcess(process.execPath, [new URL("fixtures/supervised.ts", import.meta.url).pathname], {
        env: { ...process.env, MARK: mark.value },
        stdio: ["ignore", "pipe", "inherit"]
      })
      let agent = 0
      bridge.stdout.once("data", (text: Buffer) => {
        agent = Number(text)
      })
      yield* eventually("a daemon", Effect.sync(() => agent > 0))
      yield* eventually(
        "an agent with a child and a daemon",
        Effect.sync(() => marked(mark.name, mark.value).length === 3)
      )
      bridge.kill("SIGKILL")
      yield* eventually("the bridge's end", Effect.sync(() => bridge.signalCode === "SIGKILL"))
      const running = yield* eventually(
        "the agent's end",
        Effect.sync(() => {
          const found = marked(mark.name, mark.value)
          return !found.includes(agent) && found
        }),
        1
      )
      // Its child and its daemon ignore SIGTERM, and nobody told them anyway.
      assert.strictEqual(running.length, 2)

      const supervisor = yield* Supervisor.make({ driver: "test", marker: mark, redact })
      assert.sameMembers((yield* supervisor.background).map(({ pid }) => pid), [...running])
      const { ended, left } = yield* supervisor.endAll
      assert.sameMembers(ended.map(({ pid }) => pid), [...running])
      assert.deepStrictEqual(left, [])
      assert.deepStrictEqual(marked(mark.name, mark.value), [])
    })
  )

  test(
    "what can't be ended is said after 8 s",
    Effect.gen(function*() {
      const table = yield* ProcessTable
      let stuck = true
      yield* Effect.gen(function*() {
        const { endAll, perl } = yield* make
        const process = yield* perl("sleep 1000")
        const started = performance.now()
        const { ended, left } = yield* endAll
        assert.deepStrictEqual(ended, [])
        assert.deepStrictEqual(left.map(({ pid }) => pid), [process.pid])
        assert.isAbove(performance.now() - started, 7900)
        assert.isBelow(performance.now() - started, 20_000)
        stuck = false
      }).pipe(
        Effect.provideService(ProcessTable, {
          ...table,
          signal: (process, signal) => stuck ? Effect.succeed(false) : table.signal(process, signal),
          signalGroup: (group, signal) => stuck ? Effect.succeed(false) : table.signalGroup(group, signal)
        }),
        Effect.scoped
      )
    })
  )
})
