/**
 * Starting a turn: a new one, a repeat, or the next attempt of one that was aborted.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { AgentSession, Reconciled } from "../Driver.ts"
import type { Session } from "../Session.ts"
import type { TurnLog } from "../TurnLog.ts"
import * as TurnUsage from "../TurnUsage.ts"
import * as AbortRequests from "./abortRequests.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import { digestJson } from "./digest.ts"
import type { Holding, OpenLog } from "./holding.ts"
import type { Abort } from "./runningTurn.ts"
import type { SessionCore } from "./sessionCore.ts"
import * as SessionFile from "./sessionFile.ts"
import { type SessionLookup, stateOf } from "./sessionLookup.ts"
import { scan } from "./turnScan.ts"

export const make = (context: BridgeContext, core: SessionCore, lookup: SessionLookup): Session["startTurn"] => {
  const { driver } = context
  const { answersOf, heldOrBusy, latestStatus, messagesOf, requireFile, unsupported } = lookup
  const { id } = core

  const startTurn: Session["startTurn"] = (payload) =>
    core.queue.run({ name: "start", turn: payload.turn, needsAgent: true }, startTurnNow(payload))

  const startTurnNow = Effect.fnUntraced(function*(payload: Rpc.Payload<typeof Bridge.StartTurn>) {
    yield* context.check
    const file = yield* requireFile
    const over = (yield* core.earlier(file)).get(payload.turn)
    if (over !== undefined) {
      return yield* new Bridge.TurnSuperseded({ turn: payload.turn, latest: file.latest!.turn, end: over })
    }
    if (core.options() === undefined) return yield* new Bridge.SessionNotStarted({ session: id })
    if (payload.responseFormat !== undefined && !driver.capabilities.structuredOutput) {
      return yield* unsupported("structuredOutput")
    }
    if (payload.effort !== undefined && !driver.capabilities.effort) return yield* unsupported("effort")
    if (payload.prompt !== undefined && Bridge.hasImage(payload.prompt) && !driver.capabilities.images) {
      return yield* unsupported("images")
    }
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

  // The agent is waited for no longer than nobody aborts the attempt. One that's aborted begins and ends without it, so
  // that no repeat of its start begins it later. While the agent is compacting, that's what a start is here for.
  const unlessAborted = <A, E>(turn: Bridge.TurnId, attempt: number, ready: Effect.Effect<A, E>) =>
    Effect.suspend(() => {
      const compaction = core.compaction()
      const aborted = (abort: Abort) => ({ ready: undefined, aborted: abort })
      const requested = Effect.map(
        core.abortRequests.await(AbortRequests.endsAttempt(turn, attempt)),
        ({ abort }) => aborted(abort)
      )
      if (compaction === undefined) {
        return Effect.raceFirst(Effect.map(ready, (ready) => ({ ready, aborted: undefined })), requested)
      }
      const whenFree = Effect.andThen(Effect.exit(Deferred.await(compaction.outcome)), ready)
      return Effect.raceAllFirst([
        Effect.map(whenFree, (ready) => ({ ready, aborted: undefined })),
        requested,
        core.queue.isReplaced(turn) ? Effect.succeed(aborted({ reason: "replaced" })) : Effect.never
      ])
    })

  const newTurn = Effect.fnUntraced(function*(
    payload: Rpc.Payload<typeof Bridge.StartTurn>,
    holding: Holding,
    file: SessionFile.SessionFile
  ) {
    const refused = (field: "prompt" | "attempt") =>
      new Bridge.TurnConflict({ turn: payload.turn, field, attempt: 0, state: "aborted" })
    if (payload.attempt !== undefined && payload.attempt !== 1) return yield* refused("attempt")
    if (payload.prompt === undefined) return yield* refused("prompt")
    if (file.earlier.turns + 1 >= SessionFile.maxTurns) {
      return yield* new Bridge.SessionFull({ session: id, turns: SessionFile.maxTurns })
    }
    yield* core.endRunning({ reason: "replaced" })
    const { aborted, ready } = yield* unlessAborted(payload.turn, 1, core.openAgent(holding))
    const { latest } = holding.file()!
    const previous = latest === undefined
      ? undefined
      : { turn: latest.turn, end: SessionFile.toEarlier((yield* latestStatus(holding)).end!) }
    const prompt = yield* digestJson(payload.prompt)
    const responseFormat = yield* digestFormat(payload.responseFormat)
    const startedAt = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
    const { responseFormat: format } = payload
    const begin = Effect.gen(function*() {
      const opened = yield* holding.beginTurn(
        { format: 1, turn: payload.turn, prompt, responseFormat, startedAt },
        previous,
        (current) => ({
          ...current,
          latest: { turn: payload.turn, attempt: 1, ...(format === undefined ? {} : { responseFormat: format }) }
        })
      )
      yield* core.run(holding, {
        ...turnOptions(payload, holding),
        attempt: 1,
        agent: ready ?? noAgent,
        aborted,
        log: opened.log,
        answers: answersOf(opened),
        messages: messagesOf(opened),
        usage: TurnUsage.make(),
        continued: undefined
      })
      return opened.log
    })
    // A turn that is on disk has its end: when the bridge exits, it runs, or it isn't there.
    const log = yield* Effect.uninterruptible(begin)
    const { next } = yield* log.status
    return { attempt: 1, from: 1, next, status: "started" as const }
  })

  const repeatTurn = Effect.fnUntraced(function*(
    payload: Rpc.Payload<typeof Bridge.StartTurn>,
    holding: Holding
  ) {
    const opened = holding.log()!
    const { attempt, end, from, next } = yield* latestStatus(holding)
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
    if (!continues) return { attempt, from, next, status: end === undefined ? "running" as const : "ended" as const }
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
    // An agent of the attempt before would write the same conversation. What compacts it isn't one.
    if (core.compaction() === undefined) yield* holding.supervisor.endAll
    const answers = answersOf(opened)
    const messages = messagesOf(opened)
    const usage = TurnUsage.make()
    yield* Stream.runForEachArray(scan(log), (parts) =>
      Effect.sync(() => {
        for (const numbered of parts) {
          usage.add(numbered.part)
          answers.observe(numbered.part)
          messages.observe(numbered)
        }
      })).pipe(Effect.mapError((error) => new Bridge.LogUnavailable({ problem: error.message })))
    const reconcile = Effect.gen(function*() {
      const agent = yield* core.openAgent(holding)
      if (agent.reconcile === undefined) return yield* unsupported("continuation")
      const reconciled = yield* agent.reconcile({
        turn: payload.turn,
        attempt,
        messages: messages.ids(),
        parts: Stream.mapError(
          log.parts,
          (error) => new Bridge.DriverError({ driver: driver.name, kind: "unknown", problem: error.message })
        )
      })
      return { agent, reconciled }
    })
    const { aborted, ready } = yield* unlessAborted(payload.turn, attempt, reconcile)
    if (ready !== undefined && !ready.reconciled.prompted && payload.prompt === undefined) {
      return yield* conflict("prompt")
    }
    // What wasn't compared counts until it is, by the next attempt.
    const keep = ready === undefined ? (yield* log.status).next - 1 : ready.reconciled.keep
    const begin = Effect.gen(function*() {
      yield* holding.save(({ latest, ...current }) => {
        const { end: _, ...again } = latest!
        return { ...current, latest: { ...again, attempt } }
      })
      const from = yield* log.beginAttempt({ attempt, keep })
      const continued = { type: "turn-continued", attempt, keep } as const
      usage.add(continued)
      answers.observe(continued)
      messages.observe({ n: from, part: continued })
      if (ready !== undefined) {
        yield* logRecovered(log, ready.reconciled, usage)
        for (const part of messages.carriedOn(ready.reconciled.messages)) {
          messages.observe({ n: yield* log.append(part), part })
        }
      }
      yield* core.run(holding, {
        ...turnOptions(payload, holding),
        attempt,
        agent: ready?.agent ?? noAgent,
        aborted,
        log,
        answers,
        messages,
        usage,
        continued: ready?.reconciled
      })
      return from
    })
    const from = yield* Effect.uninterruptible(begin)
    const { next } = yield* log.status
    return { attempt, from, next, status: "continued" as const }
  })

  const logRecovered = Effect.fnUntraced(function*(
    log: TurnLog,
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
    for (const part of reconciled.recovered) yield* append(redaction.apply(part))
    yield* append(redaction.flush())
    if (reconciled.notice !== undefined) {
      yield* log.append({ type: "notice", level: "info", message: redaction.text(reconciled.notice) })
    }
  })

  return startTurn
}

// That of an attempt which is over before it has one.
const noAgent: AgentSession = { run: () => Effect.succeed({ finishReason: "aborted" }), interrupt: Effect.void }

const digestFormat = (format: Bridge.ResponseFormat | undefined): Effect.Effect<string | undefined> =>
  format === undefined ? Effect.undefined : digestJson(format)
