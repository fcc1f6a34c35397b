import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import * as ModelServer from "./ModelServer.ts"
import { script, type Step } from "./Script.ts"

const say = (url: string, messages: ReadonlyArray<object>, stream = false) =>
  fetch(`${url}/v1/messages`, {
    method: "POST",
    body: JSON.stringify({ model: "m", max_tokens: 10, stream, messages })
  })

const prompt = (...steps: ReadonlyArray<Step>) => ({ role: "user", content: `Do it. ${script(...steps)}` })

const test = (name: string, body: (server: ModelServer.Server) => Promise<void>) =>
  it.live(name, () => Effect.scoped(Effect.flatMap(ModelServer.start, (server) => Effect.promise(() => body(server)))))

describe("the scripted model", () => {
  test("plays the step that the conversation has come to", async ({ url }) => {
    const asked = prompt({ think: "Hm.", text: "One.", bash: "ls" }, { text: "Two." })
    const one = await (await say(url, [asked])).json()
    assert.deepStrictEqual(
      one.content.map((block: any) => block.thinking ?? block.text ?? block.input.command),
      ["Hm.", "One.", "ls"]
    )
    assert.strictEqual(one.stop_reason, "tool_use")
    const answered = { role: "user", content: [{ type: "tool_result", tool_use_id: "x", content: "." }] }
    const two = await (await say(url, [asked, { role: "assistant", content: one.content }, answered])).json()
    assert.deepStrictEqual([two.content[0].text, two.stop_reason], ["Two.", "end_turn"])
    const rest = [{ role: "assistant", content: "Two." }, { role: "user", content: "A nudge." }]
    const three = await (
      await say(url, [asked, { role: "assistant", content: one.content }, answered, ...rest])
    ).json()
    assert.strictEqual(three.content[0].text, "done")
    assert.strictEqual((await (await say(url, [{ role: "user", content: "Hi" }])).json()).content[0].text, "ok")
  })

  test("streams the same as events", async ({ url }) => {
    const asked = prompt({ text: "🦆 speaks.", tool: ["any", { a: 1 }], usage: { input: 3, output: 4 } })
    const text = await (await say(url, [asked], true)).text()
    const events = text.split("\n\n").filter((event) => event !== "").map((event) =>
      JSON.parse(event.split("data: ")[1]!)
    )
    assert.strictEqual(events[0].type, "message_start")
    assert.strictEqual(events.at(-1).type, "message_stop")
    assert.deepInclude(events.at(-2).usage, { input_tokens: 3, output_tokens: 4 })
    const joined = (field: string) => events.map(({ delta }) => delta?.[field] ?? "").join("")
    assert.strictEqual(joined("text"), "🦆 speaks.")
    assert.deepStrictEqual(JSON.parse(joined("partial_json")), { a: 1 })
  })

  test("finds the script of a sub-agent only in the sub-agent's prompt", async ({ url }) => {
    const inner = script({ text: "Inner." })
    const outer = prompt({ tool: ["Agent", { prompt: inner }] }, { text: "Outer." })
    assert.strictEqual((await (await say(url, [outer])).json()).content[0].input.prompt, inner)
    assert.strictEqual(
      (await (await say(url, [{ role: "user", content: inner }])).json()).content[0].text,
      "Inner."
    )
  })

  test("fails, hangs and breaks off as often as it should", async ({ url }) => {
    const failing = prompt({ err: 529, message: "Overloaded", times: 1, text: "Then." })
    const failed = await say(url, [failing])
    assert.strictEqual(failed.status, 529)
    assert.deepInclude((await failed.json()).error, { type: "overloaded_error", message: "Overloaded" })
    assert.strictEqual((await say(url, [failing])).status, 200)

    const cut = await say(url, [prompt({ text: "Cut.", cut: 2 })], true)
    const broken = await cut.text().then((text) => text.includes("message_stop"), () => "broken")
    assert.notStrictEqual(broken, true)

    const hanging = await say(url, [prompt({ text: "Heard.", hang: 1 })], true)
    const reader = hanging.body!.getReader()
    let heard = ""
    while (!heard.includes("content_block_stop")) heard += new TextDecoder().decode((await reader.read()).value)
    const silence = await Promise.race([
      reader.read().then(() => "more"),
      new Promise((resolve) => setTimeout(() => resolve("silence"), 200))
    ])
    assert.strictEqual(silence, "silence")
    await reader.cancel()
  })

  test("tolerates what else agents ask, and records all of it", async (server) => {
    const get = async (path: string, init?: RequestInit) => (await fetch(`${server.url}${path}`, init)).status
    assert.strictEqual(await get("/api/hello", { method: "HEAD" }), 200)
    assert.strictEqual(await get("/v1/models"), 200)
    const counted = await fetch(`${server.url}/v1/messages/count_tokens`, {
      method: "POST",
      body: JSON.stringify({ messages: [] })
    })
    assert.isAbove((await counted.json()).input_tokens, 0)
    await say(server.url, [{ role: "user", content: "Hi." }])
    const requests = await Effect.runPromise(server.requests)
    assert.deepStrictEqual(requests.map(({ method, path }) => `${method} ${path}`), [
      "HEAD /api/hello",
      "GET /v1/models",
      "POST /v1/messages/count_tokens",
      "POST /v1/messages"
    ])
    assert.strictEqual((await Effect.runPromise(server.calls("Hi."))).length, 1)
  })

  it.live("is a process that prints its address", () =>
    Effect.promise(async () => {
      const main = spawn(process.execPath, [`${import.meta.dirname}/main.ts`], { stdio: ["ignore", "pipe", "inherit"] })
      try {
        const url = String(await new Promise((resolve) => main.stdout.once("data", resolve))).trim()
        await say(url, [{ role: "user", content: "Hi." }])
        assert.strictEqual((await (await fetch(`${url}/requests`)).json()).length, 1)
      } finally {
        main.kill("SIGKILL")
      }
    }))
})
