import { assert, describe, it } from "@effect/vitest"
import * as Bridge from "@gangway/protocol/Bridge"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Effect, Schema } from "effect"
import { spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as RawHost from "../../packages/server/test/fixtures/rawHost.ts"
import { readDocs } from "../../scripts/docComments.ts"
import { errorProblems, exportedErrors, literalProblems } from "../../scripts/errorsPage.ts"
import { readSources } from "../../scripts/project.ts"

const root = join(import.meta.dirname, "../..")
const directory = join(root, "docs/schema")
const token = "correct-horse-battery-staple-0123456789"

const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: true })
const names = fs.readdirSync(directory).filter((name) => name.endsWith(".json"))
for (const name of names) ajv.addSchema(JSON.parse(fs.readFileSync(join(directory, name), "utf8")))

const validatorOf = (schema: string) => {
  const validate = ajv.getSchema(schema)
  assert.isDefined(validate, schema)
  return validate!
}
const fits = (schema: string, value: unknown) => {
  const validate = validatorOf(schema)
  if (validate(value) !== true) {
    assert.fail(`${schema} refuses ${JSON.stringify(value).slice(0, 500)}: ${ajv.errorsText(validate.errors)}`)
  }
}
const refuses = (schema: string, value: unknown) =>
  assert.isFalse(validatorOf(schema)(value), `${schema} takes ${JSON.stringify(value)}`)

const temporary = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(join(tmpdir(), "gangway-schemas-"))),
  (path) => Effect.sync(() => fs.rmSync(path, { recursive: true, force: true }))
)

const script = {
  steps: [
    {
      usage: { measured: true, inputTokens: { total: 3 }, outputTokens: { total: 2, text: 2 }, cost: 0.01 },
      actions: [
        { type: "text", random: { length: 300, alphabet: "surrogates" } },
        { type: "reasoning", text: "hm" },
        { type: "tool", name: "Look", params: { at: "it" }, paramsChunk: 4, preliminary: 1, delay: 1 },
        { type: "tool", name: "Big", random: { length: 1_200_000 } },
        { type: "tool", name: "Run", command: ["true"], approval: { reason: "why", rule: "all of it" } },
        { type: "host-tools", calls: [{ name: "lookup", params: { word: "gangway" } }] },
        { type: "question", questions: [{ question: "Which?", options: [{ label: "this" }, { label: "that" }] }] },
        { type: "file", path: "made.txt", text: "made" },
        { type: "raw", event: { any: ["thing", null] } },
        { type: "sub-agent", name: "Helper", actions: [{ type: "text", text: "here" }] },
        {
          type: "parts",
          parts: [
            { type: "plan", entries: [{ content: "do", status: "in-progress" }] },
            { type: "retry", attempt: 1, message: "again" },
            { type: "error", error: { code: 1 } }
          ]
        }
      ]
    },
    {
      actions: [
        { type: "parts", parts: [{ type: "notice", level: "info", message: "it hangs" }] },
        { type: "hang", attempts: [1] },
        { type: "text", text: "done" }
      ]
    }
  ]
}

describe("docs/schema", () => {
  it("compiles, each file on its own", () => {
    assert.isAbove(names.length, 10)
    for (const name of names) {
      const schema = JSON.parse(fs.readFileSync(join(directory, name), "utf8"))
      assert.strictEqual(schema.$id, name)
      new Ajv2020({ strict: true, strictTypes: false }).compile(schema)
    }
  })

  it.live(
    "describes all that a bridge and its host say and store",
    () =>
      Effect.gen(function*() {
        const state = yield* temporary
        const work = yield* temporary
        const home = yield* temporary
        const line = {
          token,
          bridge: "b1",
          stateDirectory: state,
          hostname: "127.0.0.1",
          idleTimeout: "1 minute",
          agentOptions: { agent: "scripted", home }
        }
        fits("launch-options.json", line)
        fits("agent-scripted.json", { ...line.agentOptions, script })
        const bridge = spawn(process.execPath, [join(root, "apps/bridge/src/main.ts")], {
          stdio: ["pipe", "ignore", "inherit"]
        })
        yield* Effect.addFinalizer(() => Effect.sync(() => bridge.kill("SIGKILL")))
        bridge.stdin.end(`${JSON.stringify(line)}\n`)
        const file = join(state, "listening.json")
        while (!fs.existsSync(file)) yield* Effect.sleep("20 millis")
        const listening = JSON.parse(fs.readFileSync(file, "utf8"))
        fits("listening-file.json", listening)
        fits("owner-file.json", JSON.parse(fs.readFileSync(join(state, "owner.json"), "utf8")))

        const host = yield* RawHost.connect(`ws://127.0.0.1:${listening.port}/`, {
          headers: { "x-bridge-token": token }
        })
        const say = (message: unknown) => {
          fits("messages.json#/$defs/HostFrame", message)
          refuses("messages.json#/$defs/BridgeFrame", message)
          host.send(message)
        }
        const hear = Effect.map(host.next, (message) => {
          fits("messages.json", message)
          fits("messages.json#/$defs/BridgeFrame", message)
          refuses("messages.json#/$defs/HostFrame", message)
          return message
        })
        let id = 0
        const request = (tag: string, payload: object) => {
          say({ _tag: "Request", id: ++id, tag, payload })
          return id
        }
        const tags = new Map<number, string>()
        const seen = new Set<string>()
        const isAnswered = new Map<number, any>()
        const ask = (tag: string, payload: object) => {
          const asked = request(tag, payload)
          tags.set(asked, tag)
          return asked
        }
        const key = { session: "s1", turn: "t1" }
        const react = (part: any) => {
          switch (part.type) {
            case "tool-approval-request":
              return ask("Approve", { ...key, approvalId: part.approvalId, decision: "allow", reason: "go on" })
            case "tool-call":
              return part.providerExecuted === false &&
                ask("SubmitToolResult", { ...key, toolCallId: part.id, result: { found: 1 }, isFailure: false })
            case "reasoning-end":
              return ask("SendMessage", { ...key, messageId: "m1", prompt: [{ type: "text", text: "And more." }] })
            case "question":
              return ask("SubmitToolResult", {
                ...key,
                toolCallId: part.questionId,
                result: { "Which?": "this" },
                isFailure: false
              })
            case "notice":
              return part.message === "it hangs" && ask("AbortTurn", { ...key, reason: "enough" })
          }
        }
        // Takes what comes until the request has its Exit; parts are reacted to while `isLive`.
        const until = Effect.fnUntraced(function*(asked: number, isLive = false) {
          while (!isAnswered.has(asked)) {
            const message = yield* hear
            if (message._tag === "Chunk") {
              for (const value of message.values) {
                for (const { part } of value.parts ?? []) {
                  seen.add(part.type)
                  if (isLive) react(part)
                }
              }
              say({ _tag: "Ack", requestId: message.requestId })
            } else if (message._tag === "Exit") {
              const { exit, requestId } = message
              const tag = tags.get(requestId)!
              if (exit._tag === "Success" && tag !== "ReadTurn") fits(`messages.json#/$defs/${tag}Success`, exit.value)
              for (const { _tag, error } of exit.cause ?? []) {
                if (_tag === "Fail") fits(`messages.json#/$defs/${tag}Error`, error)
              }
              isAnswered.set(requestId, exit)
            }
          }
          return isAnswered.get(asked)
        })
        const call = (tag: string, payload: object) => until(ask(tag, payload))

        const hello = yield* call("Hello", { host: { name: "raw", version: "1" }, protocol: 1 })
        fits("hello.json", hello.value)
        assert.strictEqual((yield* call("Hello", { host: { name: "raw", version: "1" }, protocol: 9 }))._tag, "Failure")
        const options = {
          directory: work,
          permissions: "ask",
          settings: "none",
          tools: [{ name: "lookup", description: "Looks it up.", parameters: { type: "object", properties: {} } }],
          env: { SECRET: "a-secret-value" },
          limits: { steps: 50, time: 60_000 }
        }
        fits("session-options.json", options)
        assert.deepStrictEqual((yield* call("StartSession", { session: "s1", ...options })).value, { resumed: false })
        assert.strictEqual((yield* call("ReadTurn", { session: "s1", turn: "none", from: 1 }))._tag, "Failure")
        assert.strictEqual((yield* call("Approve", { ...key, approvalId: "a", decision: "deny" }))._tag, "Failure")

        const prompt = [{ type: "text", text: `@@${JSON.stringify(script)}@@` }]
        assert.strictEqual((yield* call("StartTurn", { ...key, prompt, raw: true })).value.status, "started")
        say({ _tag: "Ping" })
        const first = yield* until(ask("ReadTurn", { ...key, from: 1 }), true)
        assert.strictEqual(first._tag, "Success")
        const continued = yield* call("StartTurn", { ...key, attempt: 2 })
        assert.strictEqual(continued.value.status, "continued")
        yield* call("ReadTurn", { ...key, from: continued.value.from, attempt: 1 })
        yield* call("ReadState", { session: "s1" })
        yield* call("StartTurn", { ...key, attempt: 7 })
        yield* call("StopSession", { session: "s1" })
        for (const exit of isAnswered.values()) assert.notInclude(JSON.stringify(exit), `"_tag":"Die"`)
        assert.includeMembers([...seen], [
          "text-delta",
          "reasoning-end",
          "tool-params-delta",
          "tool-call",
          "tool-result",
          "tool-approval-request",
          "tool-approval-response",
          "question",
          "question-answer",
          "file-change",
          "plan",
          "user-message",
          "retry",
          "error",
          "raw",
          "step-finished",
          "part-fragment",
          "turn-continued"
        ])

        const sessions = join(state, "sessions/s1")
        fits("session-file.json", JSON.parse(fs.readFileSync(join(sessions, "session.json"), "utf8")))
        const lines = fs.readFileSync(join(sessions, "turns/t1.ndjson"), "utf8").trimEnd().split("\n")
        for (const line of lines) {
          fits("turn-line.json", JSON.parse(line))
          const { part } = JSON.parse(line)
          if (part !== undefined) fits("part.json", part)
        }
        assert.lengthOf(lines.filter((line) => line.startsWith(`{"end":`)), 2)
        assert.deepStrictEqual((yield* call("DestroySession", { session: "s1" }))._tag, "Success")
      }).pipe(Effect.scoped),
    60_000
  )

  describe("describes whatever the code encodes", () => {
    const encoded = <S extends Schema.Codec<any, any>>(what: string, schema: string, self: S) =>
      it.prop(what, [self], ([value]) => {
        // A field that's absent is not in the JSON.
        fits(schema, JSON.parse(JSON.stringify(Schema.encodeSync(self)(value))))
      }, { arbitrary: { runs: 200 } })

    encoded("as a part", "part.json", Bridge.KnownPart)
    encoded("as an end", "turn-line.json", Bridge.EndLine)
    encoded("as the answer to Hello", "hello.json", Bridge.HelloReply)
    encoded("in the listening file", "listening-file.json", Bridge.ListeningFile)
    encoded("as an element of ReadTurn's stream", "messages.json#/$defs/ReadTurnSuccess", Bridge.TurnEvent)
    encoded("as an error", "messages.json#/$defs/StartTurnError", Bridge.StartTurn.errorSchema)
  })

  it("refuses what's wrong", () => {
    const line = { token, bridge: "b1", stateDirectory: "/state", agentOptions: { agent: "scripted" } }
    fits("launch-options.json", line)
    for (
      const wrong of [
        { token: "short" },
        { bridge: "B1" },
        { stateDirectory: "state" },
        { agentOptions: {} },
        { port: 70_000 },
        { sync: null }
      ]
    ) refuses("launch-options.json", { ...line, ...wrong })

    const delta = { type: "text-delta", id: "1", delta: "Hi" }
    fits("part.json", delta)
    fits("part.json", { type: "from-a-newer-bridge", any: [1] })
    refuses("part.json", { type: "text-delta", id: "1" })
    refuses("part.json", { ...delta, parent: null })
    refuses("part.json", { id: "1" })
    refuses("turn-line.json", { n: "1", part: delta })
    refuses("turn-line.json", { end: { type: "aborted", reason: "boredom", usage: {} }, attempt: 1, next: 2 })
    refuses("turn-line.json", { format: 2, turn: "t", prompt: "d", startedAt: 0 })
    refuses("agent-codex.json", { agent: "claude-code" })

    const request = { _tag: "Request", id: 1, tag: "ReadTurn", payload: { session: "s", turn: "t", from: 1 } }
    fits("messages.json", request)
    fits("messages.json", [request, { _tag: "Ping" }])
    for (const wrong of [{ tag: "Teleport" }, { id: true }, { payload: { session: "s", turn: "t", from: 0 } }]) {
      refuses("messages.json", { ...request, ...wrong })
    }
    const failure = (error: object) => ({
      _tag: "Exit",
      requestId: 1,
      exit: { _tag: "Failure", cause: [{ _tag: "Fail", error }] }
    })
    fits("messages.json", failure({ _tag: "TooManyStreams", limit: 64 }))
    refuses("messages.json", failure({ _tag: "TooManyStreams" }))
    refuses("messages.json", failure({ _tag: "Unheard", limit: 64 }))
    refuses("messages.json", { _tag: "Chunk", requestId: 1, values: [{ attempt: 1, parts: [] }] })
  })

  it.live(
    "has its check say which file isn't what the code makes of it, or is left over",
    () =>
      Effect.gen(function*() {
        const copy = yield* temporary
        fs.cpSync(join(root, "docs"), join(copy, "docs"), { recursive: true })
        const hello = join(copy, "docs/schema/hello.json")
        fs.writeFileSync(hello, fs.readFileSync(hello, "utf8").replace("\"boolean\"", "\"string\""))
        fs.writeFileSync(join(copy, "docs/schema/left.json"), "{}")
        const errors = join(copy, "docs/errors.md")
        fs.appendFileSync(errors, "More.\n")
        const { status, stdout } = spawnSync(process.execPath, ["scripts/generate.ts", "--check", copy], {
          cwd: root,
          encoding: "utf8"
        })
        const message = "isn't what the code makes of it: run `bun run schemas`"
        assert.sameMembers(stdout.trimEnd().split("\n").slice(1), [
          `docs/schema/left.json:1: ${message}`,
          `docs/schema/hello.json:1: ${message}`,
          `docs/errors.md:1: ${message}`
        ])
        assert.strictEqual(status, 1)
        assert.include(fs.readFileSync(errors, "utf8"), "More.")
      }).pipe(Effect.scoped),
    60_000
  )
})

describe("docs/errors.md", () => {
  const read = Effect.fnUntraced(function*(files: Record<string, string>) {
    const project = yield* temporary
    fs.writeFileSync(
      join(project, "tsconfig.json"),
      JSON.stringify({ compilerOptions: { types: [], allowImportingTsExtensions: true, noEmit: true } })
    )
    for (const [path, text] of Object.entries(files)) {
      fs.mkdirSync(join(project, path, ".."), { recursive: true })
      fs.writeFileSync(join(project, path), `/**\n * What it is.\n */\nimport "effect"\n${text}`)
    }
    const sources = yield* Effect.promise(() => readSources(project))
    return { docs: readDocs(sources), sources }
  })
  const error = (name: string, comment: string) =>
    `/** ${comment} */\nexport class ${name} extends Data.TaggedError("${name}")<{ readonly path?: string }> {}\n`

  it.live("needs of each exported error what causes it and what to do", () =>
    Effect.gen(function*() {
      const { docs, sources } = yield* read({
        "packages/a/src/A.ts": error("Fine", "It broke.\n * @remedy Mend it,\n *   soon. ") +
          error("Silent", "@remedy Mend it. ") + error("Hopeless", "It broke. ") +
          `class Private extends Data.TaggedError("Private") {}\nexport class Other {}\n`,
        "packages/a/src/internal/b.ts": error("Inner", "It broke.") + error("Public", "It broke."),
        "packages/a/src/B.ts": `/**\n * Errors.\n */\nexport {\n  /** One. */\n  Public\n} from "./internal/b.ts"\n`
      })
      const errors = exportedErrors(docs, sources)
      assert.sameMembers(errors.map(({ name }) => name), ["Fine", "Silent", "Hopeless", "Public"])
      const fine = errors.find(({ name }) => name === "Fine")!
      assert.deepStrictEqual([fine.text, fine.tags.get("remedy")], ["It broke.", "Mend it, soon."])
      assert.deepStrictEqual(fine.fields, [{ path: ["path"], text: "", type: "string", isOptional: true }])
      assert.sameMembers(errorProblems(errors).map(({ message }) => message), [
        "Silent doesn't say what causes it: its doc comment needs a sentence",
        "Hopeless doesn't say what to do: its doc comment needs @remedy",
        "Public doesn't say what to do: its doc comment needs @remedy"
      ])
    }).pipe(Effect.scoped))

  it.live("needs the same of each kind and reason", () =>
    Effect.gen(function*() {
      const { docs } = yield* read({
        "packages/a/src/A.ts": "/**\n * Why.\n *\n * - `one`: it broke. Mend it.\n * - `two`: it broke\n *   again.\n" +
          " * - `old`: it was. Forget it.\n */\nexport const Why = 1\n"
      })
      assert.deepStrictEqual(literalProblems(docs[0]!, ["one", "two", "three"]).map(({ message }) => message), [
        "Why: `three` isn't in the list of its doc comment",
        "Why: `old` is no literal of it",
        "Why: `two` lacks a second sentence: what to do"
      ])
    }).pipe(Effect.scoped))

  it("has a section for every error that a command can fail with", () => {
    const page = fs.readFileSync(join(root, "docs/errors.md"), "utf8")
    const schemas = JSON.parse(fs.readFileSync(join(directory, "messages.json"), "utf8"))
    const tags = schemas.$defs.CommandError.anyOf.map(({ $ref }: { $ref: string }) => $ref.replace("#/$defs/", ""))
    assert.isAbove(tags.length, 25)
    for (const tag of tags) assert.match(page, new RegExp(`^### ${tag}\n\n.+`, "m"))
  })
})
