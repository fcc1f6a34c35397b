import { assert, describe } from "@effect/vitest"
import type { FoundAgent } from "@gangway/drivers/FoundAgent"
import { Effect, FileSystem } from "effect"
import { dirname } from "node:path"
import { installAgent } from "../../../test/installAgent.ts"
import { atTerminal, processesOf, run, test, until, type User } from "./fixtures/Gangway.ts"

/** Programs that say a version, or what a shell does instead, in a directory of the user's. */
const programs = Effect.fnUntraced(function*(user: User, scripts: Readonly<Record<string, string>>) {
  const fs = yield* FileSystem.FileSystem
  const directory = `${user.root}/programs`
  yield* fs.makeDirectory(directory)
  for (const [name, script] of Object.entries(scripts)) {
    yield* fs.writeFileString(`${directory}/${name}`, `#!/bin/sh\n${script}\n`)
    yield* fs.chmod(`${directory}/${name}`, 0o755)
  }
  return directory
})

const parse = (stdout: string): Readonly<Record<string, FoundAgent>> =>
  Object.fromEntries(
    stdout.trimEnd().split("\n").map((line) => JSON.parse(line) as FoundAgent).map((agent) => [agent.agent, agent])
  )

// Without what is installed on this machine.
const path = (...directories: ReadonlyArray<string>) => ({ PATH: [...directories, "/usr/bin", "/bin"].join(":") })

describe("gangway agents", { concurrent: true }, () => {
  test("says what is missing, doesn't fit, fails or never answers, and how to install it", (user) =>
    Effect.gen(function*() {
      const directory = yield* programs(user, {
        "claude": "echo '2.0.1 (Claude Code)'",
        "codex": "echo 'codex-cli 0.171.7'",
        "gemini": "trap '' TERM; while :; do sleep 1; done",
        "qwen": "echo 'no version here'"
      })
      const { exitCode, stderr, stdout } = yield* run(user, ["agents", "--json"], { env: path(directory) })
      assert.strictEqual(exitCode, 0, stderr)
      assert.strictEqual(stderr, "")
      const found = parse(stdout)
      assert.deepStrictEqual(Object.keys(found), [
        "claude-agent-acp",
        "claude-code",
        "codex",
        "codex-acp",
        "gemini",
        "opencode",
        "qwen"
      ])
      const problem = (name: string) => (found[name] as { readonly problem: string }).problem
      assert.deepInclude(found["claude-code"], { status: "wrong-version", versions: "2.1.332 to 2.1.349" })
      assert.include(problem("claude-code"), "2.0.1")
      assert.deepInclude(found["codex"], { status: "ready", version: "0.171.7", agentOptions: { agent: "codex" } })
      assert.deepInclude(found["gemini"], { status: "failed" })
      assert.include(problem("gemini"), "within 20 seconds")
      assert.deepInclude(found["qwen"], { status: "wrong-version" })
      assert.deepInclude(found["opencode"], {
        status: "missing",
        agentOptions: { agent: "acp", profile: "opencode" },
        install: "npm install --global opencode-ai@1.18.33"
      })
    }))

  test("leaves no program behind that it asked", (user) =>
    Effect.gen(function*() {
      const directory = yield* programs(user, { "gemini": "sleep 1000" })
      const { exitCode } = yield* run(user, ["agents", "--json"], { env: path(directory) })
      assert.strictEqual(exitCode, 0)
      yield* until(() => processesOf(user).length === 0)
    }))

  test("shows a table at a terminal, of the real agents with what they can do", (user) =>
    Effect.gen(function*() {
      const installed = yield* Effect.promise(() =>
        Promise.all(["claude-code", "codex", "opencode"].map((name) => installAgent(name)))
      )
      const directories = installed.flatMap(({ program }) => program === undefined ? [] : [dirname(program)])
      const terminal = yield* atTerminal(user, ["agents"], {
        env: path(dirname(process.execPath), ...directories)
      })
      assert.strictEqual(yield* terminal.exitCode, 0)
      const lines = terminal.text().trimEnd().split("\n")
      assert.strictEqual(lines.length, 7)
      const line = (name: string) => lines.find((line) => line.includes(` ${name} `))!
      if (installed[0]!.program !== undefined) assert.match(line("claude-code"), /^✓ claude-code +2\.1\.332 +all cap/)
      if (installed[1]!.program !== undefined) assert.match(line("codex"), /^✓ codex +0\.171\.0 +.*toolParams/)
      if (installed[2]!.program !== undefined) assert.match(line("opencode"), /^✓ opencode +1\.18\.33 +.*continuation/)
      assert.match(
        line("claude-agent-acp"),
        /^· claude-agent-acp +not found +npm install --global @agentclientprotocol/
      )
    }))

  test("says which program can't say it", (user) =>
    Effect.gen(function*() {
      const directory = yield* programs(user, { "old-bridge": "echo 'usage: gangway-bridge' >&2; exit 2" })
      const { exitCode, stderr, stdout } = yield* run(user, ["agents", "--bridge-command", `${directory}/old-bridge`])
      assert.strictEqual(exitCode, 2)
      assert.strictEqual(stdout, "")
      assert.include(stderr, "old-bridge can't say which agents are here (usage: gangway-bridge)")
    }))
})
