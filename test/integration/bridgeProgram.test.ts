import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { codeBlocks } from "../../scripts/codeBlocks.ts"

const root = path.resolve(import.meta.dirname, "../..")
const token = "correct-horse-battery-staple-0123456789"

// The program as the README shows it, where its imports are found.
const program = () => {
  const readme = fs.readFileSync(`${root}/README.md`, "utf8")
  const directory = fs.mkdtempSync(`${root}/node_modules/.readme-`)
  const block = codeBlocks(readme).find(({ info }) => info === "ts check bridge.ts")
  fs.writeFileSync(`${directory}/bridge.ts`, block!.text)
  return { directory, file: `${directory}/bridge.ts` }
}

const until = async <A>(look: () => A | undefined): Promise<A> => {
  const deadline = Date.now() + 20_000
  while (Date.now() < deadline) {
    const found = look()
    if (found !== undefined) return found
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error("it didn't happen within 20 s")
}

const readListening = (state: string): { readonly port: number } | undefined => {
  try {
    return JSON.parse(fs.readFileSync(`${state}/listening.json`, "utf8"))
  } catch {
    return undefined
  }
}

describe("the bridge program of the README", () => {
  it.live(
    "exits by itself when it's idle, with standard input open and a stopped host connected",
    () =>
      Effect.promise(async () => {
        const { directory, file } = program()
        const state = fs.mkdtempSync(path.join(tmpdir(), "gangway-"))
        const bridge = spawn(process.execPath, [file], { stdio: ["pipe", "inherit", "inherit"] })
        const exited = new Promise<number | null>((resolve) => bridge.once("exit", resolve))
        let host: ReturnType<typeof spawn> | undefined
        try {
          // Input stays open: nothing ends this stream.
          bridge.stdin.write(
            `${
              JSON.stringify({
                token,
                bridge: "b1",
                stateDirectory: state,
                hostname: "127.0.0.1",
                agentOptions: { agent: "echo" },
                idleTimeout: "2 seconds"
              })
            }\n`
          )
          const { port } = await until(() => readListening(state))
          host = spawn(process.execPath, [
            "-e",
            `const socket = new WebSocket("ws://127.0.0.1:${port}/", { headers: { "X-Bridge-Token": "${token}" } })
           socket.onopen = () => console.log("open")
           setInterval(() => socket.send('{"_tag":"Ping"}'), 100)`
          ], { stdio: ["ignore", "pipe", "inherit"] })
          await new Promise((resolve) => host!.stdout!.once("data", resolve))
          host.kill("SIGSTOP")
          const stopped = Date.now()
          assert.strictEqual(await exited, 0)
          assert.isBelow(Date.now() - stopped, 10_000)
        } finally {
          bridge.kill("SIGKILL")
          host?.kill("SIGKILL")
          fs.rmSync(directory, { recursive: true })
          fs.rmSync(state, { recursive: true })
        }
      }),
    60_000
  )
})
