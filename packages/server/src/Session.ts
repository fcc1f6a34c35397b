/**
 * A session: what its hosts command, one command at a time, and what runs of it.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import * as Stream from "effect/Stream"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { AgentSession, Reconciled } from "./Driver.ts"
import * as Answers from "./internal/answers.ts"
import type { BridgeContext } from "./internal/bridgeContext.ts"
import { digestJson } from "./internal/digest.ts"
import type { Holding, OpenLog } from "./internal/holding.ts"
import * as SessionCore from "./internal/sessionCore.ts"
import * as SessionFile from "./internal/sessionFile.ts"
import { optionDigests, sessionDirectory } from "./internal/sessionOptions.ts"
import { scan } from "./internal/turnScan.ts"
import * as TurnLog from "./TurnLog.ts"
import * as TurnUsage from "./TurnUsage.ts"

type Command<R extends Rpc.Any> = (payload: Rpc.Payload<R>) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R>>

/**
 * A session of this bridge's state directory, whether this bridge holds it or not.
 *
 * @category models
 * @since 0.1.0
 */
export interface Session {
  readonly startSession: Command<typeof Bridge.StartSession>
  readonly startTurn: Command<typeof Bridge.StartTurn>
  readonly readTurn: (
    payload: Rpc.Payload<typeof Bridge.ReadTurn>
  ) => Stream.Stream<TurnLog.ReadEvent, Rpc.ErrorExit<typeof Bridge.ReadTurn>>
  readonly abortTurn: Command<typeof Bridge.AbortTurn>
  readonly submitToolResult: Command<typeof Bridge.SubmitToolResult>
  readonly approve: Command<typeof Bridge.Approve>
  readonly compact: Command<typeof Bridge.Compact>
  readonly readState: Command<typeof Bridge.ReadState>
  readonly stopSession: Command<typeof Bridge.StopSession>
  readonly destroySession: Command<typeof Bridge.DestroySession>
  /** Absent where there's no such session on disk. */
  readonly summary: Effect.Effect<Bridge.SessionSummary | undefined>
  /** Takes the session if its bridge died while its agent was active: its turn ends, its processes are ended. */
  readonly adopt: Effect.Effect<void>
  /** Frees the session if no turn runs: a newer bridge serves the state directory. */
  readonly yieldToNewer: Effect.Effect<void>
  /** Ends all that runs and the session's queue, because the bridge exits, or the session is gone. */
  readonly shutdown: Effect.Effect<void>
  /** Whether this bridge holds it, with what's on disk of it. */
  readonly isKnown: () => boolean
}

const stateOf = (end: Bridge.End | undefined): Bridge.TurnState => end === undefined ? "running" : end.type

const stateBytes = (state: unknown): number => new TextEncoder().encode(JSON.stringify(state)).length

const accepted = { accepted: true as const }

const nothing = { ended: [], left: [] }

// How long a driver may take to delete a conversation.
const forgetTimeout = Duration.minutes(1)

const comparedOptions = ["directory", "instructions", "tools", "permissions", "mcpServers"] as const

// What this version can't read is out of reach for all commands but those that have an error for it.
const orUnavailable = <A, E, R>(effect: Effect.Effect<A, E | Bridge.UnsupportedFormat, R>) =>
  Effect.mapError(
    effect,
    (error): Exclude<E, Bridge.UnsupportedFormat> | Bridge.LogUnavailable =>
      error instanceof Bridge.UnsupportedFormat
        ? new Bridge.LogUnavailable({ problem: error.message })
        : error as Exclude<E, Bridge.UnsupportedFormat>
  )

/**
 * Makes a session of the state directory; nothing is read or locked yet.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function*(
  context: BridgeContext,
  id: Bridge.SessionId
): Effect.fn.Return<Session, never, FileSystem.FileSystem | Path.Path> {
  const services = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
  const core = yield* SessionCore.make(context, id)
  const { driver } = context
  const { queue } = core

  const requireFile = Effect.filterOrFail(
    orUnavailable(core.file),
    (file) => file !== undefined,
    () => new Bridge.SessionNotFound({ session: id })
  )

  const heldOrBusy = Effect.flatMap(
    orUnavailable(core.holdIfFree),
    (outcome) => outcome._tag === "Mine" ? Effect.succeed(outcome.holding) : Effect.fail(outcome.busy)
  )

  // How the latest turn stands. An end that couldn't be written when it came is written now, or it isn't told.
  const latestStatus = Effect.fnUntraced(function*(holding: Holding) {
    const { log } = holding.log()!
    const { end } = holding.file()!.latest!
    const status = yield* log.status
    if (status.end !== undefined || end === undefined || core.running() !== undefined) return status
    const line = yield* log.end(end)
    return { ...status, end: line.end, next: line.next }
  })

  const unsupported = (capability: string) => new Bridge.Unsupported({ driver: driver.name, capability })

  // ---------------------------------------------------------------------------
  // StartSession
  // ---------------------------------------------------------------------------

  const conflict = (file: SessionFile.SessionFile, digests: SessionFile.SessionFile["digests"]) => {
    const field = comparedOptions.find((option) => file.digests[option] !== digests[option])
    return field === undefined ? Effect.void : Effect.fail(new Bridge.SessionConflict({ session: id, field }))
  }

  const startSession: Session["startSession"] = ({ session: _, ...asked }) =>
    queue.run(
      { name: "other" },
      Effect.gen(function*() {
        yield* context.check
        if (yield* context.destroyed.has(id)) return yield* new Bridge.SessionDestroyed({ session: id })
        const directory = yield* sessionDirectory(context, asked.directory)
        const options = { ...asked, directory }
        const digests = yield* optionDigests(options)
        // What doesn't fit takes nothing from another bridge.
        const known = yield* core.file
        if (known !== undefined) yield* conflict(known, digests)
        const holding = yield* core.need("bridge-replaced")
        const file = holding.file()
        if (file === undefined) {
          yield* holding.create({
            format: SessionFile.format,
            session: id,
            directory,
            digests,
            driver: { name: driver.name, version: driver.version },
            active: false,
            earlier: [],
            rules: []
          }).pipe(
            Effect.andThen(Effect.suspend(() => {
              core.setOptions(options)
              return core.openAgent(holding, asked.state)
            })),
            // Nothing is left of a session that couldn't be had.
            Effect.onError(() => Effect.ignore(core.remove))
          )
          return { resumed: false }
        }
        yield* conflict(file, digests)
        core.setOptions(options)
        // What runs has its agent; what's new is the next turn's.
        if (core.running() === undefined && core.compaction() === undefined) {
          yield* core.openAgent(holding, asked.state)
        }
        return { resumed: true }
      }).pipe(Effect.provide(services))
    )

  // ---------------------------------------------------------------------------
  // StartTurn
  // ---------------------------------------------------------------------------

  const startTurn: Session["startTurn"] = (payload) =>
    queue.run({ name: "start", turn: payload.turn, needsAgent: true }, startTurnNow(payload))

  const startTurnNow = Effect.fnUntraced(function*(payload: Rpc.Payload<typeof Bridge.StartTurn>) {
    yield* context.check
    const file = yield* requireFile
    const earlier = file.earlier.find(({ turn }) => turn === payload.turn)
    if (earlier !== undefined) {
      return yield* new Bridge.TurnSuperseded({ turn: payload.turn, latest: file.latest!.turn, end: earlier.end })
    }
    if (core.options() === undefined) return yield* new Bridge.SessionNotStarted({ session: id })
    if (payload.responseFormat !== undefined && !driver.capabilities.structuredOutput) {
      return yield* unsupported("structuredOutput")
    }
    if (payload.effort !== undefined && !driver.capabilities.effort) return yield* unsupported("effort")
    const hasImage = payload.prompt?.some((part) => part.type === "file" && part.mediaType.startsWith("image/"))
    if (hasImage === true && !driver.capabilities.images) return yield* unsupported("images")
    const holding = yield* heldOrBusy
    if (file.latest?.turn === payload.turn) return yield* repeatTurn(payload, holding)
    return yield* newTurn(payload, holding, file)
  })

  const turnOptions = (payload: Rpc.Payload<typeof Bridge.StartTurn>, holding: Holding) => ({
    turn: payload.turn,
    redaction: core.redaction(),
    prompt: payload.prompt ?? [],
    model: payload.model ?? core.options()?.model,
    effort: payload.effort ?? core.options()?.effort,
    responseFormat: holding.file()?.latest?.responseFormat,
    raw: payload.raw === true,
    timeout: payload.timeout
  })

  const answersOf = (opened: OpenLog) => {
    const redaction = core.redaction()
    return Answers.make({
      append: opened.log.appendSynced,
      // Only what comes piece by piece is held back.
      redact: (answer) => redaction.apply(answer)[0] as Answers.Answer
    })
  }

  const newTurn = Effect.fnUntraced(function*(
    payload: Rpc.Payload<typeof Bridge.StartTurn>,
    holding: Holding,
    file: SessionFile.SessionFile
  ) {
    const refused = (field: "prompt" | "attempt") =>
      new Bridge.TurnConflict({ turn: payload.turn, field, attempt: 0, state: "aborted" })
    if (payload.attempt !== undefined && payload.attempt !== 1) return yield* refused("attempt")
    if (payload.prompt === undefined) return yield* refused("prompt")
    if (file.earlier.length + 1 >= SessionFile.maxTurns) {
      return yield* new Bridge.SessionFull({ session: id, turns: SessionFile.maxTurns })
    }
    yield* core.endRunning({ reason: "replaced" })
    const agent = yield* core.openAgent(holding)
    const ended = holding.file()!.latest === undefined ? undefined : (yield* latestStatus(holding)).end
    const prompt = yield* digestJson(payload.prompt)
    const responseFormat = yield* digestFormat(payload.responseFormat)
    const startedAt = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
    const { responseFormat: format } = payload
    const begin = Effect.gen(function*() {
      const opened = yield* holding.beginTurn(
        { format: 1, turn: payload.turn, prompt, responseFormat, startedAt },
        ({ latest, ...current }) => ({
          ...current,
          earlier: latest === undefined
            ? current.earlier
            : [...current.earlier, { turn: latest.turn, end: SessionFile.toEarlier(ended!) }],
          latest: { turn: payload.turn, attempt: 1, ...(format === undefined ? {} : { responseFormat: format }) }
        })
      )
      yield* core.run(holding, {
        ...turnOptions(payload, holding),
        attempt: 1,
        agent,
        log: opened.log,
        answers: answersOf(opened),
        usage: TurnUsage.make(),
        continued: undefined
      })
    })
    // A turn that is on disk has its end: when the bridge exits, it runs, or it isn't there.
    yield* Effect.uninterruptible(begin)
    return { attempt: 1, from: 1, status: "started" as const }
  })

  const repeatTurn = Effect.fnUntraced(function*(
    payload: Rpc.Payload<typeof Bridge.StartTurn>,
    holding: Holding
  ) {
    const opened = holding.log()!
    const { attempt, end, from } = yield* latestStatus(holding)
    const conflict = (field: "prompt" | "format" | "attempt") =>
      new Bridge.TurnConflict({ turn: payload.turn, field, attempt, state: stateOf(end) })
    const { header } = opened.log
    if (payload.prompt !== undefined && (yield* digestJson(payload.prompt)) !== header.prompt) {
      return yield* conflict("prompt")
    }
    // A host that no longer has the prompt may not have the format either.
    const saysFormat = payload.prompt !== undefined || payload.responseFormat !== undefined
    if (saysFormat && (yield* digestFormat(payload.responseFormat)) !== header.responseFormat) {
      return yield* conflict("format")
    }
    if (payload.attempt !== undefined && payload.attempt !== attempt && payload.attempt !== attempt + 1) {
      return yield* conflict("attempt")
    }
    const continues = payload.attempt === attempt + 1 || (payload.attempt === undefined && end?.type === "aborted")
    if (!continues) return { attempt, from, status: end === undefined ? "running" as const : "ended" as const }
    if (end?.type !== "aborted") return yield* conflict("attempt")
    return yield* continueTurn(payload, holding, opened, attempt + 1, conflict)
  })

  const continueTurn = Effect.fnUntraced(function*(
    payload: Rpc.Payload<typeof Bridge.StartTurn>,
    holding: Holding,
    opened: OpenLog,
    attempt: number,
    conflict: (field: "prompt") => Bridge.TurnConflict
  ) {
    const { log } = opened
    // An agent of the attempt before would write the same conversation.
    yield* holding.supervisor.endAll
    const agent = yield* core.openAgent(holding)
    if (agent.reconcile === undefined) return yield* unsupported("continuation")
    const reconciled = yield* agent.reconcile({
      turn: payload.turn,
      attempt,
      parts: Stream.mapError(
        log.parts,
        (error) => new Bridge.DriverError({ driver: driver.name, kind: "unknown", problem: error.message })
      )
    })
    if (!reconciled.prompted && payload.prompt === undefined) return yield* conflict("prompt")
    const answers = answersOf(opened)
    const usage = TurnUsage.make()
    yield* Stream.runForEachArray(scan(log), (parts) =>
      Effect.sync(() => {
        for (const { part } of parts) {
          usage.add(part)
          answers.observe(part)
        }
      })).pipe(Effect.mapError((error) => new Bridge.LogUnavailable({ problem: error.message })))
    const begin = Effect.gen(function*() {
      yield* holding.save(({ latest, ...current }) => {
        const { end: _, ...again } = latest!
        return { ...current, latest: { ...again, attempt } }
      })
      const from = yield* log.beginAttempt({ attempt, keep: reconciled.keep })
      const continued = { type: "turn-continued", attempt, keep: reconciled.keep } as const
      usage.add(continued)
      answers.observe(continued)
      yield* logRecovered(log, reconciled, usage)
      yield* core.run(holding, {
        ...turnOptions(payload, holding),
        attempt,
        agent,
        log,
        answers,
        usage,
        continued: reconciled
      })
      return from
    })
    const from = yield* Effect.uninterruptible(begin)
    return { attempt, from, status: "continued" as const }
  })

  const logRecovered = Effect.fnUntraced(function*(
    log: TurnLog.TurnLog,
    reconciled: Reconciled,
    usage: TurnUsage.TurnUsage
  ) {
    const redaction = core.redaction()
    // Marked last: what was held back of a delta is a part of its own.
    const append = Effect.fnUntraced(function*(parts: ReadonlyArray<Bridge.KnownPart>) {
      for (const part of parts) {
        const marked = { ...part, recovered: true } as Bridge.KnownPart
        usage.add(marked)
        yield* log.append(marked)
      }
    })
    for (const part of reconciled.recovered) yield* append(redaction.apply(part as Bridge.KnownPart))
    yield* append(redaction.flush())
    if (reconciled.notice !== undefined) {
      yield* log.append({ type: "notice", level: "info", message: redaction.text(reconciled.notice) })
    }
  })

  // ---------------------------------------------------------------------------
  // ReadTurn
  // ---------------------------------------------------------------------------

  const turnNotFound = (file: SessionFile.SessionFile, turn: Bridge.TurnId) =>
    new Bridge.TurnNotFound({
      session: id,
      turn,
      latest: file.latest?.turn,
      end: file.earlier.find((earlier) => earlier.turn === turn)?.end
    })

  type ReadStream = ReturnType<Session["readTurn"]>

  // How a turn before the latest one ended; fails where there never was such a turn.
  const earlierEnd = (file: SessionFile.SessionFile, turn: Bridge.TurnId) => {
    if (file.latest?.turn === turn) return Effect.undefined
    const earlier = file.earlier.find((earlier) => earlier.turn === turn)
    return earlier === undefined ? Effect.fail(turnNotFound(file, turn)) : Effect.succeed(earlier.end)
  }

  const readTurn: Session["readTurn"] = ({ attempt, from, turn }) =>
    Stream.unwrap(Effect.gen(function*(): Effect.fn.Return<ReadStream, Rpc.ErrorExit<typeof Bridge.ReadTurn>> {
      const file = yield* core.file
      if (file === undefined) return yield* new Bridge.SessionNotFound({ session: id })
      const outcome = yield* core.holdIfFree
      if (outcome._tag === "Mine") return yield* readHeld(outcome.holding, file, turn, from, attempt)
      if (file.latest?.turn !== turn) return yield* turnNotFound(file, turn)
      return readOthers(turn, from, attempt)
    }))

  const readHeld = Effect.fnUntraced(function*(
    holding: Holding,
    onDisk: SessionFile.SessionFile,
    turn: Bridge.TurnId,
    from: number,
    attempt: number | undefined
  ) {
    const opened = holding.log()
    // A file that's being written for the first time is on disk before it's known here.
    const gone = () => turnNotFound(holding.file() ?? onDisk, turn)
    if (opened === undefined || opened.log.turn !== turn) return yield* gone()
    yield* Effect.ignore(latestStatus(holding))
    return opened.reading(opened.log.read({ from, attempt }), gone)
  })

  // Another bridge has the session: its file is read as it grows, until it ends or the other one died.
  const readOthers = (turn: Bridge.TurnId, from: number, attempt: number | undefined) =>
    TurnLog.follow({
      path: context.state.turnFile(id, turn),
      turn,
      from,
      attempt,
      takeOver: Effect.map(Effect.option(core.holdIfFree), (outcome) => {
        if (outcome._tag === "None" || outcome.value._tag === "Busy") return undefined
        const opened = outcome.value.holding.log()
        if (opened === undefined || opened.log.turn !== turn) return undefined
        return (options) =>
          opened.reading(
            opened.log.read(options),
            () => new Bridge.LogUnavailable({ problem: "a newer turn took its place" })
          )
      })
    }).pipe(Stream.provideContext(services))

  // ---------------------------------------------------------------------------
  // AbortTurn
  // ---------------------------------------------------------------------------

  const abortTurn: Session["abortTurn"] = (payload) =>
    queue.run(
      { name: "abort", turn: payload.turn },
      Effect.gen(function*() {
        const known = yield* requireFile
        // Another bridge's turn isn't ended for the sake of one that's over.
        const over = yield* earlierEnd(known, payload.turn)
        if (over !== undefined) return { end: over, ended: [], left: [] }
        const conflict = (attempt: number, end: Bridge.End | undefined) =>
          payload.attempt === undefined || payload.attempt === attempt
            ? Effect.void
            : Effect.fail(
              new Bridge.TurnConflict({ turn: payload.turn, field: "attempt", attempt, state: stateOf(end) })
            )
        yield* conflict(known.latest!.attempt, known.latest!.end)
        const holding = yield* orUnavailable(core.need("host"))
        // It may have been destroyed meanwhile.
        if (holding.file() === undefined) return yield* new Bridge.SessionNotFound({ session: id })
        const { attempt, end } = yield* latestStatus(holding)
        yield* conflict(attempt, end)
        const running = core.running()
        if (running === undefined) return { end: end!, ended: [], left: [] }
        yield* running.abort({ reason: "host", message: payload.reason })
        return yield* Deferred.await(running.settled)
      })
    )

  // ---------------------------------------------------------------------------
  // Answers
  // ---------------------------------------------------------------------------

  interface Found {
    readonly answers: Answers.Answers
    readonly running: SessionCore.Running | undefined
    readonly end: Bridge.End | undefined
  }

  // The table of the latest turn's questions and answers: the running turn's, or what its log says.
  const findAnswers = Effect.fnUntraced(function*(turn: Bridge.TurnId) {
    const file = yield* requireFile
    const running = core.running()
    if (running !== undefined && running.turn === turn) {
      return { answers: running.answers, running, end: undefined } satisfies Found
    }
    const over = yield* earlierEnd(file, turn)
    if (over !== undefined) return yield* new Bridge.TurnEnded({ turn, end: over })
    const holding = yield* heldOrBusy
    const opened = holding.log()!
    const { end } = yield* latestStatus(holding)
    const answers = answersOf(opened)
    yield* Stream.runForEachArray(
      scan(opened.log),
      (parts) => Effect.sync(() => parts.forEach(({ part }) => answers.observe(part)))
    ).pipe(
      Effect.mapError((error) => new Bridge.LogUnavailable({ problem: error.message }))
    )
    return { answers, running: undefined, end } satisfies Found
  })

  const give = Effect.fnUntraced(function*(
    turn: Bridge.TurnId,
    { answers, end, running }: Found,
    kind: Answers.AskedKind,
    askedId: string,
    answer: Answers.Answer
  ) {
    // After the end an answer is only told what became of it.
    if (end !== undefined && answers.get(kind, askedId)?.logged === undefined) {
      return yield* new Bridge.TurnEnded({ turn, end })
    }
    yield* Effect.catchTag(
      answers.answer(kind, askedId, answer),
      "LogUnavailable",
      Effect.fnUntraced(function*(error) {
        if (running === undefined) return yield* error
        // The attempt takes no more, since it's ending; or its log can't be written, which ends it.
        const { end } = yield* Deferred.await(running.settled)
        return yield* new Bridge.TurnEnded({ turn, end })
      })
    )
    return accepted
  })

  const submitToolResult: Session["submitToolResult"] = ({ isFailure, result, toolCallId, turn }) =>
    queue.run(
      { name: "other" },
      Effect.gen(function*() {
        const found = yield* findAnswers(turn)
        const call = found.answers.get("tool", toolCallId)
        if (call !== undefined) {
          return yield* give(turn, found, "tool", toolCallId, {
            type: "tool-result",
            id: toolCallId,
            name: call.name,
            result,
            isFailure,
            providerExecuted: false
          })
        }
        if (found.answers.get("question", toolCallId) === undefined) {
          return yield* new Bridge.ToolCallNotFound({ turn, toolCallId })
        }
        return yield* give(turn, found, "question", toolCallId, {
          type: "question-answer",
          questionId: toolCallId,
          answer: result,
          isFailure,
          by: "host"
        })
      })
    )

  const approve: Session["approve"] = ({ approvalId, decision, reason, turn }) =>
    queue.run(
      { name: "other" },
      Effect.gen(function*() {
        const found = yield* findAnswers(turn)
        if (found.answers.get("approval", approvalId) === undefined) {
          return yield* new Bridge.ApprovalNotFound({ turn, approvalId })
        }
        return yield* give(turn, found, "approval", approvalId, {
          type: "tool-approval-response",
          approvalId,
          decision,
          ...(reason === undefined ? {} : { reason }),
          by: "host"
        })
      })
    )

  // ---------------------------------------------------------------------------
  // Compact and ReadState
  // ---------------------------------------------------------------------------

  const compact: Session["compact"] = ({ instructions }) =>
    Effect.flatMap(
      queue.run(
        { name: "other" },
        Effect.gen(function*() {
          yield* requireFile
          if (core.options() === undefined) return yield* new Bridge.SessionNotStarted({ session: id })
          const running = core.running()
          if (running !== undefined) return yield* new Bridge.TurnRunning({ turn: running.turn })
          const joined = core.compaction()
          if (joined !== undefined) return joined
          const holding = yield* heldOrBusy
          const agent = yield* core.openAgent(holding)
          if (agent.compact === undefined) return yield* unsupported("compaction")
          return yield* core.startCompaction(agent.compact(instructions))
        })
      ),
      ({ outcome }) => Deferred.await(outcome)
    ).pipe(
      Effect.map(({ summary }) => summary === undefined ? {} : { summary: core.redaction().text(summary) })
    )

  const stateOfAgent = Effect.fnUntraced(function*(agent: AgentSession) {
    if (agent.readState === undefined) return yield* unsupported("state")
    const state = yield* agent.readState
    const bytes = stateBytes(state)
    if (bytes > Bridge.maxStateBytes) return yield* new Bridge.StateTooLarge({ bytes, limit: Bridge.maxStateBytes })
    return state
  })

  const readState: Session["readState"] = () =>
    queue.run(
      { name: "other", needsAgent: true },
      Effect.gen(function*() {
        yield* requireFile
        const holding = yield* heldOrBusy
        const running = core.running()
        if (running !== undefined) return yield* new Bridge.TurnRunning({ turn: running.turn })
        return yield* stateOfAgent(yield* core.openAgent(holding))
      })
    )

  // ---------------------------------------------------------------------------
  // StopSession and DestroySession
  // ---------------------------------------------------------------------------

  // Ends all that runs; the session stays held.
  const stop = Effect.fnUntraced(function*(holding: Holding, reason: "stopped" | "destroyed") {
    const turn = yield* core.endRunning({ reason })
    yield* core.stopCompaction
    const rest = yield* holding.supervisor.endAll
    return { ended: [...turn.ended, ...rest.ended], left: [...turn.left, ...rest.left] }
  })

  const stopSession: Session["stopSession"] = () =>
    queue.run(
      { name: "other" },
      Effect.gen(function*() {
        if ((yield* orUnavailable(core.file)) === undefined) return nothing
        const holding = yield* orUnavailable(core.need("stopped"))
        // It may have been destroyed meanwhile.
        if (holding.file() === undefined) return yield* Effect.as(core.remove, nothing)
        const processes = yield* stop(holding, "stopped")
        const state = driver.capabilities.state
          ? yield* Effect.result(Effect.flatMap(core.openAgent(holding), stateOfAgent))
          : undefined
        yield* holding.note((current) => ({ ...current, rules: [] }))
        yield* core.free
        if (state?._tag === "Success") return { state: state.success, ...processes }
        if (state?.failure._tag === "StateTooLarge") return { stateTooLarge: true as const, ...processes }
        return processes
      })
    )

  const destroySession: Session["destroySession"] = () =>
    queue.run(
      { name: "other" },
      Effect.gen(function*() {
        if ((yield* orUnavailable(core.file)) === undefined) return nothing
        const holding = yield* orUnavailable(core.need("destroyed"))
        const file = holding.file()
        if (file === undefined) return yield* Effect.as(core.remove, nothing)
        const processes = yield* stop(holding, "destroyed")
        yield* core.closeAgent
        const { conversation, directory } = file
        const { forget } = driver
        if (forget !== undefined && conversation !== undefined && file.driver.name === driver.name) {
          const forgetting = Effect.suspend(() => forget({ conversation, directory }))
          yield* core.calls.call("deleting the conversation", forgetting, forgetTimeout).pipe(
            Effect.catchTag("ContextLost", () => Effect.void)
          )
        }
        yield* Effect.uninterruptible(Effect.andThen(context.destroyed.add(id), core.remove))
        return processes
      })
    )

  // ---------------------------------------------------------------------------
  // The bridge's own doings
  // ---------------------------------------------------------------------------

  const summary = Effect.map(
    Effect.option(core.glance),
    (found): Bridge.SessionSummary | undefined => {
      if (found._tag === "None" || found.value === undefined) return undefined
      const { directory, latest } = found.value
      return {
        session: id,
        dormant: core.options() === undefined,
        directory,
        ...(latest === undefined
          ? {}
          : { latest: { turn: latest.turn, attempt: latest.attempt, state: stateOf(latest.end) } })
      }
    }
  )

  const adopt = Effect.gen(function*() {
    const file = yield* core.glance
    if (file === undefined || (!file.active && (file.latest === undefined || file.latest.end !== undefined))) return
    yield* core.holdIfFree
    // Who asks for the session later is told what's wrong.
  }).pipe(Effect.ignore)

  const yieldToNewer = queue.run(
    { name: "other" },
    Effect.suspend(() => core.running() !== undefined || core.compaction() !== undefined ? Effect.void : core.free)
  )

  return {
    startSession,
    startTurn,
    readTurn,
    abortTurn,
    submitToolResult,
    approve,
    compact,
    readState,
    stopSession,
    destroySession,
    summary,
    adopt,
    yieldToNewer,
    shutdown: core.shutdown,
    isKnown: () => core.holding()?.file() !== undefined
  }
})

const digestFormat = (format: Bridge.ResponseFormat | undefined): Effect.Effect<string | undefined> =>
  format === undefined ? Effect.undefined : digestJson(format)
