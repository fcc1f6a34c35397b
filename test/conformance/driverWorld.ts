/**
 * Where a driver is tested with its real agent: directories, a scripted model, and a bridge in miniature.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import type { Driver, SessionOptions, Turn } from "@gangway/server/Driver"
import { Effect, Exit, Fiber, FileSystem, Option, type Scope } from "effect"
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
  /** The agent's name of the tool that runs commands. */
  readonly shell: string
  /** The name under which the model calls a host tool. */
  readonly hostTool: (name: string) => string
}

export interface World {
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
  const directory = `${root}/project`
  const home = `${root}/home`
  yield* fs.makeDirectory(directory)
  yield* fs.makeDirectory(home)
  const server = yield* ModelServer.start
  const driver = yield* profile.make({ program: profile.agent.program!, url: server.url, home })
  const world: World = {
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

/** A test in a world of its own. The machine may be busy: only what never ends fails by the clock. */
export const test = (
  profile: Profile,
  name: string,
  body: (world: World) => Effect.Effect<void, unknown, BunServices.BunServices | Scope.Scope>
) =>
  it.live(
    name,
    () => Effect.flatMap(makeWorld(profile), body).pipe(Effect.scoped, Effect.provide(BunServices.layer)),
    120_000
  )

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

/** A message of a model request, without what differs from request to request. */
export const messagesOf = (request: ModelServer.Recorded): ReadonlyArray<unknown> => {
  const { messages } = request.body as { messages: ReadonlyArray<{ role: string; content: unknown }> }
  return messages.filter(({ role }) => role !== "system").map(({ content, role }) => ({
    role,
    content: (typeof content === "string" ? [{ type: "text", text: content }] : content as ReadonlyArray<object>).map(
      (block) => ({ ...block, cache_control: undefined })
    )
  }))
}

/** The tool calls of messages without a result, and results without a call: a model refuses either. */
export const unpaired = (messages: ReadonlyArray<unknown>): ReadonlyArray<string> => {
  const blocks = (messages as ReadonlyArray<{ content: ReadonlyArray<Record<string, string>> }>).flatMap(
    ({ content }) => content
  )
  const ids = (type: string, field: string) =>
    blocks.filter((block) => block["type"] === type).map((block) => block[field]!)
  const calls = ids("tool_use", "id")
  const results = ids("tool_result", "tool_use_id")
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
  yield* Effect.repeat(host.agent.readState!, {
    // As the call's input, not as the prompt's script.
    until: (state) => JSON.stringify(state).includes(`"command":"echo ${word} >> done.txt`)
  })
  yield* Effect.sync(() => process.kill(pid, "SIGKILL"))
})
