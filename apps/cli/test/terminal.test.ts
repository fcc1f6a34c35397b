/**
 * The command line at a real terminal: Bun's own pseudo-terminals.
 */
import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { readFileSync } from "node:fs"
import { atTerminal, bridgePid, processesOf, prompt, run, test, until } from "./fixtures/Gangway.ts"

const command = (name: string, rule?: string) => ({
  type: "tool",
  name: "Bash",
  params: { command: `echo ${name}` },
  command: ["sh", "-c", `echo ${name} >> ran; echo ${name}`] as const,
  approval: { reason: "it runs a program", ...(rule === undefined ? {} : { rule }) }
} as const)

/** Text that goes on until a file `go` is there. */
const endless = [
  { type: "text", text: "Working on it", chunk: 4, delay: 5 },
  { type: "tool", name: "Wait", params: {}, command: ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"] },
  { type: "text", text: "All done." }
] as const

describe("at a terminal", { concurrent: true }, () => {
  test("a turn is run, allowed at the keyboard, left with Ctrl-C, taken up as it was told, and read to its end", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt(
        { type: "reasoning", text: "Hm." },
        { type: "text", text: "Let me try.", chunk: 4, delay: 5 },
        command("first"),
        ...endless
      )
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted", "--session", "s1", "--turn", "t1"])
      yield* terminal.sees("Let me try.")
      yield* terminal.sees("? Bash echo first")
      yield* terminal.sees("it runs a program")
      yield* terminal.sees("Allow?")
      yield* terminal.sees(": ")
      // What's no answer is none.
      yield* terminal.types("yessir\n")
      yield* terminal.sees("Allow?")
      assert.isFalse(yield* fs.exists(`${user.directory}/ran`))
      yield* terminal.sees(": ")
      yield* terminal.types("y\n")
      yield* terminal.sees("  allowed\n")
      yield* terminal.sees("✓ first\n")
      yield* terminal.sees("→ Wait")
      yield* terminal.types("\x03")
      yield* terminal.sees("Detached: turn t1 goes on. Ctrl-C again aborts it.")
      yield* terminal.sees("to follow it:  ")
      yield* terminal.sees("\n")
      assert.strictEqual(yield* terminal.exitCode, 130)
      assert.include(terminal.raw(), "\x1b[2mHm.\x1b[22m", "reasoning is dim")
      assert.include(terminal.raw(), "\x1b[32m  allowed\x1b[39m")

      // The very line that was told, in a shell.
      const attach = /to follow it: {2}(.*)\n/.exec(terminal.text())![1]!
      assert.match(attach, /attach --bridge scripted --session s1 --turn t1 --from \d+$/)
      const attached = yield* atTerminal(user, [], { shell: attach.replaceAll("bun ", `"$1" `) })
      yield* fs.writeFileString(`${user.directory}/go`, "")
      yield* attached.sees("All done.")
      yield* attached.sees("✓ finished")
      assert.strictEqual(yield* attached.exitCode, 0)
      assert.notInclude(attached.text(), "Let me try.")

      // What was printed on both sides is the turn, once.
      const whole = yield* run(user, ["attach", "--session", "s1", "--once"])
      for (const [text] of whole.stdout.matchAll(/\w{4,}/g)) assert.include(terminal.text() + attached.text(), text)
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/ran`), "first\n")
    }))

  test("is told of what takes long to start, and Ctrl-C ends that at once", (user) =>
    Effect.gen(function*() {
      const terminal = yield* atTerminal(user, [
        "run",
        "x",
        "--agent",
        "scripted",
        "--bridge-command",
        `["sleep", "1000"]`
      ])
      yield* terminal.sees("gangway: launching a bridge, which takes a while\n")
      yield* terminal.types("\x03")
      yield* terminal.sees("gangway: interrupted\n")
      assert.strictEqual(yield* terminal.exitCode, 130)
    }))

  test("a lost connection is told on a line of its own, amid the agent's text", (user) =>
    Effect.gen(function*() {
      const words = prompt({ type: "text", text: "word ".repeat(400), chunk: 5, delay: 20 })
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted"])
      yield* terminal.sees("word word")
      process.kill(yield* bridgePid(user, "scripted"), "SIGKILL")
      yield* terminal.sees("gangway: the connection was lost")
      yield* terminal.sees("gangway: connected again\n")
      assert.match(terminal.text(), /word ?\ngangway: the connection was lost/)
    }))

  test("what has something before it is broken to the terminal's width, which may change, and what takes long is shown", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const thought = { type: "reasoning", text: `${"世界".repeat(60)} ${"word ".repeat(30)}`, chunk: 7 } as const
      const terminal = yield* atTerminal(user, ["run", prompt(thought, endless[1], thought), "--agent", "scripted"])
      yield* terminal.sees("→ Wait")
      yield* terminal.sees("… Wait · ")
      assert.include(terminal.raw(), "\x1b[2m… Wait · ")
      yield* terminal.resizes(40)
      yield* fs.writeFileString(`${user.directory}/go`, "")
      yield* terminal.sees("✓ finished")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.match(terminal.raw(), /\r\x1b\[K[^…]*$/, "nothing is left of what was shown")
      const [before, after] = terminal.text().split("→ Wait")
      for (const [text, columns] of [[before!, 100], [after!, 40]] as const) {
        const lines = text.split("\n").filter((line) => line.startsWith("┊ "))
        assert.isAbove(lines.length, 2)
        for (const line of lines) assert.isAtMost(Bun.stringWidth(line), columns)
        // Nothing is lost, and no more lines are made than it takes.
        assert.strictEqual(lines.map((line) => line.slice(2)).join("").replaceAll(" ", "").length, 120 + 4 * 30)
        assert.isAtMost(lines.length, Math.ceil(240 / (columns - 3)) + Math.ceil(150 / (columns - 10)) + 1)
      }
    }))

  test("what the flags say of a tool is decided, and the rest is asked", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt(command("one"), { ...command("two"), name: "Other" }, { ...command("three"), name: "Third" })
      const flags = ["--allow", "Bash", "--deny", "Other"]
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted", ...flags])
      yield* terminal.sees("  allowed\n")
      yield* terminal.sees("  denied: This tool isn't to be used here.\n")
      yield* terminal.sees("? Third echo three")
      yield* terminal.sees("view all: ")
      yield* terminal.types("y\n")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.strictEqual(terminal.text().split("Allow?").length, 2)
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/ran`), "one\nthree\n")
    }))

  test("a second Ctrl-C aborts the turn, and nothing of its agent is left", (user) =>
    Effect.gen(function*() {
      const words = prompt(...endless)
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted", "--session", "s1", "--turn", "t1"])
      yield* terminal.sees("→ Wait")
      yield* until(() => processesOf(user).some((pid) => isShell(pid)))
      yield* terminal.types("\x03")
      yield* terminal.sees("Ctrl-C again aborts it.")
      yield* terminal.types("\x03")
      yield* terminal.sees("■ aborted: a host aborted it: Ctrl-C")
      assert.strictEqual(yield* terminal.exitCode, 3)
      assert.isFalse(processesOf(user).some((pid) => isShell(pid)))
      const after = yield* run(user, ["attach", "--session", "s1", "--once"])
      assert.strictEqual(after.exitCode, 3)
    }))

  test("always is for all that the agent says it's for, and a no takes its reason along", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt(command("one", "all echoes"), command("two", "all echoes"), command("three"))
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted"])
      yield* terminal.sees("a always (all echoes)")
      yield* terminal.sees("view all: ")
      yield* terminal.types("v\n")
      yield* terminal.sees("    command: echo one\n")
      yield* terminal.sees("view all: ")
      yield* terminal.types("a\n")
      yield* terminal.sees("  always allowed")
      yield* terminal.sees("✓ two")
      yield* terminal.sees("Allow? y yes, n no")
      yield* terminal.sees("view all: ")
      yield* terminal.types("n not on a Friday\n")
      yield* terminal.sees("denied: not on a Friday")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/ran`), "one\ntwo\n")
    }))

  test("questions are answered with numbers or words", (user) =>
    Effect.gen(function*() {
      const words = prompt({
        type: "question",
        questions: [
          { question: "Which colour?", options: [{ label: "Red", description: "warm" }, { label: "Blue" }] },
          { question: "Which fruits?", options: [{ label: "Apple" }, { label: "Pear" }], multiple: true }
        ],
        echo: true
      })
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted"])
      yield* terminal.sees("  2. Blue")
      yield* terminal.sees("a number, or words: ")
      yield* terminal.types("2\n")
      yield* terminal.sees("numbers with commas, or words: ")
      yield* terminal.types("1, a quince\n")
      yield* terminal.sees("answered: Blue; Apple, a quince")
      yield* terminal.sees(`{"Which colour?":"Blue","Which fruits?":["Apple","a quince"]}`)
      assert.strictEqual(yield* terminal.exitCode, 0)
    }))

  test("what was typed before a question is no answer to it", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt({ type: "text", text: "Slow text, in many pieces.", chunk: 2, delay: 60 }, command("first"))
      const terminal = yield* atTerminal(user, ["run", words, "--agent", "scripted"])
      yield* terminal.sees("Slow")
      yield* terminal.types("y\n")
      yield* terminal.sees("view all: ")
      yield* terminal.types("n\n")
      yield* terminal.sees("  denied")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.isFalse(yield* fs.exists(`${user.directory}/ran`))
    }))

  test("another host's decision takes the question away, and it isn't put to whoever attaches later", (user) =>
    Effect.gen(function*() {
      const terminal = yield* atTerminal(user, [
        "run",
        prompt(command("first")),
        "--agent",
        "scripted",
        "--session",
        "s1"
      ])
      yield* terminal.sees("view all: ")
      const other = yield* run(user, ["attach", "--session", "s1", "--once", "--approvals", "deny"])
      assert.strictEqual(other.exitCode, 0, other.stderr)
      yield* terminal.sees("\n  denied: Nobody is there to ask.")
      yield* terminal.sees("✓ finished")
      assert.strictEqual(yield* terminal.exitCode, 0)
      const later = yield* atTerminal(user, ["attach", "--session", "s1", "--once"])
      yield* later.sees("✓ finished")
      assert.notInclude(later.text(), "Allow?")
    }))

  test("at the end of input, what is asked is left to other hosts", (user) =>
    Effect.gen(function*() {
      const terminal = yield* atTerminal(user, [
        "run",
        prompt(command("first")),
        "--agent",
        "scripted",
        "--session",
        "s1"
      ])
      yield* terminal.sees("view all: ")
      yield* terminal.types("\x04")
      yield* terminal.sees("left to other hosts")
      const other = yield* atTerminal(user, ["attach", "--session", "s1", "--once"])
      yield* other.sees("view all: ")
      yield* other.types("y\n")
      yield* other.sees("✓ finished")
      yield* terminal.sees("✓ finished")
      assert.strictEqual(yield* terminal.exitCode, 0)
    }))

  test("a prompt from a pipe leaves the terminal to ask at, and NO_COLOR is obeyed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(`${user.root}/prompt`, prompt(command("first")))
      const terminal = yield* atTerminal(user, ["run", "-", "--agent", "scripted"], {
        env: { NO_COLOR: "1" },
        shell: `cat ${user.root}/prompt | "$@"`
      })
      yield* terminal.sees("view all: ")
      yield* terminal.types("y\n")
      yield* terminal.sees("✓ first")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.notInclude(terminal.raw(), "\x1b")
    }))

  test("Ctrl-C before a turn was started ends the command", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      // A bridge that never comes up.
      yield* fs.writeFileString(`${user.root}/bridge`, "#!/bin/sh\necho > launched\nsleep 60\n", { mode: 0o755 })
      const bridge = ["--bridge-command", `${user.root}/bridge`]
      const terminal = yield* atTerminal(user, ["run", "x", "--agent", "scripted", ...bridge])
      yield* until(() => fs.exists(`${user.state}/launched`))
      yield* terminal.types("\x03")
      yield* terminal.sees("gangway: interrupted")
      assert.strictEqual(yield* terminal.exitCode, 130)
    }))
})

const isShell = (pid: number) => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("while [ ! -e go ]")
  } catch {
    return false
  }
}
