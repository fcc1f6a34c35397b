/**
 * The driver of Claude Code, with the real CLI and a scripted model.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import * as ClaudeCode from "@gangway/drivers/ClaudeCode"
import type { Turn } from "@gangway/server/Driver"
import { Effect, Fiber, FileSystem, Redacted, Schema } from "effect"
import { makeLog, partsOf, textOf } from "../../packages/drivers/test/fixtures/turns.ts"
import { driverConformance } from "../conformance/driver.ts"
import {
  allow,
  fileOf,
  killIn,
  kinds,
  messagesOf,
  only,
  play,
  type Profile,
  suite,
  test
} from "../conformance/driverWorld.ts"
import { claudeCode } from "../conformance/expectations.ts"
import { installAgent } from "../installAgent.ts"
import { script } from "../model/Script.ts"
import { mcpServer } from "./mcpServer.ts"

const claude: Profile = {
  ...claudeCode,
  agent: await installAgent("claude-code"),
  make: ({ env = {}, home, program, url }) =>
    ClaudeCode.ClaudeCode.make({
      command: program,
      apiKey: Redacted.make("sk-SECRET-key"),
      baseUrl: url,
      model: "scripted-model",
      configDirectory: home,
      // It would try ten times, and talk to its maker.
      env: {
        CLAUDE_CODE_MAX_RETRIES: "1",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        CLAUDE_CODE_TMPDIR: `${home}/temporary`,
        // It runs commands by login shells: a user's own start-up files, and what they lock, have no place here.
        HOME: `${home}/temporary`,
        ...env
      }
    }),
  shell: "Bash",
  hostTool: (name) => `mcp__host__${name}`,
  fileOf: (params) => (params as { file_path: string }).file_path,
  effortOf: (body) => (body as { output_config?: { effort?: string } }).output_config?.effort,
  holdsCall: (state, command) => state.includes(`"command":"${command}`),
  structured: {
    answer: (value) => ({ tool: ["StructuredOutput", value as Schema.JsonObject] }),
    asks: (body) => JSON.stringify((body as { tools: unknown }).tools).includes("StructuredOutput")
  },
  ownFiles: /^$/
}

driverConformance(claude)

const background = (command: string) => ({
  tool: ["Bash", { command, description: "In the background", run_in_background: true }] as const
})

const subAgent = (prompt: string, options: Schema.JsonObject = {}) => ({
  tool: ["Agent", { description: "A helper", prompt, subagent_type: "general-purpose", ...options }] as const
})

suite(claude, "Claude Code", () => {
  test(claude, "asks the host the questions of the model", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const questions = [
        {
          question: "Which colour?",
          header: "Colour",
          options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }],
          multiSelect: false
        },
        {
          question: "Which fruits?",
          header: "Fruits",
          options: [{ label: "Apple", description: "a" }, { label: "Pear", description: "p" }],
          multiSelect: true
        }
      ]
      const step = { tool: ["AskUserQuestion", { questions }] as const }
      const asked: Array<Parameters<Turn["ask"]>[0]> = []
      const { parts } = yield* play(host, [step, step, { text: "I see." }], {
        question: (question) => {
          asked.push(question)
          return Effect.succeed(
            asked.length === 1
              ? { answer: { "Which colour?": "Blue", "Which fruits?": ["Apple", "Pear"] }, isFailure: false }
              : { answer: "NOBODY-IS-THERE", isFailure: true }
          )
        }
      })
      assert.deepStrictEqual(asked[0]!.questions.map(({ multiple, question }) => [question, multiple]), [
        ["Which colour?", false],
        ["Which fruits?", true]
      ])
      assert.deepStrictEqual(asked.map(({ toolCallId }) => toolCallId), only(parts, "tool-call").map(({ id }) => id))
      const [answered, declined] = only(parts, "tool-result")
      assert.include(JSON.stringify(answered!.result), "Blue")
      assert.include(JSON.stringify(answered!.result), "Apple, Pear")
      assert.isTrue(declined!.isFailure)
      assert.include(JSON.stringify(declined!.result), "NOBODY-IS-THERE")
    }))

  const plans = [
    {
      tools: "its to-do list",
      env: { CLAUDE_CODE_ENABLE_TODO_TOOLS: "1", CLAUDE_CODE_ENABLE_TASKS: "0" },
      steps: [{
        tool: ["TodoWrite", {
          todos: [
            { content: "Look", status: "completed", activeForm: "Looking" },
            { content: "Leap", status: "in_progress", activeForm: "Leaping" }
          ]
        }] as const
      }]
    },
    {
      tools: "its tasks",
      env: { CLAUDE_CODE_ENABLE_TODO_TOOLS: "1" },
      steps: [
        { tool: ["TaskCreate", { subject: "Look", description: "Look well" }] as const },
        { tool: ["TaskCreate", { subject: "Leap", description: "Leap far" }] as const },
        { tool: ["TaskUpdate", { taskId: "1", status: "completed" }] as const },
        { tool: ["TaskUpdate", { taskId: "2", status: "in_progress" }] as const }
      ]
    }
  ]
  for (const { env, steps, tools } of plans) {
    test(
      { ...claude, make: (options) => claude.make({ ...options, env }) },
      `tells the plan by ${tools}`,
      (world) =>
        Effect.gen(function*() {
          const host = yield* world.open()
          const { parts } = yield* play(host, [...steps, { text: "Planned." }])
          const told = only(parts, "plan")
          assert.strictEqual(told.length, steps.length)
          assert.deepStrictEqual(told.at(-1)!.entries, [
            { content: "Look", status: "completed" },
            { content: "Leap", status: "in-progress" }
          ])
        })
    )
  }

  test(claude, "obeys the files that the session's settings name, and no others", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      yield* fs.writeFileString(`${world.directory}/CLAUDE.md`, "PROJECT-MEMORY")
      yield* fs.writeFileString(`${world.home}/CLAUDE.md`, "USER-MEMORY")
      // Settings can't take the host's approvals away.
      yield* fs.makeDirectory(`${world.directory}/.claude`)
      yield* fs.writeFileString(
        `${world.directory}/.claude/settings.json`,
        JSON.stringify({ permissions: { defaultMode: "acceptEdits" } })
      )
      const seen: Array<unknown> = []
      for (const settings of ["none", "project", "user"] as const) {
        const host = yield* world.open({ settings })
        const { parts } = yield* play(host, [{ write: [`${world.directory}/${settings}.txt`, "x"] }, { text: "Hi." }], {
          words: settings
        })
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

  test(
    claude,
    "connects to the session's MCP servers, whose secrets are in no argument",
    (world) =>
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const program = `${world.root}/server.ts`
        yield* fs.writeFileString(program, mcpServer)
        const host = yield* world.open({
          mcpServers: [
            {
              type: "stdio",
              name: "pingpong",
              command: process.execPath,
              args: [program],
              env: { PING_TOKEN: Redacted.make("PING-SECRET") }
            },
            {
              type: "http",
              name: "nowhere",
              url: "http://127.0.0.1:1/mcp",
              headers: { authorization: Redacted.make("HTTP-SECRET") }
            }
          ]
        })
        const { parts } = yield* play(host, [{ tool: ["mcp__pingpong__ping", {}] }, { text: "Pong." }])
        assert.deepInclude(only(parts, "tool-result")[0], { result: "PING-SECRET pong", isFailure: false })
        assert.deepInclude(only(parts, "tool-approval-request")[0], { name: "mcp__pingpong__ping" })
        const notices = only(parts, "notice").map(({ level, message }) => `${level} ${message}`)
        assert.strictEqual(notices.length, 1)
        assert.include(notices[0], "warning The MCP server 'nowhere'")
        assert.notInclude(yield* fileOf(`/proc/${host.processes[0]!.pid}/cmdline`), "SECRET")
        const taken = yield* Effect.flip(
          world.open({ mcpServers: [{ type: "stdio", name: "host", command: "true" }] })
        )
        assert.deepInclude(taken, { _tag: "DriverError", kind: "options" })
      })
  )

  test(claude, "says which sub-agent speaks, and what it used", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const askedBy: Array<unknown> = []
      const { finished, parts } = yield* play(host, [
        subAgent(
          script(
            { text: "I help.", bash: "echo helped > helped.txt", usage: { input: 1_000, output: 500 } },
            { text: "Helped.", usage: { input: 2_000, output: 700 } }
          ),
          { run_in_background: false }
        ),
        { text: "Thanks." }
      ], {
        approval: ({ parent }) => {
          askedBy.push(parent)
          return Effect.succeed({ decision: "allow" })
        }
      })
      assert.strictEqual(finished.finishReason, "stop")
      const [agent] = only(parts, "tool-call")
      const theirs = parts.filter(({ parent }) => parent === agent!.id)
      assert.strictEqual(textOf(theirs), "I help.Helped.")
      assert.strictEqual(textOf(parts.filter(({ parent }) => parent === undefined)), "Thanks.")
      assert.deepStrictEqual(kinds(theirs).filter((type) => type.startsWith("tool")), ["tool-call", "tool-result"])
      assert.deepStrictEqual(askedBy, [agent!.id])
      assert.strictEqual(only(theirs, "step-finished").length, 2)
      assert.strictEqual((yield* fileOf(`${world.directory}/helped.txt`)).trim(), "helped")
      // Every token of the turn is told once: two steps of each, 100 and 10 the main agent's.
      const usages = only(parts, "step-finished").map(({ usage }) => usage)
      const sum = (numbers: ReadonlyArray<number | undefined>) => numbers.reduce<number>((a, b) => a + (b ?? 0), 0)
      assert.strictEqual(sum(usages.map(({ inputTokens }) => inputTokens?.total)), 3_200)
      assert.strictEqual(sum(usages.map(({ outputTokens }) => outputTokens?.total)), 1_220)
      assert.isTrue(usages.every(({ measured }) => measured))
      assert.strictEqual(usages.filter(({ cost }) => cost !== undefined).length, 1)
    }))

  test(
    claude,
    "ends the turn when its sub-agents in the background are done, and their report is answered",
    (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { parts } = yield* play(host, [
          subAgent(script({ bash: "perl -e 'sleep 1'; echo late > late.txt" }, { text: "LATE-REPORT" })),
          { text: "Started." },
          { text: "Reported." }
        ])
        assert.strictEqual((yield* fileOf(`${world.directory}/late.txt`)).trim(), "late")
        assert.strictEqual(textOf(parts.filter(({ parent }) => parent === undefined)), "Started.Reported.")
        assert.strictEqual(parts.at(-1)!.type, "step-finished")
      })
  )

  test(claude, "keeps commands in the background, and does nothing between turns", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const stop = `${world.root}/stop`
      yield* play(host, [
        background(`while ! test -e ${stop}; do perl -e 'select undef, undef, undef, 0.05'; done; echo WAS-STOPPED`),
        { text: "Started." },
        { bash: "echo never > never.txt" }
      ], { words: "START" })
      assert.isAbove((yield* host.supervisor.background).length, 0)
      yield* Effect.flatMap(FileSystem.FileSystem, (fs) => fs.writeFileString(stop, ""))
      yield* Effect.repeat(host.supervisor.background, { until: (running) => running.length === 0 })
      // The agent has been told by then, and would have asked its model within milliseconds.
      yield* Effect.sleep("1 second")
      assert.strictEqual((yield* world.server.calls("START")).length, 2)
      assert.strictEqual(host.processes.length, 1)
      const { parts } = yield* play(host, [{ text: "Next." }], { turn: "t2", words: "NEXT" })
      assert.strictEqual(textOf(parts), "Next.")
      // With the next prompt the model hears of it.
      const body = JSON.stringify((yield* world.server.calls("NEXT"))[0]!.body)
      assert.include(body, "task-notification")
      assert.strictEqual(yield* fileOf(`${world.directory}/never.txt`), "")
    }))

  test(claude, "takes no prompt for one of its commands", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const log = makeLog("t1")
      yield* host.run(log, [{ type: "text", text: script({ text: "As text." }) }, { type: "text", text: "/compact" }])
      assert.strictEqual(textOf(partsOf(log)), "As text.")
      yield* host.run(makeLog("t2"), "/clear")
      const [first, second] = yield* world.server.calls("As text.")
      assert.include(JSON.stringify(messagesOf(first!)), "/compact")
      assert.include(JSON.stringify(messagesOf(second!)), "/clear")
    }))

  test(claude, "says what allowing a call for good would allow", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      const rules: Array<Parameters<Turn["requestApproval"]>[0]["rule"]> = []
      yield* play(host, [
        { bash: "git status && touch a.txt" },
        { bash: "touch b.txt" },
        { bash: `touch ${world.root}/c.txt` },
        { write: [`${world.directory}/d.txt`, "x"] },
        { edit: [`${world.directory}/d.txt`, "x", "y"] },
        { bash: "(sleep 1 &) ; touch e.txt" },
        { text: "Done." }
      ], {
        approval: ({ rule }) => {
          rules.push(rule)
          return Effect.succeed({ decision: "allow" })
        }
      })
      assert.strictEqual(rules.length, 6)
      const [, b, c, d, edited, hidden] = rules
      assert.include(b!.title, "Bash(touch b.txt")
      assert.include(c!.title, `files in ${world.root}`)
      assert.strictEqual(d!.title, "edits in the working directory")
      assert.strictEqual(edited!.key, d!.key)
      assert.strictEqual(new Set([b, c, d].map((rule) => rule!.key)).size, 3)
      // What the CLI thinks unsafe has no rule.
      assert.isUndefined(hidden)
    }))

  test(claude, "tells when it compacts by itself", (world) =>
    Effect.gen(function*() {
      const host = yield* world.open()
      yield* play(host, [{ text: "A long story. ".repeat(200) }])
      const { parts } = yield* play(host, [
        { err: 400, message: "prompt is too long: 250000 tokens > 200000 maximum", times: 1, text: "Shorter now." }
      ], { turn: "t2" })
      const [compaction] = only(parts, "compaction")
      assert.deepInclude(compaction, { trigger: "auto", summary: "what was said so far" })
      assert.isAbove(compaction!.tokensBefore!, 0)
      assert.strictEqual(textOf(parts), "Shorter now.")
    }))

  test(claude, "carries on after the last line of its transcript was torn", (world) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const host = yield* world.open()
      const log = makeLog("t1")
      const prompt = `Do it. ${
        script({ text: "First.", bash: "echo first >> done.txt; perl -e 'sleep 1000'" }, { text: "Second." })
      }`
      const running = yield* Effect.forkChild(host.run(log, prompt, allow))
      yield* killIn(world, host, "first")
      yield* Fiber.await(running)
      const files = yield* fs.readDirectory(world.home, { recursive: true })
      // What is called new there is a file already, whose name the rest is.
      const name = `${host.conversation().replace(/^new:/, "")}.jsonl`
      const transcript = `${world.home}/${files.find((file) => file.endsWith(name))}`
      const torn = yield* fileOf(transcript)
      yield* fs.writeFileString(transcript, torn + torn.slice(0, 100))
      yield* host.resume(log, prompt, allow)
      assert.strictEqual(textOf(partsOf(log)), "First.Second.")
      // What came after it stands in lines of its own.
      const lines = (yield* fileOf(transcript)).split("\n")
      assert.include(lines, torn.slice(0, 100))
      assert.isTrue(lines.some((line) => line.includes("Carry on") && line.startsWith("{") && JSON.parse(line)))
      const { parts } = yield* play(host, [{ text: "Third." }], { turn: "t2", words: "AGAIN" })
      assert.strictEqual(textOf(parts), "Third.")
      assert.include(JSON.stringify((yield* world.server.calls("AGAIN"))[0]!.body), "Second.")
    }))

  test(
    claude,
    "says that commands in the background end where it must be started again",
    (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        yield* play(host, [background("perl -e 'sleep 1000'"), { text: "Started." }])
        const { parts } = yield* play(host, [{ tool: ["StructuredOutput", { a: 1 }] }, { text: "x" }], {
          turn: "t2",
          responseFormat: { type: "json", schema: { type: "object", properties: { a: { type: "number" } } } }
        })
        assert.include(only(parts, "notice")[0]!.message, "1 commands in the background were ended")
        assert.strictEqual(host.processes.length, 2)
      })
  )

  test(
    claude,
    "takes what a command in the background tells during a turn as part of the turn",
    (world) =>
      Effect.gen(function*() {
        const host = yield* world.open()
        const { finished, parts } = yield* play(host, [
          background("echo quick"),
          { bash: "perl -e 'select undef, undef, undef, 0.7'" },
          { text: "Done." },
          { text: "And told." }
        ])
        assert.strictEqual(finished.finishReason, "stop")
        assert.isTrue(textOf(parts).startsWith("Done."))
        const { parts: next } = yield* play(host, [{ text: "Next." }], { turn: "t2" })
        assert.strictEqual(textOf(next), "Next.")
      })
  )
})

describe("Claude Code that isn't there", () => {
  const make = (command: string) =>
    Effect.flip(ClaudeCode.ClaudeCode.make({ command })).pipe(Effect.provide(BunServices.layer))

  it.live("is a typed error that says how to install it", () =>
    Effect.gen(function*() {
      const error = yield* make("claude-that-is-nowhere")
      assert.deepInclude(error, { _tag: "DriverError", driver: "claude-code", kind: "not-installed" })
      assert.include(
        error.problem,
        `npm install --global @anthropic-ai/claude-code@${ClaudeCode.supportedVersions.tested}`
      )
    }))

  it.live("is a typed error where its version doesn't fit", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      for (const version of ["2.1.197", "2.0.332", "3.0.0", "2.1.999", "nonsense"]) {
        yield* fs.writeFileString(`${directory}/claude`, `#!/bin/sh\necho '${version} (Claude Code)'\n`)
        yield* fs.chmod(`${directory}/claude`, 0o755)
        const error = yield* make(`${directory}/claude`)
        assert.deepInclude(error, { kind: "wrong-version" })
        assert.include(error.problem, version)
      }
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("takes options whose secrets are redacted from the first", () =>
    Effect.gen(function*() {
      const options = yield* Schema.decodeEffect(ClaudeCode.Options)({
        apiKey: "sk-1",
        secretEnv: { AWS_SECRET_ACCESS_KEY: "aws-1" }
      })
      assert.notInclude(JSON.stringify(options), "-1")
      assert.strictEqual(Redacted.value(options.apiKey!), "sk-1")
    }))
})
