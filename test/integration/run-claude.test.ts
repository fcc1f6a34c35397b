/**
 * `gangway run` with the real Claude Code and a scripted model.
 */
import { assert, describe } from "@effect/vitest"
import { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import { Effect, FileSystem } from "effect"
import { readFileSync } from "node:fs"
import { dirname } from "node:path"
import {
  atTerminal,
  bridgePid,
  processesOf,
  start,
  test,
  until,
  type User
} from "../../apps/cli/test/fixtures/Gangway.ts"
import { messagesOf } from "../conformance/driverWorld.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"

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
        const fs = yield* FileSystem.FileSystem
        const { conversation, env, read, server } = yield* world(user)
        const words = `Do it. ${
          script(
            { text: "First.", bash: "echo first >> done.txt" },
            { text: "Second.", bash: "echo second >> done.txt; perl -e 'sleep 1000'" },
            { text: "Third.", bash: "echo third >> done.txt" },
            { text: "Done." }
          )
        }`
        const running = yield* start(user, ["run", words, "--permissions", "all", "--session", "s1", "--json"], { env })
        yield* until(() => Effect.map(read("done.txt"), (content) => content.includes("second")))
        // The agent writes what it said a little later than it acts.
        yield* until(() => Effect.map(conversation, (content) => content.includes(`"command":"echo second`)))
        const before = (yield* server.calls("Do it.")).at(-1)!
        process.kill(yield* bridgePid(user, "claude-code"), "SIGKILL")
        const { exitCode, stderr, stdout } = yield* running.ended
        assert.strictEqual(exitCode, 0, stderr)

        assert.strictEqual(yield* read("done.txt"), "first\nsecond\nthird\n")
        const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line))
        const { attempt, end, next } = lines.pop() as Bridge.EndLine
        const parts = lines as ReadonlyArray<Bridge.NumberedPart>
        assert.deepStrictEqual(parts.map(({ n }) => n), Array.from({ length: next - 1 }, (_, i) => i + 1))
        assert.deepInclude(end, { type: "finished", finishReason: "stop" })
        assert.strictEqual(attempt, 2)
        assert.strictEqual(Turn.toText(parts), "First.\n\nSecond.\n\nThird.\n\nDone.")
        assert.strictEqual(Turn.counted(parts).filter(({ part }) => part.type === "step-finished").length, 4)

        // The model is told what it was told before, and the prompt once.
        const after = (yield* server.calls("Do it."))[2]!
        const [seen, sees] = [messagesOf(before), messagesOf(after)]
        assert.deepStrictEqual(sees.slice(0, seen.length), seen)
        assert.strictEqual(JSON.stringify(sees).split("Do it.").length, 2)

        // The key is where the agent needs it, and nowhere else.
        for (const name of yield* fs.readDirectory(user.state, { recursive: true })) {
          const path = `${user.state}/${name}`
          if ((yield* fs.stat(path)).type === "File") assert.notInclude(yield* fs.readFileString(path), key, name)
        }
        for (const pid of processesOf(user)) assert.notInclude(readFileSync(`/proc/${pid}/cmdline`, "utf8"), key)
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
