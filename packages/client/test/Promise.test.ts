import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import * as Plain from "@gangway/client/promise"
import { type } from "arktype"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as v from "valibot"
import { z } from "zod"
import { type Options, TestBridge, TestState, text } from "./fixtures/TestBridge.ts"

const token = "a-token-that-has-32-characters-at-least"

// What a test opens is closed after it, the last first.
let finalizers: Array<() => unknown> = []
let unhandled: Array<unknown> = []
const onUnhandled = (reason: unknown) => unhandled.push(reason)

beforeEach(() => {
  unhandled = []
  process.on("unhandledRejection", onUnhandled)
})

afterEach(async () => {
  for (const finalizer of finalizers.reverse()) await finalizer()
  finalizers = []
  await pause(5)
  process.off("unhandledRejection", onUnhandled)
  assert.deepStrictEqual(unhandled, [])
})

const pause = (millis: number) => new Promise<void>((resolve) => setTimeout(resolve, millis))

const eventually = async (condition: () => boolean) => {
  for (let i = 0; i < 2_000; i++) {
    if (condition()) return
    await pause(5)
  }
  throw new Error("It never came to be")
}

const serve = (options: Partial<Options> = {}) => {
  const bridge = new TestBridge({ state: new TestState(), token, launch: "launch-one", ...options })
  finalizers.push(() => bridge.stop())
  return bridge
}

const connect = async (bridge: TestBridge, options: Partial<Parameters<typeof Plain.connectTo>[0]> = {}) => {
  const client = await Plain.connectTo({
    bridge: "b1",
    reconnectFor: "2 seconds",
    address: () => ({ url: `http://127.0.0.1:${bridge.port}/`, token }),
    ...options
  })
  finalizers.push(client.close)
  return client
}

const start = async (options: Partial<Plain.SessionOptions> = {}, bridgeOptions: Partial<Options> = {}) => {
  const bridge = serve(bridgeOptions)
  const client = await connect(bridge)
  const session = await client.startSession({ session: "s1", directory: "/srv", ...options })
  const turn = await session.startTurn({ turn: "t1", prompt: "go" })
  return { bridge, client, session, turn, log: bridge.options.state.turn("s1", "t1") }
}

const rejected = async (promise: Promise<unknown>): Promise<any> => {
  const result = await promise.then((value) => ({ value }), (error: unknown) => ({ error }))
  if ("error" in result) return result.error
  throw new Error(`It resolved: ${JSON.stringify(result.value)}`)
}

const call = (id: string, name: string, params: object = {}) => ({
  type: "tool-call",
  id,
  name,
  params,
  providerExecuted: false
})

describe("a client of promises", () => {
  it("starts a session and a turn, reads it, and ends with its block", async () => {
    const bridge = serve()
    const seen: Array<number> = []
    {
      await using client = await connect(bridge)
      assert.strictEqual((await client.hello()).launch, "launch-one")
      const session = await client.startSession({
        session: "s1",
        directory: "/srv",
        env: { KEY: "secret" },
        limits: { time: "1 minute" },
        approvalTimeout: 500
      })
      assert.isFalse(session.resumed)
      const turn = await session.startTurn({ turn: "t1", prompt: "go", timeout: "2 minutes" })
      assert.deepInclude(turn.started, { status: "started" })
      const log = bridge.options.state.turn("s1", "t1")
      log.emit({ type: "text-start", id: "t" }, text(1), text(2))
      const reading = (async () => {
        for await (const { n } of turn.parts()) seen.push(n)
      })()
      await eventually(() => seen.length === 3)
      log.emit(text(3))
      log.finish()
      await reading
      assert.deepStrictEqual(await Array.fromAsync(turn.parts({ from: 3 }), ({ n }) => n), [3, 4])
      assert.deepInclude(await turn.end(), { type: "finished" })
      assert.deepInclude(await turn.endLine(), { attempt: 1, next: 5 })
      assert.strictEqual(await turn.text(), "1;2;3;")
      assert.strictEqual(await session.readState().then((state) => JSON.stringify(state)), `{"carried":true}`)
    }
    assert.deepStrictEqual(seen, [1, 2, 3, 4])
    await eventually(() => bridge.sockets.size === 0)
    const [payload] = bridge.payloads("StartSession")
    assert.deepInclude(payload, { env: { KEY: "secret" }, limits: { time: 60_000 }, approvalTimeout: 500 })
    assert.notProperty(payload, "signal")
    assert.deepInclude(bridge.payloads("StartTurn")[0], { timeout: 120_000 })
  })

  it("sends messages, answers and aborts", async () => {
    const { bridge, log, turn } = await start()
    assert.strictEqual(await turn.send("wait", { messageId: "m1", delivery: "queue" }), "queue")
    log.emit(call("c1", "lookup"), { type: "tool-approval-request", approvalId: "a1", name: "bash", params: {} })
    await turn.answer({ id: "c1", result: { found: 1 } })
    await turn.approve({ approvalId: "a1", decision: "deny", reason: "no" })
    assert.deepInclude(log.answers.get("c1"), { result: { found: 1 }, isFailure: false })
    assert.deepInclude(log.answers.get("a1"), { decision: "deny", reason: "no" })
    const { end } = await turn.abort({ reason: "enough" })
    assert.deepInclude(end, { type: "aborted" })
    assert.deepInclude(bridge.payloads("AbortTurn")[0], { reason: "enough" })
  })

  it("tells each status with its message", async () => {
    const bridge = serve()
    const statuses: Array<Plain.Status> = []
    const gone = new TestBridge({ state: new TestState(), token, launch: "gone" })
    const ports = [gone.port]
    gone.stop()
    await connect(bridge, {
      address: async () => ({
        url: new URL(`http://127.0.0.1:${ports.pop() ?? bridge.port}/`),
        token,
        headers: { "x-preview": "p1" }
      }),
      onStatus: async (status) => {
        await pause(1)
        statuses.push(status)
      }
    })
    while (statuses.at(-1)?._tag !== "Connected") await pause(1)
    const [connecting, reconnecting] = statuses
    assert.deepStrictEqual(connecting, { _tag: "Connecting", message: "looking for the bridge" })
    assert.deepInclude(reconnecting, { _tag: "Reconnecting", attempt: 1 })
    assert.isTrue("retryIn" in reconnecting! && reconnecting.retryIn > 0 && reconnecting.retryIn < 1_000)
    assert.include(reconnecting!.message, "nobody listens there")
    assert.deepInclude(statuses.at(-1), { _tag: "Connected", launch: "launch-one" })
    assert.strictEqual(bridge.upgrades.at(-1)!.get("x-preview"), "p1")
  })
})

describe("the parts of a turn", () => {
  it("are read no further ahead than a buffer holds", async () => {
    let sent = 0
    const { log, turn } = await start({}, {
      batch: 100,
      onPart: (n) => {
        sent = Math.max(sent, n)
        return undefined
      }
    })
    for (let n = 1; n <= 20_000; n++) log.emit({ ...text(n), delta: "x".repeat(1_000) })
    log.finish()
    let seen = 0
    for await (const { n } of turn.parts()) {
      seen++
      assert.strictEqual(n, seen)
      if (seen > 1) continue
      let before = -1
      while (before < sent) {
        before = sent
        await pause(100)
      }
      assert.isBelow(sent, 15_000)
    }
    assert.strictEqual(seen, 20_000)
  })

  it("are read by an iteration until it's left, and by another one from their start", async () => {
    const { log, turn } = await start()
    log.emit(text(1), text(2))
    for await (const { n } of turn.parts()) if (n === 2) break
    await eventually(() => log.readers.size === 0)
    try {
      for await (const _ of turn.parts()) throw new Error("thrown inside")
    } catch (error) {
      assert.strictEqual((error as Error).message, "thrown inside")
    }
    await eventually(() => log.readers.size === 0)
    const parts = turn.parts()
    const one = parts[Symbol.asyncIterator]()
    const other = parts[Symbol.asyncIterator]()
    assert.strictEqual((await one.next()).value.n, 1)
    assert.strictEqual((await other.next()).value.n, 1)
    assert.strictEqual((await one.next()).value.n, 2)
    // One that waits is ended too.
    const waiting = one.next()
    const after = one.next()
    assert.deepStrictEqual(await one.return!(), { done: true, value: undefined })
    assert.deepStrictEqual([await waiting, await after], [{ done: true, value: undefined }, {
      done: true,
      value: undefined
    }])
    assert.isTrue((await one.next()).done)
    assert.strictEqual((await other.next()).value.n, 2)
    await other.return!()
    await eventually(() => log.readers.size === 0)
  })

  it("come in order to who asks for several at once", async () => {
    const { log, turn } = await start({}, { batch: 2 })
    const iterator = turn.parts()[Symbol.asyncIterator]()
    const asked = Array.from({ length: 6 }, () => iterator.next())
    for (let n = 1; n <= 5; n++) {
      log.emit(text(n))
      await pause(2)
    }
    log.finish()
    assert.deepStrictEqual((await Promise.all(asked)).map(({ value }) => value?.n), [1, 2, 3, 4, 5, undefined])
  })

  it("reject with the reason of a signal that aborts, and the read ends", async () => {
    const { log, turn } = await start()
    log.emit(text(1))
    const reason = new Error("enough")
    for (const isWaiting of [true, false]) {
      const controller = new AbortController()
      const iterator = turn.parts({ signal: controller.signal })[Symbol.asyncIterator]()
      assert.strictEqual((await iterator.next()).value.n, 1)
      const waiting = isWaiting ? iterator.next() : undefined
      await pause(5)
      assert.strictEqual(log.readers.size, 1)
      controller.abort(reason)
      assert.strictEqual(await rejected(waiting ?? iterator.next()), reason)
      await eventually(() => log.readers.size === 0)
      assert.isTrue((await iterator.next()).done)
    }
    assert.strictEqual(
      (await rejected(turn.parts({ signal: AbortSignal.abort() })[Symbol.asyncIterator]().next())).name,
      "AbortError"
    )
    log.finish()
    assert.strictEqual((await turn.end()).type, "finished")
  })

  it("reject with the error itself", async () => {
    const { client, log, turn } = await start()
    const error = await rejected(client.session("s1").turn("nothing").end())
    assert.instanceOf(error, Plain.TurnNotFound)
    assert.deepStrictEqual([error._tag, error.session, error.turn], ["TurnNotFound", "s1", "nothing"])
    log.emit(text(1))
    const lost = turn.parts({ from: 9 })[Symbol.asyncIterator]()
    const partsLost = await rejected(lost.next())
    assert.instanceOf(partsLost, Plain.PartsLost)
    assert.deepInclude(partsLost, { _tag: "PartsLost", expected: 9, next: 2 })
    assert.isTrue((await lost.next()).done)
  })
})

describe("a promise", () => {
  it("stops waiting when its signal aborts, and what was asked goes on", async () => {
    const { bridge, session } = await start({}, {
      onRequest: (tag) => tag === "Compact" ? "silence" : undefined
    })
    const controller = new AbortController()
    const compacting = session.compact({ signal: controller.signal })
    await eventually(() => bridge.count("Compact") === 1)
    controller.abort("changed my mind")
    assert.strictEqual(await rejected(compacting), "changed my mind")
    assert.strictEqual(await rejected(session.stop({ signal: controller.signal })), "changed my mind")
    assert.strictEqual(bridge.count("StopSession"), 0)
    assert.strictEqual((await rejected(session.compact({ signal: AbortSignal.timeout(20) }))).name, "TimeoutError")
  })

  it("rejects with what the bridge answers, and with why it can't be reached", async () => {
    const { bridge, session } = await start({}, {
      onRequest: (tag) =>
        tag === "StopSession"
          ? { fail: { _tag: "SessionBusy", session: "s1" } }
          : tag === "Compact"
          ? { die: "broken" }
          : undefined
    })
    assert.instanceOf(await rejected(session.stop()), Plain.SessionBusy)
    const unavailable = await rejected(session.compact())
    assert.instanceOf(unavailable, Plain.BridgeUnavailable)
    assert.strictEqual(unavailable.reason._tag, "ProtocolError")
    const other = await rejected(connect(bridge, {
      address: () => ({ url: `http://127.0.0.1:${bridge.port}`, token: "x".repeat(40) })
    }))
    assert.instanceOf(other, Plain.BridgeUnavailable)
    assert.strictEqual(other.reason._tag, "TokenMismatch")
    assert.instanceOf(other, Error)
    assert.include(other.message, "token")
    for (
      const address of [
        () => {
          throw new Error("no port yet")
        },
        () => Promise.reject(new Error("no port yet")),
        () => ({ url: "no port yet", token })
      ]
    ) {
      const error = await rejected(connect(bridge, { address }))
      assert.strictEqual(error.reason._tag, "Unreachable")
      assert.match(error.message, /no port yet|Invalid URL/)
    }
  })

  it("rejects where an id doesn't fit", async () => {
    const { client, session } = await start()
    for (
      const promise of [
        connect(serve(), { bridge: "Not an id" }),
        client.startSession({ session: "Not an id", directory: "/srv" }),
        session.startTurn({ turn: "Not an id", prompt: "go" }),
        session.turn("t1").send("go", { messageId: "Not an id" })
      ]
    ) {
      const error = await rejected(promise)
      assert.instanceOf(error, Plain.SchemaError)
      assert.strictEqual(error._tag, "SchemaError")
      assert.include(error.message, "a-z")
    }
    assert.throws(() => client.session("Not an id"), /a-z/)
    assert.throws(() => session.turn("Not an id"), /a-z/)
  })

  it("rejects with ClientClosed where the client is closed, before or after", async () => {
    const { bridge, client, log, session, turn } = await start({}, {
      onRequest: (tag) => tag === "Compact" ? "silence" : undefined
    })
    log.emit(text(1))
    const compacting = session.compact()
    const ending = turn.end()
    const iterator = turn.parts()[Symbol.asyncIterator]()
    await iterator.next()
    const waiting = iterator.next()
    const idle = turn.parts()[Symbol.asyncIterator]()
    await idle.next()
    const failures = Promise.all([compacting, ending, waiting].map(rejected))
    await eventually(() => bridge.count("Compact") === 1 && log.readers.size > 0)
    await Promise.all([client.close(), client.close()])
    const later = [idle.next(), client.hello(), turn.parts()[Symbol.asyncIterator]().next()].map(rejected)
    for (const error of [...await failures, ...await Promise.all(later)]) {
      assert.instanceOf(error, Plain.ClientClosed)
      assert.strictEqual(error._tag, "ClientClosed")
    }
    await eventually(() => bridge.sockets.size === 0)
    assert.isUndefined(log.end)
  })

  it("rejects with why no bridge can be launched, or no sandbox be had", async () => {
    const root = mkdtempSync(join(tmpdir(), "gangway-promise-"))
    finalizers.push(() => rmSync(root, { recursive: true }))
    const options = {
      command: ["sh", "-c", "echo out of order; exit 3"],
      bridge: "b1",
      stateDirectory: join(root, "state"),
      agentOptions: { agent: "nobody" },
      tokens: { directory: join(root, "tokens") }
    } as const
    const failed = await rejected(Plain.connect({ ...options, sandbox: Plain.local() }))
    assert.instanceOf(failed, Plain.BridgeUnavailable)
    assert.deepInclude(failed.reason, { _tag: "LaunchFailed", exitCode: 3, log: "out of order" })
    assert.match(readFileSync(join(root, "tokens", "b1.token"), "utf8"), /^[\w-]{43}\n$/)
    const sandbox = Plain.docker({ container: "none", client: [join(root, "no-docker")] })
    const error = await rejected(Plain.connect({ ...options, sandbox }))
    assert.instanceOf(error, Plain.SandboxError)
    assert.strictEqual(error._tag, "SandboxError")
    assert.strictEqual(error.operation, "attach")
  })

  it("of a connection that is given up leaves nothing open", async () => {
    const bridge = serve({ onRequest: () => "silence" })
    const controller = new AbortController()
    const connecting = connect(bridge, { signal: controller.signal })
    await eventually(() => bridge.count("Hello") === 1)
    controller.abort()
    assert.strictEqual((await rejected(connecting)).name, "AbortError")
    await eventually(() => bridge.sockets.size === 0)
  })
})

describe("tool", () => {
  const run = (word: string) => `found ${word}`

  it("takes schemas of zod, valibot and arktype, and JSON Schemas", () => {
    const parameters = { type: "object", properties: { word: { type: "string" } }, required: ["word"] }
    const tools = [
      Plain.tool({
        description: "zod",
        parameters: z.object({ word: z.string() }),
        run: ({ word }) => run(word)
      }),
      Plain.tool({
        description: "valibot",
        parameters: v.object({ word: v.string() }),
        jsonSchema: parameters,
        run: ({ word }) => run(word)
      }),
      Plain.tool({ description: "arktype", parameters: type({ word: "string" }), run: ({ word }) => run(word) }),
      Plain.tool({ description: "JSON Schema", parameters, run: ({ word }) => run(String(word)) })
    ]
    for (const tool of tools) assert.deepStrictEqual(tool.parameters, parameters, tool.description)
  })

  it("says at once that a schema gives no JSON Schema", () => {
    const withoutJsonSchema = v.object({ word: v.string() }) as never
    assert.throws(
      () => Plain.tool({ description: "valibot", parameters: withoutJsonSchema, run: () => 1 }),
      /valibot gives no JSON Schema.*jsonSchema/
    )
    assert.throws(() => Plain.tool({ description: "zod", parameters: z.object({ at: z.date() }), run: () => 1 }))
  })

  it("runs for the turns that this host started, and the agent gets results and failures without stacks", async () => {
    const seen: Array<unknown> = []
    const { bridge, log } = await start({
      tools: {
        lookup: Plain.tool({
          description: "Looks up",
          parameters: z.object({ word: z.string().transform((word) => word.length), times: z.number().default(2) }),
          run: async (params, { id }) => {
            seen.push({ id, params })
            return { found: params.word * params.times, at: new Date(0), nothing: undefined }
          }
        }),
        crash: Plain.tool({
          description: "Crashes",
          parameters: { type: "object" },
          run: () => {
            throw new Error("it broke")
          }
        }),
        nothing: Plain.tool({ description: "Gives nothing", parameters: { type: "object" }, run: async () => {} }),
        round: Plain.tool({
          description: "Gives what is no JSON",
          parameters: { type: "object" },
          run: () => 1n
        }),
        odd: Plain.tool({
          description: "Throws what is no error",
          parameters: { type: "object" },
          run: () => Promise.reject(Object.create(null))
        })
      }
    })
    assert.deepStrictEqual(bridge.payloads("StartSession")[0]!.tools[0].name, "lookup")
    log.emit(
      call("c1", "lookup", { word: "four" }),
      call("c2", "lookup", { word: 4 }),
      call("c3", "crash"),
      call("c4", "nothing"),
      call("c5", "round"),
      call("c6", "odd"),
      call("c7", "toString"),
      { ...call("c8", "crash"), params: [] }
    )
    await eventually(() => log.answers.size === 8)
    assert.deepStrictEqual(seen, [{ id: "c1", params: { word: 4, times: 2 } }])
    const answer = (id: string) => ({ result: log.answers.get(id)!.result, isFailure: log.answers.get(id)!.isFailure })
    assert.deepStrictEqual(answer("c1"), {
      result: { found: 8, at: "1970-01-01T00:00:00.000Z" },
      isFailure: false
    })
    assert.isTrue(answer("c2").isFailure)
    assert.match(answer("c2").result, /^The tool failed: its input doesn't fit: word: .*string.*\.$/)
    assert.deepStrictEqual(answer("c3"), { result: "The tool failed: it broke.", isFailure: true })
    assert.deepStrictEqual(answer("c4"), { result: null, isFailure: false })
    assert.isTrue(answer("c5").isFailure)
    assert.notInclude(JSON.stringify(answer("c5")), "at ")
    assert.isTrue(answer("c6").isFailure)
    assert.deepStrictEqual(answer("c7"), { result: "The tool failed: there is none named toString.", isFailure: true })
    assert.deepStrictEqual(answer("c8"), { result: "The tool failed: its input isn't an object.", isFailure: true })
  })

  it("is told by its signal that another host answered, or that the client is closed", async () => {
    const aborted: Array<string> = []
    const { client, log, turn } = await start({
      tools: {
        slow: Plain.tool({
          description: "Waits",
          parameters: { type: "object" },
          run: (_, { id, signal }) =>
            new Promise((_, reject) =>
              signal.addEventListener("abort", () => {
                aborted.push(id)
                reject(signal.reason)
              })
            )
        })
      }
    })
    log.emit(call("c1", "slow"), call("c2", "slow"))
    await eventually(() => log.readers.size > 0)
    await pause(20)
    await turn.answer({ id: "c1", result: "by hand" })
    await eventually(() => aborted.length === 1)
    await client.close()
    assert.deepStrictEqual(aborted, ["c1", "c2"])
  })
})

describe("a handler", () => {
  const request = (approvalId: string, name: string) => ({
    type: "tool-approval-request",
    approvalId,
    toolCallId: approvalId,
    name,
    params: {}
  })
  const question = (questionId: string, text: string) => ({
    type: "question",
    questionId,
    questions: [{ question: text, options: [], multiple: false }]
  })

  it("decides, leaves to others, and denies by failing", async () => {
    const asked: Array<string> = []
    const { log, turn } = await start({
      onApproval: ({ name }, { turn }) => {
        asked.push(`${turn.turn} ${name}`)
        if (name === "break") throw new Error("no idea")
        return name === "allow" ? Promise.resolve({ decision: "allow" }) : undefined
      }
    })
    log.emit(request("a1", "allow"), request("a2", "leave"), request("a3", "break"))
    await eventually(() => log.answers.size === 2)
    assert.deepStrictEqual(asked, ["t1 allow", "t1 leave", "t1 break"])
    assert.deepInclude(log.answers.get("a1"), { decision: "allow" })
    assert.deepInclude(log.answers.get("a3"), { decision: "deny", reason: "The host's handler failed: no idea" })
    await turn.approve({ approvalId: "a2", decision: "deny" })
    assert.deepInclude(log.answers.get("a2"), { decision: "deny" })
  })

  it("answers questions, and tells the agent that it failed", async () => {
    const { log } = await start({
      onQuestion: async ({ questions: [first] }) => {
        if (first!.question === "Why?") throw new Error("no idea")
        return { [first!.question]: "Both" }
      }
    })
    log.emit(question("q1", "Which?"), question("q2", "Why?"))
    await eventually(() => log.answers.size === 2)
    assert.deepInclude(log.answers.get("q1"), { result: { "Which?": "Both" }, isFailure: false })
    assert.deepInclude(log.answers.get("q2"), { result: "The host's handler failed: no idea", isFailure: true })
  })
})
