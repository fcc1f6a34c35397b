/**
 * The real Claude Code as another user than its bridge: its driver reads and writes the agent's files all the same.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, FileSystem, Layer, Redacted, Schedule, Schema, Stream } from "effect"
import { spawnSync } from "node:child_process"
import { chmodSync, copyFileSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"
import { endBridge } from "./endBridge.ts"

const agent = await installAgent("claude-code")
const program = new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname
const nobody = 65534

// A checkout may be its owner's alone.
const place = mkdtempSync(join(tmpdir(), "gangway-user-"))
chmodSync(place, 0o755)
const claude = join(place, "claude")
if (agent.program !== undefined) copyFileSync(agent.program, claude)
afterAll(() => rmSync(place, { recursive: true, force: true }))

const runsAsNobody = () =>
  spawnSync("setpriv", [`--reuid=${nobody}`, `--regid=${nobody}`, "--init-groups", "--", claude, "--version"], {
    cwd: "/"
  }).status === 0
const skipped = agent.skipped ??
  (runsAsNobody() ? undefined : "it takes root, setpriv, and temporary files that every user can read")

const launching = Launcher.layer({ command: [process.execPath, program] }).pipe(
  Layer.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make("a-token-that-has-32-characters-at-least"))]),
  Layer.provideMerge(BunServices.layer)
)

const world = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const { connect } = yield* Launcher.Launcher
  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-user-" }))
  yield* fs.chmod(root, 0o755)
  const directory = `${root}/project`
  for (const path of [directory, `${root}/home-b1`, `${root}/home-b2`]) {
    yield* fs.makeDirectory(path, { mode: 0o700 })
    yield* fs.chown(path, nobody, nobody)
  }
  const server = yield* ModelServer.start
  const pid = (name: string) =>
    fs.readFileString(Bridge.listeningFile(`${root}/state-${name}`)).pipe(
      Effect.flatMap(Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile))),
      Effect.map(({ pid }) => pid)
    )
  const bridge = Effect.fnUntraced(function*(name: string) {
    yield* Effect.addFinalizer(() => endBridge(`${root}/state-${name}`))
    return yield* connect({
      bridge: Bridge.BridgeId.make(name),
      stateDirectory: `${root}/state-${name}`,
      agentOptions: {
        agent: "claude-code",
        agentUser: "nobody",
        command: claude,
        apiKey: "sk-SECRET-of-the-model",
        baseUrl: server.url,
        model: "scripted-model",
        env: {
          HOME: `${root}/home-${name}`,
          CLAUDE_CODE_MAX_RETRIES: "1",
          CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1"
        }
      },
      idleTimeout: "1 minute"
    })
  })
  const transcripts = (name: string) =>
    fs.readDirectory(`${root}/home-${name}/.claude/projects`, { recursive: true }).pipe(
      Effect.map((files) => files.filter((file) => file.endsWith(".jsonl"))),
      Effect.flatMap(Effect.forEach((file) => fs.readFileString(`${root}/home-${name}/.claude/projects/${file}`))),
      Effect.orElseSucceed((): ReadonlyArray<string> => [])
    )
  const read = (file: string) => Effect.orElseSucceed(fs.readFileString(`${directory}/${file}`), () => "")
  return { directory, server, pid, bridge, read, transcripts }
})

const eventually = <R>(condition: Effect.Effect<boolean, never, R>) =>
  Effect.repeat(condition, { until: (done) => done, schedule: Schedule.spaced("20 millis") })

describe("Claude Code as another user", skipped === undefined ? {} : { skip: true, meta: { skipped } }, () => {
  it.live(
    "carries a turn on after its bridge was killed, moves to another bridge, and is forgotten",
    () =>
      Effect.gen(function*() {
        const { bridge, directory, pid, read, server, transcripts } = yield* world
        const client = yield* bridge("b1")
        const session = yield* client.startSession({
          session: Bridge.SessionId.make("s1"),
          directory,
          permissions: "all"
        })
        const turn = yield* session.startTurn({
          turn: Bridge.TurnId.make("t1"),
          prompt: `Do it. ${
            script(
              { text: "First.", bash: "id -u > first.txt" },
              { text: "Second.", bash: "id -u > second.txt; perl -e 'sleep 1000'" },
              { text: "Done." }
            )
          }`
        })
        const reader = yield* Effect.forkScoped(Stream.runDrain(turn.parts()))
        yield* eventually(Effect.map(read("second.txt"), (content) => content !== ""))
        yield* eventually(Effect.map(transcripts("b1"), (files) => files.join("").includes(`id -u > second`)))
        process.kill(yield* pid("b1"), "SIGKILL")
        assert.deepInclude(yield* turn.end, { type: "finished", finishReason: "stop" })
        yield* Effect.sync(() => reader.interruptUnsafe())
        assert.deepStrictEqual([yield* read("first.txt"), yield* read("second.txt")], ["65534\n", "65534\n"])

        const state = yield* session.readState
        const other = yield* bridge("b2")
        const moved = yield* other.startSession({
          session: Bridge.SessionId.make("s2"),
          directory,
          permissions: "all",
          state
        })
        const next = yield* moved.startTurn({
          turn: Bridge.TurnId.make("t2"),
          prompt: `Go on. ${script({ text: "Well." })}`
        })
        assert.strictEqual((yield* next.end).type, "finished")
        const [call] = yield* server.calls("Go on.")
        assert.include(JSON.stringify(call), "Do it.")

        yield* session.destroy
        yield* moved.destroy
        assert.deepStrictEqual([yield* transcripts("b1"), yield* transcripts("b2")], [[], []])
      }).pipe(Effect.scoped, Effect.provide(launching)),
    120_000
  )
})
