/**
 * The driver of ACP agents, with the real OpenCode and a scripted model.
 */
import { afterAll, assert } from "@effect/vitest"
import * as Acp from "@gangway/drivers/Acp"
import { Effect, FileSystem, Redacted } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as Loopback from "../../apps/bridge/src/Loopback.ts"
import { driverConformance } from "../conformance/driver.ts"
import { failure, fileOf, only, play, type Profile, suite, test } from "../conformance/driverWorld.ts"
import { opencode as expected } from "../conformance/expectations.ts"
import { installAgent } from "../installAgent.ts"
import { mcpServer } from "./mcpServer.ts"

const model = {
  reasoning: true,
  tool_call: true,
  modalities: { input: ["text", "image"], output: ["text"] },
  limit: { context: 128_000, output: 8_000 }
}

const noModels = `${import.meta.dirname}/fixtures/noModels.json`

const installed = await installAgent("opencode")

const ownDirectory = mkdtempSync(`${tmpdir()}/gangway-opencode-`)
afterAll(() => rmSync(ownDirectory, { recursive: true, force: true }))

/** The agent, which is asked for its version once: each case wants it, and it takes half a second of a core. */
const asked = (program: string) => {
  const version = `${ownDirectory}/version`
  const wrapper = `${ownDirectory}/opencode`
  writeFileSync(
    wrapper,
    `#!/bin/sh
if [ "$1" != --version ]; then exec '${program}' "$@"; fi
test -e '${version}' || { '${program}' --version > "${version}.$$" && mv "${version}.$$" '${version}'; }
cat '${version}'
`,
    { mode: 0o755 }
  )
  return { program: wrapper }
}

const opencode: Profile = {
  ...expected,
  agent: installed.program === undefined ? installed : asked(installed.program),
  make: ({ env = {}, home, program, url }) =>
    Acp.Acp.make({
      profile: "opencode",
      command: [program, "acp"],
      home,
      env: {
        OPENCODE_CONFIG_CONTENT: JSON.stringify({
          provider: {
            scripted: {
              npm: "@ai-sdk/openai-compatible",
              options: { baseURL: `${url}/v1`, apiKey: "sk-SECRET-key" },
              models: { "scripted-model": model, "model-one": model, "model-two": model }
            }
          },
          model: "scripted/scripted-model",
          small_model: "scripted/scripted-model"
        }),
        // Reading the models of all the world takes most of its start.
        OPENCODE_MODELS_PATH: noModels,
        OPENCODE_DISABLE_MODELS_FETCH: "1",
        OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
        OPENCODE_DISABLE_DEFAULT_PLUGINS: "1",
        ...env
      }
    }).pipe(Effect.provide(Loopback.layer)),
  shell: "bash",
  hostTool: (name) => `host_${name}`,
  fileOf: (params) => (params as { filePath: string }).filePath,
  effortOf: () => undefined,
  holdsCall: (written, command) => written.includes(`"input":{"command":"${command}`),
  structured: { answer: () => ({}), asks: () => false },
  // A database, which it deletes rows of.
  ownFiles: /^\.local\/share\/opencode\/opencode\.db/,
  written: (home) =>
    Effect.map(
      Effect.forEach(["", "-wal"], (end) => fileOf(`${home}/.local/share/opencode/opencode.db${end}`)),
      (files) => files.join("")
    )
}

driverConformance(opencode)

suite(opencode, "OpenCode", () => {
  test(
    opencode,
    "takes another model for a turn, plans, and uses the session's MCP servers",
    (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const program = `${world.root}/server.ts`
        yield* fs.writeFileString(program, mcpServer)
        const host = yield* world.open({
          mcpServers: [{
            type: "stdio",
            name: "pingpong",
            command: process.execPath,
            args: [program],
            env: { PING_TOKEN: Redacted.make("PING-SECRET") }
          }]
        })
        const todos = [
          { content: "Look", status: "completed", priority: "high" },
          { content: "Leap", status: "in_progress", priority: "low" }
        ]
        const asked: Array<string> = []
        const { parts } = yield* play(host, [
          { tool: ["todowrite", { todos }] },
          { tool: ["pingpong_ping", {}] },
          { text: "Pong." }
        ], {
          words: "ONE",
          model: "scripted/model-one",
          approval: ({ name }) => {
            asked.push(name)
            return Effect.succeed({ decision: "allow" })
          }
        })
        assert.deepStrictEqual(only(parts, "plan").map(({ entries }) => entries), [[
          { content: "Look", status: "completed" },
          { content: "Leap", status: "in-progress" }
        ]])
        assert.deepStrictEqual(asked, ["pingpong_ping"])
        assert.deepInclude(only(parts, "tool-result")[1], { result: "PING-SECRET pong", isFailure: false })
        assert.notInclude(yield* fileOf(`/proc/${host.processes[0]!.pid}/cmdline`), "SECRET")
        yield* play(host, [{ text: "Two." }], { turn: "t2", words: "TWO" })
        const modelOf = (words: string) =>
          Effect.map(world.server.calls(words), ([first]) => (first!.body as { model: string }).model)
        assert.strictEqual(yield* modelOf("ONE"), "model-one")
        assert.strictEqual(yield* modelOf("TWO"), "scripted-model")
        assert.strictEqual(host.processes.length, 1)
        const unknown = yield* Effect.exit(play(host, [], { turn: "t3", model: "scripted/none" }))
        assert.deepInclude(failure(unknown), { _tag: "TurnFailed", kind: "invalid-request" })
      })
  )

  test(opencode, "obeys the files that the session's settings name, and no others", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.makeDirectory(`${world.home}/.config/opencode`, { recursive: true })
      yield* fs.writeFileString(`${world.directory}/AGENTS.md`, "PROJECT-MEMORY")
      yield* fs.writeFileString(`${world.home}/.config/opencode/AGENTS.md`, "USER-MEMORY")
      // Settings can't take the host's approvals away.
      yield* fs.writeFileString(
        `${world.directory}/opencode.json`,
        JSON.stringify({ permission: { edit: "allow", bash: { "*": "allow" } } })
      )
      const seen: Array<unknown> = []
      for (const settings of ["none", "project", "user"] as const) {
        const host = yield* world.open({ settings })
        const { parts } = yield* play(host, [{ bash: "true" }, { text: "Hi." }], { words: settings })
        yield* host.close
        const body = JSON.stringify((yield* world.server.calls(`${settings} @@`))[0]!.body)
        seen.push([
          settings,
          body.includes("PROJECT-MEMORY"),
          body.includes("USER-MEMORY"),
          only(parts, "tool-approval-request").length
        ])
      }
      assert.deepStrictEqual(seen, [["none", false, false, 1], ["project", true, false, 1], ["user", true, true, 1]])
    }))
})
