import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { dirname } from "node:path"
import { atTerminal, bridgePid, processesOf, prompt, run, start, test, until } from "./fixtures/Gangway.ts"

describe("what is looked after", { concurrent: true }, () => {
  test("sessions are compacted, stopped and destroyed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const works = prompt({ type: "text", text: "Working." }, { type: "hang" })
      yield* run(user, ["run", prompt({ type: "text", text: "Hi." }), "--agent", "scripted", "--session", "s1"])
      const compacted = yield* run(user, ["compact", "--json"])
      assert.strictEqual(compacted.exitCode, 0, compacted.stderr)
      assert.deepInclude(JSON.parse(compacted.stdout), { bridge: "scripted", session: "s1" })

      const running = yield* start(user, ["run", works, "--agent", "scripted", "--session", "s2"])
      yield* until(() => running.stdout().includes("Working."))
      const busy = yield* run(user, ["compact", "s2"])
      assert.strictEqual(busy.exitCode, 2)
      assert.match(busy.stderr, /^gangway: Turn t-\w+ is running: wait for its end, or abort it\n$/)
      const unclear = yield* run(user, ["stop"])
      assert.strictEqual(unclear.exitCode, 2)
      assert.match(
        unclear.stderr,
        /^gangway: several could be meant, so name one: s1 of scripted \(turn t-\w+, finished\), /
      )
      const stopped = yield* run(user, ["stop", "s2", "--json"])
      assert.strictEqual(stopped.exitCode, 0, stopped.stderr)
      assert.deepInclude(JSON.parse(stopped.stdout), { session: "s2", left: [] })
      assert.strictEqual((yield* running.ended).exitCode, 3)

      const terminal = yield* atTerminal(user, ["destroy", "s2"])
      yield* terminal.sees("Destroy session s2 of scripted")
      yield* terminal.sees(": ")
      yield* terminal.types("n\n")
      yield* terminal.sees("nothing is destroyed")
      assert.strictEqual(yield* terminal.exitCode, 0)
      const state = `${user.state}/bridges/scripted`
      assert.isTrue(yield* fs.exists(`${state}/state/sessions/s2`))
      const destroyed = yield* run(user, ["destroy", "s2", "--yes"])
      assert.strictEqual(destroyed.exitCode, 0, destroyed.stderr)
      assert.isFalse(yield* fs.exists(`${state}/state/sessions/s2`))
      assert.isFalse(yield* fs.exists(`${state}/sessions/s2.json`))
    }))

  test("a bridge that's gone is shown, and pruned once that's confirmed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const state = `${user.state}/bridges/scripted`
      yield* run(user, ["run", prompt({ type: "text", text: "Hi." }), "--agent", "scripted", "--session", "s1"])
      // One that runs isn't pruned.
      const kept = yield* run(user, ["prune", "--yes"])
      assert.deepStrictEqual([kept.exitCode, kept.stdout, kept.stderr], [0, "", "gangway: there's nothing to prune\n"])
      const works = prompt({ type: "text", text: "Working." }, { type: "hang" })
      const again = yield* start(user, ["run", works, "--agent", "scripted", "--session", "s3"])
      yield* until(() => again.stdout().includes("Working."))
      process.kill(again.pid, "SIGKILL")
      process.kill(yield* bridgePid(user, "scripted"), "SIGKILL")
      yield* until(() => processesOf(user).length === 0)
      const shown = yield* run(user, ["ps"])
      assert.match(
        shown.stdout,
        /^○ scripted {2}gone\n {2}s3 {2}t-\w+ {2}interrupted {2}[^\n]+\n {2}s1 {2}t-\w+ {2}finished/
      )
      assert.include(shown.stdout, "'gangway prune' removes")
      assert.strictEqual(processesOf(user).length, 0, "none is launched to look at")
      const dry = yield* run(user, ["prune", "--dry-run"])
      assert.strictEqual(dry.stdout, "scripted  gone, 2 sessions, of which can be continued: s3\n")
      const blind = yield* run(user, ["prune"])
      assert.strictEqual(blind.exitCode, 2)
      assert.match(blind.stderr, /there's no terminal to ask at whether that's meant: say so with --yes\n$/)
      assert.isTrue(yield* fs.exists(state))
      const pruned = yield* atTerminal(user, ["prune"])
      yield* pruned.sees("Remove what is left of this bridge")
      yield* pruned.sees(": ")
      yield* pruned.types("y\n")
      assert.strictEqual(yield* pruned.exitCode, 0)
      assert.isFalse(yield* fs.exists(state))
      assert.deepStrictEqual(yield* fs.readDirectory(`${user.state}/tokens`), [])
    }))

  test("doctor says what is missing and how to get it, and fails where that's needed", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const bin = `${user.root}/bin`
      yield* fs.makeDirectory(bin)
      const program = (name: string, script: string) =>
        fs.writeFileString(`${bin}/${name}`, `#!/bin/sh\n${script}\n`, { mode: 0o755 })
      yield* program("codex", "echo 'codex-cli 0.171.7'")
      yield* program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
      yield* program("git", "echo 'git version 2.30.1'")
      const env = { PATH: `${bin}:/bin:${dirname(process.execPath)}` }
      const examined = yield* run(user, ["doctor", "--json"], { env })
      assert.strictEqual(examined.exitCode, 0, examined.stdout + examined.stderr)
      const found = Object.fromEntries(
        examined.stdout.trimEnd().split("\n").map((line) => JSON.parse(line)).map((check) => [check.check, check])
      )
      assert.deepInclude(found["bun"], { status: "ok", found: Bun.version })
      assert.deepInclude(found["codex"], { status: "ok", found: "0.171.7" })
      assert.deepInclude(found["gemini"], { status: "missing", found: "not found" })
      assert.include(found["gemini"].remedy, "npm install --global")
      assert.deepInclude(found["docker"], { status: "missing", found: "Cannot connect to the Docker daemon" })
      assert.deepInclude(found["git"], { status: "missing", found: "2.30.1" })
      assert.deepInclude(found["state directory"], { status: "ok", found: user.state })
      assert.strictEqual(found["bridge program"].status, "ok")

      yield* fs.makeDirectory(`${user.state}/tokens`)
      yield* fs.writeFileString(`${user.state}/tokens/b.token`, "x", { mode: 0o644 })
      const gemini = yield* run(user, ["doctor", "--agent", "gemini"], { env })
      assert.strictEqual(gemini.exitCode, 1)
      assert.match(gemini.stdout, /\n✗ gemini +not found\n +npm install --global @google\/gemini-cli@\S+\n/)
      assert.match(gemini.stdout, /✗ state directory +others may read \S+/)
      assert.include(gemini.stdout, "chmod")
      const docker = yield* run(user, ["doctor", "--sandbox", "docker", "--bridge-command", "/nowhere/bridge"], { env })
      assert.strictEqual(docker.exitCode, 1)
      assert.match(docker.stdout, /✗ docker +Cannot connect/)
      assert.match(docker.stdout, /✗ bridge program +[^\n]*\/nowhere\/bridge/)
    }))
})
