/**
 * An attempt that runs: what its driver emits goes to the log, what its agent asks is answered, and it ends once.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { AgentSession, Finished, Reconciled, Turn } from "../Driver.ts"
import type { Redaction } from "../Redaction.ts"
import type { Ended, Supervisor } from "../Supervisor.ts"
import type { TurnLog, WriteFailure } from "../TurnLog.ts"
import type { TurnUsage } from "../TurnUsage.ts"
import * as Answers from "./answers.ts"
import type { Messages } from "./messages.ts"
import * as TurnWork from "./turnWork.ts"

/** Why an attempt is aborted. */
export interface Abort {
  readonly reason: Bridge.AbortReason
  readonly limit?: "steps" | "tokens" | "cost" | "time" | undefined
  readonly message?: string | undefined
}

export interface Outcome extends Ended {
  readonly end: Bridge.End
}

export interface RunningTurn {
  readonly turn: Bridge.TurnId
  readonly attempt: number
  readonly answers: Answers.Answers
  readonly messages: Messages
  readonly send: TurnWork.TurnWork["send"]
  /** Asks for the end; the first reason counts. */
  readonly abort: (abort: Abort) => Effect.Effect<void>
  /** Waits for the end, which is in the log by then, or can't be written. */
  readonly outcome: Effect.Effect<Outcome>
}

export interface Options {
  readonly turn: Bridge.TurnId
  readonly attempt: number
  readonly agent: AgentSession
  readonly supervisor: Supervisor
  readonly log: TurnLog
  readonly answers: Answers.Answers
  readonly messages: Messages
  readonly redaction: Redaction
  readonly usage: TurnUsage
  readonly continued: Reconciled | undefined
  readonly prompt: ReadonlyArray<Bridge.PromptPart>
  readonly model: string | undefined
  readonly effort: string | undefined
  readonly responseFormat: Bridge.ResponseFormat | undefined
  readonly raw: boolean
  readonly timeout: number | undefined
  /** Set where the attempt is over before it had an agent: it ends at once. */
  readonly aborted?: Abort | undefined
  readonly session: Pick<Bridge.SessionOptions, "permissions" | "approvalTimeout" | "limits" | "background">
  /** Standing rules, which `allow-always` adds to. */
  readonly rules: {
    readonly has: (key: string) => boolean
    readonly add: (rule: { readonly key: string; readonly title: string }) => Effect.Effect<void>
  }
}

// How long an agent that was asked to stop has before its processes are ended.
const askFor = Duration.seconds(2)
// The same where the bridge itself ends.
const askAtShutdown = Duration.millis(500)
// How long a driver has to notice that its agent is gone.
const leaveAfter = Duration.seconds(1)

// What comes first.
type Conclusion =
  | { readonly _tag: "Finished"; readonly finished: Finished }
  | { readonly _tag: "Failed"; readonly cause: Cause.Cause<TurnWork.RunFailure> }
  | { readonly _tag: "Aborted"; readonly abort: Abort }
  | { readonly _tag: "NotWritten"; readonly failure: WriteFailure }

const nothingEnded: Ended = { ended: [], left: [] }

// What an end says in words, in UTF-16 units, and how many processes it lists: more are left out.
const maxWords = 16 * 1024
const maxBackground = 200

// Parts that hold what the agent or its tools made.
const mayBeDeep: ReadonlySet<string> = new Set(["tool-call", "tool-approval-request", "tool-result", "error", "raw"])

const tooDeep = (what: string) => new Error(`${what} is nested more than ${Bridge.maxJsonDepth} deep`)

const isTooLong = (output: Schema.Json | undefined) =>
  output !== undefined && new TextEncoder().encode(JSON.stringify(output)).length > Bridge.maxOutputBytes

// What isn't an end couldn't be read again.
const isEnd = Schema.is(Bridge.End)

/** Starts the attempt in the given scope, whose closing must be preceded by `abort` and `outcome`. */
export const start = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<RunningTurn, never, Scope.Scope> {
  const { agent, answers, log, messages, redaction, supervisor, usage } = options
  const scope = yield* Effect.scope
  const aborted = Deferred.makeUnsafe<Abort>()
  const ended = Deferred.makeUnsafe<Outcome>()
  const abort = (reason: Abort) => Effect.asVoid(Deferred.succeed(aborted, reason))
  if (options.aborted !== undefined) yield* abort(options.aborted)

  // A driver that was left behind may go on, and the log may have another attempt by then.
  let over = false
  // Set where the agent may have said all, and must not begin another step if it hasn't.
  let reached: Abort["limit"]

  const append = (part: Bridge.KnownPart) => {
    answers.observe(part)
    usage.add(part)
    return log.append(part)
  }

  // Nearly all parts come through here: with a generator for each, 1.4 instead of 1.0 microseconds a part were measured.
  const write = (part: Bridge.KnownPart): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (over) return Effect.void
      if (mayBeDeep.has(part.type) && Bridge.isTooDeep(part)) return Effect.die(tooDeep(`a part '${part.type}'`))
      const parts = redaction.apply(part)
      return parts.length === 1 ? Effect.asVoid(append(parts[0]!)) : Effect.forEach(parts, append, { discard: true })
    })

  const replaced = (kind: Answers.AskedKind, name: string, params: unknown) => {
    // Refused when it's written.
    if (Bridge.isTooDeep({ params })) return {}
    // As the earlier request stands in the log.
    const replaces = answers.replaces(kind, Answers.askedKey(name, redaction.json(params)))
    return replaces === undefined ? {} : { replaces }
  }

  const emitCounted = Effect.fnUntraced(function*(part: Bridge.AgentPart) {
    if (part.type === "tool-call" && part.providerExecuted === false) {
      yield* write({ ...part, ...replaced("tool", part.name, part.params) })
    } else {
      yield* write(part)
    }
    if (part.type === "step-finished") {
      reached = limitReached(options.session.limits, usage)
      const goesOn = part.finishReason === undefined || part.finishReason === "tool-calls"
      if (reached !== undefined && goesOn) yield* abort({ reason: "limit", limit: reached })
    } else if (reached !== undefined && stepBeginnings.has(part.type)) {
      yield* abort({ reason: "limit", limit: reached })
    }
  })

  // What started before the agent's first tool call is the agent's own. A tool isn't run before all its input has come;
  // where that comes with the call, it may be running by the time that the call is heard of.
  const clock = yield* Clock.Clock
  let acted = false
  let quietAt = clock.monotonicTimeNanosUnsafe()
  yield* supervisor.turnBegan
  const noteTool = (part: Bridge.AgentPart): Effect.Effect<void> => {
    const now = clock.monotonicTimeNanosUnsafe()
    acted = part.type === "tool-params-start" || part.type === "tool-call"
    if (part.type !== "tool-call") quietAt = now
    return acted ? supervisor.toolCalled(now - quietAt) : Effect.void
  }

  const emitted = (part: Bridge.AgentPart): Effect.Effect<void> =>
    reached === undefined && part.type !== "tool-call" && part.type !== "step-finished"
      ? write(part)
      : emitCounted(part)

  const emit: Turn["emit"] = (part) =>
    Effect.suspend(() => {
      if (acted) return emitted(part)
      const note = noteTool(part)
      return acted ? Effect.andThen(note, emitted(part)) : emitted(part)
    })

  // The deadline's answer where nobody else's came in time; either way what came first is heard.
  const hear = Effect.fnUntraced(function*(kind: Answers.AskedKind, id: string, late: Answers.Answer) {
    const { approvalTimeout } = options.session
    if (approvalTimeout !== undefined) {
      const inTime = yield* Effect.timeoutOption(answers.hear(kind, id), Duration.millis(approvalTimeout))
      // A log that can't be written fails the turn by itself.
      if (Option.isNone(inTime)) yield* Effect.ignore(answers.answer(kind, id, late))
    }
    return yield* answers.hear(kind, id)
  })

  const callHostTool: Turn["callHostTool"] = Effect.fnUntraced(function*(call) {
    if (answers.get("tool", call.id) === undefined) {
      yield* emit({ type: "tool-call", ...call, providerExecuted: false })
    }
    const answer = yield* answers.hear("tool", call.id)
    if (answer.type !== "tool-result") return yield* Effect.die("a tool call was answered by something else")
    return { result: answer.result, isFailure: answer.isFailure }
  })

  const requestApproval: Turn["requestApproval"] = Effect.fnUntraced(function*(request) {
    const { edits, rule, ...asked } = request
    const { permissions } = options.session
    if (permissions === "all" || (permissions === "edits" && edits)) return { decision: "allow" as const }
    if (rule !== undefined && options.rules.has(rule.key)) return { decision: "allow" as const }
    const { approvalId } = request
    if (rule !== undefined) yield* answers.onAllowAlways(approvalId, options.rules.add(rule))
    if (answers.get("approval", approvalId) === undefined) {
      yield* write({
        type: "tool-approval-request",
        ...asked,
        ...(rule === undefined ? {} : { rule: rule.title }),
        ...replaced("approval", request.name, request.params)
      })
    }
    const answer = yield* hear("approval", approvalId, {
      type: "tool-approval-response",
      approvalId,
      decision: "deny",
      reason: "timeout",
      by: "timeout"
    })
    if (answer.type !== "tool-approval-response") return yield* Effect.die("an approval was answered by something else")
    return { decision: answer.decision, reason: answer.reason }
  })

  const ask: Turn["ask"] = Effect.fnUntraced(function*(question) {
    const { questionId } = question
    if (answers.get("question", questionId) === undefined) {
      yield* write({ type: "question", ...question, ...replaced("question", "", question.questions) })
    }
    const answer = yield* hear("question", questionId, {
      type: "question-answer",
      questionId,
      answer: "timeout",
      isFailure: true,
      by: "timeout"
    })
    if (answer.type !== "question-answer") return yield* Effect.die("a question was answered by something else")
    return { answer: answer.answer, isFailure: answer.isFailure }
  })

  const turn: Turn = {
    turn: options.turn,
    attempt: options.attempt,
    prompt: options.prompt,
    continued: options.continued,
    model: options.model,
    effort: options.effort,
    responseFormat: options.responseFormat,
    raw: options.raw,
    emit,
    callHostTool,
    requestApproval,
    ask,
    delivered: (message) => messages.delivered(message, write)
  }

  const work = yield* TurnWork.make({ agent, messages, isAborted: () => Deferred.isDoneUnsafe(aborted) })
  const agentFiber = yield* Effect.forkIn(Effect.suspend(() => work.run(turn)), scope)

  // Lets the agent stop by itself for a while, then ends its processes, then the driver. Neither asking it nor
  // interrupting it may wait longer: a driver that hangs is left behind in the scope.
  const stopAgent = Effect.fnUntraced(function*(patience: Duration.Duration) {
    const asking = yield* Effect.forkIn(Effect.suspend(() => agent.interrupt), scope)
    yield* Effect.timeoutOption(Fiber.await(agentFiber), patience)
    asking.interruptUnsafe()
    const processes = yield* supervisor.endAll
    yield* Effect.timeoutOption(Fiber.interrupt(agentFiber), leaveAfter)
    return processes
  })

  const inWords = (text: string) => redaction.text(text).slice(0, maxWords)

  const fail = (kind: Bridge.FailureKind, message: string, processes: Ended): Outcome => ({
    end: { type: "failed", error: { kind, message: inWords(message) }, usage: usage.total({}) },
    ...processes
  })

  const broke = (cause: Cause.Cause<unknown>) =>
    Effect.map(supervisor.endAll, (processes) => fail("unknown", driverBroke(cause), processes))

  const conclude = Effect.fnUntraced(function*(first: Conclusion): Effect.fn.Return<Outcome> {
    switch (first._tag) {
      case "Finished": {
        const { cost, finishReason, output } = first.finished
        if (Bridge.isTooDeep({ output })) return yield* Effect.die(tooDeep("its answer"))
        if (isTooLong(output)) {
          const message = `The answer is longer than ${Bridge.maxOutputBytes} bytes.`
          return fail("unknown", message, yield* supervisor.endAll)
        }
        const background = yield* options.session.background === "end"
          ? Effect.map(supervisor.endBackground, ({ left }) => left)
          : supervisor.background
        return {
          end: {
            type: "finished",
            usage: usage.total({ cost }),
            finishReason: inWords(finishReason),
            ...(output === undefined ? {} : { output: redaction.json(output) }),
            ...(background.length === 0 ? {} : { background: background.slice(0, maxBackground) })
          },
          ...nothingEnded
        }
      }
      case "Failed": {
        const { kind, message } = failureOf(first.cause)
        return fail(kind, message, yield* supervisor.endAll)
      }
      case "Aborted": {
        const { limit, message, reason } = first.abort
        const processes = yield* stopAgent(reason === "shutdown" ? askAtShutdown : askFor)
        return {
          end: {
            type: "aborted",
            reason,
            ...(limit === undefined ? {} : { limit }),
            ...(message === undefined ? {} : { message: inWords(message) }),
            usage: usage.total({})
          },
          ...processes
        }
      }
      case "NotWritten":
        return fail(first.failure.kind, first.failure.problem, yield* stopAgent(Duration.zero))
    }
  })

  const time = Math.min(options.timeout ?? Infinity, options.session.limits?.time ?? Infinity)
  const deadline: Abort = time === options.timeout ? { reason: "timeout" } : { reason: "limit", limit: "time" }

  const first = Effect.raceAllFirst([
    Effect.map(
      Fiber.await(agentFiber),
      (exit): Conclusion =>
        Exit.isSuccess(exit) ? { _tag: "Finished", finished: exit.value } : { _tag: "Failed", cause: exit.cause }
    ),
    Effect.map(Deferred.await(aborted), (abort): Conclusion => ({ _tag: "Aborted", abort })),
    Effect.map(log.failure, (failure): Conclusion => ({ _tag: "NotWritten", failure })),
    Number.isFinite(time)
      ? Effect.as(Effect.sleep(Duration.millis(time)), { _tag: "Aborted", abort: deadline } satisfies Conclusion)
      : Effect.never
  ])

  const settle = Effect.fnUntraced(function*(outcome: Outcome) {
    if (!isEnd(outcome.end)) return yield* Effect.die(new Error("it gave an answer that isn't JSON"))
    over = true
    for (const held of redaction.flush()) yield* log.append(held)
    // The log keeps trying; whoever waits is told how it ended all the same.
    const line = yield* Effect.option(log.end(outcome.end))
    return Option.isSome(line) ? { ...outcome, end: line.value.end } : outcome
  })

  const toTheEnd = Effect.gen(function*() {
    const came = yield* first
    messages.close()
    // What aborted the attempt while its agent was at it counts, however soon the agent was done.
    const conclusion = Deferred.isDoneUnsafe(aborted)
      ? { _tag: "Aborted" as const, abort: yield* Deferred.await(aborted) }
      : came
    const outcome = yield* Effect.flatMap(conclude(conclusion), settle).pipe(
      // Whatever a driver said can't keep the attempt from ending.
      Effect.catchCause((cause) => Effect.flatMap(broke(cause), settle))
    )
    yield* Deferred.succeed(ended, outcome)
  })

  yield* Effect.forkIn(toTheEnd, scope)

  return {
    turn: options.turn,
    attempt: options.attempt,
    answers,
    messages,
    send: work.send,
    abort,
    outcome: Deferred.await(ended)
  }
})

const limitReached = (limits: Bridge.SessionOptions["limits"], usage: TurnUsage) => {
  if (limits === undefined) return undefined
  const { cost = 0, inputTokens, outputTokens } = usage.total({})
  const tokens = (inputTokens?.total ?? 0) + (outputTokens?.total ?? 0)
  if (limits.steps !== undefined && usage.steps() >= limits.steps) return "steps"
  if (limits.tokens !== undefined && tokens >= limits.tokens) return "tokens"
  if (limits.cost !== undefined && cost >= limits.cost) return "cost"
  return undefined
}

// Parts by which the agent speaks or acts anew.
const stepBeginnings: ReadonlySet<string> = new Set([
  "text-start",
  "text-delta",
  "reasoning-start",
  "reasoning-delta",
  "tool-params-start",
  "tool-call"
])

const driverBroke = (cause: Cause.Cause<unknown>): string => `The driver broke: ${String(Cause.squash(cause))}`

const failureOf = (
  cause: Cause.Cause<TurnWork.RunFailure>
): { readonly kind: Bridge.FailureKind; readonly message: string } => {
  const error = Option.getOrUndefined(Cause.findErrorOption(cause))
  switch (error?._tag) {
    case undefined:
      return { kind: "unknown", message: driverBroke(cause) }
    case "TurnFailed":
      return error
    case "ContextLost":
      return { kind: "unknown", message: error.message }
    case "DriverError":
      return { kind: error.kind === "exit" ? "agent-exit" : "unknown", message: error.message }
  }
}
