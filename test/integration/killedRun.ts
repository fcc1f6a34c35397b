/**
 * `gangway run` with a real agent and a scripted model, whose bridge is killed in a tool call.
 */
import type * as BunServices from "@effect/platform-bun/BunServices"
import { assert } from "@effect/vitest"
import { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import { Effect, FileSystem, type Scope } from "effect"
import { bridgePid, processesOf, start, until, type User } from "../../apps/cli/test/fixtures/Gangway.ts"
import { fileOf, messagesOf } from "../conformance/driverWorld.ts"
import type * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"

/** What the agent is run with. */
export interface RunAgent {
  /** As `--agent` names it. */
  readonly name: string
  readonly env: Readonly<Record<string, string>>
  /** The model's key, which `env` holds. */
  readonly key: string
  readonly server: ModelServer.Server
  /** What the agent wrote down of its conversation. */
  readonly conversation: Effect.Effect<string, never, BunServices.BunServices>
  /** How that tells of the call of a command. */
  readonly written: (command: string) => string
}

/** The turn is continued: no finished call runs again, and all is told once. */
export const isContinued = (
  user: User,
  { conversation, env, key, name, server, written }: RunAgent
): Effect.Effect<void, unknown, BunServices.BunServices | Scope.Scope> =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const words = `Do it. ${
      script(
        { text: "First.", bash: "echo first >> done.txt" },
        { text: "Second.", bash: "echo second >> done.txt; perl -e 'sleep 1000'" },
        { text: "Third.", bash: "echo third >> done.txt" },
        { text: "Done." }
      )
    }`
    const args = ["run", words, "--agent", name, "--permissions", "all", "--session", "s1", "--json"]
    const running = yield* start(user, args, { env })
    const done = fileOf(`${user.directory}/done.txt`)
    yield* until(() => Effect.map(done, (content) => content.includes("second")))
    // The agent writes what it said a little later than it acts.
    yield* until(() => Effect.map(conversation, (content) => content.includes(written("echo second"))))
    const before = (yield* server.calls("Do it.")).at(-1)!
    process.kill(yield* bridgePid(user, name), "SIGKILL")
    const { exitCode, stderr, stdout } = yield* running.ended
    assert.strictEqual(exitCode, 0, stderr)

    assert.strictEqual(yield* done, "first\nsecond\nthird\n")
    const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line)).filter((line) => !("status" in line))
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
    for (const pid of processesOf(user)) assert.notInclude(yield* fileOf(`/proc/${pid}/cmdline`), key)
  })
