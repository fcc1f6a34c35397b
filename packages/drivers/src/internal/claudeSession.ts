/**
 * A session with Claude Code: its process, and the turn that it works on.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import { type AgentSession, type Finished, type SessionOptions, type Turn, TurnFailed } from "@gangway/server/Driver"
import * as Crypto from "effect/Crypto"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import type * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as Launch from "./claudeLaunch.ts"
import type { ControlRequest, FromClaude, PermissionRequest, Result } from "./claudeMessages.ts"
import { prompt } from "./claudeMessages.ts"
import type { Options } from "./claudeOptions.ts"
import { outcomeOf } from "./claudeOutcome.ts"
import { hostServer, hostTool, makeParts, makePlan } from "./claudeParts.ts"
import * as Permission from "./claudePermission.ts"
import { type Claude, failed, start } from "./claudeProcess.ts"
import * as Prompt from "./claudePrompt.ts"
import { reconcile } from "./claudeReconcile.ts"
import { respond } from "./claudeTools.ts"
import * as Transcript from "./claudeTranscript.ts"
import { joinSurrogates } from "./surrogates.ts"

export interface Agent {
  readonly program: string
  readonly options: Options
  readonly home: ReturnType<typeof homeOf>
}

/** Where the CLI keeps its conversations, given the session's environment. */
export const homeOf = (path: Path.Path, options: Options, inherited: {
  readonly configDirectory: Option.Option<string>
  readonly home: Option.Option<string>
}) =>
(env: SessionOptions["env"]): Effect.Effect<Transcript.Home, Bridge.DriverError> => {
  const variable = (name: string) => {
    const secret = env[name] ?? options.secretEnv?.[name]
    return secret === undefined ? options.env?.[name] : Redacted.value(secret)
  }
  const given = (env["CLAUDE_CONFIG_DIR"] === undefined ? options.configDirectory : undefined) ??
    variable("CLAUDE_CONFIG_DIR") ?? Option.getOrUndefined(inherited.configDirectory)
  if (given !== undefined) return Effect.succeed({ configDirectory: given })
  const home = variable("HOME") ?? Option.getOrUndefined(inherited.home)
  return home === undefined
    ? Effect.fail(failed("options", "there is no HOME: set the option 'configDirectory'"))
    : Effect.succeed({ configDirectory: path.join(home, ".claude") })
}

/** What the CLI works on: a turn, or a compaction. */
interface Work {
  /** The id of the message that began it. */
  readonly id: string
  readonly emit: (part: Bridge.KnownPart) => Effect.Effect<void>
  /** Who is asked; a compaction asks nobody. */
  readonly turn: Turn | undefined
  readonly parts: ReturnType<typeof makeParts>
  readonly join: ReturnType<typeof joinSurrogates>
  /** What the CLI asked and waits for, by the request's id. */
  readonly asking: FiberMap.FiberMap<string>
  readonly done: Deferred.Deferred<Finished, TurnFailed>
  /** Whether the message was written. */
  sent: boolean
  interrupted: boolean
  /** How it ended, once the result was there. It's done when the CLI is idle then. */
  outcome: { readonly finished: Finished } | { readonly failed: TurnFailed } | undefined
  /** Of the CLI's last message in place of an answer: what kind of error there was. */
  error: string | undefined
}

interface Running {
  readonly claude: Claude
  readonly schema: string
  model: string | undefined
  effort: string | undefined
  /** The commands that run in the background. */
  background: number
  greeted: boolean
}

const interrupted = new TurnFailed({ kind: "unknown", message: "The turn was interrupted." })

const efforts: ReadonlySet<string> = new Set(["low", "medium", "high", "xhigh", "max"])

export const open = Effect.fnUntraced(function*(agent: Agent, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Crypto.Crypto | Scope.Scope
> {
  const context = yield* Effect.context<
    FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Crypto.Crypto
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

  const conversation = options.conversation ?? (yield* newId)
  const place = { conversation, directory }
  const find = files(Transcript.find(home, place))

  /** Whether the conversation is known to have begun. */
  let begun = options.conversation !== undefined && options.established
  const missing = lost(`Claude Code has no transcript ${conversation} of ${directory}`)
  if (begun && (yield* find) === undefined) return yield* missing
  if (options.conversation === undefined && options.state !== undefined) {
    const restored = yield* files(Transcript.restore(home, options.state, place)).pipe(
      Effect.catchTags({
        SchemaError: () => Effect.fail(lost("the given state is none of Claude Code's")),
        DirectoryTooLong: () => Effect.fail(failed("options", "a conversation can't be carried into so long a path"))
      })
    )
    begun = restored
  }

  const plan = makePlan()
  let running: Running | undefined
  let current: Work | undefined

  // ---------------------------------------------------------------------------
  // What the CLI says
  // ---------------------------------------------------------------------------

  const emit = Effect.fnUntraced(function*(work: Work, parts: ReadonlyArray<Bridge.KnownPart>) {
    for (const part of parts) {
      for (const joined of work.join(part)) yield* work.emit(joined)
    }
  })

  const complete = (work: Work) => {
    if (work.outcome === undefined) return Effect.void
    return Effect.asVoid(
      "finished" in work.outcome
        ? Deferred.succeed(work.done, work.outcome.finished)
        : Deferred.fail(work.done, work.outcome.failed)
    )
  }

  const onResult = Effect.fnUntraced(function*(work: Work, result: Result) {
    yield* emit(work, work.parts.close(result))
    const mine = result.user_message_uuid === work.id || result.user_message_uuids?.includes(work.id) === true
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

  const onMessage = Effect.fnUntraced(function*(claude: Claude, message: FromClaude | undefined, json: Schema.Json) {
    if (claude !== running?.claude) return
    const work = current
    if (work?.turn?.raw === true && !String(message?.type).startsWith("control_")) {
      yield* work.emit({ type: "raw", event: json })
    }
    if (message === undefined) return
    if (message.type === "control_request") return yield* onRequest(claude, message)
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
      case "result":
        return yield* onResult(work, message)
      case "assistant":
        if (Predicate.isString(message.error)) work.error = message.error
        break
      case "system":
        if (message.subtype === "session_state_changed" && message.state === "idle") return yield* complete(work)
        if (message.subtype === "init") return yield* onInit(work, running, message)
        if (message.subtype === "compact_boundary") begun = true
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
  // What the CLI asks
  // ---------------------------------------------------------------------------

  const onRequest = Effect.fnUntraced(function*(claude: Claude, { request, request_id: id }: ControlRequest) {
    const work = current
    const turn = work?.turn
    if ("callback_id" in request) {
      return yield* claude.answer(
        id,
        work === undefined
          ? { continue: false, stopReason: "There is no prompt to work on: this waits for the next one." }
          : {}
      )
    }
    if ("tool_name" in request) {
      // The host runs its tools itself: it needs no approval of its own.
      if (hostTool(request.tool_name) !== undefined) {
        return yield* claude.answer(id, { behavior: "allow", updatedInput: request.input })
      }
      if (work === undefined || turn === undefined) {
        return yield* claude.answer(id, { behavior: "deny", message: "Nobody is there to be asked." })
      }
      yield* FiberMap.run(
        work.asking,
        id,
        Effect.flatMap(permit(work, turn, id, request), (answer) => claude.answer(id, answer))
      )
      return
    }
    if ("message" in request) {
      const call = Effect.fnUntraced(
        function*(call: { readonly id: string; readonly name: string; readonly params: Schema.Json }) {
          if (work === undefined || turn === undefined) return { result: "No turn is running.", isFailure: true }
          const parent = work.parts.parentOf(call.id)
          const answer = yield* turn.callHostTool({ ...call, ...(parent === undefined ? {} : { parent }) })
          // Before the CLI tells it again.
          work.parts.answered(call.id)
          return answer
        }
      )
      const response = Effect.flatMap(
        respond(request.message, options.tools, call),
        (mcp_response) => claude.answer(id, { mcp_response })
      )
      if (work === undefined) yield* Effect.forkIn(response, scope)
      else yield* FiberMap.run(work.asking, id, response)
      return
    }
    yield* claude.refuse(id, `${request.subtype} is not supported`)
  })

  const permit = Effect.fnUntraced(function*(
    work: Work,
    turn: Turn,
    id: string,
    request: PermissionRequest
  ): Effect.fn.Return<Schema.Json> {
    const parent = work.parts.parentOf(request.tool_use_id)
    const by = parent === undefined ? {} : { parent }
    const questions = Permission.questions(request)
    if (questions !== undefined) {
      const { answer, isFailure } = yield* turn.ask({
        questionId: id,
        toolCallId: request.tool_use_id,
        questions,
        ...by
      })
      const answers = isFailure ? undefined : Permission.answers(answer)
      return answers === undefined
        ? { behavior: "deny", message: typeof answer === "string" ? answer : JSON.stringify(answer) }
        : { behavior: "allow", updatedInput: { ...request.input, answers } }
    }
    const { decision, reason } = yield* turn.requestApproval({ ...Permission.approval(request), approvalId: id, ...by })
    return decision === "deny"
      ? { behavior: "deny", message: reason ?? "The host denied this call." }
      : { behavior: "allow", updatedInput: request.input }
  })

  // ---------------------------------------------------------------------------
  // The process
  // ---------------------------------------------------------------------------

  const launch = Effect.fnUntraced(function*(wanted: Wanted) {
    const file = yield* find
    if (file === undefined && begun) return yield* missing
    if (file !== undefined) yield* files(Transcript.mend(file))
    const settings: Launch.Start = { conversation, resume: file !== undefined, ...wanted }
    const command = Launch.command(agent.program, agent.options, options, settings)
    const claude = yield* start(options.processes, command, { onMessage, onExit }).pipe(
      Scope.provide(scope),
      Effect.provideContext(context)
    )
    const started: Running = {
      claude,
      schema: schemaKey(wanted),
      model: wanted.model,
      effort: wanted.effort,
      background: 0,
      greeted: false
    }
    running = started
    yield* claude.ask(Launch.initialize(options, settings))
    return started
  })

  /** The process, started or told what it isn't set to yet. */
  const ready = Effect.fnUntraced(function*(work: Work, wanted: Wanted) {
    const before = running?.claude.gone() === true ? undefined : running
    if (before === undefined) return yield* launch(wanted)
    if (before.schema !== schemaKey(wanted)) {
      // The form of the answer is told at the start only.
      running = undefined
      if (before.background > 0) {
        yield* work.emit({
          type: "notice",
          level: "warning",
          message:
            `Claude Code was started again for another form of answer: ${before.background} commands in the background were ended.`
        })
      }
      yield* before.claude.process.end
      return yield* launch(wanted)
    }
    if (before.model !== wanted.model) {
      yield* before.claude.ask({ subtype: "set_model", model: wanted.model ?? null })
      before.model = wanted.model
    }
    if (before.effort !== wanted.effort) {
      yield* before.claude.ask({ subtype: "apply_flag_settings", settings: { effortLevel: wanted.effort ?? null } })
      before.effort = wanted.effort
    }
    return before
  })

  const perform = Effect.fnUntraced(function*(given: {
    readonly id: string
    readonly turn: Turn | undefined
    readonly emit: Work["emit"]
    readonly content: Schema.Json
    readonly wanted: Wanted
  }) {
    const { content, id, turn, wanted } = given
    const work: Work = {
      id,
      turn,
      emit: given.emit,
      parts: makeParts({ plan }),
      join: joinSurrogates(),
      asking: yield* FiberMap.make<string>(),
      done: Deferred.makeUnsafe(),
      sent: false,
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
      const { claude } = yield* ready(work, wanted)
      if (work.interrupted) return
      work.sent = true
      yield* claude.say(prompt(id, content))
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
    begun = true
    return finished
  }, Effect.scoped)

  const lastWanted = (): Wanted => ({
    model: running?.model ?? agent.options.model,
    effort: running?.effort,
    responseFormat: undefined
  })

  return {
    conversation,

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
      const reconciled = yield* reconcile({ transcript, prompts, previous })
      return "lost" in reconciled ? yield* lost(reconciled.lost) : reconciled
    }),

    run: Effect.fnUntraced(function*(turn) {
      const { effort } = turn
      if (effort !== undefined && !efforts.has(effort)) {
        const message = `Claude Code knows no effort '${effort}': it's one of ${[...efforts].join(", ")}.`
        return yield* new TurnFailed({ kind: "invalid-request", message })
      }
      const id = yield* Effect.provideContext(Prompt.messageId(conversation, turn.turn, turn.attempt), context)
      return yield* perform({
        id,
        turn,
        emit: turn.emit,
        content: turn.continued?.prompted === true ? Prompt.nudge : yield* Prompt.content(turn.prompt),
        wanted: { model: turn.model ?? agent.options.model, effort, responseFormat: turn.responseFormat?.schema }
      })
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
      let compacted = false
      yield* perform({
        id: yield* newId,
        turn: undefined,
        emit: (part) =>
          Effect.sync(() => {
            if (part.type !== "compaction") return
            compacted = true
            summary = part.summary
          }),
        content: `/compact ${instructions ?? ""}`.trimEnd(),
        wanted: lastWanted()
      }).pipe(
        Effect.catchTag(
          "TurnFailed",
          ({ kind, message }) => Effect.fail(failed(kind === "agent-exit" ? "exit" : "unknown", message))
        )
      )
      return compacted && summary !== undefined ? { summary } : {}
    }),

    readState: Effect.gen(function*() {
      const file = yield* find
      if (file === undefined && begun) return yield* missing
      return yield* files(Transcript.toState(file, place))
    })
  }
})

/** What a process is set to for its next work. */
type Wanted = Pick<Launch.Start, "model" | "effort" | "responseFormat">

const schemaKey = ({ responseFormat }: Wanted): string => JSON.stringify(responseFormat ?? null)
