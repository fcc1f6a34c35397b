/**
 * A session with Codex: its process, and the turn that it works on.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import { type AgentSession, type Finished, type SessionOptions, type Turn, TurnFailed } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import * as Crypto from "effect/Crypto"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { clientIds } from "./codexEntries.ts"
import * as Launch from "./codexLaunch.ts"
import * as Messages from "./codexMessages.ts"
import type { Options } from "./codexOptions.ts"
import { turnFailed } from "./codexOutcome.ts"
import { makeParts, type Usages } from "./codexParts.ts"
import { type Codex, failed, start } from "./codexProcess.ts"
import * as Prompt from "./codexPrompt.ts"
import { reconcile } from "./codexReconcile.ts"
import { answer, type Work } from "./codexRequests.ts"
import * as Rollout from "./codexRollout.ts"
import * as ConversationFile from "./conversationFile.ts"
import { nudge } from "./prompts.ts"

export interface Agent {
  readonly program: string
  readonly options: Options
  readonly home: ReturnType<typeof Rollout.homeOf>
}

interface Running {
  readonly codex: Codex
  /** What the thread is set to, where a turn says nothing. */
  readonly model: string
  readonly effort: string | null
  lastModel: string
  /** The effort of the last turn, which stays until another one is said. */
  lastEffort: string | null
}

const interrupted = new TurnFailed({ kind: "unknown", message: "The turn was interrupted." })

const efforts: ReadonlySet<string> = new Set(["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"])

const decodeThread = Schema.decodeUnknownOption(Messages.ThreadAnswer)
const decodeTurn = Schema.decodeUnknownOption(Messages.TurnAnswer)
const parseOutput = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Json))

export const open = Effect.fnUntraced(function*(agent: Agent, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Crypto.Crypto | Scope.Scope
> {
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path | Crypto.Crypto>()
  const scope = yield* Effect.scope
  const crypto = yield* Crypto.Crypto
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const home = yield* agent.home(options.env)
  const { directory } = options

  const sse = options.mcpServers.find(({ type }) => type === "sse")
  if (sse !== undefined) {
    return yield* failed(
      "options",
      `Codex can't speak SSE with the MCP server '${sse.name}': it takes 'stdio' and 'http'`
    )
  }

  const lost = (problem: string) => new Bridge.ContextLost({ session: options.session, problem })
  const files = <A, E>(effect: Effect.Effect<A, E | PlatformError, FileSystem.FileSystem | Path.Path>) =>
    Effect.mapError(effect, (error) =>
      Predicate.isTagged(error, "PlatformError")
        ? failed("unknown", (error as unknown as PlatformError).message)
        : error as Exclude<E, PlatformError>).pipe(Effect.provideContext(context))

  const named = options.conversation === undefined ? undefined : Rollout.toName(options.conversation)
  const key = named?.key ?? (yield* Effect.orDie(crypto.randomUUIDv4))
  const database = Rollout.databaseOf(path, home, key)

  const tools = options.tools.map(({ description, name, parameters }) => ({
    type: "function" as const,
    name,
    description,
    inputSchema: parameters
  }))

  /** Codex's id of the conversation, as far as there's one. */
  let thread = named?.thread
  /** Whether the conversation is known to have begun: Codex writes its file with the first prompt. */
  let begun = false
  const find = Effect.suspend(() => thread === undefined ? Effect.undefined : files(Rollout.find(home, thread)))
  const missing = Effect.suspend(() => Effect.fail(lost(`Codex has no conversation ${thread} of ${directory}`)))

  const lines = Effect.flatMap(
    find,
    (file) => file === undefined ? Effect.succeed([]) : files(ConversationFile.read(file))
  )

  if (thread !== undefined) {
    const from = Rollout.directoryOf(yield* lines)
    if (from === undefined ? options.established : from !== directory) return yield* missing
    if (from === undefined) thread = undefined
    else begun = true
  } else if (options.established) return yield* missing

  if (options.conversation === undefined && options.state !== undefined) {
    const id = yield* Effect.orDie(crypto.randomUUIDv7)
    const restored = yield* files(Rollout.restore(home, options.state, { thread: id, directory, tools })).pipe(
      Effect.catchTag("SchemaError", () => Effect.fail(lost("the given state is none of Codex's")))
    )
    if (restored) {
      thread = id
      begun = true
    }
  }

  const usages: Usages = new Map()
  /** What Codex warned of already. */
  const warned = new Set<string>()
  let running: Running | undefined
  /** One that isn't used any more, and may not have ended yet. */
  let retired: AgentProcess | undefined
  let current: Work | undefined

  const retire = () => {
    if (running !== undefined) retired = running.codex.process
    running = undefined
  }

  // ---------------------------------------------------------------------------
  // What Codex says
  // ---------------------------------------------------------------------------

  const emit = Effect.fnUntraced(function*(work: Work, parts: ReadonlyArray<Bridge.AgentPart>) {
    for (const part of parts) yield* work.emit(part)
  })

  const warn = (work: Work, message: string) =>
    Effect.suspend(() => {
      if (warned.has(message) || warned.size >= maxWarnings) return Effect.void
      warned.add(message)
      return work.emit({ type: "notice", level: "warning", message })
    })

  const onCompleted = Effect.fnUntraced(function*(
    work: Work,
    { error, status }: { readonly error?: Messages.TurnError | null | undefined; readonly status: string }
  ) {
    yield* emit(work, work.parts.close(status === "completed"))
    if (work.interrupted) return yield* Deferred.fail(work.done, interrupted)
    if (status !== "completed") {
      return yield* Deferred.fail(work.done, status === "interrupted" ? interrupted : turnFailed(error))
    }
    return yield* Deferred.complete(work.done, finishedOf(work))
  })

  const name = (work: Work, id: string) => {
    work.id ??= id
    return Deferred.succeed(work.named, work.id)
  }

  const onNotification = Effect.fnUntraced(function*(
    codex: Codex,
    notification: Messages.Notification | undefined,
    json: Schema.Json
  ) {
    if (codex !== running?.codex) return
    const work = current
    if (work?.sent === true && work.turn?.raw === true) yield* work.emit({ type: "raw", event: json })
    if (notification === undefined) return
    const { method, params } = notification
    const mine = params.threadId === thread
    switch (method) {
      case "turn/started":
        if (!mine || work?.sent !== true) return
        yield* name(work, params.turn.id)
        // Before any tool is called: what runs by now is Codex's own, such as what its launcher started.
        return yield* work.emit({ type: "response-metadata", id: params.turn.id, modelId: running.lastModel })
      case "turn/completed":
        if (mine && work !== undefined && params.turn.id === work.id) yield* onCompleted(work, params.turn)
        return
      case "serverRequest/resolved":
        if (work !== undefined) yield* FiberMap.remove(work.asking, params.requestId)
        return
      case "warning":
        if (work !== undefined) yield* warn(work, params.message)
        return
      case "mcpServer/startupStatus/updated":
        if (work !== undefined && params.status === "failed") {
          yield* warn(work, `The MCP server '${params.name}' is not there: ${params.error ?? "it failed to start"}.`)
        }
        return
    }
    if (work?.id === undefined || mine && params.turnId !== work.id) {
      // What a thread had used before, told when it's resumed.
      if (method === "thread/tokenUsage/updated") usages.set(params.threadId, params.tokenUsage.total)
      return
    }
    let summary: string | undefined
    if (method === "item/completed" && mine) {
      begun = true
      if (params.item.type === "userMessage") {
        const messageId = work.told.get(params.item.clientId ?? "")
        if (messageId !== undefined) yield* work.turn?.delivered(messageId) ?? Effect.void
      }
      if (params.item.type === "agentMessage") work.answer = params.item.text
      if (params.item.type === "contextCompaction") {
        summary = Rollout.summaryOf(yield* Effect.orElseSucceed(lines, () => []))
      }
    }
    yield* emit(work, work.parts.take(notification, summary))
  })

  const onExit = Effect.fnUntraced(function*(codex: Codex, problem: string) {
    if (codex !== running?.codex) return
    running = undefined
    if (current === undefined) return
    yield* Deferred.fail(
      current.done,
      current.interrupted ? interrupted : new TurnFailed({ kind: "agent-exit", message: problem })
    )
  })

  // ---------------------------------------------------------------------------
  // The process
  // ---------------------------------------------------------------------------

  const openThread = Effect.fnUntraced(function*(codex: Codex) {
    const settings = Launch.thread(agent.options, options)
    if (thread !== undefined && (yield* find) !== undefined) {
      return yield* codex.ask("thread/resume", { threadId: thread, excludeTurns: true, ...settings })
    }
    return yield* codex.ask("thread/start", { ...settings, dynamicTools: tools })
  })

  const launch = Effect.fnUntraced(function*() {
    // Two of them would write one conversation.
    if (retired !== undefined) yield* retired.end
    retired = undefined
    if (begun && (yield* find) === undefined) return yield* missing
    yield* files(fs.makeDirectory(database, { recursive: true, mode: 0o700 }))
    const command = Launch.command(agent.program, agent.options, options, database)
    const codex = yield* start(options.processes, command, {
      onNotification,
      onRequest: (codex, id, request, json) =>
        Effect.suspend(() => {
          const work = current
          const raw = work?.turn?.raw === true ? work.emit({ type: "raw", event: json }) : Effect.void
          return Effect.andThen(raw, answer(id, request, { codex, work, directory }))
        }).pipe(Effect.provideContext(context)),
      onExit
    }).pipe(Scope.provide(scope))
    running = { codex, model: "", effort: null, lastModel: "", lastEffort: null }
    yield* codex.ask("initialize", {
      clientInfo: { name: "gangway", version: "0.1.0" },
      capabilities: { experimentalApi: true, requestAttestation: false }
    })
    yield* codex.tell("initialized")
    usages.clear()
    const answered = Option.getOrUndefined(decodeThread(yield* openThread(codex)))
    if (answered === undefined) return yield* failed("protocol", "Codex opened a thread without saying its id")
    if (answered.thread.id !== thread) {
      thread = answered.thread.id
      yield* Effect.mapError(
        options.saveConversation(Rollout.fromName({ thread, key })),
        ({ problem }) => failed("unknown", problem)
      )
    }
    const effort = answered.reasoningEffort ?? null
    const started: Running = { codex, model: answered.model, effort, lastModel: answered.model, lastEffort: effort }
    running = started
    return started
  })

  const ready = Effect.suspend(() => {
    if (running?.codex.gone() === true) retire()
    return running === undefined ? launch() : Effect.succeed(running)
  })

  const perform = Effect.fnUntraced(function*(given: {
    readonly turn: Turn | undefined
    readonly emit: Work["emit"]
    readonly send: (running: Running, thread: string) => Effect.Effect<string | undefined, Bridge.DriverError>
  }) {
    // Nothing may wait before this is there: an interrupt that came earlier would be missed.
    const work: Work = {
      id: undefined,
      named: Deferred.makeUnsafe(),
      told: new Map(),
      turn: given.turn,
      emit: given.emit,
      parts: makeParts({
        usages,
        thread: () => thread,
        trigger: given.turn === undefined ? "manual" : "auto"
      }),
      asking: yield* FiberMap.make<Messages.RequestId>(),
      done: Deferred.makeUnsafe(),
      sent: false,
      interrupted: false,
      answer: undefined
    }
    current = work
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (current === work) current = undefined
      })
    )
    const send = Effect.gen(function*() {
      const running = yield* ready
      if (work.interrupted || thread === undefined) return
      work.sent = true
      const id = yield* given.send(running, thread)
      if (id !== undefined) yield* name(work, id)
    })
    // One that ended meanwhile says more about it than the request that failed.
    return yield* Effect.raceFirst(
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
  }, Effect.scoped)

  // Where something doesn't end well, the bridge ends its processes.
  const orRetire = <A, E>(effect: Effect.Effect<A, E>) => Effect.onError(effect, () => Effect.sync(retire))

  const startTurn = Effect.fnUntraced(function*(
    turn: Turn,
    input: ReadonlyArray<Messages.UserInput>,
    running: Running,
    threadId: string
  ) {
    const model = turn.model ?? agent.options.model ?? running.model
    running.lastModel = model
    // Only with the whole mode said can an effort be taken back.
    const reset = turn.effort === undefined && running.lastEffort !== running.effort
    running.lastEffort = turn.effort ?? running.effort
    const answered = yield* running.codex.ask("turn/start", {
      threadId,
      clientUserMessageId: Prompt.messageId(threadId, turn.turn, turn.message ?? turn.attempt),
      input,
      model,
      ...(turn.effort === undefined ? {} : { effort: turn.effort }),
      ...(reset
        ? {
          collaborationMode: {
            mode: "default" as const,
            settings: { model, reasoning_effort: running.effort, developer_instructions: null }
          }
        }
        : {}),
      ...(turn.responseFormat === undefined ? {} : { outputSchema: turn.responseFormat.schema })
    })
    return Option.getOrUndefined(decodeTurn(answered))?.turn.id
  })

  return {
    conversation: Rollout.fromName({ thread, key }),

    reconcile: Effect.fnUntraced(function*(previous) {
      if (begun && (yield* find) === undefined) return yield* missing
      const prompts = new Set<string>()
      for (let attempt = 1; thread !== undefined && attempt < previous.attempt; attempt++) {
        prompts.add(Prompt.messageId(thread, previous.turn, attempt))
      }
      const held = yield* lines
      const ids = clientIds(held)
      const messages = new Set(
        previous.messages.filter((message) => ids.has(Prompt.messageId(thread ?? "", previous.turn, message)))
      )
      const reconciled = yield* reconcile({
        lines: held,
        prompts,
        previous,
        tools: new Set(options.tools.map(({ name }) => name)),
        directory
      })
      return "lost" in reconciled ? yield* lost(reconciled.lost) : { ...reconciled, messages }
    }),

    run: Effect.fnUntraced(function*(turn) {
      const { effort } = turn
      if (effort !== undefined && !efforts.has(effort)) {
        const message = `Codex knows no effort '${effort}': it's one of ${[...efforts].join(", ")}.`
        return yield* new TurnFailed({ kind: "invalid-request", message })
      }
      const input = turn.continued?.prompted === true
        ? [Prompt.text(nudge)]
        : yield* Prompt.inputs(turn.prompt)
      return yield* perform({
        turn,
        emit: turn.emit,
        send: (running, threadId) => startTurn(turn, input, running, threadId)
      })
    }, orRetire),

    steer: Effect.fnUntraced(function*({ messageId, prompt }) {
      const work = current
      if (work?.turn === undefined) return
      const input = yield* Prompt.inputs(prompt)
      const expectedTurnId = yield* Deferred.await(work.named)
      if (running === undefined || thread === undefined || work.interrupted || Deferred.isDoneUnsafe(work.done)) return
      const clientUserMessageId = Prompt.messageId(thread, work.turn.turn, messageId)
      work.told.set(clientUserMessageId, messageId)
      yield* running.codex.ask("turn/steer", { threadId: thread, expectedTurnId, clientUserMessageId, input })
    }),

    interrupt: Effect.suspend(() => {
      const work = current
      if (work === undefined) return Effect.void
      work.interrupted = true
      const codex = running?.codex
      if (!work.sent || codex === undefined || thread === undefined) {
        return Effect.asVoid(Deferred.fail(work.done, interrupted))
      }
      const threadId = thread
      // Codex refuses an interrupt that comes before the turn has begun, so it's sent until the turn has ended.
      const ask = Effect.suspend(() =>
        work.id === undefined ? Effect.void : Effect.ignore(codex.ask("turn/interrupt", { threadId, turnId: work.id }))
      )
      return ask.pipe(
        Effect.repeat({ schedule: Schedule.spaced("250 millis"), until: () => Deferred.isDone(work.done) }),
        // The turn's commands go on otherwise.
        Effect.andThen(Effect.ignore(codex.ask("thread/backgroundTerminals/clean", { threadId }))),
        Effect.asVoid
      )
    }),

    compact: Effect.fnUntraced(function*(instructions) {
      if (instructions !== undefined) {
        return yield* failed("options", "Codex compacts a conversation by its own rules only: leave out instructions")
      }
      if (thread === undefined || !begun) return {}
      let summary: string | undefined
      yield* perform({
        turn: undefined,
        emit: (part) =>
          Effect.sync(() => {
            if (part.type === "compaction") summary = part.summary
          }),
        send: ({ codex }, threadId) => Effect.as(codex.ask("thread/compact/start", { threadId }), undefined)
      }).pipe(
        Effect.catchTag(
          "TurnFailed",
          ({ kind, message }) => Effect.fail(failed(kind === "agent-exit" ? "exit" : "unknown", message))
        )
      )
      return summary === undefined ? {} : { summary }
    }, orRetire),

    readState: Effect.gen(function*() {
      if (begun && (yield* find) === undefined) return yield* missing
      return Rollout.toState(yield* lines, { thread: thread ?? "", directory })
    })
  }
})

/** More warnings than that of one session aren't told. */
const maxWarnings = 100

const finishedOf = ({ answer, turn }: Work): Effect.Effect<Finished, TurnFailed> => {
  if (turn?.responseFormat === undefined) return Effect.succeed({ finishReason: "stop" })
  return Option.match(parseOutput(answer), {
    onNone: () =>
      Effect.fail(
        new TurnFailed({ kind: "unknown", message: "Codex gave no answer in the form that was asked for." })
      ),
    onSome: (output) => Effect.succeed({ finishReason: "stop", output })
  })
}
