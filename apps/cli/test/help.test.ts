import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { run, test } from "./fixtures/Gangway.ts"

const commands = [
  "demo",
  "run",
  "attach",
  "ps",
  "logs",
  "approve",
  "answer",
  "send",
  "abort",
  "compact",
  "stop",
  "destroy",
  "prune",
  "doctor",
  "agents",
  "diff",
  "pull",
  "sandboxes"
]

// It prints a patch, and is a group of commands.
const withoutJson = ["diff", "sandboxes"]

describe("help", { concurrent: true }, () => {
  test("of each command has examples, and says that it prints JSON", (user) =>
    Effect.gen(function*() {
      const all = yield* run(user, ["--help"])
      const listed = [...all.stdout.matchAll(/^ {2}([a-z]+) {2,}\S/gm)].map(([, name]) => name)
      assert.deepStrictEqual(listed, commands)
      yield* Effect.forEach(commands, (command) =>
        Effect.map(run(user, [command, "--help"]), ({ exitCode, stderr, stdout }) => {
          assert.deepStrictEqual([exitCode, stderr], [0, ""], command)
          assert.match(stdout, new RegExp(`EXAMPLES\n[^]*\n {2}gangway ${command}`), command)
          assert.strictEqual(stdout.includes("--json "), !withoutJson.includes(command), command)
        }), { concurrency: 4 })
      assert.isFalse(yield* (yield* FileSystem.FileSystem).exists(user.state), "help writes nothing")
    }))

  test("shells complete commands and flags", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      for (const shell of ["bash", "zsh", "fish"]) {
        const { exitCode, stdout } = yield* run(user, ["--completions", shell])
        assert.strictEqual(exitCode, 0)
        for (const command of commands) assert.include(stdout, command, shell)
        yield* fs.writeFileString(`${user.root}/${shell}`, stdout)
      }
      const complete = (...words: ReadonlyArray<string>) => {
        const typed = ["gangway", ...words]
        const { stdout } = Bun.spawnSync([
          "bash",
          "-c",
          `
          . "$0"
          COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMP_LINE="$*"; COMP_POINT=\${#COMP_LINE}
          definition=$(complete -p gangway); function=\${definition#*-F }
          \${function%% *} gangway "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD-1]}"
          echo "\${COMPREPLY[@]}"
        `,
          `${user.root}/bash`,
          ...typed
        ], { env: user.env })
        return String(stdout).trim()
      }
      assert.strictEqual(complete("appr"), "approve")
      assert.strictEqual(complete("ps", "--wat"), "--watch")
    }))
})
