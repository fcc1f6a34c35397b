import { assert, describe } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import { Effect, FileSystem } from "effect"
import { readFileSync } from "node:fs"
import {
  bridgePid,
  commandOf,
  processesOf,
  prompt,
  type Ran,
  run,
  start,
  test,
  until,
  type User
} from "./fixtures/Gangway.ts"

const scripted = (user: User, ...args: ReadonlyArray<string>) => run(user, ["run", ...args, "--agent", "scripted"])

const parse = ({ stdout }: Ran) => {
  const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line) as Bridge.NumberedPart & Bridge.EndLine)
  return { parts: lines.slice(0, -1) as ReadonlyArray<Bridge.NumberedPart>, end: lines.at(-1) as Bridge.EndLine }
}

describe("gangway run", { concurrent: true }, () => {
  test("prints a turn without colours where there's no terminal, and says on the other side where it is", (user) =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* scripted(
        user,
        prompt(
          { type: "text", text: "Hello, 世界.", chunk: 3, delay: 5 },
          { type: "tool", name: "Bash", params: { command: "echo hi" }, command: ["sh", "-c", "echo hi"] },
          { type: "file", path: "a.txt", text: "one\n" }
        ),
        "--session",
        "s1",
        "--turn",
        "t1"
      )
      assert.strictEqual(exitCode, 0, stderr)
      assert.strictEqual(
        stdout,
        [
          "Hello, 世界.",
          "",
          "→ Bash  echo hi",
          "  ✓ hi",
          "→ write  a.txt",
          "± create a.txt",
          "  @@ -0,0 +1,1 @@",
          "  +one",
          "  ✓ done",
          "",
          "✓ finished · 1 step · usage unknown",
          ""
        ].join("\n")
      )
      assert.strictEqual(stderr, `gangway: scripted in ${user.directory}; bridge scripted, session s1, turn t1\n`)
    }))

  test("prints the parts as they are on the wire, and the end line, with --json", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const ran = yield* scripted(
        user,
        prompt({ type: "text", text: "Hello." }),
        "--json",
        "--session",
        "s1",
        "--turn",
        "t1"
      )
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      const file = yield* fs.readFileString(`${user.state}/bridges/scripted/state/sessions/s1/turns/t1.ndjson`)
      assert.strictEqual(ran.stdout, file.slice(file.indexOf("\n") + 1))
      assert.strictEqual(parse(ran).end.end.type, "finished")
      // From a number on, the lines are the same.
      const from = yield* run(user, ["attach", "--session", "s1", "--once", "--from", "3", "--json"])
      assert.strictEqual(from.stdout, ran.stdout.split("\n").slice(2).join("\n"))
    }))

  test("takes the prompt from standard input", (user) =>
    Effect.gen(function*() {
      const ran = yield* run(user, ["run", "-", "--agent", "scripted"], { stdin: "from a pipe, 世界" })
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      assert.match(ran.stdout, /^from a pipe, 世界\n/)
    }))

  test("joins the turn that it started where it's run again, and a session where it is", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.makeDirectory(`${user.root}/other`)
      const words = prompt({ type: "tool", name: "Bash", command: ["sh", "-c", "echo ran >> ran"] })
      const again = ["--session", "s1", "--turn", "t1", "--json"]
      const first = yield* scripted(user, words, ...again, "--directory", `${user.root}/other`, "--permissions", "all")
      // What the session was started with needn't be said again.
      const second = yield* scripted(user, words, ...again)
      assert.strictEqual(second.stdout, first.stdout, second.stderr)
      assert.strictEqual(yield* fs.readFileString(`${user.root}/other/ran`), "ran\n")
      const third = yield* scripted(user, prompt({ type: "describe" }), "--session", "s1", "--turn", "t2")
      assert.include(third.stdout, `"directory":"${user.root}/other"`)
      assert.include(third.stdout, "\"permissions\":\"all\"")
      const other = yield* scripted(user, "x", "--session", "s1", "--permissions", "ask")
      assert.strictEqual(other.exitCode, 2)
      assert.match(other.stderr, /^gangway: Session s1 exists with another 'permissions'.*\n$/)
    }))

  test("launches a bridge whose agent runs as the user that's named, now and later", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const nobody = yield* scripted(user, "Hi.", "--agent-user", "no-such-user-here")
      assert.strictEqual(nobody.exitCode, 4)
      assert.match(nobody.stderr, /^gangway: scripted: agentUser: [^\n]+\n$/)
      const record = JSON.parse(yield* fs.readFileString(`${user.state}/bridges/scripted/bridge.json`))
      assert.deepStrictEqual(record, { agent: "scripted", agentUser: "no-such-user-here" })
      const other = yield* scripted(user, "Hi.", "--agent-user", "1000")
      assert.deepStrictEqual([other.exitCode, other.stderr], [
        2,
        "gangway: the agent of bridge scripted runs as user no-such-user-here: name another one with --bridge\n"
      ])
    }))

  test("exits with a code that tells how the turn ended", (user) =>
    Effect.gen(function*() {
      const failed = yield* scripted(user, prompt({ type: "fail", kind: "auth", message: "no key" }))
      assert.strictEqual(failed.exitCode, 1)
      assert.include(failed.stdout, "✗ failed (auth): no key; check the agent's key, or log in")

      const running = yield* start(user, ["run", prompt({ type: "hang" }), "--agent", "scripted", "--session", "s1"])
      yield* until(() => running.stderr().includes("session s1"))
      // The turn is there once its start was answered.
      yield* until(() =>
        Effect.map(run(user, ["abort", "--session", "s1", "--reason", "enough"]), ({ exitCode }) => exitCode === 0)
      )
      const aborted = yield* running.ended
      assert.strictEqual(aborted.exitCode, 3)
      assert.include(aborted.stdout, "■ aborted: a host aborted it: enough")
    }))

  test("denies what is asked where nobody can be asked, and says so", (user) =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* scripted(
        user,
        prompt(
          {
            type: "tool",
            name: "Bash",
            params: { command: "rm x" },
            approval: {},
            command: ["sh", "-c", "echo ran > ran"]
          },
          { type: "question", questions: [{ question: "Which?", options: [{ label: "Red" }] }] }
        )
      )
      assert.strictEqual(exitCode, 0)
      assert.include(stdout, "  denied: Nobody is there to ask.\n")
      assert.include(stdout, "  not answered: Nobody is there to ask.\n")
      assert.strictEqual(stderr.match(/what the agent asks is denied/g)?.length, 1)
      assert.include(stderr, "--permissions")
      assert.include(stderr, "--approvals wait")
      assert.isFalse(yield* (yield* FileSystem.FileSystem).exists(`${user.directory}/ran`))
    }))

  test("leaves what is asked to another host with --approvals wait, and asks nothing that --permissions allows", (user) =>
    Effect.gen(function*() {
      const words = prompt({ type: "tool", name: "Bash", approval: {}, result: "ran" })
      const args = ["run", words, "--agent", "scripted", "--session", "s1", "--approvals", "wait"]
      const waiting = yield* start(user, args)
      yield* until(() => waiting.stdout().includes("? Bash"))
      const denying = yield* run(user, ["attach", "--session", "s1", "--once", "--approvals", "deny"])
      assert.strictEqual(denying.exitCode, 0, denying.stderr)
      assert.include((yield* waiting.ended).stdout, "  denied: Nobody is there to ask.\n")

      const allowed = yield* scripted(user, words, "--permissions", "all")
      assert.notInclude(allowed.stdout, "?")
      assert.include(allowed.stdout, "✓ ran")
    }))

  test("continues the turn where its bridge is killed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const running = yield* start(user, [
        "run",
        prompt(
          { type: "text", text: "Before." },
          {
            type: "tool",
            name: "Bash",
            command: ["sh", "-c", "echo >> starts; while [ ! -e go ]; do sleep 0.02; done"]
          },
          { type: "text", text: "After." }
        ),
        "--agent",
        "scripted"
      ])
      // The agent may be ahead of what its bridge has written.
      yield* until(() => running.stdout().includes("→ Bash"))
      yield* until(() => fs.exists(`${user.directory}/starts`))
      process.kill(yield* bridgePid(user, "scripted"), "SIGKILL")
      // Otherwise the agent might be quick enough to finish what it was at.
      yield* until(() => running.stdout().includes("attempt 2"))
      yield* fs.writeFileString(`${user.directory}/go`, "")
      const { exitCode, stderr, stdout } = yield* running.ended
      assert.strictEqual(exitCode, 0, stderr)
      const [where, ...told] = stderr.trimEnd().split("\n")
      assert.match(where!, /^gangway: scripted in /)
      assert.match(told[0]!, /^gangway: the connection was lost \(1006.*\)$/)
      assert.include(told, "gangway: launching a bridge")
      assert.strictEqual(told.at(-1), "gangway: connected again")
      assert.match(stdout, /Before\.[^]*↺ the turn goes on, attempt 2: [^]*Before\.[^]*After\.[^]*✓ finished/)
    }))

  test("tells of its connection in JSON with --json, from the launch on", (user) =>
    Effect.gen(function*() {
      const { exitCode, stderr } = yield* scripted(user, "Hi.", "--json")
      assert.strictEqual(exitCode, 0, stderr)
      const statuses = stderr.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line).status)
      assert.deepStrictEqual(statuses.map(({ _tag }) => _tag), ["Connecting", "Launching", "Connected"])
      assert.deepStrictEqual(Object.keys(statuses[2]), ["_tag", "launch"])
    }))

  test("gives up a bridge that's killed at each launch, and tells of each", (user) =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* scripted(user, "x", "--bridge-command", `["sh", "-c", "kill -9 $$"]`)
      assert.deepStrictEqual([exitCode, stdout], [4, ""])
      const lines = stderr.trimEnd().split("\n")
      for (const line of lines) assert.match(line, /^gangway: /)
      const relaunches = lines.filter((line) => line.includes("soon after its launch"))
      assert.deepStrictEqual(
        relaunches.map((line) => line.slice(line.indexOf("launched"))),
        ["at once", "in 0.5 s", "in 1.0 s", "in 2.0 s", "in 4.0 s"].map((when, i) =>
          `launched again ${when} (${i + 1} of 5)`
        )
      )
      // The shell in between may have said something, too.
      const told = "gangway: bridge scripted can't be launched: it was launched 6 times, and at last exited with 137"
      assert.isTrue(lines.at(-1)!.startsWith(told), stderr)
    }))

  test("leaves a turn that is continued by whoever attaches, also where its bridge died meanwhile", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt(
        { type: "text", text: "Before." },
        { type: "tool", name: "Bash", command: ["sh", "-c", "echo >> starts; while [ ! -e go ]; do sleep 0.02; done"] },
        { type: "text", text: "After." }
      )
      const running = yield* start(user, ["run", words, "--agent", "scripted", "--session", "s1", "--turn", "t1"])
      // The agent may be ahead of what its bridge has written.
      yield* until(() => running.stdout().includes("→ Bash"))
      yield* until(() => fs.exists(`${user.directory}/starts`))
      process.kill(running.pid, "SIGTERM")
      yield* running.ended
      process.kill(yield* bridgePid(user, "scripted"), "SIGKILL")
      yield* until(() => processesOf(user).length === 0)
      yield* fs.writeFileString(`${user.directory}/go`, "")
      const attached = yield* run(user, ["attach", "--session", "s1", "--once"])
      assert.strictEqual(attached.exitCode, 0, attached.stderr)
      assert.match(attached.stdout, /Before\.[^]*↺ the turn goes on, attempt 2[^]*Before\.[^]*After\.[^]*✓ finished/)
    }))

  test("leaves the turn running at SIGTERM, and when its reader goes away", (user) =>
    Effect.gen(function*() {
      const words = prompt({ type: "text", random: { length: 1000 }, chunk: 4, delay: 2 }, {
        type: "text",
        text: "THE-END"
      })
      const running = yield* start(user, ["run", words, "--agent", "scripted", "--session", "s1", "--turn", "t1"])
      yield* until(() => running.stdout().length > 100)
      process.kill(running.pid, "SIGTERM")
      assert.strictEqual((yield* running.ended).exitCode, 143)
      const attached = yield* run(user, ["attach", "--session", "s1", "--once"])
      assert.strictEqual(attached.exitCode, 0, attached.stderr)
      assert.include(attached.stdout, "THE-END")

      const args = ["run", words, "--agent", "scripted", "--session", "s2"]
      const piped = Bun.spawn(
        ["sh", "-c", `{ "$@"; echo $? >&3; } 3>&2 2>/dev/null | head -c 100`, "sh", ...commandOf(args)],
        { cwd: user.directory, env: user.env, stdout: "ignore", stderr: "pipe" }
      )
      assert.strictEqual(yield* Effect.promise(() => new Response(piped.stderr).text()), "141\n")
      const after = yield* run(user, ["attach", "--session", "s2", "--once"])
      assert.strictEqual(after.exitCode, 0, after.stderr)
      assert.include(after.stdout, "THE-END")
    }))

  test("keeps what it knows for its user alone, and no secret but in the token's file", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const running = yield* start(user, ["run", prompt({ type: "hang" }), "--agent", "scripted", "--session", "s1"])
      yield* until(() => running.stderr().includes("session s1"))
      const token = (yield* fs.readFileString(`${user.state}/tokens/scripted.token`)).trim()
      assert.isAtLeast(token.length, 32)
      for (const name of yield* fs.readDirectory(user.state, { recursive: true })) {
        const path = `${user.state}/${name}`
        const info = yield* fs.stat(path)
        assert.strictEqual(info.mode & 0o777, info.type === "Directory" ? 0o700 : 0o600, name)
        if (info.type !== "File" || name === "tokens/scripted.token") continue
        assert.notInclude(yield* fs.readFileString(path), token, name)
      }
      assert.isAtLeast(processesOf(user).length, 2)
      for (const pid of processesOf(user)) {
        assert.notInclude(readFileSync(`/proc/${pid}/cmdline`, "utf8"), token)
        assert.notInclude(readFileSync(`/proc/${pid}/environ`, "utf8"), token)
      }
    }))
})

describe("a wrong command line", { concurrent: true }, () => {
  const wrong: ReadonlyArray<readonly [args: ReadonlyArray<string>, says: RegExp]> = [
    [["frob"], /Unknown subcommand "frob"/],
    [["run"], /Missing required argument: prompt/],
    [["run", "x", "--frob"], /Unrecognized flag: --frob/],
    [["run", "x", "--session", "S 1"], /--session: "S 1"\. Expected 1 to 64 of a-z/],
    [["run", "  "], /the prompt is empty/],
    [["run", "x", "--directory", "nowhere"], /there is no directory .*\/nowhere$/],
    [["run", "x", "--approvals", "ask"], /no terminal to ask at/],
    [["run", "x", "--bridge-command", "[]"], /must be a path, or a JSON array/],
    [
      ["run", "x", "--agent", "scripted", "--directory", ".."],
      /state directory: work in another one, or .*XDG_STATE_HOME/
    ],
    [["attach", "--session", "s1", "--bridge", "b9"], /no bridge b9 is known/],
    [["attach", "--session", "s1", "--from", "0"], /--from: .*a number from 1 on/],
    [["abort", "--session", "s1", "--bridge", "b9"], /no bridge b9 is known/]
  ]

  test("names what isn't known yet", (user) =>
    Effect.gen(function*() {
      const { exitCode, stderr } = yield* run(user, ["attach", "--session", "s1", "--once"])
      assert.strictEqual(exitCode, 2)
      assert.strictEqual(stderr, "gangway: no bridge is known yet: 'gangway run' launches one\n")
    }))

  test("is told in one line, with exit code 2, and nothing on standard output", (user) =>
    Effect.forEach(wrong, ([args, says]) =>
      Effect.gen(function*() {
        const { exitCode, stderr, stdout } = yield* run(user, args)
        assert.strictEqual(exitCode, 2, `${args}: ${stderr}`)
        assert.strictEqual(stdout, "")
        assert.match(stderr, /^gangway: [^\n]+\n$/)
        assert.match(stderr.trimEnd(), says)
      }), { concurrency: 3, discard: true }))

  test("in a directory that's gone says so, and does without it where it isn't needed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.makeDirectory(`${user.root}/gone`)
      const inGone = (args: ReadonlyArray<string>) => {
        const child = Bun.spawnSync(["sh", "-c", `rmdir "$PWD"; exec "$@"`, "sh", ...commandOf(args)], {
          cwd: `${user.root}/gone`,
          env: user.env
        })
        return { exitCode: child.exitCode, stderr: String(child.stderr) }
      }
      assert.deepStrictEqual(inGone(["run", "x", "--agent", "scripted"]), {
        exitCode: 2,
        stderr: "gangway: the current directory is gone: name one with --directory\n"
      })
      yield* fs.makeDirectory(`${user.root}/gone`)
      const named = inGone(["run", "x", "--agent", "scripted", "--directory", user.directory])
      assert.strictEqual(named.exitCode, 0, named.stderr)
    }))

  test("names a session, a turn or an agent that isn't there", (user) =>
    Effect.gen(function*() {
      yield* scripted(user, "Hi.", "--session", "s1")
      const said = yield* Effect.forEach([
        ["attach", "--session", "s2", "--once"],
        ["attach", "--session", "s1", "--turn", "t9"],
        ["attach", "--session", "s1", "--once", "--from", "100"],
        ["run", "x", "--bridge", "scripted"]
      ], (args) => run(user, args))
      assert.deepStrictEqual(
        said.map(({ exitCode }) => exitCode),
        [2, 2, 2, 2],
        said.map(({ stderr }) => stderr).join("")
      )
      assert.deepStrictEqual(said.map(({ stdout }) => stdout), ["", "", "", ""])
      const [session, turn, part, agent] = said.map(({ stderr }) => stderr)
      assert.strictEqual(session, "gangway: bridge scripted has no session s2\n")
      assert.strictEqual(turn, "gangway: Session s1 never had a turn t9\n")
      assert.match(part!, /^gangway: turn t-\w+ has no part 100: its next one is \d+\n$/)
      assert.strictEqual(agent, "gangway: bridge scripted is for scripted: name another one with --bridge\n")
    }))

  test("that leads to no bridge says why, with exit code 4", (user) =>
    Effect.gen(function*() {
      const missing = yield* scripted(user, "x", "--bridge-command", "/nowhere/gangway-bridge")
      assert.strictEqual(missing.exitCode, 4)
      assert.match(
        missing.stderr,
        /^gangway: the bridge program can't be run \([^\n]+\): name it with --bridge-command[^\n]+\n$/
      )
      const crash = `["sh", "-c", "echo 'TypeError: boom' >&2; echo '    at f (x.ts:1:2)' >&2; exit 1"]`
      const crashed = yield* scripted(user, "x", "--bridge-command", crash)
      assert.deepStrictEqual([crashed.exitCode, crashed.stderr], [
        4,
        "gangway: bridge scripted can't be launched: TypeError: boom\n"
      ])
      const fs = yield* FileSystem.FileSystem
      yield* fs.makeDirectory(`${user.root}/bin`)
      yield* fs.symlink("/bin/sh", `${user.root}/bin/sh`)
      const none = yield* run(user, ["run", "x"], { env: { PATH: `${user.root}/bin` } })
      assert.strictEqual(none.exitCode, 4)
      assert.match(
        none.stderr,
        /^gangway: bridge claude-code can't be launched: [^\n]*there is no Claude Code[^\n]+\n$/
      )
    }))

  test("asks for help as it should", (user) =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* run(user, ["run", "--help"])
      assert.deepStrictEqual([exitCode, stderr], [0, ""])
      assert.include(stdout, "--permissions")
      assert.match((yield* run(user, ["--version"])).stdout, /^gangway v\d+\.\d+\.\d+\n$/)
    }))
})
