/**
 * What the types of plain TypeScript's client accept and refuse. It's compiled with the rest, and never run.
 */
import * as Plain from "@gangway/client/promise"
import { type } from "arktype"
import * as v from "valibot"
import { z } from "zod"

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false
const isTrue = <A extends true>(_?: A) => {}

const sandbox = Plain.local()
const found = { sandbox, command: ["gangway-bridge"], bridge: "b1", stateDirectory: "/s" } as const
const agentOptions = { agent: "claude-code" }

export const connects = async () => {
  await using bridge = await Plain.connect({ ...found, agentOptions, tokens: { directory: "/tokens" } })
  isTrue<Equal<typeof bridge, Plain.Bridge>>()
  await Plain.connect({
    ...found,
    agentOptions: { agent: "claude-code", env: { KEY: Plain.secret("k") }, list: [1, null, { deep: true }] },
    tokens: { token: "t" },
    idleTimeout: "10 minutes",
    reconnectFor: 30_000,
    onStatus: async (status) => {
      if (status._tag === "Reconnecting") isTrue<Equal<typeof status.retryIn, number>>()
      // @ts-expect-error: only where there's a next attempt.
      if (status._tag === "Connected") isTrue<Equal<typeof status.retryIn, number>>()
      isTrue<Equal<typeof status.message, string>>()
    }
  })
  // @ts-expect-error: where the token is must be said.
  await Plain.connect({ ...found, agentOptions })
  // @ts-expect-error: the agent must be named.
  await Plain.connect({ ...found, agentOptions: {}, tokens: "memory" })
  // @ts-expect-error: a command has a program.
  await Plain.connect({ ...found, command: [], agentOptions, tokens: "memory" })
  // @ts-expect-error: no duration.
  await Plain.connect({ ...found, agentOptions, tokens: "memory", idleTimeout: "soon" })
  await Plain.connectTo({ bridge: "b1", address: () => ({ url: "http://127.0.0.1:1", token: "t" }) })
  // @ts-expect-error: an address has a token.
  await Plain.connectTo({ bridge: "b1", address: () => ({ url: "http://127.0.0.1:1" }) })
}

export const sandboxes = [
  Plain.docker({ image: "agents", memory: "2g" }),
  Plain.docker({ container: "agents" }),
  Plain.daytona({ apiKey: "k", autoStop: "20 minutes" }),
  Plain.daytona({ apiKey: "k", sandbox: "s" }),
  // @ts-expect-error: an image, or a container.
  Plain.docker({}),
  // @ts-expect-error: whose Daytona?
  Plain.daytona({ sandbox: "s" })
]

export const starts = async (bridge: Plain.Bridge) => {
  const session = await bridge.startSession({
    session: "s1",
    directory: "/srv",
    permissions: "edits",
    env: { KEY: "k" },
    mcpServers: [{ type: "http", name: "m", url: "http://m", headers: { authorization: Plain.secret("k") } }],
    onApproval: ({ approvalId, name }, { signal, turn }) => {
      isTrue<Equal<typeof name, string>>()
      isTrue<Equal<typeof approvalId, string>>()
      isTrue<Equal<typeof signal, AbortSignal>>()
      isTrue<Equal<typeof turn, Plain.Turn>>()
      return name === "Bash" ? undefined : { decision: "allow" }
    },
    onQuestion: async ({ questions }) => Object.fromEntries(questions.map(({ question }) => [question, "Both"]))
  })
  // @ts-expect-error: no such decision.
  await bridge.startSession({ session: "s1", directory: "/srv", onApproval: () => ({ decision: "perhaps" }) })
  // @ts-expect-error: no such permissions.
  await bridge.startSession({ session: "s1", directory: "/srv", permissions: "some" })
  // @ts-expect-error: a session has a directory.
  await bridge.startSession({ session: "s1" })
  // @ts-expect-error: an answer is JSON.
  await bridge.startSession({ session: "s1", directory: "/srv", onQuestion: () => new Map() })
  // @ts-expect-error: a tool is made by `tool`.
  await bridge.startSession({ session: "s1", directory: "/srv", tools: { lookup: () => 1 } })

  const turn = await session.startTurn({ turn: "t1", prompt: "go", timeout: "1 hour" })
  for await (const { n, part } of turn.parts({ from: 1, signal: AbortSignal.timeout(1) })) {
    isTrue<Equal<typeof n, number>>()
    if (part.type === "text-delta") isTrue<Equal<typeof part.delta, string>>()
    // @ts-expect-error: not every part has text.
    isTrue<Equal<typeof part.delta, string>>()
  }
  const end = await turn.end()
  if (end.type === "aborted") isTrue<string extends typeof end.reason ? false : true>()
  isTrue<Equal<Awaited<ReturnType<typeof turn.text>>, string>>()
  const { ended } = await turn.abort({ reason: "enough", signal: AbortSignal.timeout(1) })
  isTrue<typeof ended extends ReadonlyArray<unknown> ? true : false>()
  isTrue<Equal<Awaited<ReturnType<typeof turn.send>>, "steer" | "queue">>()
  await turn.approve({ approvalId: "a1", decision: "allow" })
  await turn.answer({ id: "c1", result: { found: true } })
  // @ts-expect-error: a result is JSON.
  await turn.answer({ id: "c1", result: undefined })
  // @ts-expect-error: no number.
  turn.parts({ from: "1" })
  return Plain.toText(Plain.counted(await Array.fromAsync(turn.parts())))
}

export const errors = (error: unknown) => {
  if (error instanceof Plain.BridgeUnavailable) {
    isTrue<Equal<typeof error._tag, "BridgeUnavailable">>()
    if (error.reason._tag === "LaunchFailed") isTrue<Equal<typeof error.reason.log, string>>()
  }
  if (error instanceof Plain.PartsLost) isTrue<Equal<typeof error.expected, number>>()
  if (error instanceof Plain.AlreadyAnswered) isTrue<Equal<typeof error.answer, Plain.Json>>()
}

const description = "Looks up"
const jsonSchema = { type: "object", properties: { word: { type: "string" } } }

const double = ({ word }: { readonly word: number }) => word * 2

export const tools: Readonly<Record<string, Plain.Tool>> = {
  zod: Plain.tool({
    description,
    parameters: z.object({ word: z.string().transform((word) => word.length) }),
    run: (params, { id, signal }) => {
      isTrue<Equal<typeof params, { word: number }>>()
      isTrue<Equal<typeof id, string>>()
      isTrue<Equal<typeof signal, AbortSignal>>()
    }
  }),
  arktype: Plain.tool({
    description,
    parameters: type({ word: "string" }),
    run: async (params) => isTrue<Equal<typeof params, { word: string }>>()
  }),
  valibot: Plain.tool({
    description,
    parameters: v.object({ word: v.string() }),
    jsonSchema,
    run: (params) => isTrue<Equal<typeof params, { word: string }>>()
  }),
  json: Plain.tool({
    description,
    parameters: jsonSchema,
    run: ({ word }) => isTrue<Equal<typeof word, Plain.Json | undefined>>()
  }),
  // @ts-expect-error: valibot's schemas give no JSON Schema, so it's put beside.
  none: Plain.tool({ description, parameters: v.object({ word: v.string() }), run: () => 1 }),
  // @ts-expect-error: not what the function takes.
  wrong: Plain.tool({ description, parameters: z.object({ word: z.string() }), run: double }),
  // @ts-expect-error: no description.
  undescribed: Plain.tool({ parameters: z.object({}), run: () => 1 })
}
