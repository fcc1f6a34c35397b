/**
 * `gangway run` with ACP agents: the real OpenCode with a scripted model, and any command.
 */
import { assert, describe } from "@effect/vitest"
import { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import { Effect, FileSystem } from "effect"
import { dirname } from "node:path"
import { bridgePid, processesOf, run, start, test, until, type User } from "../../apps/cli/test/fixtures/Gangway.ts"
import { fileOf, messagesOf } from "../conformance/driverWorld.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"

const agent = await installAgent("opencode")

// As a user's environment has it: the agent on the PATH, and its model.
const environment = (user: User, url: string) => ({
  PATH: `${dirname(agent.program!)}:${process.env["PATH"]}`,
  HOME: `${user.root}/home`,
  XDG_DATA_HOME: `${user.root}/home/data`,
  OPENCODE_CONFIG_CONTENT: JSON.stringify({
    provider: {
      scripted: {
        npm: "@ai-sdk/openai-compatible",
        options: { baseURL: `${url}/v1`, apiKey: "sk-SECRET-key" },
        models: { "scripted-model": { tool_call: true, limit: { context: 128_000, output: 8_000 } } }
      }
    },
    model: "scripted/scripted-model",
    small_model: "scripted/scripted-model"
  }),
  OPENCODE_DISABLE_MODELS_FETCH: "1",
  OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
  OPENCODE_DISABLE_DEFAULT_PLUGINS: "1"
})

describe(
  "gangway run with OpenCode",
  agent.skipped === undefined ? {} : { skip: true, meta: { skipped: agent.skipped } },
  () => {
    test("continues the turn when its bridge is killed in a tool call: no finished call runs again", (user) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const server = yield* ModelServer.start
        const env = environment(user, server.url)
        yield* fs.makeDirectory(env.HOME, { recursive: true })
        const words = `Do it. ${
          script(
            { text: "First.", bash: "echo first >> done.txt" },
            { text: "Second.", bash: "echo second >> done.txt; perl -e 'sleep 1000'" },
            { text: "Third.", bash: "echo third >> done.txt" },
            { text: "Done." }
          )
        }`
        const args = ["run", words, "--agent", "opencode", "--permissions", "all", "--session", "s1", "--json"]
        const running = yield* start(user, args, { env })
        const done = fileOf(`${user.directory}/done.txt`)
        yield* until(() => Effect.map(done, (content) => content.includes("second")))
        // The agent writes what it said a little later than it acts.
        const written = Effect.map(
          Effect.forEach(["", "-wal"], (end) => fileOf(`${env.XDG_DATA_HOME}/opencode/opencode.db${end}`)),
          (files) => files.join("")
        )
        yield* until(() => Effect.map(written, (text) => text.includes(`"input":{"command":"echo second`)))
        const before = (yield* server.calls("Do it.")).at(-1)!
        process.kill(yield* bridgePid(user, "opencode"), "SIGKILL")
        const { exitCode, stderr, stdout } = yield* running.ended
        assert.strictEqual(exitCode, 0, stderr)

        assert.strictEqual(yield* done, "first\nsecond\nthird\n")
        const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line)).filter((line) => !("status" in line))
        const { attempt, end } = lines.pop() as Bridge.EndLine
        const parts = lines as ReadonlyArray<Bridge.NumberedPart>
        assert.deepInclude(end, { type: "finished", finishReason: "stop" })
        assert.strictEqual(attempt, 2)
        assert.strictEqual(Turn.toText(parts), "First.\n\nSecond.\n\nThird.\n\nDone.")
        assert.strictEqual(Turn.counted(parts).filter(({ part }) => part.type === "step-finished").length, 4)

        // The model is told what it was told before, and the prompt once.
        const after = (yield* server.calls("Do it."))[2]!
        const [seen, sees] = [messagesOf(before), messagesOf(after)]
        assert.deepStrictEqual(sees.slice(0, seen.length), seen)
        assert.strictEqual(JSON.stringify(sees).split("Do it.").length, 2)

        // The configuration is where the agent needs it, and nowhere else.
        for (const name of yield* fs.readDirectory(user.state, { recursive: true })) {
          assert.notInclude(yield* fileOf(`${user.state}/${name}`), "sk-SECRET-key", name)
        }
        for (const pid of processesOf(user)) {
          assert.notInclude(yield* fileOf(`/proc/${pid}/cmdline`), "sk-SECRET-key")
        }
      }))
  }
)

describe("gangway run with any ACP agent", () => {
  test("starts the command that it's given, and says so where it's none", (user) =>
    Effect.gen(function*() {
      const fixture = `${import.meta.dirname}/../drivers/fixtures/acpAgent.ts`
      const { exitCode, stderr, stdout } = yield* run(user, [
        "run",
        "echo this",
        "--agent",
        `acp:${process.execPath} ${fixture}`,
        "--bridge",
        "mine"
      ])
      assert.strictEqual(exitCode, 0, stderr)
      assert.include(stdout, "echo this")
      const missing = yield* run(user, ["run", "x", "--agent", "acp:no-such-agent --acp"])
      assert.strictEqual(missing.exitCode, 4, missing.stderr)
      assert.include(missing.stderr, "there is no no-such-agent at 'no-such-agent'")
      const wrong = yield* run(user, ["run", "x", "--agent", "acp: "])
      assert.strictEqual(wrong.exitCode, 2, wrong.stderr)
      assert.match(wrong.stderr, /Expected claude-code, .* or acp:COMMAND/)
    }))
})
