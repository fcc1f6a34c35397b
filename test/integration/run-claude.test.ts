/**
 * `gangway run` with the real Claude Code and a scripted model.
 */
import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { dirname } from "node:path"
import { atTerminal, test, type User } from "../../apps/cli/test/fixtures/Gangway.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"
import { isContinued } from "./killedRun.ts"

const agent = await installAgent("claude-code")

const key = "sk-SECRET-of-the-model"

// As a user's environment has it: the agent on the PATH, its model, and its key.
const world = Effect.fnUntraced(function*(user: User) {
  const fs = yield* FileSystem.FileSystem
  const server = yield* ModelServer.start
  const home = `${user.root}/claude`
  const env = {
    PATH: `${dirname(agent.program!)}:${process.env["PATH"]}`,
    ANTHROPIC_API_KEY: key,
    ANTHROPIC_BASE_URL: server.url,
    CLAUDE_CONFIG_DIR: home,
    CLAUDE_CODE_MAX_RETRIES: "1",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CODE_TMPDIR: `${user.root}/temporary`
  }
  const read = (file: string) => Effect.orElseSucceed(fs.readFileString(`${user.directory}/${file}`), () => "")
  // What the agent wrote down of its conversation.
  const conversation = fs.readDirectory(`${home}/projects`, { recursive: true }).pipe(
    Effect.flatMap((names) =>
      Effect.forEach(
        names.filter((name) => name.endsWith(".jsonl")),
        (name) => fs.readFileString(`${home}/projects/${name}`)
      )
    ),
    Effect.map((texts) => texts.join("")),
    Effect.orElseSucceed(() => "")
  )
  return { env, server, read, conversation }
})

describe(
  "gangway run with Claude Code",
  agent.skipped === undefined ? {} : { skip: true, meta: { skipped: agent.skipped } },
  () => {
    test("continues the turn when its bridge is killed in a tool call: no finished call runs again", (user) =>
      Effect.gen(function*() {
        const { conversation, env, server } = yield* world(user)
        const written = (command: string) => `"command":"${command}`
        yield* isContinued(user, { name: "claude-code", env, key, server, conversation, written })
      }))

    test("asks at the terminal before a file is changed, and shows the change and what was used", (user) =>
      Effect.gen(function*() {
        const { env, read } = yield* world(user)
        const words = `Do it. ${
          script(
            { think: "Let me think.", text: "I'll write it.", write: [`${user.directory}/a.txt`, "one\ntwo\n"] },
            { write: [`${user.directory}/b.txt`, "three\n"] },
            { text: "Written." }
          )
        }`
        const terminal = yield* atTerminal(user, ["run", words], { env })
        yield* terminal.sees("┊ Let me think.")
        yield* terminal.sees("I'll write it.")
        yield* terminal.sees("→ Write  a.txt")
        yield* terminal.sees("? Write a.txt")
        yield* terminal.sees("view all: ")
        assert.strictEqual(yield* read("a.txt"), "")
        yield* terminal.types("y\n")
        yield* terminal.sees("± create a.txt\n")
        yield* terminal.sees("  +one\n  +two\n")
        yield* terminal.sees("? Write b.txt")
        yield* terminal.sees("view all: ")
        yield* terminal.types("n not that one\n")
        yield* terminal.sees("denied: not that one")
        yield* terminal.sees("Written.")
        yield* terminal.sees("✓ finished · 3 steps · 300 in, 30 out, $")
        assert.strictEqual(yield* terminal.exitCode, 0)
        assert.deepStrictEqual([yield* read("a.txt"), yield* read("b.txt")], ["one\ntwo\n", ""])
      }))
  }
)
