import { assert, describe } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { atTerminal, bridgePid, processesOf, prompt, run, start, test, until } from "./fixtures/Gangway.ts"

const waitsForGo = {
  type: "tool",
  name: "Wait",
  params: {},
  command: ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"]
} as const

describe("gangway logs and attach", { concurrent: true }, () => {
  test("logs prints what there is of a turn, or follows it to its end, as text, JSON or Markdown", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt(
        { type: "reasoning", text: "Hm.\nSo." },
        { type: "text", text: "# Title\n\nSome `code`." },
        { type: "file", path: "a.md", text: "```js\n1\n```\n" },
        waitsForGo,
        { type: "text", text: "Done." }
      )
      const running = yield* start(user, ["run", words, "--agent", "scripted", "--session", "s1", "--turn", "t-abc"])
      yield* until(() => running.stdout().includes("→ Wait"))
      const following = yield* start(user, ["logs", "t-a"])
      const now = yield* run(user, ["logs", "--no-follow"])
      assert.strictEqual(now.exitCode, 0, now.stderr)
      assert.include(now.stdout, "→ Wait")
      assert.notInclude(now.stdout, "finished")
      const lines = (yield* run(user, ["logs", "--no-follow", "--json"])).stdout.trimEnd().split("\n")
      const last = (JSON.parse(lines.at(-1)!) as { readonly n: number }).n
      assert.strictEqual(last, lines.length)
      const rest = yield* run(user, ["logs", "--no-follow", "--json", "--from", `${last}`])
      assert.strictEqual(rest.stdout, `${lines.at(-1)}\n`)
      const nothing = yield* run(user, ["logs", "--no-follow", "--json", "--from", `${last + 1}`])
      assert.deepStrictEqual([nothing.exitCode, nothing.stdout], [0, ""])

      yield* fs.writeFileString(`${user.directory}/go`, "")
      const ended = yield* running.ended
      const followed = yield* following.ended
      assert.deepStrictEqual([followed.exitCode, followed.stdout], [0, ended.stdout])
      const markdown = yield* run(user, ["logs", "s1", "--format", "markdown"])
      assert.strictEqual(
        markdown.stdout,
        [
          "> Hm.\n> So.",
          "# Title\n\nSome `code`.",
          "**write** `a.md`",
          "*create* `a.md`\n\n````diff\n--- a/a.md\n+++ b/a.md\n@@ -0,0 +1,3 @@\n+```js\n+1\n+```\n````",
          "```\ndone\n```",
          "**Wait**",
          "Done.",
          "---",
          "finished · usage unknown\n"
        ].join("\n\n")
      )
      const beyond = yield* run(user, ["logs", "--from", "100"])
      assert.strictEqual(beyond.exitCode, 2)
      assert.match(beyond.stderr, /^gangway: turn t-abc has no part 100: its next one is \d+\n$/)
    }))

  test("logs leaves out of a document what a later attempt doesn't count", (user) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const words = prompt({ type: "text", text: "Once." }, waitsForGo, { type: "text", text: "Done." })
      const running = yield* start(user, ["run", words, "--agent", "scripted", "--session", "s1"])
      yield* until(() => running.stdout().includes("→ Wait"))
      process.kill(yield* bridgePid(user, "scripted"), "SIGKILL")
      // Otherwise the agent might be quick enough to finish what it was at.
      yield* until(() => running.stdout().includes("attempt 2"))
      yield* fs.writeFileString(`${user.directory}/go`, "")
      assert.strictEqual((yield* running.ended).exitCode, 0)
      const text = yield* run(user, ["logs"])
      assert.match(text.stdout, /Once\.[^]*attempt 2[^]*Once\./)
      const markdown = yield* run(user, ["logs", "--format", "markdown"])
      assert.strictEqual(markdown.stdout.match(/Once\./g)?.length, 1)
      assert.include(markdown.stdout, "*the turn goes on, attempt 2*")
    }))

  test("attach goes on with a session's next turn, until nothing of it runs", (user) =>
    Effect.gen(function*() {
      const say = (text: string, turn: string) =>
        run(user, ["run", prompt({ type: "text", text }), "--agent", "scripted", "--session", "s1", "--turn", turn])
      yield* say("First.", "t1")
      const terminal = yield* atTerminal(user, ["attach", "s1"])
      const piped = yield* start(user, ["attach", "s1", "--json"])
      yield* terminal.sees("First.")
      yield* terminal.sees("waiting for the session's next turn")
      yield* until(() => piped.stderr().includes("waiting for the session's next turn"))
      yield* say("Second.", "t2")
      yield* terminal.sees("turn t2")
      yield* terminal.sees("Second.")
      yield* terminal.sees("waiting for the session's next turn")
      yield* until(() => piped.stdout().includes("Second.") && piped.stdout().trimEnd().endsWith(`"next":5}`))
      assert.include(piped.stdout(), `\n{"session":"s1","turn":"t2","attempt":1}\n{"n":1,`)
      // It launches none.
      process.kill(yield* bridgePid(user, "scripted"), "SIGKILL")
      yield* terminal.sees("nothing runs of session s1 any more")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.strictEqual((yield* piped.ended).exitCode, 0)
      yield* until(() => processesOf(user).length === 0)
    }))
})
