/**
 * The real Claude Code with a scripted model, behind a bridge in a container.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore, Turn } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { DockerSandbox, Executable, Sandbox } from "@gangway/sandbox"
import { Effect, Fiber, FileSystem, Layer, Option, Redacted, Schedule, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/unstable/process"
import { realpathSync } from "node:fs"
import { dirname } from "node:path"
import { run, test } from "../../apps/cli/test/fixtures/Gangway.ts"
import * as Docker from "../docker/Docker.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"

const agent = await installAgent("claude-code")
const skipped = Docker.skipped ?? agent.skipped
const key = "sk-SECRET-of-the-model"

describe("Claude Code in a container", { skip: skipped !== undefined, meta: { skipped } }, () => {
  it.layer(Layer.mergeAll(Docker.layer, BunServices.layer), {
    timeout: Docker.patience,
    excludeTestServices: true
  })((it) => {
    it.effect(
      "works on the mounted directory, and goes on when its container was stopped in the middle",
      () =>
        Effect.gen(function*() {
          const fs = yield* FileSystem.FileSystem
          const { bridge, client, image } = yield* Docker.Docker
          const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
          const docker = (...args: ReadonlyArray<string>) =>
            spawner.string(ChildProcess.make(client[0], [...client.slice(1), ...args]))
          const server = yield* ModelServer.start
          const directory = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-claude-" }))
          const sandbox = yield* DockerSandbox.make({
            client,
            image,
            // Where the model is.
            network: "host",
            mounts: [
              { source: directory, target: directory },
              { source: dirname(realpathSync(agent.program!)), target: "/opt/claude", readOnly: true }
            ]
          })
          const launcher = yield* Executable.install({
            name: "gangway-bridge",
            directory: "/opt",
            build: () => Effect.asSome(fs.readFile(bridge))
          }).pipe(
            Effect.flatMap((program) => Launcher.make({ command: [program] })),
            Effect.provideService(Sandbox.Sandbox, sandbox),
            Effect.provide(TokenStore.layerToken(Redacted.make("a-token-that-has-32-characters-at-least")))
          )
          const host = yield* launcher.connect({
            bridge: Bridge.BridgeId.make("b1"),
            stateDirectory: "/var/tmp/state",
            agentOptions: {
              agent: "claude-code",
              command: "/opt/claude/claude",
              apiKey: Redacted.make(key),
              baseUrl: server.url,
              model: "scripted-model",
              configDirectory: "/srv/claude",
              env: { CLAUDE_CODE_MAX_RETRIES: "1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" }
            },
            idleTimeout: "1 minute"
          })
          const session = yield* host.startSession({
            session: Bridge.SessionId.make("s1"),
            directory,
            permissions: "all"
          })
          const turn = yield* session.startTurn({
            turn: Bridge.TurnId.make("t1"),
            prompt: `Do it. ${
              script(
                { text: "First.", bash: "echo first >> done.txt" },
                { text: "Second.", bash: "echo second >> done.txt; until [ -e go ]; do sleep 0.1; done" },
                { text: "Third.", bash: "echo third >> done.txt" },
                { text: "Done." }
              )
            }`
          })
          const reader = yield* Effect.forkScoped(Stream.runCollect(turn.parts()))
          const done = Effect.orElseSucceed(fs.readFileString(`${directory}/done.txt`), () => "")
          yield* Effect.repeat(done, {
            until: (content) => content.includes("second"),
            schedule: Schedule.spaced("50 millis")
          })
          const told = yield* docker("inspect", sandbox.id)
          const { stdout: ran } = yield* sandbox.run({
            command: ["sh", "-c", "cat /proc/[0-9]*/cmdline"],
            timeout: "30 seconds"
          })
          for (const text of [told, ran]) assert.notInclude(text, key)
          yield* fs.writeFileString(`${directory}/go`, "")
          yield* docker("restart", "--time", "1", sandbox.id)
          const parts = Turn.counted(yield* Fiber.join(reader)).map(({ part }) => part as Bridge.KnownPart)
          const end = yield* turn.end
          assert.deepInclude(end, { type: "finished" })
          assert.include(
            parts.map((part) => part.type === "text-delta" ? part.delta : "").join(""),
            "Third."
          )
          const lines = (yield* done).trim().split("\n")
          assert.deepStrictEqual([lines[0], lines.at(-1)], ["first", "third"])
          assert.isTrue(Option.isSome(yield* sandbox.readFile("/srv/claude/.claude.json")))
        }),
      180_000
    )
  })

  test("changes a copy that a user pulls, with a key that's on no disk and in no list", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const engine = yield* Docker.Docker
      const { bridge, client, image } = engine
      const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
      const docker = (...args: ReadonlyArray<string>) =>
        Effect.map(spawner.string(ChildProcess.make(client[0], [...client.slice(1), ...args])), (text) => text.trim())
      const server = yield* ModelServer.start
      const container = yield* Effect.acquireRelease(
        docker(
          "run",
          "--detach",
          "--init",
          // Where the model is.
          "--network=host",
          "--user=agent",
          "--env=PATH=/opt/claude:/bin",
          `--mount=type=bind,source=${dirname(realpathSync(agent.program!))},target=/opt/claude,readonly`,
          image,
          "sleep",
          "1000"
        ),
        (id) => Effect.ignore(docker("rm", "--force", id))
      )
      const env = {
        ...Docker.variables(engine),
        GANGWAY_BRIDGE_BUILDS: dirname(bridge),
        ANTHROPIC_API_KEY: key,
        ANTHROPIC_BASE_URL: server.url
      }
      yield* fs.writeFileString(`${user.directory}/given é`, "one\n")
      const words = `Do it. ${
        script(
          { text: "First.", bash: "cat given*; echo two >> given*; mkdir -p new; echo made > new/file" },
          { text: "Done." }
        )
      }`
      const ran = yield* run(
        user,
        [
          "run",
          words,
          "--agent",
          "claude-code",
          "--permissions",
          "all",
          "--sandbox",
          "docker",
          "--sandbox-id",
          container
        ],
        { env }
      )
      assert.strictEqual(ran.exitCode, 0, ran.stderr)
      assert.include(ran.stdout, "Done.")
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/given é`), "one\n")
      const patch = yield* run(user, ["diff"], { env })
      assert.include(patch.stdout, "+two")
      const pulled = yield* run(user, ["pull"], { env })
      assert.strictEqual(pulled.stdout, "changed  given é\nnew  new/file\n", pulled.stderr)
      assert.strictEqual(yield* fs.readFileString(`${user.directory}/given é`), "one\ntwo\n")

      // The key came on the launch line: here, in the engine and in the container it's nowhere but in the agent.
      for (const text of [yield* docker("inspect", container), yield* docker("logs", container)]) {
        assert.notInclude(text, key)
      }
      assert.include(
        yield* docker("exec", "--user=root", container, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"),
        "gangway-bridge"
      )
      const found = yield* docker(
        "exec",
        "--user=root",
        container,
        "sh",
        "-c",
        // By a pattern that isn't what it finds.
        `grep -rl "sk-[S]ECRET" /var /tmp /root /srv /etc /home /run 2>/dev/null
cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep "sk-[S]ECRET"
:`
      )
      assert.strictEqual(found, "")
      const here = yield* spawner.string(ChildProcess.make("sh", ["-c", `grep -rl "$0" "$1"; :`, key, user.root]))
      assert.strictEqual(here, "")
    }).pipe(Effect.provide(Docker.layer)))
})
