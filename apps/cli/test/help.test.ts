import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Console, Effect, FileSystem, Layer } from "effect"
import { CliOutput, Command } from "effect/unstable/cli"
import { gangway } from "../src/commands/gangway.ts"
import * as Keyboard from "../src/Keyboard.ts"
import * as Screen from "../src/Screen.ts"
import * as Signals from "../src/Signals.ts"
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
  it.effect("of each command has examples, and says that it prints JSON", () =>
    Effect.gen(function*() {
      const said: Array<string> = []
      const collecting: Console.Console = { ...console, log: (...words) => void said.push(words.join(" ")) }
      const help = (...args: ReadonlyArray<string>) =>
        Command.runWith(gangway, { version: "0.0.0" })([...args, "--help"]).pipe(
          Effect.provideService(Console.Console, collecting),
          Effect.map(() => said.splice(0).join("\n"))
        )
      const listed = [...(yield* help()).matchAll(/^ {2}([a-z]+) {2,}\S/gm)].map(([, name]) => name)
      assert.deepStrictEqual(listed, commands)
      for (const command of commands) {
        const text = yield* help(command)
        assert.match(text, new RegExp(`EXAMPLES\n[^]*\n {2}gangway ${command}`), command)
        assert.strictEqual(text.includes("--json "), !withoutJson.includes(command), command)
      }
    }).pipe(Effect.provide(
      Layer.mergeAll(
        CliOutput.layer(CliOutput.defaultFormatter({ colors: false })),
        Screen.layer,
        Signals.layer,
        Keyboard.layer,
        BunServices.layer
      )
    )))

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
