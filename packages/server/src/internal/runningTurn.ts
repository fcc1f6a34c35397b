/**
 * An attempt that runs: what its driver emits goes to the log, what its agent asks is answered, and it ends once.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { AgentSession, Finished, Reconciled, Turn, TurnFailed } from "../Driver.ts"
import type { Redaction } from "../Redaction.ts"
import type { Ended, Supervisor } from "../Supervisor.ts"
import type { TurnLog, WriteFailure } from "../TurnLog.ts"
import type { TurnUsage } from "../TurnUsage.ts"
import * as Answers from "./answers.ts"

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
  readonly redaction: Redaction
  readonly usage: TurnUsage
  readonly continued: Reconciled | undefined
  readonly prompt: ReadonlyArray<Bridge.PromptPart>
  readonly model: string | undefined
  readonly effort: string | undefined
  readonly responseFormat: Bridge.ResponseFormat | undefined
  readonly raw: boolean
  readonly timeout: number | undefined
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

/** Starts the attempt in the given scope, whose closing must be preceded by `abort` and `outcome`. */
export const start = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<RunningTurn, never, Scope.Scope> {
  const { agent, answers, log, redaction, supervisor, usage } = options
  const scope = yield* Effect.scope
  const aborted = Deferred.makeUnsafe<Abort>()
  const ended = Deferred.makeUnsafe<Outcome>()
  const abort = (reason: Abort) => Effect.asVoid(Deferred.succeed(aborted, reason))

  const write = Effect.fnUntraced(function*(part: Bridge.KnownPart) {
    for (const redacted of redaction.apply(part)) {
      answers.observe(options.attempt, redacted)
      usage.add(redacted)
      yield* log.append(redacted)
    }
  })

  const emit = (part: Bridge.KnownPart) =>
    Effect.suspend(() => {
      if (part.type === "tool-call" && part.providerExecuted === false) {
        const replaces = answers.replaces("tool", options.attempt, Answers.askedKey(part.name, part.params))
        return write(replaces === undefined ? part : { ...part, replaces })
      }
      if (part.type !== "step-finished") return write(part)
      return Effect.andThen(
        write(part),
        Effect.suspend(() => {
          const limit = limitReached(options.session.limits, usage)
          return limit === undefined ? Effect.void : abort({ reason: "limit", limit })
        })
      )
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
    if (answers.get("approval", approvalId) === undefined) {
      const replaces = answers.replaces("approval", options.attempt, Answers.askedKey(request.name, request.params))
      yield* emit({
        type: "tool-approval-request",
        ...asked,
        ...(rule === undefined ? {} : { rule: rule.title }),
        ...(replaces === undefined ? {} : { replaces })
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
    if (answer.decision === "allow-always" && rule !== undefined) yield* options.rules.add(rule)
    return { decision: answer.decision, reason: answer.reason }
  })

  const ask: Turn["ask"] = Effect.fnUntraced(function*(question) {
    const { questionId } = question
    if (answers.get("question", questionId) === undefined) {
      const replaces = answers.replaces("question", options.attempt, Answers.askedKey("", question.questions))
      yield* emit({ type: "question", ...question, ...(replaces === undefined ? {} : { replaces }) })
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
    ask
  }

  const agentFiber = yield* Effect.forkIn(agent.run(turn), scope)

  // Lets the agent stop by itself for a while, then ends its processes, then the driver.
  const stopAgent = Effect.fnUntraced(function*(patience: Duration.Duration) {
    yield* Effect.timeoutOption(
      Effect.all([agent.interrupt, Fiber.await(agentFiber)], { concurrency: 2 }),
      patience
    )
    const processes = yield* supervisor.endAll
    // The agent is gone: a driver that doesn't notice is left behind in the scope.
    yield* Effect.timeoutOption(Fiber.interrupt(agentFiber), Duration.seconds(1))
    return processes
  })

  const conclude = Effect.fnUntraced(function*(
    first: {
      readonly _tag: "Ran"
      readonly exit: Exit.Exit<Finished, TurnFailed | Bridge.ContextLost | Bridge.DriverError>
    } | {
      readonly _tag: "Aborted"
      readonly abort: Abort
    } | { readonly _tag: "NotWritten"; readonly failure: WriteFailure }
  ): Effect.fn.Return<Outcome> {
    switch (first._tag) {
      case "Ran": {
        if (Exit.isSuccess(first.exit)) {
          const { cost, finishReason, output } = first.exit.value
          const background = yield* options.session.background === "end"
            ? Effect.as(supervisor.endBackground, [])
            : supervisor.background
          return {
            end: {
              type: "finished",
              usage: usage.total({ cost }),
              finishReason,
              ...(output === undefined ? {} : { output }),
              ...(background.length === 0 ? {} : { background })
            },
            ended: [],
            left: []
          }
        }
        const error = failureOf(first.exit.cause)
        const processes = yield* supervisor.endAll
        return {
          end: {
            type: "failed",
            error: { kind: error.kind, message: redaction.text(error.message) },
            usage: usage.total({})
          },
          ...processes
        }
      }
      case "Aborted": {
        const { limit, message, reason } = first.abort
        const processes = yield* stopAgent(reason === "shutdown" ? askAtShutdown : askFor)
        return {
          end: {
            type: "aborted",
            reason,
            ...(limit === undefined ? {} : { limit }),
            ...(message === undefined ? {} : { message: redaction.text(message) }),
            usage: usage.total({})
          },
          ...processes
        }
      }
      case "NotWritten": {
        const processes = yield* stopAgent(Duration.zero)
        return {
          end: {
            type: "failed",
            error: { kind: first.failure.kind, message: first.failure.problem },
            usage: usage.total({})
          },
          ...processes
        }
      }
    }
  })

  const time = Math.min(options.timeout ?? Infinity, options.session.limits?.time ?? Infinity)
  const deadline: Abort = time === options.timeout ? { reason: "timeout" } : { reason: "limit", limit: "time" }

  const toTheEnd = Effect.gen(function*() {
    const first = yield* Effect.raceAllFirst([
      Effect.map(Fiber.await(agentFiber), (exit) => ({ _tag: "Ran" as const, exit })),
      Effect.map(Deferred.await(aborted), (abort) => ({ _tag: "Aborted" as const, abort })),
      Effect.map(log.failure, (failure) => ({ _tag: "NotWritten" as const, failure })),
      Number.isFinite(time)
        ? Effect.as(Effect.sleep(Duration.millis(time)), { _tag: "Aborted" as const, abort: deadline })
        : Effect.never
    ])
    const outcome = yield* conclude(first)
    for (const held of redaction.flush()) yield* log.append(held)
    // The log keeps trying; whoever waits is told how it ended all the same.
    const line = yield* Effect.option(log.end(outcome.end))
    yield* Deferred.succeed(ended, Option.isSome(line) ? { ...outcome, end: line.value.end } : outcome)
  })

  yield* Effect.forkIn(toTheEnd, scope)

  return {
    turn: options.turn,
    attempt: options.attempt,
    answers,
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

const failureOf = (
  cause: Cause.Cause<TurnFailed | Bridge.ContextLost | Bridge.DriverError>
): { readonly kind: Bridge.FailureKind; readonly message: string } => {
  const error = Option.getOrUndefined(Cause.findErrorOption(cause))
  if (error === undefined) return { kind: "unknown", message: `The driver broke: ${String(Cause.squash(cause))}` }
  switch (error._tag) {
    case "TurnFailed":
      return error
    case "ContextLost":
      return { kind: "unknown", message: error.message }
    case "DriverError":
      return { kind: error.kind === "exit" ? "agent-exit" : "unknown", message: error.message }
  }
}
