import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { prompt, run, start, test, until } from "./fixtures/Gangway.ts"

describe("gangway send", { concurrent: true }, () => {
  test("sends messages into a running turn, which shows them and what the agent does about them", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const command = ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"] as const
      const works = prompt({ type: "text", text: "Working." }, { type: "tool", name: "Bash", command: [...command] })
      const running = yield* start(user, ["run", works, "--agent", "scripted", "--session", "s1"])
      yield* until(() => running.stdout().includes("Bash"))
      const steered = yield* run(user, ["send", "Faster.", "--session", "s1", "--message", "m1"])
      assert.strictEqual(steered.exitCode, 0, steered.stderr)
      assert.match(steered.stderr, /^gangway: turn t-\w+ has the message; its agent gets it with its next step\n$/)
      assert.strictEqual(steered.stdout, "")
      const queued = yield* run(user, ["send", "And then.", "--session", "s1", "--delivery", "queue"])
      assert.include(queued.stderr, "after what it does")
      const conflict = yield* run(user, ["send", "Slower.", "--session", "s1", "--message", "m1"])
      assert.strictEqual(conflict.exitCode, 2)
      assert.include(conflict.stderr, "another message 'm1'")
      yield* fs.writeFileString(`${user.directory}/go`, "")
      const { exitCode, stdout } = yield* running.ended
      assert.strictEqual(exitCode, 0)
      assert.include(stdout, "« message m1\n  Faster.\n")
      assert.match(stdout, /« message [\w-]+, for later\n {2}And then\.\n/)
      assert.include(stdout, "« the agent has message m1\n\nFaster.\n")
      const late = yield* run(user, ["send", "Late.", "--session", "s1"])
      assert.strictEqual(late.exitCode, 2)
      assert.include(late.stderr, "is over (finished)")
    }))
})
