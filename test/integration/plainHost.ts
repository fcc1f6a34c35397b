/**
 * A host in plain TypeScript, run as a program of its own by Node and by Bun: it launches a bridge, and prints what came.
 *
 *   plainHost.ts <root> <bun> <bridge program>
 */
import * as Plain from "@gangway/client/promise"
import { mkdirSync, readFileSync } from "node:fs"
import { z } from "zod"

const [root = "", bun = "", program = ""] = process.argv.slice(2)

const prompt = (script: object) => `Play this: @@${JSON.stringify(script)}@@`

const connect = () =>
  Plain.connect({
    sandbox: Plain.local(),
    command: [bun, program],
    bridge: "b1",
    stateDirectory: `${root}/state`,
    agentOptions: { agent: "scripted", home: `${root}/agent` },
    tokens: { directory: `${root}/tokens` },
    idleTimeout: "1 minute"
  })

const directory = `${root}/project`
mkdirSync(directory)

const options = {
  session: "s1",
  directory,
  tools: {
    lookup: Plain.tool({
      description: "Looks up a word",
      parameters: z.object({ word: z.string() }),
      run: async ({ word }) => ({ found: `${word}!` })
    })
  },
  onApproval: async ({ name }) => ({ decision: name === "bash" ? "allow" : "deny" }),
  onQuestion: ({ questions }) => Object.fromEntries(questions.map(({ question }) => [question, "Both"]))
} satisfies Plain.SessionOptions

const pids = new Set<number>()
const pid = () => {
  const found = JSON.parse(readFileSync(`${root}/state/listening.json`, "utf8")).pid as number
  pids.add(found)
  return found
}

const seen: Array<string> = []
let isGapless = true
const first = await connect()
try {
  const session = await first.startSession(options)
  const turn = await session.startTurn({
    turn: "t1",
    prompt: prompt({
      steps: [
        { actions: [{ type: "host-tools", calls: [{ name: "lookup", params: { word: "gangway" } }], echo: true }] },
        { actions: [{ type: "tool", name: "bash", approval: {}, result: "done" }] },
        { actions: [{ type: "question", questions: [{ question: "Which?", options: [] }], echo: true }] },
        { actions: [{ type: "text", random: { length: 300 }, chunk: 3, delay: 5 }] }
      ]
    })
  })
  let next = 1
  let deltas = 0
  for await (const part of turn.parts()) {
    isGapless &&= part.n === next
    next = Plain.nextNumber(part)
    seen.push(part.part.type)
    // In the last step's text, when it's under way, the bridge dies.
    if (part.part.type === "text-delta" && ++deltas === 20) process.kill(pid(), "SIGKILL")
  }
  const end = await turn.end()
  pid()
  seen.push(end.type)
} finally {
  // Node 22 has no `await using`.
  await first.close()
}

// Another client finds the same bridge by the token's file, and stops waiting for a turn that it then aborts.
const second = await connect()
const session = await second.startSession(options)
const turn = await session.startTurn({ turn: "t2", prompt: prompt({ steps: [{ actions: [{ type: "hang" }] }] }) })
const reason = await turn.end({ signal: AbortSignal.timeout(200) }).catch((error: Error) => error.name)
const { end } = await turn.abort({ reason: "enough" })
const missing = await session.turn("nothing").text().catch((error: unknown) =>
  error instanceof Plain.TurnNotFound ? error._tag : String(error)
)
await session.destroy()
await second.close()

console.log(JSON.stringify({
  bridges: pids.size,
  isGapless,
  types: [...new Set(seen)],
  waiting: reason,
  aborted: end.type,
  missing,
  resumed: session.resumed
}))
