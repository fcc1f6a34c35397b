import { assert, describe, it } from "@effect/vitest"
import { HostTools, type Session, type Turn } from "@gangway/client"
import { Context, Deferred, Effect, Layer, Schema, Stream } from "effect"
import { Tool, Toolkit } from "effect/unstable/ai"
import { eventually, serve, session, startSession, turn } from "./fixtures/connected.ts"
import type { Options } from "./fixtures/TestBridge.ts"

class Issues extends Context.Service<Issues, { readonly title: (issue: number) => string }>()("test/Issues") {}

const Lookup = Tool.make("lookup", {
  description: "Looks up an issue",
  parameters: Schema.Struct({ issue: Schema.Int }),
  success: Schema.Struct({ title: Schema.String, at: Schema.DateFromString }),
  failure: Schema.Struct({ missing: Schema.Int }),
  dependencies: [Issues]
})
const Broken = Tool.make("broken", { description: "Breaks" })
const Slow = Tool.make("slow", { description: "Never ends", success: Schema.Void })
const toolkit = Toolkit.make(Lookup, Broken, Slow)

const handlers = toolkit.toLayer(Effect.succeed(toolkit.of({
  lookup: ({ issue }) =>
    Effect.gen(function*() {
      if (issue > 9) return yield* Effect.fail({ missing: issue })
      return { title: (yield* Issues).title(issue), at: new Date(0) }
    }),
  broken: () => Effect.die(new Error("it broke")),
  slow: () => Effect.never
})))

const hostTools = HostTools.fromToolkit(toolkit).pipe(
  Effect.provide([handlers, Layer.succeed(Issues, { title: (issue) => `Issue ${issue}` })])
)

const call = (id: string, name: string, params: object = {}) => ({
  type: "tool-call",
  id,
  name,
  params,
  providerExecuted: false
})

const started = Effect.fnUntraced(
  function*(options: Partial<Session.SessionOptions>, bridgeOptions?: Partial<Options>) {
    const bridge = yield* serve(bridgeOptions)
    const handle = yield* Effect.flatMap(
      startSession(bridge, options),
      (session) => session.startTurn({ turn, prompt: "go" })
    )
    return { bridge, handle, log: bridge.options.state.turn(session, turn) }
  }
)

describe("fromToolkit", () => {
  it.effect("describes tools by their JSON Schemas", () =>
    Effect.gen(function*() {
      const { tools } = yield* hostTools
      assert.deepStrictEqual(tools.map(({ description, name }) => [name, description]), [
        ["lookup", "Looks up an issue"],
        ["broken", "Breaks"],
        ["slow", "Never ends"]
      ])
      assert.deepInclude(tools[0]!.parameters, { type: "object", required: ["issue"] })
      assert.deepInclude(tools[1]!.parameters, { type: "object" })
    }))

  it.effect("runs handlers, and makes of failures, defects and bad input what the agent is told", () =>
    Effect.gen(function*() {
      const { handle } = yield* hostTools
      const run = (name: string, params: Schema.Json) => handle({ id: "1", name, params })
      assert.deepStrictEqual(yield* run("lookup", { issue: 4 }), {
        result: { title: "Issue 4", at: "1970-01-01T00:00:00.000Z" },
        isFailure: false
      })
      assert.deepStrictEqual(yield* run("lookup", { issue: 10 }), { result: { missing: 10 }, isFailure: true })
      assert.deepStrictEqual(yield* run("broken", {}), { result: "The tool failed: it broke.", isFailure: true })
      const bad = yield* run("lookup", { issue: "four" })
      assert.isTrue(bad.isFailure)
      assert.include(JSON.stringify(bad.result), "issue")
      const unknown = yield* run("nothing", {})
      assert.isTrue(unknown.isFailure)
      assert.include(JSON.stringify(unknown.result), "nothing")
    }))
})

describe("a host", () => {
  it.live("runs its tools for the turns it started, also where nobody reads them", () =>
    Effect.gen(function*() {
      const { bridge, log } = yield* started({ tools: yield* hostTools })
      assert.deepStrictEqual(bridge.payloads("StartSession")[0]!.tools[0].name, "lookup")
      log.emit(call("c1", "lookup", { issue: 1 }), call("c2", "broken"), {
        ...call("c3", "bash"),
        providerExecuted: true
      })
      yield* eventually(() => log.answers.size === 2)
      assert.deepStrictEqual(log.answers.get("c1"), {
        session,
        turn,
        toolCallId: "c1",
        result: { title: "Issue 1", at: "1970-01-01T00:00:00.000Z" },
        isFailure: false
      })
      assert.deepInclude(log.answers.get("c2"), { isFailure: true })
      log.finish()
      yield* eventually(() => log.readers.size === 0)
    }))

  it.live("goes on answering over lost connections, and answers a call once", () =>
    Effect.gen(function*() {
      let runs = 0
      let cuts = 2
      const { bridge, log } = yield* started({
        tools: {
          tools: [{ name: "count", description: "", parameters: { type: "object" } }],
          handle: () => Effect.sync(() => ({ result: ++runs, isFailure: false }))
        }
      }, {
        onRequest: (tag, _, bridge) => {
          if (tag !== "SubmitToolResult" || cuts-- <= 0) return undefined
          bridge.cut()
          return "silence"
        }
      })
      log.emit(call("c1", "count"))
      yield* eventually(() => log.answers.size === 1)
      bridge.cut()
      log.emit(call("c2", "count"))
      yield* eventually(() => log.answers.size === 2)
      assert.strictEqual(runs, 2)
      assert.deepStrictEqual(log.answers.get("c1")!.result, 1)
    }))

  it.live("joins a turn and runs only what nobody has answered", () =>
    Effect.gen(function*() {
      const ran: Array<string> = []
      const tools: HostTools.HostTools = {
        tools: [],
        handle: ({ id }) => Effect.sync(() => ({ result: ran.push(id), isFailure: false }))
      }
      const { bridge, log } = yield* started({}, { batch: 1 })
      log.emit(call("c1", "x"), call("c2", "x"), { type: "text-delta", id: "t", delta: "" })
      log.emit({ type: "tool-result", id: "c1", name: "x", result: null, isFailure: false })
      log.emit(...Array.from({ length: 100 }, (_, i) => ({ type: "text-delta", id: "t", delta: String(i) })))
      const other = yield* startSession(bridge, { tools })
      const handle = yield* other.startTurn({ turn, prompt: "go" })
      assert.strictEqual(handle.started!.status, "running")
      yield* eventually(() => log.answers.size === 1)
      log.emit(call("c3", "x"))
      yield* eventually(() => log.answers.size === 2)
      assert.deepStrictEqual(ran, ["c2", "c3"])
      // One that only reads runs nothing.
      const reader = other.turn(turn)
      log.finish()
      yield* Stream.runDrain(reader.parts())
      assert.deepStrictEqual(ran, ["c2", "c3"])
    }))

  it.live("tries again while the session is with no bridge that takes its answers, and stops when it's answered", () =>
    Effect.gen(function*() {
      let busy = false
      const { bridge, handle, log } = yield* started({
        tools: { tools: [], handle: () => Effect.succeed({ result: 1, isFailure: false }) },
        onApproval: () => Effect.succeed({ decision: "allow" })
      }, {
        onRequest: (tag, payload) =>
          busy && (tag === "SubmitToolResult" && payload.result === 1 || tag === "Approve" || tag === "StartSession")
            ? { fail: { _tag: "SessionBusy", session } }
            : undefined
      })
      busy = true
      log.emit(call("c1", "x"), call("c2", "x"))
      log.emit({ type: "tool-approval-request", approvalId: "a1", toolCallId: "c3", name: "ls", params: {} })
      yield* eventually(() => bridge.count("SubmitToolResult") >= 3 && bridge.count("Approve") >= 2)
      assert.strictEqual(log.answers.size, 0)
      yield* handle.answer({ id: "c2", result: "by hand" })
      busy = false
      yield* eventually(() => log.answers.size === 3)
      assert.deepInclude(log.answers.get("c1"), { result: 1 })
      assert.deepInclude(log.answers.get("c2"), { result: "by hand" })
    }))

  it.live("stops a handler whose call is answered by another host, or whose turn ends", () =>
    Effect.gen(function*() {
      const stopped: Array<string> = []
      const { handle, log } = yield* started({
        tools: {
          tools: [],
          handle: ({ id }) => Effect.onInterrupt(Effect.never, () => Effect.sync(() => stopped.push(id)))
        }
      })
      log.emit(call("c1", "x"), call("c2", "x"))
      yield* eventually(() => log.readers.size === 1)
      yield* Effect.sleep("20 millis")
      yield* handle.answer({ id: "c1", result: "by hand" })
      yield* eventually(() => stopped.length === 1)
      log.finish({ type: "aborted", reason: "host", usage: { measured: true } })
      yield* eventually(() => stopped.length === 2)
      assert.deepStrictEqual(stopped, ["c1", "c2"])
    }))

  it.live("decides on approvals and answers questions", () =>
    Effect.gen(function*() {
      const asked = yield* Deferred.make<Turn.Turn>()
      const { bridge, handle, log } = yield* started({
        onApproval: (request, turn) =>
          Effect.as(Deferred.succeed(asked, turn), {
            decision: request.name === "rm" ? "deny" : "allow-always",
            reason: `no ${request.name}`
          }),
        onQuestion: (question) => Effect.succeed({ [question.questions[0]!.question]: "blue" })
      })
      log.emit(
        { type: "tool-approval-request", approvalId: "a1", toolCallId: "c1", name: "rm", params: {} },
        { type: "tool-approval-request", approvalId: "a2", toolCallId: "c2", name: "ls", params: {} },
        { type: "question", questionId: "q1", questions: [{ question: "Which colour?", options: [] }] }
      )
      yield* eventually(() => log.answers.size === 3)
      assert.deepInclude(log.answers.get("a1"), { decision: "deny", reason: "no rm" })
      assert.deepInclude(log.answers.get("a2"), { decision: "allow-always" })
      assert.deepInclude(log.answers.get("q1"), { result: { "Which colour?": "blue" }, isFailure: false })
      assert.strictEqual((yield* Deferred.await(asked)).turn, handle.turn)
      assert.strictEqual(bridge.count("Approve"), 2)
    }))

  it.live("asks nobody about what another host has answered", () =>
    Effect.gen(function*() {
      const { bridge, handle, log } = yield* started({}, { batch: 1 })
      const request = (approvalId: string) => ({
        type: "tool-approval-request",
        approvalId,
        toolCallId: "c1",
        name: "ls",
        params: {}
      })
      const question = (questionId: string) => ({
        type: "question",
        questionId,
        questions: [{ question: "Which?", options: [] }]
      })
      log.emit(request("a1"), question("q1"))
      yield* handle.approve({ approvalId: "a1", decision: "deny" })
      yield* handle.answer({ id: "q1", result: "by hand" })
      const asked: Array<string> = []
      const other = yield* startSession(bridge, {
        onApproval: ({ approvalId }) => {
          asked.push(approvalId)
          return Effect.succeed({ decision: "allow" })
        },
        onQuestion: ({ questionId }) => {
          asked.push(questionId)
          return Effect.succeed("by the handler")
        }
      })
      yield* other.startTurn({ turn, prompt: "go" })
      log.emit(request("a2"), question("q2"))
      yield* eventually(() => log.answers.size === 4)
      assert.deepStrictEqual(asked, ["a2", "q2"])
    }))

  it.live("denies what a handler that breaks was asked, and tells the agent", () =>
    Effect.gen(function*() {
      const broken = (): never => {
        throw new Error("it broke")
      }
      const { log } = yield* started({
        tools: { tools: [], handle: broken },
        onApproval: () => Effect.die(new Error("it broke")),
        onQuestion: broken
      })
      log.emit(
        call("c1", "x"),
        { type: "tool-approval-request", approvalId: "a1", toolCallId: "c2", name: "rm", params: {} },
        { type: "question", questionId: "q1", questions: [{ question: "Which colour?", options: [] }] }
      )
      yield* eventually(() => log.answers.size === 3)
      assert.deepInclude(log.answers.get("c1"), { result: "The tool failed: it broke.", isFailure: true })
      assert.deepInclude(log.answers.get("a1"), { decision: "deny", reason: "The host's handler failed: it broke" })
      assert.deepInclude(log.answers.get("q1"), { result: "The host's handler failed: it broke", isFailure: true })
    }))

  it.live("tells the agent where a result is too large", () =>
    Effect.gen(function*() {
      const { log } = yield* started({
        tools: {
          tools: [],
          handle: () => Effect.succeed({ result: "x".repeat(13 * 1024 * 1024), isFailure: false })
        }
      })
      log.emit(call("c1", "x"))
      yield* eventually(() => log.answers.size === 1)
      assert.deepInclude(log.answers.get("c1"), { isFailure: true, result: "The result has more than 12582912 bytes." })
    }))

  it.live("tells the agent where a result is nested too deep", () =>
    Effect.gen(function*() {
      let result: Schema.Json = 1
      for (let depth = 0; depth < 50_000; depth++) result = [result]
      const { log } = yield* started({
        tools: { tools: [], handle: () => Effect.succeed({ result, isFailure: false }) }
      })
      log.emit(call("c1", "x"))
      yield* eventually(() => log.answers.size === 1)
      assert.deepInclude(log.answers.get("c1"), { isFailure: true, result: "The result is nested more than 512 deep." })
    }))
})
