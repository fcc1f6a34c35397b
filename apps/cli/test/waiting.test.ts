import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { type Actions, atTerminal, type Piped, prompt, run, start, test, until, type User } from "./fixtures/Gangway.ts"

const tool = (name: string, rule?: string) => ({
  type: "tool",
  name: "Bash",
  params: { command: `echo ${name}` },
  command: ["sh", "-c", `echo ${name} >> ran; echo ${name}`],
  approval: { reason: "it runs a program", ...(rule === undefined ? {} : { rule }) }
} as const)

const question = {
  type: "question",
  questions: [
    { question: "Which colour?", options: [{ label: "Red" }, { label: "Blue" }] },
    { question: "Which fruits?", options: [{ label: "Apple" }, { label: "Pear" }], multiple: true }
  ],
  echo: true
} as const

const waits = (user: User, session: string, ...actions: Actions) =>
  start(user, ["run", prompt(...actions), "--agent", "scripted", "--approvals", "wait", "--session", session])

/** Waits until a turn has asked so often, which its bridge has heard of then. */
const untilAsked = ({ stdout }: Piped, times: number, what = "? Bash") =>
  until(() => stdout().split(what).length > times)

describe("what waits for an answer", { concurrent: true }, () => {
  test("is shown by ps, and allowed, denied and always allowed from another terminal", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const running = yield* waits(user, "s1", tool("one"), tool("two"), tool("three", "all"), tool("four", "all"))
      yield* untilAsked(running, 1)
      const shown = yield* run(user, ["ps"])
      assert.match(shown.stdout, /^● scripted {2}running, scripted [^\n]+, pid \d+\n/)
      assert.match(shown.stdout, /\n {2}s1 {2}t-\w+ {2}running, \d+ parts {2}\? approval of Bash {2}\S+project\n$/)
      const allowed = yield* run(user, ["approve", "--allow"])
      assert.deepStrictEqual(allowed, { exitCode: 0, stdout: "Bash echo one: allowed\n", stderr: "" })
      yield* untilAsked(running, 2)
      assert.include(running.stdout(), "✓ one")
      const denied = yield* run(user, ["approve", "--deny", "--reason", "not today", "--json"])
      assert.deepInclude(JSON.parse(denied.stdout), {
        bridge: "scripted",
        session: "s1",
        name: "Bash",
        decision: "deny",
        reason: "not today"
      })
      yield* untilAsked(running, 3)
      assert.include(running.stdout(), "denied: not today")
      const always = yield* run(user, ["approve", "--always"])
      assert.strictEqual(always.stdout, "Bash echo three: always allowed\n", always.stderr)
      assert.strictEqual((yield* running.ended).exitCode, 0)
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/ran`), "one\nthree\nfour\n")
    }))

  test("is answered from another terminal where it's a question", (user) =>
    Effect.gen(function*() {
      const running = yield* waits(user, "s1", question)
      yield* untilAsked(running, 1, "? Which colour?")
      const few = yield* run(user, ["answer", "--say", "2"])
      assert.strictEqual(few.exitCode, 2)
      assert.include(few.stderr, "there are 2 questions")
      const answered = yield* run(user, ["answer", "--say", "2", "--say", "1, a quince"])
      assert.deepStrictEqual(answered, { exitCode: 0, stdout: "an answer: Blue; Apple, a quince\n", stderr: "" })
      const { exitCode, stdout } = yield* running.ended
      assert.strictEqual(exitCode, 0)
      assert.include(stdout, `{"Which colour?":"Blue","Which fruits?":["Apple","a quince"]}`)
    }))

  test("is named where there are several", (user) =>
    Effect.gen(function*() {
      const none = yield* run(user, ["ps"])
      assert.deepStrictEqual(none, {
        exitCode: 0,
        stdout: "",
        stderr: "gangway: no bridge is known yet: 'gangway run' launches one\n"
      })
      const first = yield* waits(user, "s1", tool("one"))
      yield* untilAsked(first, 1)
      const second = yield* waits(user, "s2", question)
      yield* untilAsked(second, 1, "? Which colour?")
      const third = yield* waits(user, "s3", tool("three"))
      yield* untilAsked(third, 1)
      const { stdout: listed } = yield* run(user, ["ps", "--json"])
      const { sessions } = JSON.parse(listed) as {
        readonly sessions: ReadonlyArray<{ readonly session: string; readonly latest: { readonly waiting: unknown } }>
      }
      assert.deepStrictEqual(
        sessions.map(({ latest: { waiting }, session }) => [session, Object(waiting).length, Object(waiting)[0].type]),
        [["s1", 1, "approval"], ["s2", 1, "question"], ["s3", 1, "approval"]]
      )
      const several = yield* run(user, ["approve", "--allow"])
      assert.strictEqual(several.exitCode, 2)
      assert.match(
        several.stderr,
        /^gangway: several are waited for, so name one: \S+ \(approval of Bash, session s1\), \S+ [^\n]+ s3\)\n$/
      )
      const norule = yield* run(user, ["approve", "--always", "--session", "s1"])
      assert.deepStrictEqual([norule.exitCode, norule.stderr], [
        2,
        "gangway: the agent names no rule for Bash: --allow allows it this time\n"
      ])
      const id = /one: (\S+) /.exec(several.stderr)![1]!
      const one = yield* run(user, ["approve", id, "--allow", "--session", "s1"])
      assert.strictEqual(one.stdout, "Bash echo one: allowed\n", one.stderr)
      assert.strictEqual((yield* first.ended).exitCode, 0)
      const again = yield* run(user, ["approve", "nothing-of-that-id", "--allow"])
      assert.strictEqual(again.exitCode, 2)
      assert.match(again.stderr, /^gangway: no approval nothing-\S+ is waited for: there are \S+ [^\n]+ s3\)\n$/)
    }))

  test("is asked one after the other at another terminal, of all sessions", (user) =>
    Effect.gen(function*() {
      const [first, second] = [yield* waits(user, "s1", tool("one")), yield* waits(user, "s2", tool("two"))]
      yield* untilAsked(first, 1)
      yield* untilAsked(second, 1)
      const terminal = yield* atTerminal(user, ["approve"])
      for (const decision of ["y", "n not now"]) {
        yield* terminal.sees("? Bash echo ")
        yield* terminal.sees("view all: ")
        yield* terminal.types(`${decision}\n`)
      }
      assert.strictEqual(yield* terminal.exitCode, 0)
      const [one, two] = [yield* first.ended, yield* second.ended]
      const decisions = [one, two].map(({ stdout }) => /allowed|denied: not now/.exec(stdout)?.[0]).sort()
      assert.deepStrictEqual(decisions, ["allowed", "denied: not now"])
      const blind = yield* run(user, ["approve"])
      assert.strictEqual(blind.exitCode, 2)
    }))

  test("is watched as it changes, on a screen of its own that Ctrl-C leaves", (user) =>
    Effect.gen(function*() {
      const terminal = yield* atTerminal(user, ["ps", "--watch"])
      yield* waits(user, "s1", tool("one"))
      yield* terminal.sees("? approval of Bash")
      yield* run(user, ["approve", "--allow"])
      yield* terminal.sees("finished")
      yield* terminal.types("\x03")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.isTrue(terminal.raw().startsWith("\x1b[?1049h\x1b[?25l"))
      assert.isTrue(terminal.raw().replace("^C", "").endsWith("\x1b[?25h\x1b[?1049l"))
    }))
})
