/**
 * A session with Claude Code: its process, and the turn that it works on.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import { type AgentSession, type SessionOptions, type Turn, TurnFailed } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import * as Crypto from "effect/Crypto"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { hostServer } from "./claudeBlocks.ts"
import * as Launch from "./claudeLaunch.ts"
import type { FromClaude, Result } from "./claudeMessages.ts"
import { prompt } from "./claudeMessages.ts"
import type { Options } from "./claudeOptions.ts"
import { outcomeOf } from "./claudeOutcome.ts"
import { makeParts } from "./claudeParts.ts"
import { makePlan } from "./claudePlan.ts"
import { type Claude, failed, start } from "./claudeProcess.ts"
import * as Prompt from "./claudePrompt.ts"
import { reconcile } from "./claudeReconcile.ts"
import { answer, type Work } from "./claudeRequests.ts"
import * as Transcript from "./claudeTranscript.ts"
import { nudge } from "./prompts.ts"

export interface Agent {
  readonly program: string
  readonly options: Options
  readonly home: ReturnType<typeof Transcript.homeOf>
}

interface Running {
  readonly claude: Claude
  wanted: Wanted
  /** The commands that run in the background. */
  background: number
  greeted: boolean
}

const interrupted = new TurnFailed({ kind: "unknown", message: "The turn was interrupted." })

/** The states in which a prompt is over. */
const over: ReadonlySet<string> = new Set(["completed", "cancelled", "discarded", "refused"])

// How many times the CLI is given a second to answer after its start. They are counted one by one: while the machine is
// frozen, the CLI is as well.
const patience = 120

const efforts: ReadonlySet<string> = new Set(["low", "medium", "high", "xhigh", "max"])

export const open = Effect.fnUntraced(function*(agent: Agent, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Crypto.Crypto | Scope.Scope
> {
  const context = yield* Effect.context<
    FileSystem.FileSystem | Path.Path | Crypto.Crypto
  >()
  const scope = yield* Effect.scope
  const crypto = yield* Crypto.Crypto
  const newId = Effect.orDie(crypto.randomUUIDv4)
  const home = yield* agent.home(options.env)
  const { directory } = options
  if (options.mcpServers.some(({ name }) => name === hostServer)) {
    return yield* failed("options", `an MCP server can't be named '${hostServer}': the host's own tools have that name`)
  }

  const lost = (problem: string) => new Bridge.ContextLost({ session: options.session, problem })
  const files = <A, E>(effect: Effect.Effect<A, E | PlatformError, FileSystem.FileSystem | Path.Path>) =>
    Effect.mapError(effect, (error) =>
      Predicate.isTagged(error, "PlatformError")
        ? failed("unknown", (error as unknown as PlatformError).message)
        : error as Exclude<E, PlatformError>).pipe(Effect.provideContext(context))

  // The CLI writes a conversation's beginning a little after its first answers. Until it's there, the id says that a
  // missing transcript is new and not lost; parts in the log don't tell.
  const named = options.conversation ?? Transcript.newConversation(yield* newId)
  const conversation = Transcript.idOf(named)
  const place = { conversation, directory }
  const find = files(Transcript.find(home, place))

  /** Whether the conversation is known to have begun. */
  let begun = named === conversation
  const missing = lost(`Claude Code has no transcript ${conversation} of ${directory}`)
  const isEmpty = (file: string) => files(Transcript.isEmpty(file))
  if (begun) {
    const file = yield* find
    if (file === undefined || (yield* isEmpty(file))) return yield* missing
  }
  if (options.conversation === undefined && options.state !== undefined) {
    const restored = yield* files(Transcript.restore(home, options.state, place)).pipe(
      Effect.catchTags({
        SchemaError: () => Effect.fail(lost("the given state is none of Claude Code's")),
        DirectoryTooLong: () => Effect.fail(failed("options", "a conversation can't be carried into so long a path"))
      })
    )
    if (restored) begun = true
  }

  const begin = Effect.suspend(() => {
    if (begun) return Effect.void
    begun = true
    return Effect.ignore(options.saveConversation(conversation))
  })

  const beginOnceWritten = Effect.suspend(() =>
    begun ? Effect.void : find.pipe(
      Effect.flatMap((file) => file === undefined ? Effect.succeed(true) : isEmpty(file)),
      Effect.flatMap((empty) => empty ? Effect.void : begin),
      Effect.ignore
    )
  )

  const plan = makePlan()
  let running: Running | undefined
  /** One that isn't used any more, and may not have ended yet. */
  let retired: AgentProcess | undefined
  let current: Work | undefined

  const retire = () => {
    if (running !== undefined) retired = running.claude.process
    running = undefined
  }

  // ---------------------------------------------------------------------------
  // What the CLI says
  // ---------------------------------------------------------------------------

  const emit = Effect.fnUntraced(function*(work: Work, parts: ReadonlyArray<Bridge.AgentPart>) {
    for (const part of parts) yield* work.emit(part)
  })

  const complete = (work: Work) => {
    // What the CLI was told it takes up next, also where it's idle just now.
    const waits = [...work.told.values()].some(({ taken }) => !taken)
    if (work.outcome === undefined || (waits && "finished" in work.outcome)) return Effect.void
    return Effect.asVoid(
      "finished" in work.outcome
        ? Deferred.succeed(work.done, work.outcome.finished)
        : Deferred.fail(work.done, work.outcome.failed)
    )
  }

  const onResult = Effect.fnUntraced(function*(work: Work, result: Result) {
    yield* emit(work, work.parts.close(result))
    const mine = [result.user_message_uuid, ...(result.user_message_uuids ?? [])].some((id) =>
      id === work.id || work.told.has(id ?? "")
    )
    // Sub-agents in the background, and what was told about them, come after the prompt's own result.
    if (!mine && !work.interrupted && work.outcome === undefined) return
    const outcome = work.interrupted ? { failed: interrupted } : outcomeOf(result, {
      error: work.error,
      structured: work.turn?.responseFormat !== undefined,
      before: work.outcome !== undefined && "finished" in work.outcome ? work.outcome.finished : undefined
    })
    work.outcome = outcome
    if ("failed" in outcome) yield* complete(work)
  })

  const fail = (work: Work, message: string) =>
    Effect.asVoid(Deferred.fail(work.done, new TurnFailed({ kind: "unknown", message })))

  // Its word that it's at rest is the last one about a prompt that it took up: no result would come after it.
  const onState = (work: Work, state: string) => {
    work.resting = state === "idle"
    if (!work.resting) return Effect.void
    return work.outcome === undefined && work.started
      ? fail(work, "Claude Code stopped without saying how the prompt ended.")
      : complete(work)
  }

  const onLifecycle = Effect.fnUntraced(function*(work: Work, id: string, state: string) {
    if (state === "queued") return
    if (id === work.id) {
      yield* Deferred.succeed(work.begun, undefined)
      if (state === "started") work.started = true
      // One that isn't taken up is never heard of again.
      if (work.started || work.interrupted || !over.has(state)) return
      return yield* fail(work, `Claude Code didn't take up the prompt: it was ${state}.`)
    }
    const told = work.told.get(id)
    if (told === undefined || told.taken) return
    if (state !== "started") {
      // It won't be taken up any more.
      work.told.delete(id)
      return yield* work.resting ? complete(work) : Effect.void
    }
    told.taken = true
    yield* work.turn?.delivered(told.messageId) ?? Effect.void
  })

  const onMessage = Effect.fnUntraced(function*(claude: Claude, message: FromClaude | undefined, json: Schema.Json) {
    if (claude !== running?.claude) return
    const work = current
    if (work?.turn?.raw === true && !isPlumbing(json)) yield* work.emit({ type: "raw", event: json })
    if (message === undefined) return
    if (message.type === "control_request") return yield* answer(message, { claude, work, tools: options.tools, scope })
    if (message.type === "system" && message.subtype === "background_tasks_changed") {
      running.background = message.tasks.filter(({ task_type }) => task_type === "local_bash").length
    }
    if (work === undefined) {
      // The hook keeps the agent from working without a prompt, unless the user's settings have hooks switched off.
      if (message.type === "stream_event" && message.event.type === "message_start") {
        yield* Effect.forkIn(Effect.ignore(claude.ask({ subtype: "interrupt" })), scope)
      }
      return
    }
    switch (message.type) {
      case "control_cancel_request":
        return yield* FiberMap.remove(work.asking, message.request_id)
      case "command_lifecycle":
        yield* onLifecycle(work, message.command_uuid, message.state)
        return
      case "result":
        return yield* onResult(work, message)
      case "assistant":
        if (Predicate.isString(message.error)) work.error = message.error
        break
      case "system":
        if (message.subtype === "session_state_changed") return yield* onState(work, message.state)
        if (message.subtype === "init") return yield* onInit(work, running, message)
        break
      case "user":
        yield* beginOnceWritten
        break
      case "stream_event":
        if (message.event.type === "message_stop") yield* beginOnceWritten
    }
    yield* emit(work, work.parts.take(message))
  })

  const onInit = Effect.fnUntraced(function*(
    work: Work,
    running: Running,
    { mcp_servers = [] }: Extract<FromClaude, { readonly subtype: "init" }>
  ) {
    if (running.greeted) return
    running.greeted = true
    for (const { name, status } of mcp_servers) {
      if (status === "connected" || status === "pending") continue
      yield* work.emit({
        type: "notice",
        level: "warning",
        message: `The MCP server '${name}' is not there: ${status}.`
      })
    }
  })

  const onExit = Effect.fnUntraced(function*(claude: Claude, problem: string) {
    if (claude !== running?.claude) return
    running = undefined
    const work = current
    if (work === undefined) return
    yield* complete(work)
    yield* Deferred.fail(
      work.done,
      work.interrupted ? interrupted : new TurnFailed({ kind: "agent-exit", message: problem })
    )
  })

  // ---------------------------------------------------------------------------
  // The process
  // ---------------------------------------------------------------------------

  const startOnce = Effect.fnUntraced(function*(wanted: Wanted) {
    // Two of them would write one transcript.
    if (retired !== undefined) yield* retired.end
    retired = undefined
    let file = yield* find
    if (file === undefined && begun) return yield* missing
    if (file !== undefined && !begun && (yield* isEmpty(file))) {
      // One that was killed before it wrote the prompt: the CLI takes such a transcript neither for old nor for new.
      yield* files(Transcript.remove(home, place))
      file = undefined
    }
    const settings: Launch.Start = { conversation, resume: file !== undefined, ...wanted }
    const command = Launch.command(agent.program, agent.options, options, settings)
    const claude = yield* start(options.processes, command, { onMessage, onExit }).pipe(
      Scope.provide(scope),
      Effect.provideContext(context)
    )
    const started: Running = { claude, wanted, background: 0, greeted: false }
    running = started
    const answers = yield* Effect.raceFirst(
      Effect.as(claude.ask(Launch.initialize(options, settings)), true),
      Effect.as(Effect.repeat(Effect.sleep("1 second"), { times: patience }), false)
    )
    return answers ? started : undefined
  })

  /** Starts it, and once more where it doesn't answer: a turn doesn't wait for ever on what hangs at its start. */
  const launch = Effect.fnUntraced(function*(work: Work, wanted: Wanted) {
    const started = yield* startOnce(wanted)
    if (started !== undefined) return started
    retire()
    yield* work.emit({
      type: "notice",
      level: "warning",
      message: "Claude Code didn't answer when it was started, and is started again."
    })
    return (yield* startOnce(wanted)) ?? (yield* failed("start", "Claude Code doesn't answer when it's started"))
  })

  /** The process, started or told what it isn't set to yet. */
  const ready = Effect.fnUntraced(function*(work: Work, wanted: Wanted) {
    if (running?.claude.gone() === true) retire()
    const before = running
    if (before === undefined) return yield* launch(work, wanted)
    const { claude, wanted: set } = before
    if (schemaKey(set) !== schemaKey(wanted)) {
      // The form of the answer is told at the start only.
      retire()
      if (before.background > 0) {
        yield* work.emit({
          type: "notice",
          level: "warning",
          message:
            `Claude Code was started again for another form of answer: ${before.background} commands in the background were ended.`
        })
      }
      return yield* launch(work, wanted)
    }
    if (set.model !== wanted.model) {
      yield* claude.ask({ subtype: "set_model", model: wanted.model ?? null }).pipe(
        Effect.catchIf(
          ({ kind }) => kind === "protocol",
          ({ problem }) => Effect.fail(new TurnFailed({ kind: "invalid-request", message: problem }))
        )
      )
    }
    if (set.effort !== wanted.effort) {
      yield* claude.ask({ subtype: "apply_flag_settings", settings: { effortLevel: wanted.effort ?? null } })
    }
    before.wanted = wanted
    return before
  })

  const perform = Effect.fnUntraced(function*(given: {
    readonly id: Effect.Effect<string>
    readonly turn: Turn | undefined
    readonly emit: Work["emit"]
    readonly content: Schema.Json
    readonly wanted: Wanted
  }) {
    const { content, turn, wanted } = given
    // Nothing may wait before this is there: an interrupt that came earlier would be missed.
    const work: Work = {
      id: "",
      turn,
      emit: given.emit,
      parts: makeParts({ plan }),
      asking: yield* FiberMap.make<string>(),
      done: Deferred.makeUnsafe(),
      sent: false,
      started: false,
      resting: false,
      begun: Deferred.makeUnsafe(),
      told: new Map(),
      interrupted: false,
      outcome: undefined,
      error: undefined
    }
    current = work
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (current === work) current = undefined
      })
    )
    const send = Effect.gen(function*() {
      work.id = yield* given.id
      const { claude } = yield* ready(work, wanted)
      if (work.interrupted) return
      work.sent = true
      yield* claude.say(prompt(work.id, content))
    })
    // A CLI that ended meanwhile says more about it than the request that failed.
    const finished = yield* Effect.raceFirst(
      Deferred.await(work.done),
      Effect.andThen(
        Effect.catchIf(
          send,
          (error) => error._tag === "DriverError" && error.kind === "exit",
          (error) => Effect.delay(Effect.fail(error), "5 seconds")
        ),
        Effect.never
      )
    )
    yield* begin
    return finished
  }, Effect.scoped)

  // Where something doesn't end well, the bridge ends its processes.
  const orRetire = <A, E>(effect: Effect.Effect<A, E>) => Effect.onError(effect, () => Effect.sync(retire))

  return {
    conversation: begun ? conversation : named,

    reconcile: Effect.fnUntraced(function*(previous) {
      const file = yield* find
      if (file === undefined && begun) return yield* missing
      const transcript = file === undefined ? undefined : yield* files(Transcript.read(file))
      if (transcript?.conversation !== undefined && transcript.conversation !== conversation) {
        return yield* lost(`the transcript ${conversation} is another conversation's, ${transcript.conversation}`)
      }
      const prompts = new Set<string>()
      for (let attempt = 1; attempt < previous.attempt; attempt++) {
        prompts.add(yield* Effect.provideContext(Prompt.messageId(conversation, previous.turn, attempt), context))
      }
      const messages = new Set<Bridge.MessageId>()
      for (const message of previous.messages) {
        const id = yield* Effect.provideContext(Prompt.messageId(conversation, previous.turn, message), context)
        if (transcript?.messages.has(id) === true) messages.add(message)
      }
      const reconciled = yield* reconcile({ transcript, prompts, previous })
      return "lost" in reconciled ? yield* lost(reconciled.lost) : { ...reconciled, messages }
    }),

    run: Effect.fnUntraced(function*(turn) {
      const { effort } = turn
      if (effort !== undefined && !efforts.has(effort)) {
        const message = `Claude Code knows no effort '${effort}': it's one of ${[...efforts].join(", ")}.`
        return yield* new TurnFailed({ kind: "invalid-request", message })
      }
      return yield* perform({
        id: Effect.provideContext(Prompt.messageId(conversation, turn.turn, turn.message ?? turn.attempt), context),
        turn,
        emit: turn.emit,
        content: turn.continued?.prompted === true ? nudge : yield* Prompt.content(turn.prompt),
        wanted: { model: turn.model ?? agent.options.model, effort, responseFormat: turn.responseFormat?.schema }
      })
    }, orRetire),

    steer: Effect.fnUntraced(function*({ messageId, prompt: given }) {
      const work = current
      if (work?.turn === undefined) return
      const id = yield* Effect.provideContext(Prompt.messageId(conversation, work.turn.turn, messageId), context)
      const content = yield* Prompt.content(given)
      yield* Deferred.await(work.begun)
      if (running === undefined || work.interrupted || Deferred.isDoneUnsafe(work.done)) return
      work.told.set(id, { messageId, taken: false })
      yield* running.claude.say(prompt(id, content))
    }),

    interrupt: Effect.suspend(() => {
      const work = current
      if (work === undefined) return Effect.void
      work.interrupted = true
      const claude = running?.claude
      if (!work.sent || claude === undefined) return Effect.asVoid(Deferred.fail(work.done, interrupted))
      // A prompt that the CLI hasn't taken up yet is cancelled; one that it's just taking up isn't stopped by an
      // interrupt that comes too early, so it's sent until the turn has ended.
      return claude.ask({ subtype: "interrupt", cancel_queued: true }).pipe(
        Effect.flatMap((answer) =>
          Predicate.isObject(answer) && Array.isArray(answer["cancelled"]) && answer["cancelled"].includes(work.id)
            ? Deferred.fail(work.done, interrupted)
            : Effect.void
        ),
        Effect.repeat({
          schedule: Schedule.spaced("250 millis"),
          until: () => Deferred.isDone(work.done)
        }),
        Effect.ignore
      )
    }),

    compact: Effect.fnUntraced(function*(instructions) {
      if ((yield* find) === undefined && !begun) return {}
      let summary: string | undefined
      yield* perform({
        id: newId,
        turn: undefined,
        emit: (part) =>
          Effect.sync(() => {
            if (part.type === "compaction") summary = part.summary
          }),
        content: `/compact ${instructions ?? ""}`.trimEnd(),
        wanted: running?.wanted ?? { model: agent.options.model, effort: undefined, responseFormat: undefined }
      }).pipe(
        Effect.catchTag(
          "TurnFailed",
          ({ kind, message }) => Effect.fail(failed(kind === "agent-exit" ? "exit" : "unknown", message))
        )
      )
      return summary === undefined ? {} : { summary }
    }, orRetire),

    readState: Effect.gen(function*() {
      const file = yield* find
      if (file === undefined && begun) return yield* missing
      return yield* files(Transcript.toState(file, place))
    })
  }
})

// What passes between the CLI and the driver, and not between the model and its user.
const isPlumbing = (json: Schema.Json): boolean =>
  Predicate.isObject(json) && (
    json["type"] === "command_lifecycle" || json["subtype"] === "session_state_changed" ||
    String(json["type"]).startsWith("control_")
  )

/** What a process is set to for its next work. */
type Wanted = Pick<Launch.Start, "model" | "effort" | "responseFormat">

const schemaKey = ({ responseFormat }: Wanted): string => JSON.stringify(responseFormat ?? null)
