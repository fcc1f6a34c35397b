/**
 * `gangway run` with ACP agents: the real OpenCode with a scripted model, and any command.
 */
import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { dirname } from "node:path"
import { run, test, type User } from "../../apps/cli/test/fixtures/Gangway.ts"
import { fileOf } from "../conformance/driverWorld.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { isContinued } from "./killedRun.ts"

const agent = await installAgent("opencode")

const key = "sk-SECRET-of-the-model"

// As a user's environment has it: the agent on the PATH, and its model.
const environment = (user: User, url: string) => ({
  PATH: `${dirname(agent.program!)}:${process.env["PATH"]}`,
  HOME: `${user.root}/home`,
  XDG_DATA_HOME: `${user.root}/home/data`,
  OPENCODE_CONFIG_CONTENT: JSON.stringify({
    provider: {
      scripted: {
        npm: "@ai-sdk/openai-compatible",
        options: { baseURL: `${url}/v1`, apiKey: key },
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
        const conversation = Effect.map(
          Effect.forEach(["", "-wal"], (end) => fileOf(`${env.XDG_DATA_HOME}/opencode/opencode.db${end}`)),
          (files) => files.join("")
        )
        const written = (command: string) => `"input":{"command":"${command}`
        yield* isContinued(user, { name: "opencode", env, key, server, conversation, written })
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
