/**
 * The driver of the scripted agent: an agent without a model, which does what its prompts script.
 *
 * It's for tests, demonstrations and benchmarks, and behaves as the driver of a real agent: the agent is a process of
 * its own that keeps its conversation in files, so killing either side is what it would be with any other.
 *
 * A prompt scripts its turn by holding a `Script` as JSON between `@@` and `@@`; without one, the agent options'
 * `script` is played, and without that, the agent repeats the prompt. A message that a host sends into the turn scripts
 * likewise what comes next, after the step that is played; without a script, the agent repeats it.
 *
 * **Example** (A prompt that scripts its turn)
 *
 * ```ts
 * const script: Scripted.Script = {
 *   seed: 7,
 *   steps: [
 *     { actions: [{ type: "host-tools", calls: [{ name: "lookup", params: { word: "gangway" } }] }] },
 *     { actions: [{ type: "text", random: { length: 2000 }, chunk: 20, delay: 10 }] }
 *   ]
 * }
 * const prompt = `Look it up, then tell. ${Scripted.toPrompt(script)}`
 * ```
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { AgentSession, Driver, DriverDefinition, PreviousAttempts, SessionOptions } from "@gangway/server/Driver"
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Conversation from "./internal/scriptedConversation.ts"
import { reconcile } from "./internal/scriptedReconcile.ts"
import { Script } from "./internal/scriptedScript.ts"
import { failed, listen, name, type Running, runTurn, tell } from "./internal/scriptedTurn.ts"

export {
  /**
   * What the scripted agent plays.
   *
   * @category schemas
   * @since 0.1.0
   */
  Script
} from "./internal/scriptedScript.ts"

/**
 * The agent options of the scripted agent.
 *
 * @category options
 * @since 0.1.0
 */
export const Options = Schema.Struct({
  /** Played where a prompt holds no script; absent, the agent repeats the prompt. */
  script: Schema.optional(Script),
  /** Where the agent keeps conversations and journals, absolute; absent, `.gangway/scripted` in the user's home. */
  home: Schema.optional(Schema.String),
  /** `off`: no journal, and no parts in the conversation, for benchmarks; absent, `synced`. */
  journal: Schema.optional(Schema.Literals(["synced", "off"]))
})

/** @category options @since 0.1.0 */
export type Options = typeof Options.Type

/**
 * The program that runs `ScriptedAgent.program`, and its arguments. A bridge program provides it; without it, `make`
 * fails with `not-installed`.
 *
 * @category references
 * @since 0.1.0
 */
export const AgentCommand: Context.Reference<readonly [string, ...Array<string>] | undefined> = Context.Reference<
  readonly [string, ...Array<string>] | undefined
>("@gangway/drivers/Scripted/AgentCommand", { defaultValue: () => undefined })

/**
 * A script as a prompt holds it.
 *
 * @category converting
 * @since 0.1.0
 */
export const toPrompt = (script: Script): string => `@@${JSON.stringify(script)}@@`

/**
 * The scripted agent as a bridge program's driver.
 *
 * @category drivers
 * @since 0.1.0
 */
export const Scripted: DriverDefinition<
  typeof Options,
  FileSystem.FileSystem | Path.Path
> = {
  name,
  options: Options,
  make: Effect.fnUntraced(function*(options) {
    const path = yield* Path.Path
    const context = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
    const command = yield* AgentCommand
    if (command === undefined) {
      return yield* failed("not-installed", "this bridge program doesn't say how the scripted agent is started")
    }
    const home = options.home ?? path.join(
      yield* Effect.mapError(Config.String("HOME"), () => failed("options", "there is no HOME: set the option 'home'")),
      ".gangway",
      "scripted"
    )
    if (!path.isAbsolute(home)) return yield* failed("options", "the option 'home' must be an absolute path")
    const agent = { command, home, journal: options.journal ?? "synced", script: options.script }
    return {
      name,
      version: "0.1.0",
      capabilities,
      open: (session) => Effect.provideContext(open(agent, session), context),
      forget: ({ conversation }) =>
        Effect.flatMap(
          FileSystem.FileSystem,
          (fs) => fs.remove(Conversation.pathOf(path, home, conversation), { force: true })
        ).pipe(
          Effect.mapError((error) => failed("unknown", error.message)),
          Effect.provideContext(context)
        )
    } satisfies Driver
  })
}

const capabilities: Bridge.Capabilities = {
  reasoning: true,
  toolParams: true,
  hostTools: true,
  approvals: true,
  questions: true,
  images: true,
  fileChanges: true,
  compaction: true,
  continuation: true,
  state: true,
  structuredOutput: true,
  mcpServers: true,
  effort: true,
  usage: true,
  steering: true
}

interface AgentOptions {
  readonly command: readonly [string, ...Array<string>]
  readonly home: string
  readonly journal: "synced" | "off"
  readonly script: Script | undefined
}

const open = Effect.fnUntraced(function*(agent: AgentOptions, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Scope.Scope
> {
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const scope = yield* Effect.scope
  const path = yield* Path.Path
  const fs = yield* FileSystem.FileSystem
  const conversation = options.conversation ?? `conversation-${(yield* randomName)}`
  const file = Conversation.pathOf(path, agent.home, conversation)
  const orLost = <A, R>(effect: Effect.Effect<A, Conversation.ConversationUnreadable, R>) =>
    Effect.mapError(effect, ({ problem }) => new Bridge.ContextLost({ session: options.session, problem }))

  const exists = yield* Effect.orElseSucceed(fs.exists(file), () => false)
  if (exists || (options.conversation !== undefined && options.established)) yield* orLost(Conversation.read(file))
  else yield* orLost(Conversation.create({ path: file, conversation, state: options.state }))

  const checkPresent = Effect.flatMap(
    Effect.orElseSucceed(fs.exists(file), () => true),
    (exists) =>
      exists
        ? Effect.void
        : Effect.fail(new Bridge.ContextLost({ session: options.session, problem: `its file ${file} is gone` }))
  )

  let running: Running | undefined
  // The agent of the latest turn, once it was told the turn; none where the turn ended before.
  let told = Deferred.makeUnsafe<Running | undefined>()
  Deferred.doneUnsafe(told, Effect.undefined)

  const start = Effect.fnUntraced(function*() {
    const [command, ...args] = agent.command
    const process = yield* options.processes.spawn({ command, args, cwd: options.directory, env: options.env })
    const lines = yield* Scope.provide(Stream.toPull(process.lines), scope)
    const started: Running = { process, lines, gone: false }
    yield* Effect.forkIn(Effect.andThen(process.exit, Effect.sync(() => void (started.gone = true))), scope)
    running = started
    yield* tell(started, {
      type: "open",
      home: agent.home,
      conversation,
      journal: agent.journal,
      told: {
        session: options.session,
        directory: options.directory,
        instructions: options.instructions,
        tools: options.tools.map(({ name }) => name),
        permissions: options.permissions,
        settings: options.settings,
        mcpServers: options.mcpServers.map(({ name }) => name),
        env: Object.keys(options.env)
      }
    })
    return started
  }, Effect.provideContext(context))

  // The agent that is running, or a new one. It's forgotten where what is asked of it doesn't end well: the bridge
  // ends its process after an abort and a failure.
  const withAgent = <A, E>(use: (running: Running) => Effect.Effect<A, E>) =>
    Effect.suspend(() => running === undefined || running.gone ? start() : Effect.succeed(running)).pipe(
      Effect.flatMap(use),
      Effect.onError(() => Effect.sync(() => void (running = undefined)))
    )

  return {
    conversation,
    reconcile: (previous: PreviousAttempts) =>
      reconcile(file, previous).pipe(
        Effect.catchTag("ConversationUnreadable", (error) => orLost(Effect.fail(error))),
        Effect.provideContext(context)
      ),
    run: (turn) =>
      Effect.suspend(() => {
        const hears = told = Deferred.makeUnsafe<Running | undefined>()
        return Effect.andThen(
          checkPresent,
          withAgent((running) => runTurn(running, agent.script, turn, Deferred.succeed(hears, running)))
        ).pipe(Effect.ensuring(Deferred.succeed(hears, undefined)))
      }),
    steer: ({ messageId, prompt }) =>
      Effect.flatMap(
        Effect.suspend(() => Deferred.await(told)),
        (running) => running === undefined ? Effect.void : tell(running, { type: "message", id: messageId, prompt })
      ),
    interrupt: Effect.suspend(() => Deferred.await(told)).pipe(
      Effect.flatMap((running) => running === undefined ? Effect.void : tell(running, { type: "interrupt" })),
      Effect.ignore
    ),
    compact: (instructions) =>
      withAgent((running) =>
        Effect.gen(function*() {
          yield* tell(running, { type: "compact", instructions })
          const message = yield* listen(
            running,
            (message) => Effect.succeed(message.type === "compacted" ? message : undefined)
          )
          return { summary: message.summary }
        }).pipe(
          Effect.catchTag("AgentEnded", (ended) => Effect.fail(failed("exit", ended.message)))
        )
      ),
    readState: orLost(Conversation.toState(file)).pipe(Effect.provideContext(context))
  }
})

const randomName = Effect.map(
  Effect.all(Array.from({ length: 4 }, () => Random.nextIntBetween(0, 0xffffffff))),
  (numbers) => numbers.map((number) => number.toString(16).padStart(8, "0")).join("")
)
