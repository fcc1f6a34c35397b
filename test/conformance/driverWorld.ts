/**
 * Where a driver is tested with its real agent: directories, a scripted model, and a bridge in miniature.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import type { Driver, SessionOptions, Turn } from "@gangway/server/Driver"
import { Effect, Exit, Fiber, FileSystem, Option, Schedule, type Schema, type Scope } from "effect"
import { readdirSync, readFileSync, readlinkSync } from "node:fs"
import { type Answers, type Host, makeLog, openHost, partsOf } from "../../packages/drivers/test/fixtures/turns.ts"
import type { InstalledAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script, type Step } from "../model/Script.ts"

/** An agent and how its driver is made. */
export interface Profile {
  readonly name: string
  readonly agent: InstalledAgent
  /** The driver of the agent that speaks to the model at `url`, and keeps its files in `home`. */
  readonly make: (options: {
    readonly program: string
    readonly url: string
    readonly home: string
    /** More variables for the agent's environment. */
    readonly env?: Readonly<Record<string, string>>
  }) => Effect.Effect<Driver, Bridge.DriverError, BunServices.BunServices>
  /** What it can do; cases that need more show that it can't. */
  readonly capabilities: Bridge.Capabilities
  /** The name by which its parts call the tool that runs commands. */
  readonly shell: string
  /** The name under which the model calls a host tool. */
  readonly hostTool: (name: string) => string
  /** The file that a request to write one names. */
  readonly fileOf: (params: Schema.Json) => string
  /** The effort that a request to the model asks for. */
  readonly effortOf: (body: unknown) => string | undefined
  /** Whether a conversation's state, as text, holds the call of a command, and not only the prompt that scripts it. */
  readonly holdsCall: (state: string, command: string) => boolean
  /** Answers in the form that a turn asks for, and whether a request to the model tells of it. */
  readonly structured: { readonly answer: (value: Schema.Json) => Step; readonly asks: (body: unknown) => boolean }
  /** Whether it tells of a model call that was cut what is known. */
  readonly tellsCutSteps: boolean
  /** Whether a host can say what a compaction is to keep. */
  readonly compactsAsTold: boolean
  /** The files in its home that are of no conversation, or in which it deletes conversations without a trace of ours. */
  readonly ownFiles: RegExp
  /** Where it can't tell its state: what it has written of its conversations, as text. */
  readonly written?: (home: string) => Effect.Effect<string, never, BunServices.BunServices>
  /** What its interface has no place for, though its capabilities say nothing of it. */
  readonly untold?: ReadonlySet<Untold>
}

/**
 * What an agent may keep for itself: tokens written to a cache; why a host denied a call; what kind of failure a failed
 * call of the model was; that the model is called again, for long.
 */
export type Untold = "cache-writes" | "denials" | "failures" | "retries"

export interface World {
  readonly profile: Profile
  readonly root: string
  readonly directory: string
  readonly home: string
  readonly server: ModelServer.Server
  readonly driver: Driver
  readonly open: (options?: Partial<SessionOptions>) => Effect.Effect<
    Host & {
      /** The conversation's id as a bridge would have it now. */
      readonly conversation: () => string
    },
    Bridge.DriverError | Bridge.ContextLost,
    BunServices.BunServices | Scope.Scope
  >
}

export const makeWorld = Effect.fnUntraced(function*(profile: Profile) {
  const fs = yield* FileSystem.FileSystem
  const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-driver-" }))
  // By then its hosts are closed.
  yield* Effect.addFinalizer(() => nothingRuns(root))
  const directory = `${root}/project`
  const home = `${root}/home`
  yield* fs.makeDirectory(directory)
  yield* fs.makeDirectory(home)
  const server = yield* ModelServer.start
  const driver = yield* profile.make({ program: profile.agent.program!, url: server.url, home })
  const world: World = {
    profile,
    root,
    directory,
    home,
    server,
    driver,
    open: Effect.fnUntraced(function*(options) {
      let saved: string | undefined
      const saveConversation = (conversation: string) => Effect.sync(() => void (saved = conversation))
      const host = yield* openHost(driver, { directory, saveConversation, ...options })
      return { ...host, conversation: () => saved ?? host.agent.conversation! }
    })
  }
  return world
})

/** The processes that work in a world or were told of it, as they were started. */
const processesOf = (root: string) =>
  readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).flatMap((pid) => {
    try {
      const isOurs = readlinkSync(`/proc/${pid}/cwd`).startsWith(`${root}/`) ||
        readFileSync(`/proc/${pid}/environ`, "latin1").includes(`${root}/`)
      return isOurs ? [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")] : []
    } catch {
      // It has ended.
      return []
    }
  })

// What was killed takes a moment to go.
const nothingRuns = (root: string) =>
  Effect.sync(() => processesOf(root)).pipe(
    Effect.repeat({
      until: (running) => running.length === 0,
      schedule: Schedule.max([Schedule.spaced("20 millis"), Schedule.recurs(500)])
    }),
    Effect.flatMap((running) => Effect.sync(() => assert.deepStrictEqual(running, [], "processes were left behind")))
  )

/**
 * A test in a world of its own, after which no process of it is left. The machine may be busy: only what never ends
 * fails by the clock.
 */
export const test = (
  profile: Profile,
  name: string,
  body: (world: World) => Effect.Effect<void, unknown, BunServices.BunServices | Scope.Scope>
) =>
  it.live(
    name,
    () => Effect.flatMap(makeWorld(profile), body).pipe(Effect.scoped, Effect.provide(BunServices.layer)),
    300_000
  )

/**
 * A test of what not every agent can do. Where this one can't, it shows that the driver says so.
 */
export const testOf = (
  profile: Profile,
  capability: keyof Bridge.Capabilities,
  name: string,
  body: Parameters<typeof test>[2]
) =>
  profile.capabilities[capability] === true
    ? test(profile, name, body)
    : test(profile, `can't do what needs '${capability}', and says so: ${name}`, (world) =>
      Effect.gen(function*() {
        assert.isFalse(world.driver.capabilities[capability])
        const { agent } = yield* world.open()
        if (capability === "continuation") assert.isUndefined(agent.reconcile)
        if (capability === "compaction") assert.isUndefined(agent.compact)
        if (capability === "state") assert.isUndefined(agent.readState)
      }))

/** A suite with an agent, or the reason why it's skipped. Its tests run beside each other: the agents mostly wait. */
export const suite = (profile: Profile, name: string, body: () => void) =>
  describe(
    name,
    profile.agent.skipped === undefined
      ? { concurrent: true }
      : { skip: true, meta: { skipped: profile.agent.skipped } },
    body
  )

export const allow: Answers = { approval: () => Effect.succeed({ decision: "allow" }) }

/** Runs a turn of that script in a log of its own, all allowed. */
export const play = Effect.fnUntraced(function*(
  host: Host,
  steps: ReadonlyArray<Step>,
  options: Answers & Partial<Omit<Turn, "turn">> & { readonly turn?: string; readonly words?: string } = {}
) {
  const { turn = "t1", words = "Do it.", ...answers } = options
  const log = makeLog(turn)
  const finished = yield* host.run(log, `${words} ${script(...steps)}`, { ...allow, ...answers })
  return { log, finished, parts: partsOf(log) }
})

export const until = (condition: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() => condition() ? Effect.void : Effect.delay(until(condition), "20 millis"))

/** What a bridge does at AbortTurn; answers whether the driver ended the turn before its processes were ended. */
export const abort = Effect.fnUntraced(function*(host: Host, running: Fiber.Fiber<unknown, unknown>) {
  const ended = yield* Effect.timeoutOption(
    Effect.all([host.agent.interrupt, Fiber.await(running)], { concurrency: 2 }),
    "20 seconds"
  )
  yield* host.supervisor.endAll
  return Option.isSome(ended)
})

interface Message {
  readonly role?: string
  readonly tool_calls?: ReadonlyArray<{ readonly id: string }>
  readonly tool_call_id?: string
  readonly type?: string
  readonly content?: string | ReadonlyArray<object> | null
}

const blocksOf = (content: Message["content"]) =>
  typeof content === "string" ? [{ type: "text", text: content }] : content ?? []

/**
 * The messages of a request to the model, without what differs from request to request, and without what the agent says
 * in its own name.
 */
export const messagesOf = (request: ModelServer.Recorded): ReadonlyArray<unknown> => {
  const { input, messages } = request.body as {
    messages?: ReadonlyArray<Message>
    input?: ReadonlyArray<Message>
  }
  const theirs = (messages ?? input ?? []).filter(({ role }) => role !== "system" && role !== "developer")
  if (input !== undefined) return theirs
  return theirs.map(({ content, role, tool_call_id, tool_calls }) => ({
    role,
    content: blocksOf(content).map((block) => ({ ...block, cache_control: undefined })),
    ...(tool_calls === undefined ? {} : { tool_calls }),
    ...(tool_call_id === undefined ? {} : { tool_call_id })
  }))
}

/** The tool calls of messages without a result, and results without a call: a model refuses either. */
export const unpaired = (messages: ReadonlyArray<unknown>): ReadonlyArray<string> => {
  const all = messages as ReadonlyArray<Message>
  const blocks = all.flatMap((
    message
  ) => [message, ...blocksOf(message.content)]) as ReadonlyArray<Record<string, string>>
  const ids = (types: ReadonlyArray<string>, field: string) =>
    blocks.filter(({ type = "" }) => types.includes(type)).map((block) => block[field]!)
  const calls = [
    ...all.flatMap(({ tool_calls = [] }) => tool_calls.map(({ id }) => id)),
    ...ids(["tool_use"], "id"),
    ...ids(["function_call", "custom_tool_call"], "call_id")
  ]
  const results = [
    ...all.flatMap(({ tool_call_id }) => tool_call_id ?? []),
    ...ids(["tool_result"], "tool_use_id"),
    ...ids(["function_call_output", "custom_tool_call_output"], "call_id")
  ]
  return [...calls.filter((id) => !results.includes(id)), ...results.filter((id) => !calls.includes(id))]
}

export const kinds = (parts: ReadonlyArray<Bridge.Part>): ReadonlyArray<string> => parts.map(({ type }) => type)

type OfType<T extends Bridge.KnownPart["type"]> = Extract<Bridge.KnownPart, { readonly type: T }>

/** The parts of a type. */
export const only = <const T extends Bridge.KnownPart["type"]>(
  parts: ReadonlyArray<Bridge.KnownPart>,
  type: T
): ReadonlyArray<OfType<T>> => parts.filter((part): part is OfType<T> => part.type === type)

export const fileOf = (path: string) =>
  Effect.flatMap(
    FileSystem.FileSystem,
    (fs) => Effect.orElseSucceed(fs.readFileString(path), () => "")
  )

/** Waits until a file holds a text. */
export const waitForFile = (path: string, text: string): Effect.Effect<void, never, FileSystem.FileSystem> =>
  Effect.flatMap(
    fileOf(path),
    (content) => content.includes(text) ? Effect.void : Effect.delay(waitForFile(path, text), "20 millis")
  )

/** What an effect failed with, if it did. */
export const failure = <A, E>(exit: Exit.Exit<A, E>): E | undefined =>
  Exit.isFailure(exit) ? Option.getOrUndefined(Exit.findErrorOption(exit)) : undefined

/**
 * Kills the agent in a command, once that has begun and the conversation holds its call: agents write a little later
 * than they act.
 */
export const killIn = Effect.fnUntraced(function*(world: World, host: Host, word: string) {
  yield* waitForFile(`${world.directory}/done.txt`, word)
  const { pid } = host.processes.at(-1)!
  const written = world.profile.written?.(world.home) ??
    Effect.map(host.agent.readState!, (state) => JSON.stringify(state))
  yield* Effect.repeat(written, {
    until: (text) => world.profile.holdsCall(text, `echo ${word} >> done.txt`),
    schedule: Schedule.spaced("20 millis")
  })
  yield* Effect.sync(() => process.kill(pid, "SIGKILL"))
})
