/**
 * The programs of docs/recipes.md, with a real bridge and the scripted agent.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type Bridge, connect, counted, local, type TurnPart } from "@gangway/client/promise"
import { Scripted } from "@gangway/drivers"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { codeBlocks } from "../../scripts/codeBlocks.ts"

const repository = join(import.meta.dirname, "../..")
const root = mkdtempSync(join(tmpdir(), "gangway-recipes-"))
const directory = join(root, "project")
const modules = mkdtempSync(join(repository, "node_modules/.recipes-"))

const recipe = (name: string) => {
  const { text } = codeBlocks(readFileSync(join(repository, "docs/recipes.md"), "utf8"))
    .find(({ info }) => info === `ts check ${name}`)!
  writeFileSync(join(modules, name), text.replaceAll("/srv/project", directory))
  return import(join(modules, name))
}

const connectBridge = () =>
  connect({
    sandbox: local(),
    command: [process.execPath, join(repository, "apps/bridge/src/main.ts")],
    bridge: "b1",
    stateDirectory: join(root, "state"),
    agentOptions: { agent: "scripted", home: join(root, "agent") },
    tokens: { directory: join(root, "tokens") },
    idleTimeout: "1 minute"
  })

const pid = (): number => JSON.parse(readFileSync(join(root, "state/listening.json"), "utf8")).pid
const text = (text: string) => ({ steps: [{ actions: [{ type: "text" as const, text }] }] })
const until = async (holds: () => boolean) => {
  while (!holds()) await delay(10)
}

let bridge: Bridge
beforeAll(async () => {
  mkdirSync(directory)
  bridge = await connectBridge()
})
afterAll(async () => {
  await bridge.close()
  try {
    process.kill(pid(), "SIGKILL")
  } catch {
    // It has ended.
  }
  for (const made of [root, modules]) rmSync(made, { recursive: true, force: true })
})

describe("a recipe", () => {
  it("runs a CI job, whose end is its exit code", async () => {
    const { runJob } = await recipe("job.ts")
    const said: Array<string> = []
    const run = (run: string, script: Scripted.Script) =>
      runJob(bridge, { run, directory, prompt: Scripted.toPrompt(script) }, (text: string) => said.push(text))
    const bash = { type: "tool" as const, name: "bash", approval: {}, result: "done" }
    assert.strictEqual(await run("1", { steps: [{ actions: [bash, { type: "text", text: "Done." }] }] }), 0)
    assert.strictEqual(said.join(""), "\n[bash]\nDone.")
    // A job that runs again joins its turn.
    assert.strictEqual(await run("1", { steps: [{ actions: [bash, { type: "text", text: "Done." }] }] }), 0)
    assert.strictEqual(said.join(""), "\n[bash]\nDone.".repeat(2))
    assert.strictEqual(await run("2", { steps: [{ actions: [{ type: "fail", kind: "unknown", message: "no" }] }] }), 1)
  })

  it("serves a turn to a browser that reconnects, over its bridge's death", async () => {
    const { handle } = await recipe("web.ts")
    const url = "http://127.0.0.1/sessions/web/turns/t1"
    const script: Scripted.Script = {
      steps: [
        { actions: [{ type: "text", text: "First." }] },
        // Hangs where its bridge is killed.
        { actions: [{ type: "text", text: "Second." }, { type: "hang", attempts: [1] }] }
      ]
    }
    const body = Scripted.toPrompt(script)
    assert.strictEqual((await handle(bridge, new Request(url, { method: "POST", body }))).status, 202)

    const events: Array<{ readonly id?: number; readonly event: string; readonly data: any }> = []
    const read = async (enough: () => boolean) => {
      const last = events.findLast(({ id }) => id !== undefined)?.id
      const headers = last === undefined ? {} : { "last-event-id": `${last}` }
      const response: Response = await handle(bridge, new Request(url, { headers }))
      let buffer = ""
      for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
        const whole = (buffer + chunk).split("\n\n")
        buffer = whole.pop()!
        for (const one of whole) {
          const { data, event, id } = Object.fromEntries(
            one.split("\n").map((line) => /^(\w+): (.*)$/.exec(line)!.slice(1))
          )
          events.push({ ...(id === undefined ? {} : { id: Number(id) }), event, data: JSON.parse(data) })
        }
        if (enough()) break
      }
    }
    await read(() => events.filter(({ data }) => data.type === "text-end").length === 2)
    process.kill(pid(), "SIGKILL")
    await read(() => false)
    assert.strictEqual(events.at(-1)!.event, "end", JSON.stringify(events.at(-1)))
    assert.strictEqual(events.at(-1)!.data.type, "finished")
    const numbers = events.slice(0, -1).map(({ id }) => id)
    assert.deepStrictEqual(numbers, numbers.map((_, index) => index + 1))
    assert.include(events.map(({ data }) => data.type), "turn-continued")
    const gone = await handle(bridge, new Request("http://127.0.0.1/sessions/web/turns/t2"))
    assert.match(await gone.text(), /^event: gone\n/)
  })

  it("posts what's asked to a chat, and takes the first click", async () => {
    const { decide, watch } = await recipe("chat.ts")
    const session = await bridge.startSession({ session: "chat", directory })
    const ask = (name: string) => ({ actions: [{ type: "tool" as const, name, approval: {}, result: "done" }] })
    const prompt = Scripted.toPrompt({ steps: [ask("bash"), ask("write")] })
    const turn = await session.startTurn({ turn: "t1", prompt })
    const posts = new Map<string, { readonly text: string; readonly buttons: ReadonlyArray<any> }>()
    const watching = watch(bridge.session("chat").turn("t1"), async (id: string, post: any) => {
      posts.set(id, post)
      if (post.buttons.length === 0) return
      const [allow, deny] = post.buttons
      assert.strictEqual(await decide(bridge, post.text.startsWith("bash") ? allow : deny, "Ann"), "Done.")
      assert.match(await decide(bridge, deny, "Bob"), /faster|no longer/)
    })
    await watching
    assert.deepStrictEqual([...posts.values()].map(({ text }) => text), ["Decided: allow", "Decided: deny"])
    assert.strictEqual((await turn.end()).type, "finished")
  })

  it("reads on after a deploy, from the row that was kept", async () => {
    const { follow } = await recipe("deploy.ts")
    // Nobody answers what's asked before the deploy.
    const bash = { type: "tool" as const, name: "bash", approval: {}, result: "done" }
    const prompt = Scripted.toPrompt({ steps: [{ actions: [{ type: "text", text: "First." }, bash] }] })
    const kept: Array<TurnPart> = []
    let row = { session: "deploy", turn: "t1", prompt, from: 1 }
    const keep = async (part: TurnPart, from: number) => {
      kept.push(part)
      row = { ...row, from }
    }
    const old = await connectBridge()
    const stopped = follow(old, { directory }, row, keep).catch((error: { readonly _tag: string }) => error._tag)
    await until(() => kept.at(-1)?.part.type === "tool-approval-request")
    await old.close()
    assert.strictEqual(await stopped, "ClientClosed")
    const end = await follow(bridge, { directory, onApproval: () => ({ decision: "allow" }) }, row, keep)
    assert.strictEqual(end.type, "finished")
    assert.deepStrictEqual(kept.map(({ n }) => n), kept.map((_, index) => index + 1))
    assert.strictEqual(counted(kept).length, kept.length)
  })

  it("shows what runs in a bridge, and ends it", async () => {
    const { abortSession, overview } = await recipe("hosts.ts")
    const session = await bridge.startSession({ session: "many", directory })
    const hang = await session.startTurn({
      turn: "t1",
      prompt: Scripted.toPrompt({ steps: [{ actions: [{ type: "hang" }] }] })
    })
    const other = await connectBridge()
    try {
      assert.include(await overview(other), "many: t1 running")
      assert.isTrue(await abortSession(other, "many", "enough"))
      assert.deepInclude(await hang.end(), { type: "aborted" })
      assert.isFalse(await abortSession(other, "many", "enough"))
      const done = await session.startTurn({ turn: "t2", prompt: Scripted.toPrompt(text("Done.")) })
      assert.strictEqual(await done.text(), "Done.")
      assert.include(await overview(other), "many: t2 finished")
    } finally {
      await other.close()
    }
  })
})
