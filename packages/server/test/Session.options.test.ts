import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import type { SessionOptions } from "@gangway/server/Driver"
import { Effect, FileSystem, Redacted } from "effect"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  connect,
  directories,
  endOf,
  host,
  launch,
  read,
  session,
  sessionFile,
  started,
  test,
  turn,
  until
} from "./fixtures/sessions.ts"

const env = (value: string) => ({ KEY: Redacted.make(value) })
const envOf = ({ env }: SessionOptions) => env["KEY"] === undefined ? undefined : Redacted.value(env["KEY"])
const tool = (name: string): Bridge.HostTool => ({ name, description: "", parameters: { type: "object" } })
const stdio = (name: string, command: string, args: ReadonlyArray<string> = []): Bridge.McpServer => ({
  type: "stdio",
  name,
  command,
  args
})

describe("StartSession", () => {
  test(
    "with the same options changes nothing, and says that the session is there",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hang: Puppet.hangs })
      const { client, directory, root, sessionDirectory, start } = yield* started(puppet)
      const before = yield* sessionFile(sessionDirectory)
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      // The same directory by other names.
      const fs = yield* FileSystem.FileSystem
      yield* fs.symlink(directory, `${root}/link`)
      for (const same of [`${directory}/../work/`, `${root}/link`, `${root}/link/.`]) {
        assert.deepStrictEqual(yield* client.StartSession({ ...start, directory: same }), { resumed: true })
      }
      yield* client.StartTurn(act(1, "hang"))
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
      assert.strictEqual(puppet.opened.length, 1)
      const { latest: _, ...after } = yield* sessionFile(sessionDirectory)
      assert.deepStrictEqual(after, before)
    })
  )

  test(
    "with another of the options that must not change says which, and changes nothing",
    Effect.gen(function*() {
      const puppet = Puppet.make({ hang: Puppet.hangs })
      const { client, root, start } = yield* started(puppet, {
        instructions: "Be brief.",
        tools: [tool("a"), tool("b")],
        mcpServers: [stdio("m", "one")]
      })
      yield* client.StartTurn(act(1, "hang"))
      const fs = yield* FileSystem.FileSystem
      yield* fs.makeDirectory(`${root}/other`)
      const conflicts = [
        [{ directory: `${root}/other` }, "directory"],
        [{ instructions: "Be long." }, "instructions"],
        [{ tools: [tool("a")] }, "tools"],
        [{ tools: [tool("a"), { ...tool("b"), description: "B" }] }, "tools"],
        [{ permissions: "all" }, "permissions"],
        [{ mcpServers: [stdio("m", "two")] }, "mcpServers"],
        [{ mcpServers: [stdio("n", "one")] }, "mcpServers"],
        [{ mcpServers: [] }, "mcpServers"]
      ] as const
      for (const [other, field] of conflicts) {
        const conflict = yield* Effect.flip(client.StartSession({ ...start, ...other }))
        assert.deepInclude(conflict, { _tag: "SessionConflict", field }, field)
      }
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
      // Neither a server's arguments nor what is left out count.
      assert.deepStrictEqual(
        yield* client.StartSession({
          ...start,
          mcpServers: [stdio("m", "one", ["--fast"])],
          model: "m",
          effort: "low"
        }),
        { resumed: true }
      )
    })
  )

  test(
    "replaces everything else, from the next turn on",
    Effect.gen(function*() {
      const told: Array<unknown> = []
      const notes: Puppet.Act = (turn) => Effect.suspend(() => (told.push([turn.model, turn.effort]), Effect.never))
      const ask: Puppet.Act = (turn) =>
        Effect.as(
          turn.requestApproval({ approvalId: "a", toolCallId: "b", name: "Bash", params: {}, edits: false }),
          { finishReason: "stop" }
        )
      const puppet = Puppet.make({ notes, ask, hang: Puppet.hangs })
      const { client, start } = yield* started(puppet, { model: "old" })
      yield* client.StartTurn(act(1, "notes"))
      yield* until("the first turn", () => told.length === 1)
      const next = { ...start, model: "new", effort: "high", limits: { time: 30 }, approvalTimeout: 10 }
      yield* client.StartSession(next)
      // Nothing of it is for the turn that runs.
      yield* Effect.sleep("60 millis")
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(1) })).status, "running")
      yield* client.StartTurn(act(2, "ask"))
      assert.deepInclude(yield* endOf(client, turn(2)), { type: "finished" })
      yield* client.StartTurn({ ...act(3, "notes"), model: "this turn's" })
      assert.deepInclude(yield* endOf(client, turn(3)), { type: "aborted", reason: "limit", limit: "time" })
      assert.deepStrictEqual(told, [["old", undefined], ["this turn's", "high"]])
    })
  )

  test(
    "has another environment for the agent's next start, and other settings for the next turn",
    Effect.gen(function*() {
      // It has a process of its own, which runs until it's ended.
      const puppet = Puppet.make({}, (options) => {
        let isStarted = false
        return {
          run: (turn) =>
            Effect.gen(function*() {
              if (!isStarted) {
                yield* Effect.orDie(
                  options.processes.spawn({ command: "sleep", args: ["1000"], cwd: "/", env: {} })
                )
              }
              isStarted = true
              const say = turn.prompt[0]
              if (say?.type === "text" && say.text === "hang") return yield* Effect.never
              return { finishReason: "stop" }
            }) as never
        }
      })
      const { client, start } = yield* started(puppet, { env: env("the-first-value") })
      const envs = () => puppet.opened.map(envOf)
      yield* client.StartTurn(act(1, "go"))
      yield* read(client, turn(1))
      yield* client.StartSession({ ...start, env: env("the-second-value") })
      yield* client.StartTurn(act(2, "go"))
      yield* read(client, turn(2))
      // The agent runs, and has what it had.
      assert.deepStrictEqual(envs(), ["the-first-value"])
      yield* client.StartTurn(act(3, "hang"))
      yield* client.AbortTurn({ session, turn: turn(3) })
      yield* client.StartTurn(act(4, "go"))
      yield* read(client, turn(4))
      assert.deepStrictEqual(envs(), ["the-first-value", "the-second-value"])

      yield* client.StartTurn(act(5, "hang"))
      yield* client.StartSession({ ...start, env: env("the-third-value"), settings: "project" })
      assert.strictEqual(puppet.opened.length, 2)
      assert.strictEqual((yield* client.StartTurn({ session, turn: turn(5) })).status, "running")
      yield* client.StartTurn(act(6, "go"))
      yield* read(client, turn(6))
      assert.deepStrictEqual(envs().slice(2), ["the-third-value"])
      assert.strictEqual(puppet.opened.at(-1)?.settings, "project")
      assert.strictEqual(puppet.opened.at(-1)?.conversation, "conversation-s1")
    })
  )

  test(
    "never stores a secret",
    Effect.gen(function*() {
      const secrets = ["a-secret-environment", "a-secret-header", "a-secret-of-a-server"]
      const { client, end, stateDirectory } = yield* started(Puppet.make({ hi: Puppet.says("hello") }), {
        env: env(secrets[0]!),
        mcpServers: [
          { type: "http", name: "h", url: "http://127.0.0.1:9/", headers: { auth: Redacted.make(secrets[1]!) } },
          { type: "stdio", name: "s", command: "s", env: { KEY: Redacted.make(secrets[2]!) } }
        ]
      })
      yield* client.StartTurn(act(1, "hi"))
      yield* read(client, turn(1))
      yield* end
      const fs = yield* FileSystem.FileSystem
      for (const name of yield* fs.readDirectory(stateDirectory, { recursive: true })) {
        const path = `${stateDirectory}/${name}`
        if ((yield* fs.stat(path)).type !== "File") continue
        const text = yield* fs.readFileString(path)
        for (const secret of secrets) assert.notInclude(text, secret, name)
      }
    })
  )

  test(
    "carries a conversation on that it's given, only if the session has none",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      const first = yield* launch(puppet.driver, stateDirectory)
      const start = { session, directory, permissions: "ask", settings: "none", state: { carried: true } } as const
      yield* first.client.StartSession(start)
      yield* first.client.StopSession({ session })
      yield* first.client.StartSession({ ...start, state: { carried: "again" } })
      assert.deepStrictEqual(puppet.opened.map(({ state }) => state), [{ carried: true }, undefined])
    })
  )

  test(
    "by many at once makes one session",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      const client = yield* connect(puppet.driver, stateDirectory)
      const start = { session, directory, permissions: "ask", settings: "none" } as const
      const answers = yield* Effect.all(Array.from({ length: 20 }, () => client.StartSession(start)), {
        concurrency: "unbounded"
      })
      assert.strictEqual(answers.filter(({ resumed }) => !resumed).length, 1)
      assert.strictEqual(puppet.opened.length, 1)
      yield* client.StartTurn(act(1, "hi"))
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
    })
  )

  test(
    "that fails leaves the session to those that come with it",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make({ hi: Puppet.says("hello") })
      let openings = 0
      const client = yield* connect({
        ...puppet.driver,
        open: (options) =>
          Effect.suspend(() =>
            openings++ % 2 === 0
              ? Effect.fail(new Bridge.DriverError({ driver: "puppet", kind: "start", problem: "not now" }))
              : puppet.driver.open(options)
          )
      }, stateDirectory)
      const start = { session, directory, permissions: "ask", settings: "none" } as const
      const wrong = { ...start, directory: `${directory}/none` }
      const outcomes = yield* Effect.forEach(
        [start, wrong, start, wrong, start, start],
        (start) => Effect.result(client.StartSession(start)),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        outcomes.map((outcome) => outcome._tag === "Success" ? outcome.success.resumed : outcome.failure._tag),
        ["DriverError", "DirectoryInvalid", false, "DirectoryInvalid", true, true]
      )
      yield* client.StartTurn(act(1, "hi"))
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
      assert.deepStrictEqual(yield* client.StartSession(start), { resumed: true })
    })
  )

  test(
    "leaves nothing of a session that couldn't be had",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const puppet = Puppet.make({}, {}, {
        open: () => Effect.fail(new Bridge.DriverError({ driver: "puppet", kind: "not-installed", problem: "none" }))
      })
      const client = yield* connect(puppet.driver, stateDirectory)
      const start = { session, directory, permissions: "ask", settings: "none" } as const
      const error = yield* Effect.flip(client.StartSession(start))
      assert.deepInclude(error, { _tag: "DriverError", kind: "not-installed" })
      const fs = yield* FileSystem.FileSystem
      assert.deepStrictEqual(yield* fs.readDirectory(`${stateDirectory}/sessions`), [])
      assert.deepStrictEqual((yield* client.Hello(host)).sessions, [])
    })
  )

  test(
    "of another agent's session is refused",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make({ hi: Puppet.says("hello") }))
      yield* first.end
      const { client } = yield* launch({ ...Puppet.make({}).driver, name: "another" }, first.stateDirectory)
      assert.deepInclude(yield* Effect.flip(client.StartSession(first.start)), { _tag: "ContextLost" })
      assert.deepInclude(yield* Effect.flip(client.ReadState({ session })), { _tag: "ContextLost" })
    })
  )
})

describe("a session's directory", () => {
  test(
    "is an absolute path of a directory that neither contains the bridge's own nor lies in it",
    Effect.gen(function*() {
      const { directory, root, stateDirectory } = yield* directories
      const client = yield* connect(Puppet.make({}).driver, stateDirectory)
      const fs = yield* FileSystem.FileSystem
      yield* fs.symlink(`${stateDirectory}/sessions`, `${directory}/inside`)
      yield* fs.symlink(root, `${directory}/outside`)
      yield* fs.symlink(`${directory}/loop`, `${directory}/loop`)
      yield* fs.writeFileString(`${directory}/file`, "")
      const start = { session, permissions: "ask", settings: "none" } as const
      for (
        const wrong of [
          "relative",
          "",
          `${directory}/none`,
          `${directory}/file`,
          `${directory}/loop`,
          `${directory}\0`,
          stateDirectory,
          `${stateDirectory}/sessions`,
          root,
          "/",
          `${directory}/inside`,
          `${directory}/outside`,
          `${directory}/../state`
        ]
      ) {
        const error = yield* Effect.flip(client.StartSession({ ...start, directory: wrong }))
        assert.strictEqual(error._tag, "DirectoryInvalid", wrong)
      }
      assert.deepStrictEqual((yield* client.Hello(host)).sessions, [])
      // One beside it whose name begins like it is none of these.
      yield* fs.makeDirectory(`${stateDirectory}-beside`)
      assert.deepStrictEqual(yield* client.StartSession({ ...start, directory: `${stateDirectory}-beside` }), {
        resumed: false
      })
    })
  )
})
