/**
 * The driver of Codex, with the real app-server and a scripted model.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import * as Codex from "@gangway/drivers/Codex"
import type { Turn } from "@gangway/server/Driver"
import { Effect, FileSystem, Redacted, Schema } from "effect"
import { execFileSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import * as Messages from "../../packages/drivers/src/internal/codexMessages.ts"
import { makeLog, partsOf, textOf } from "../../packages/drivers/test/fixtures/turns.ts"
import { driverConformance } from "../conformance/driver.ts"
import {
  allow,
  fileOf,
  kinds,
  only,
  play,
  type Profile,
  suite,
  test,
  until,
  type World
} from "../conformance/driverWorld.ts"
import { codex as expected } from "../conformance/expectations.ts"
import { installAgent } from "../installAgent.ts"
import { script } from "../model/Script.ts"
import { type Document, missing } from "./codexProtocol.ts"
import { mcpServer } from "./mcpServer.ts"

const codex: Profile = {
  ...expected,
  agent: await installAgent("codex"),
  make: ({ env = {}, home, program, url }) =>
    Codex.Codex.make({
      command: program,
      apiKey: Redacted.make("sk-SECRET-key"),
      baseUrl: `${url}/v1`,
      model: "scripted-model",
      home,
      // It would try for long.
      config: {
        "model_providers.gangway.request_max_retries": 0,
        "model_providers.gangway.stream_max_retries": 1
      },
      // It runs commands by login shells: a user's own start-up files have no place here.
      env: { HOME: home, ...env }
    }),
  shell: "shell",
  hostTool: (name) => name,
  fileOf: (params) => (params as { changes: [{ path: string }] }).changes[0].path,
  effortOf: (body) => (body as { reasoning?: { effort?: string } }).reasoning?.effort,
  holdsCall: (state, command) => state.includes(`{\\"cmd\\":\\"${command}`),
  structured: {
    answer: (value) => ({ text: JSON.stringify(value) }),
    asks: (body) => (body as { text?: { format?: unknown } }).text?.format !== undefined
  },
  ownFiles: /^skills\/\.system\//
}

driverConformance(codex)

/** The file of the only conversation of a world. */
const rollout = Effect.fnUntraced(function*({ home }: World) {
  const fs = yield* FileSystem.FileSystem
  const [file] = (yield* fs.readDirectory(`${home}/sessions`, { recursive: true })).filter((name) =>
    name.endsWith(".jsonl")
  )
  return `${home}/sessions/${file}`
})

const patch = (...lines: ReadonlyArray<string>) => ({
  bash: ["apply_patch <<'PATCH'", "*** Begin Patch", ...lines, "*** End Patch", "PATCH"].join("\n")
})

suite(codex, "Codex", () => {
  test(codex, "asks the host the questions of the model", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const step = {
        tool: ["request_user_input", {
          questions: [{
            id: "colour",
            header: "Colour",
            question: "Which colour?",
            options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }]
          }]
        }] as const
      }
      const asked: Array<Parameters<Turn["ask"]>[0]> = []
      const { parts } = yield* play(host, [step, step, { text: "I see." }], {
        question: (question) => {
          asked.push(question)
          return Effect.succeed(
            asked.length === 1
              ? { answer: { "Which colour?": "Blue" }, isFailure: false }
              : { answer: "NOBODY-IS-THERE", isFailure: true }
          )
        }
      })
      assert.deepStrictEqual(asked[0]!.questions, [{
        question: "Which colour?",
        header: "Colour",
        options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }]
      }])
      assert.strictEqual(new Set(asked.map(({ questionId }) => questionId)).size, 2)
      const body = JSON.stringify((yield* world.server.calls("Do it.")).at(-1)!.body)
      assert.match(body, /answers[^\]]*Blue/)
      assert.include(body, "NOBODY-IS-THERE")
      assert.strictEqual(textOf(parts), "I see.")
    }))

  test(codex, "asks before every command, also one that only looks", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const rules: Array<Parameters<Turn["requestApproval"]>[0]["rule"]> = []
      yield* play(host, [
        { bash: "ls" },
        { bash: "echo start; echo 'it'\"'\"'s'" },
        { bash: "echo start" },
        { bash: "ls" },
        { write: [`${world.directory}/d.txt`, "x"] },
        { edit: [`${world.directory}/d.txt`, "x", "y"] },
        { write: [`${world.root}/e.txt`, "x"] },
        { text: "Done." }
      ], {
        approval: ({ rule }) => {
          rules.push(rule)
          return Effect.succeed({ decision: "allow" })
        }
      })
      assert.deepStrictEqual(rules.map((rule) => rule?.title), [
        "ls",
        "echo start; echo 'it'\"'\"'s'",
        "echo start",
        "ls",
        "edits in the working directory",
        "edits in the working directory",
        undefined
      ])
      const keys = rules.map((rule) => rule?.key)
      assert.strictEqual(keys[0], keys[3])
      assert.strictEqual(keys[4], keys[5])
      assert.strictEqual(new Set(keys.slice(0, 5)).size, 4)
    }))

  test(codex, "asks for nothing where all is allowed", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open({ permissions: "all" })
      const { parts } = yield* play(host, [
        { bash: "echo done > done.txt" },
        { write: [`${world.root}/outside.txt`, "x"] },
        { text: "Done." }
      ], { approval: () => Effect.succeed({ decision: "deny" }) })
      assert.notInclude(kinds(parts), "tool-approval-request")
      assert.strictEqual(yield* fileOf(`${world.directory}/done.txt`), "done\n")
      assert.strictEqual(yield* fileOf(`${world.root}/outside.txt`), "x\n")
    }))

  test(codex, "tells files that are moved and deleted", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const [a, b, c] = ["a.txt", "b.txt", "c.txt"].map((name) => `${world.directory}/${name}`) as [
        string,
        string,
        string
      ]
      yield* fs.writeFileString(a, "one\ntwo\n")
      yield* fs.writeFileString(c, "gone\n")
      const host = yield* world.open()
      const { parts } = yield* play(host, [
        patch(`*** Update File: ${a}`, `*** Move to: ${b}`, "@@", "-one", "+eins", `*** Delete File: ${c}`),
        { text: "Done." }
      ])
      const changes = only(parts, "file-change").toSorted((x, y) => x.path < y.path ? -1 : 1)
      assert.deepInclude(changes[0], { path: b, from: a, kind: "move" })
      assert.strictEqual(changes[0]!.diff, `--- ${a}\n+++ ${b}\n@@ -1,2 +1,2 @@\n-one\n+eins\n two\n`)
      assert.deepInclude(changes[1], { path: c, kind: "delete" })
      assert.strictEqual(changes[1]!.diff, `--- ${c}\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-gone\n`)
    }))

  test(codex, "obeys the project's AGENTS.md where the session's settings say so", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(`${world.directory}/AGENTS.md`, "PROJECT-MEMORY")
      yield* fs.writeFileString(`${world.home}/AGENTS.md`, "HOME-MEMORY")
      const seen: Array<unknown> = []
      for (const settings of ["none", "project", "user"] as const) {
        const host = yield* world.open({ settings })
        yield* play(host, [{ text: "Hi." }], { words: settings })
        yield* host.close
        const body = JSON.stringify((yield* world.server.calls(`${settings} @@`))[0]!.body)
        seen.push([settings, body.includes("PROJECT-MEMORY"), body.includes("HOME-MEMORY")])
      }
      // What is in Codex's home always counts.
      assert.deepStrictEqual(seen, [["none", false, true], ["project", true, true], ["user", true, true]])
    }))

  test(
    codex,
    "connects to the session's MCP servers, whose secrets are in no argument",
    (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const program = `${world.root}/server.ts`
        yield* fs.writeFileString(program, mcpServer)
        yield* fs.writeFileString(`${world.home}/config.toml`, "[mcp_servers.of-the-home]\ncommand = '/nowhere/else'\n")
        const host = yield* world.open({
          mcpServers: [
            {
              type: "stdio",
              name: "pingpong",
              command: process.execPath,
              args: [program],
              env: { PING_TOKEN: Redacted.make("PING-SECRET") }
            },
            { type: "stdio", name: "nowhere", command: "/nowhere/at/all" }
          ]
        })
        const step = { tool: ["mcp__pingpong__ping", {}] } as const
        const asked: Array<string> = []
        const { parts } = yield* play(host, [step, step, { text: "Pong." }], {
          approval: ({ toolCallId }) =>
            Effect.sync(() => {
              asked.push(toolCallId)
              return asked.length === 1 ? { decision: "allow" } : { decision: "deny", reason: "NOT-AGAIN" }
            })
        })
        const [ponged, denied] = only(parts, "tool-result")
        assert.deepInclude(ponged, { name: "mcp__pingpong__ping", result: "PING-SECRET pong", isFailure: false })
        assert.isTrue(denied!.isFailure)
        assert.deepStrictEqual(asked, only(parts, "tool-call").map(({ id }) => id))
        assert.include(JSON.stringify((yield* world.server.calls("Do it.")).at(-1)!.body), "NOT-AGAIN")
        for (const name of ["nowhere", "of-the-home"]) {
          assert.isTrue(only(parts, "notice").some(({ message }) => message.includes(`'${name}' is not there`)), name)
        }
        for (const { pid } of host.processes) {
          assert.notInclude(yield* fileOf(`/proc/${pid}/cmdline`), "SECRET")
        }
      })
  )

  test(codex, "keeps commands in the background, and says so", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const stop = `${world.root}/stop`
      const command =
        `echo begun; while ! test -e ${stop}; do perl -e 'select undef, undef, undef, 0.05'; done; echo end`
      const { parts } = yield* play(host, [
        { tool: ["exec_command", { cmd: command, yield_time_ms: 300 }] },
        { text: "Started." }
      ])
      const [result, ...more] = only(parts, "tool-result")
      assert.deepStrictEqual(more, [])
      assert.deepInclude(result, { isFailure: false, metadata: { background: true } })
      assert.match(String(result!.result), /begun|goes on in the background/)
      assert.isAbove((yield* host.supervisor.background).length, 0)
      yield* Effect.flatMap(FileSystem.FileSystem, (fs) => fs.writeFileString(stop, ""))
      const next = yield* play(host, [{ text: "Next." }], { turn: "t2", words: "NEXT" })
      assert.strictEqual(textOf(next.parts), "Next.")
      // What ends of an earlier turn is none of the next one's.
      assert.notInclude(kinds(next.parts), "tool-result")
      assert.strictEqual(host.processes.length, 1)
    }))

  test(
    codex,
    "tells what sub-agents do under the call that started them, and forgets them too",
    (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const host = yield* world.open()
        const askedBy: Array<string | undefined> = []
        const { parts } = yield* play(host, [
          {
            tool: ["multi_agent_v1__spawn_agent", {
              message: `INNER-SECRET ${
                script({ text: "I help.", bash: "echo helped > helped.txt" }, { text: "Helped." })
              }`
            }]
          },
          { bash: "until test -e helped.txt; do perl -e 'select undef, undef, undef, 0.05'; done" },
          { bash: "perl -e 'sleep 1'" },
          { text: "Thanks." }
        ], {
          approval: ({ parent }) => {
            askedBy.push(parent)
            return Effect.succeed({ decision: "allow" })
          }
        })
        const [agent] = only(parts, "tool-call")
        assert.strictEqual(agent!.name, "spawnAgent")
        const theirs = parts.filter(({ parent }) => parent === agent!.id)
        assert.strictEqual(textOf(theirs), "I help.Helped.")
        assert.strictEqual(textOf(parts.filter(({ parent }) => parent === undefined)), "Thanks.")
        assert.include(askedBy, agent!.id)
        assert.strictEqual(only(theirs, "step-finished").length, 2)
        yield* host.close
        yield* world.driver.forget!({ conversation: host.conversation(), directory: world.directory })
        for (const file of yield* fs.readDirectory(world.home, { recursive: true })) {
          assert.notInclude(yield* fileOf(`${world.home}/${file}`), "INNER-SECRET", file)
        }
      })
  )

  test(codex, "carries a turn on whose file ends in the middle of a line", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const host = yield* world.open()
      const log = makeLog("t1")
      const steps = script(
        { text: "First.", bash: "echo first" },
        {
          text: "Second.",
          bash: "touch second; perl -e 'sleep 1000'"
        },
        { text: "Third.", bash: "echo third" },
        { text: "Done." }
      )
      yield* Effect.forkScoped(Effect.exit(host.run(log, `Do it. ${steps}`, allow)))
      yield* until(() => existsSync(`${world.directory}/second`))
      yield* until(() => partsOf(log).filter(({ type }) => type === "tool-call").length === 2)
      for (let torn = 0; torn < 2; torn++) {
        process.kill(host.processes.at(-1)!.pid, "SIGKILL")
        yield* host.supervisor.endAll
        yield* fs.writeFileString(yield* rollout(world), "{\"type\":\"event_msg\",\"payl", { flag: "a" })
        if (torn === 0) {
          yield* Effect.forkScoped(Effect.exit(host.resume(log, `Do it. ${steps}`, {
            ...allow,
            // The next one is cut in its approval.
            approval: () => Effect.never
          })))
          yield* until(() => log.parts.filter(({ part }) => part.type === "tool-approval-request").length === 3)
        }
      }
      assert.deepInclude(yield* host.resume(log, `Do it. ${steps}`, allow), { finishReason: "stop" })
      const parts = partsOf(log)
      assert.strictEqual(textOf(parts), "First.Second.Third.Done.")
      assert.strictEqual(only(parts, "step-finished").length, 4)
      const body = JSON.stringify((yield* world.server.calls("Do it.")).at(-1)!.body)
      assert.strictEqual(body.split("Do it.").length, 2, "the prompt is there once")
    }))

  test(codex, "doesn't take another conversation's file for its own", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const host = yield* world.open()
      const { log } = yield* play(host, [{ text: "Mine." }])
      const file = yield* rollout(world)
      const [, id] = /-([0-9a-f]{8}-[0-9a-f-]{27})\.jsonl$/.exec(file)!
      const mine = yield* fs.readFileString(file)
      // It's gone, and then another is there, while Codex runs.
      yield* fs.remove(file)
      assert.deepInclude(yield* Effect.flip(host.agent.readState!), { _tag: "ContextLost" })
      yield* fs.writeFileString(file, mine.replaceAll(id!, id!.replace(/.{4}$/, "0000")))
      assert.deepInclude(yield* Effect.flip(host.resume(log, "Mine.")), { _tag: "ContextLost" })
      const conversation = host.conversation()
      assert.deepInclude(yield* Effect.flip(world.open({ conversation, established: true })), { _tag: "ContextLost" })
      yield* fs.writeFileString(file, mine)
      const again = yield* world.open({ conversation, established: true })
      const next = yield* play(again, [{ text: "Still mine." }], { turn: "t2" })
      assert.strictEqual(textOf(next.parts), "Still mine.")
    }))

  test(codex, "compacts in a turn where it must, and goes on", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      yield* play(host, [{ text: "A long story. ".repeat(200), usage: { input: 300_000 } }])
      const { parts } = yield* play(host, [{ text: "Shorter now." }], { turn: "t2" })
      const [compaction] = only(parts, "compaction")
      assert.deepInclude(compaction, { trigger: "auto", summary: "what was said so far" })
      assert.strictEqual(textOf(parts), "Shorter now.")
    }))
})

describe(
  "the protocol of Codex",
  codex.agent.skipped === undefined ? {} : { skip: true, meta: { skipped: codex.agent.skipped } },
  () => {
    const printed = Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      execFileSync(
        codex.agent.program!,
        ["app-server", "generate-json-schema", "--experimental", "--out", directory],
        { env: { ...process.env, CODEX_HOME: directory }, stdio: "ignore" }
      )
      return (name: string): Document => JSON.parse(readFileSync(`${directory}/${name}.json`, "utf8"))
    })

    it.live("has each message and each field that the driver uses", () =>
      Effect.gen(function*() {
        const document = yield* printed
        for (const notification of Messages.notifications) {
          assert.deepStrictEqual(missing(notification, document("ServerNotification")), [])
        }
        for (const request of Messages.serverRequests) {
          assert.deepStrictEqual(missing(request, document("ServerRequest")), [])
        }
        for (const [method, params] of Object.entries(Messages.requests)) {
          const request = Schema.Struct({ method: Schema.Literal(method), params })
          assert.deepStrictEqual(missing(request, document("ClientRequest")), [])
        }
        for (const answer of ["ThreadStartResponse", "ThreadResumeResponse"]) {
          assert.deepStrictEqual(missing(Messages.ThreadAnswer, document(`v2/${answer}`)), [])
        }
        assert.deepStrictEqual(missing(Messages.TurnAnswer, document("v2/TurnStartResponse")), [])
      }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

    it.live("would be seen to lack what it lacks", () =>
      Effect.gen(function*() {
        const document = (yield* printed)("ServerNotification")
        const of = (method: string, item: Schema.Top) =>
          missing(
            Schema.Struct({ method: Schema.Literal(method), params: Schema.Struct({ item }) }),
            document
          )
        const command = { type: Schema.Literal("commandExecution"), id: Schema.String }
        assert.deepStrictEqual(of("item/started", Schema.Struct(command)), [])
        assert.notDeepEqual(of("item/never", Schema.Struct(command)), [])
        assert.deepStrictEqual(
          of("item/started", Schema.Struct({ ...command, outcome: Schema.String })),
          [".params.item has no 'outcome'"]
        )
        assert.deepStrictEqual(
          of("item/started", Schema.Struct({ ...command, status: Schema.Literal("undecided") })),
          [".params.item.status is never undecided"]
        )
      }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
  }
)

describe("Codex that isn't there", () => {
  const make = (command: string) => Effect.flip(Codex.Codex.make({ command })).pipe(Effect.provide(BunServices.layer))

  it.live("is a typed error that says how to install it", () =>
    Effect.gen(function*() {
      const error = yield* make("codex-that-is-nowhere")
      assert.deepInclude(error, { _tag: "DriverError", driver: "codex", kind: "not-installed" })
      assert.include(error.problem, `npm install --global @openai/codex@${Codex.supportedVersions.tested}`)
    }))

  it.live("is a typed error where its version doesn't fit", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      for (const version of ["0.166.0", "0.172.0", "1.171.0", "0.171.0-alpha.1", "nonsense"]) {
        yield* fs.writeFileString(`${directory}/codex`, `#!/bin/sh\necho 'codex-cli ${version}'\n`)
        yield* fs.chmod(`${directory}/codex`, 0o755)
        const error = yield* make(`${directory}/codex`)
        assert.deepInclude(error, { kind: "wrong-version" })
        assert.include(error.problem, version)
      }
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("takes options whose secrets are redacted from the first", () =>
    Effect.gen(function*() {
      const options = yield* Schema.decodeEffect(Codex.Options)({ apiKey: "sk-1", secretEnv: { MY_KEY: "my-1" } })
      assert.notInclude(JSON.stringify(options), "-1")
      assert.strictEqual(Redacted.value(options.apiKey!), "sk-1")
    }))
})
