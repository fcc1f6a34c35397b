/**
 * `gangway run --agent codex` with the real Codex and a scripted model.
 */
import { assert, describe } from "@effect/vitest"
import { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import { Effect, FileSystem } from "effect"
import { dirname } from "node:path"
import { start, test } from "../../apps/cli/test/fixtures/Gangway.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"

const agent = await installAgent("codex")

const key = "sk-SECRET-of-the-model"

describe(
  "gangway run with Codex",
  agent.skipped === undefined ? {} : { skip: true, meta: { skipped: agent.skipped } },
  () => {
    test("runs a turn, goes on in its session, and keeps the key out of every file", (user) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const server = yield* ModelServer.start
        const env = {
          PATH: `${dirname(agent.program!)}:${process.env["PATH"]}`,
          HOME: user.root,
          CODEX_API_KEY: key,
          CODEX_HOME: `${user.root}/codex`,
          OPENAI_BASE_URL: `${server.url}/v1`
        }
        const run = (words: string) =>
          Effect.gen(function*() {
            const args = ["run", words, "--agent", "codex", "--permissions", "all", "--session", "s1", "--json"]
            const { exitCode, stderr, stdout } = yield* (yield* start(user, args, { env })).ended
            assert.strictEqual(exitCode, 0, stderr)
            const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line))
            const { end } = lines.pop() as Bridge.EndLine
            assert.deepInclude(end, { type: "finished", finishReason: "stop" })
            return Turn.toText(lines)
          })
        const first = yield* run(`REMEMBER ${script({ bash: "echo made > made.txt" }, { text: "Made." })}`)
        assert.strictEqual(first, "Made.")
        assert.strictEqual(yield* fs.readFileString(`${user.directory}/made.txt`), "made\n")
        assert.strictEqual(yield* run(`GO ON ${script({ text: "Again." })}`), "Again.")
        const [call] = yield* server.calls("GO ON")
        assert.include(JSON.stringify(call!.body), "REMEMBER")
        assert.strictEqual(call!.headers["authorization"], `Bearer ${key}`)
        for (const directory of [user.state, `${user.root}/codex`]) {
          for (const name of yield* fs.readDirectory(directory, { recursive: true })) {
            const path = `${directory}/${name}`
            if ((yield* fs.stat(path)).type === "File") assert.notInclude(yield* fs.readFileString(path), key, name)
          }
        }
      }))
  }
)
