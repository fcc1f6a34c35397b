/**
 * The driver of ACP agents, with other agents than the reference and a scripted model: what they have in common with
 * it, and in what they differ.
 */
import { assert } from "@effect/vitest"
import * as Acp from "@gangway/drivers/Acp"
import { Effect, Fiber, FileSystem, Redacted } from "effect"
import * as Loopback from "../../apps/bridge/src/Loopback.ts"
import { makeLog, partsOf, textOf } from "../../packages/drivers/test/fixtures/turns.ts"
import { abort, allow, fileOf, only, play, type Profile, suite, test, waitForFile } from "../conformance/driverWorld.ts"
import { claudeAgentAcp, type Commands, gemini, qwen } from "../conformance/expectations.ts"
import { installAgent } from "../installAgent.ts"
import { script } from "../model/Script.ts"

type Agent = Pick<Profile, "name" | "agent" | "make" | "capabilities" | "shell"> & {
  readonly write: string
  readonly edit: string
} & Commands

const settings = (path: string, selectedType: string) =>
  Effect.flatMap(FileSystem.FileSystem, (fs) =>
    Effect.andThen(
      fs.makeDirectory(path, { recursive: true }),
      fs.writeFileString(`${path}/settings.json`, JSON.stringify({ security: { auth: { selectedType } } }))
    )).pipe(Effect.orDie)

const agents: ReadonlyArray<Agent> = [
  {
    ...gemini,
    agent: await installAgent("gemini"),
    make: ({ home, program, url }) =>
      settings(`${home}/.gemini`, "gemini-api-key").pipe(
        Effect.andThen(Acp.Acp.make({
          profile: "gemini",
          command: [program, "--acp", "-m", "gemini-2.5-pro"],
          home,
          env: { GOOGLE_GEMINI_BASE_URL: url },
          secretEnv: { GEMINI_API_KEY: Redacted.make("SECRET-key") }
        })),
        Effect.provide(Loopback.layer)
      ),
    shell: "run_shell_command",
    write: "write_file",
    edit: "replace"
  },
  {
    ...qwen,
    agent: await installAgent("qwen"),
    make: ({ home, program, url }) =>
      settings(`${home}/.qwen`, "openai").pipe(
        Effect.andThen(Acp.Acp.make({
          profile: "qwen",
          command: [program, "--acp"],
          home,
          env: { OPENAI_BASE_URL: `${url}/v1`, OPENAI_MODEL: "scripted-model" },
          secretEnv: { OPENAI_API_KEY: Redacted.make("SECRET-key") }
        })),
        Effect.provide(Loopback.layer)
      ),
    shell: "run_shell_command",
    write: "write_file",
    edit: "edit"
  },
  {
    ...claudeAgentAcp,
    agent: await installAgent("claude-agent-acp"),
    make: ({ home, program, url }) =>
      Acp.Acp.make({
        profile: "claude-agent-acp",
        command: [program],
        home,
        env: {
          ANTHROPIC_BASE_URL: url,
          ANTHROPIC_MODEL: "scripted-model",
          CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1"
        },
        secretEnv: { ANTHROPIC_API_KEY: Redacted.make("SECRET-key") }
      }).pipe(Effect.provide(Loopback.layer)),
    shell: "Bash",
    write: "Write",
    edit: "Edit"
  }
]

for (const agent of agents) {
  // What the suite of the reference needs besides isn't asked of these.
  const profile = agent as unknown as Profile
  suite(profile, agent.name, () => {
    // One session for all of it: each of these takes seconds to start.
    test(profile, "thinks, speaks, asks, acts and changes files", (world) =>
      Effect.gen(function*() {
        assert.deepStrictEqual(world.driver.capabilities, agent.capabilities)
        const host = yield* world.open({ instructions: "ALWAYS-RHYME" })
        const file = `${world.directory}/poem.txt`
        const asked: Array<readonly [string, boolean]> = []
        const { finished, parts } = yield* play(host, [
          {
            think: "Let me see.",
            text: "Good morning.",
            bash: "echo SAID > said.txt; cat said.txt",
            usage: { input: 70, output: 30, cacheRead: 200 }
          },
          { write: [file, "one\ntwo\n"] },
          { edit: [file, "two", "zwei"] },
          { bash: "echo no > no.txt" },
          { text: "Done." }
        ], {
          approval: ({ edits, name, params }) => {
            asked.push([name, edits])
            return Effect.succeed({ decision: JSON.stringify(params).includes("no.txt") ? "deny" : "allow" })
          }
        })
        assert.include(["stop", "other"], finished.finishReason)
        assert.include(only(parts, "reasoning-delta").map(({ delta }) => delta).join(""), "Let me see.")
        assert.isTrue(textOf(parts).startsWith("Good morning."))
        assert.deepStrictEqual(asked, [
          [agent.shell, false],
          [agent.write, true],
          [agent.edit, true],
          [agent.shell, false]
        ])
        const calls = only(parts, "tool-call")
        const results = only(parts, "tool-result")
        assert.deepStrictEqual(calls.map(({ id }) => id), results.map(({ id }) => id))
        assert.strictEqual(JSON.stringify(results[0]!.result).includes("SAID"), agent.tellsOutput)
        assert.isTrue(calls.every(({ params }) => Object.keys(params as object).length > 0))
        assert.strictEqual(JSON.stringify(calls[0]!.params).includes("\"command\":\"echo SAID"), agent.tellsInput)
        assert.strictEqual((yield* fileOf(`${world.directory}/said.txt`)).trim(), "SAID")
        assert.deepStrictEqual(results.map(({ isFailure }) => isFailure), [false, false, false, true])
        assert.strictEqual(yield* fileOf(`${world.directory}/no.txt`), "")
        const [created, updated, ...more] = only(parts, "file-change")
        assert.deepStrictEqual(more, [])
        assert.deepInclude(created, { path: file, kind: "create" })
        assert.include(created!.diff, "@@ -0,0 +1,2 @@\n+one\n+two\n")
        assert.include(updated!.diff, "@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n")
        const steps = only(parts, "step-finished")
        assert.isAtLeast(steps.length, 4)
        if (agent.capabilities.usage) {
          assert.isTrue(steps.every(({ usage }) => usage.measured))
          assert.deepInclude(steps[0]!.usage.inputTokens, { total: 270, uncached: 70, cacheRead: 200 })
          assert.strictEqual(steps[0]!.usage.outputTokens?.total, 30)
        }
        const [first] = yield* world.server.calls("Do it.")
        assert.include(JSON.stringify(first!.body), "ALWAYS-RHYME")

        // In the same process: a turn that's cut, and nothing left of it.
        const log = makeLog("t2")
        const running = yield* Effect.forkChild(
          host.run(log, `AGAIN ${script({ bash: "echo x >> done.txt; perl -e 'sleep 1000'" })}`, allow)
        )
        yield* waitForFile(`${world.directory}/done.txt`, "x")
        assert.isTrue(yield* abort(host, running))
        assert.deepStrictEqual(yield* host.supervisor.background, [])
        assert.strictEqual(host.processes.length, 1)
        assert.isTrue((yield* Fiber.await(running))._tag === "Failure")
        if (!agent.capabilities.continuation) return assert.isUndefined(host.agent.reconcile)
        yield* host.resume(log, "never said again", allow)
        const last = (yield* world.server.calls("AGAIN")).at(-1)!
        assert.include(JSON.stringify(last.body), "Carry on")
        assert.include(JSON.stringify(last.body), "Good morning.")
        assert.strictEqual(textOf(partsOf(log)), "done")
      }))
  })
}
