/**
 * Makes turns.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { MessageId } from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import type { BridgeUnavailable } from "../BridgeUnavailable.ts"
import type { SessionOptions } from "../Session.ts"
import * as Turn from "../Turn.ts"
import type { Commands, Connection } from "./connection.ts"
import type { CommandError, Core } from "./core.ts"
import * as Reader from "./reader.ts"
import { type Answer, respond } from "./responder.ts"
import { describe, failed } from "./toolOutcome.ts"

/** What a turn needs of its session. */
export interface Owner {
  readonly core: Core
  readonly session: Bridge.SessionId
  /** Runs a command that needs the session, on the bridge that may have it. */
  readonly need: <A, E>(command: (commands: Commands) => Effect.Effect<A, E>) => Effect.Effect<A, CommandError<E>>
  /** Runs an answer where the session is held. */
  readonly answer: <A, E>(command: (commands: Commands) => Effect.Effect<A, E>) => Effect.Effect<A, CommandError<E>>
  /** Starts an attempt of the turn, and the session before, where its bridge is a new one. */
  readonly start: (attempt: number) => Effect.Effect<Turn.StartedTurn, Turn.StartTurnError | Turn.StartSessionError>
  /** Takes the session from a bridge that has it, where this host knows what it's started with. */
  readonly takeOver: Effect.Effect<unknown, Turn.StartSessionError> | undefined
}

// How long an attempt is given to end by itself where its bridge is gone, and how often one is asked that isn't.
const settling = "5 seconds"
const askAgain = "15 seconds"

export const make = (owner: Owner, turn: Bridge.TurnId, policy: Turn.Policy, started?: Turn.StartedTurn): Turn.Turn => {
  const { core, session } = owner
  const continues = (policy.onBridgeDeath ?? (started === undefined ? "fail" : "continue")) === "continue"
  const connection = core.connection({ launch: continues })
  const key = { session, turn }
  const ended = Deferred.makeUnsafe<Bridge.EndLine>()
  const semaphore = Semaphore.makeUnsafe(1)
  // The furthest that any read of this handle has come.
  let next = 1
  let attempt: number | undefined
  let latest = started?.attempt ?? 0
  let continuations = policy.maxContinuations ?? 3
  let isAborted = false

  const onProgress = (readNext: number, readAttempt: number) => {
    if (readNext > next) {
      next = readNext
      attempt = readAttempt
    }
    latest = Math.max(latest, readAttempt)
  }

  const take = (line: Bridge.EndLine) => Effect.as(Deferred.succeed(ended, line), false)

  // One at a time: several reads of the turn come to the same end.
  const onEnd = (line: Bridge.EndLine): Effect.Effect<boolean, Turn.ContinueFailed> =>
    Effect.suspend(() => {
      if (latest > line.attempt) return Effect.succeed(true)
      if (!continues || isAborted || continuations === 0 || !isBridgeDeath(line.end)) return take(line)
      return owner.start(line.attempt + 1).pipe(
        Effect.map((reply) => {
          continuations--
          origin = undefined
          latest = Math.max(latest, reply.attempt)
          return true
        }),
        Effect.catch((reason) => {
          switch (reason._tag) {
            // Another host was faster.
            case "TurnConflict":
              if (reason.attempt > line.attempt) {
                latest = reason.attempt
                return Effect.succeed(true)
              }
              break
            case "TurnSuperseded":
              return take(line)
          }
          return Effect.fail(new Turn.ContinueFailed({ turn, end: line.end, reason }))
        })
      )
    }).pipe(semaphore.withPermit)

  // A newer bridge shows what an older one goes on writing. An older one that is frozen writes nothing and keeps its
  // session, so nothing would come of the attempt, ever: somebody has to take the session from it.
  let origin: Connection | undefined
  let isWatching = false
  const onConnection = (connection: Connection): Effect.Effect<void> => {
    origin ??= connection
    const { takeOver } = owner
    const { hello: { launch }, port } = origin
    const movedIn = latest
    if (launch === connection.hello.launch || isWatching || !continues || takeOver === undefined) return Effect.void
    const isOver = () => isAborted || latest > movedIn || Deferred.isDoneUnsafe(ended)
    isWatching = true
    return Effect.gen(function*() {
      yield* Effect.sleep(settling)
      while (!isOver()) {
        const isThere = yield* core.answers({ launch, port })
        if (!isThere && !isOver() && Exit.isSuccess(yield* Effect.exit(takeOver))) return
        yield* Effect.sleep(askAgain)
      }
    }).pipe(
      Effect.ensuring(Effect.sync(() => {
        isWatching = false
      }))
    )
  }

  const parts = (options?: Turn.ReadOptions) =>
    Reader.read({
      ...options,
      ...key,
      bridge: core.bridge,
      reconnectFor: core.reconnectFor,
      connection,
      onConnection,
      onProgress,
      onEnd
    })

  const endLine: Turn.Turn["endLine"] = Effect.suspend(() => {
    const known = Deferred.await(ended)
    if (Deferred.isDoneUnsafe(ended)) return known
    return Effect.raceFirst(known, Effect.andThen(Stream.runDrain(parts({ from: next, attempt })), known))
  })

  return {
    session,
    turn,
    started,
    parts,
    end: Effect.map(endLine, ({ end }) => end),
    endLine,
    text: Effect.map(Stream.runCollect(parts()), Turn.toText),
    abort: (options) =>
      Effect.suspend(() => {
        isAborted = true
        return owner.need((commands) => commands.AbortTurn({ ...key, ...options }))
      }),
    send: Effect.fnUntraced(function*(prompt, { delivery, messageId } = {}) {
      // Chosen once: a repeat after a lost reply is the same message.
      const message = {
        ...key,
        messageId: messageId ?? (yield* randomId),
        prompt: typeof prompt === "string" ? [{ type: "text", text: prompt }] as const : prompt,
        ...(delivery === undefined ? {} : { delivery })
      }
      return (yield* owner.answer((commands) => commands.SendMessage(message))).delivery
    }),
    approve: (approval) => Effect.asVoid(owner.answer((commands) => commands.Approve({ ...key, ...approval }))),
    answer: ({ id, isFailure = false, result }) =>
      Effect.asVoid(
        owner.answer((commands) => commands.SubmitToolResult({ ...key, toolCallId: id, result, isFailure }))
      )
  }
}

const randomId = Effect.map(
  Effect.all(Array.from({ length: 4 }, () => Random.nextIntBetween(0, 0xffffffff))),
  (numbers) => MessageId.make(numbers.map((number) => number.toString(16).padStart(8, "0")).join(""))
)

/** Answers the turn's calls and requests until its end, in a fiber of the client. */
export const serve = Effect.fnUntraced(function*(
  { core }: Owner,
  { onApproval, onQuestion, tools }: Pick<SessionOptions, "onApproval" | "onQuestion" | "tools">,
  turn: Turn.Turn,
  started: Turn.StartedTurn
) {
  if (tools === undefined && onApproval === undefined && onQuestion === undefined) return

  const submit = (id: string, result: Schema.Json, isFailure: boolean) =>
    untilHeld(turn.answer({ id, result, isFailure })).pipe(
      Effect.catchTags({
        TooLarge: ({ limit }) =>
          turn.answer({ id, result: `The result has more than ${limit} bytes.`, isFailure: true }),
        TooDeep: ({ limit }) =>
          turn.answer({ id, result: `The result is nested more than ${limit} deep.`, isFailure: true })
      })
    )
  // None is called before it's known that nobody has answered. One that breaks is told to the agent: what was never
  // decided must not happen, and the turn would wait for ever.
  const answer: Answer = (part) => {
    switch (part.type) {
      case "tool-call":
        return tools && Effect.suspend(() => tools.handle(part)).pipe(
          Effect.catchDefect((defect) => Effect.succeed(failed(describe(defect)))),
          Effect.flatMap(({ isFailure, result }) => submit(part.id, result, isFailure)),
          settled
        )
      case "tool-approval-request":
        return onApproval && Effect.suspend(() => onApproval(part, turn)).pipe(
          Effect.catchDefect((defect) => Effect.succeed({ decision: "deny" as const, reason: handlerFailed(defect) })),
          Effect.flatMap((approval) => untilHeld(turn.approve({ ...approval, approvalId: part.approvalId }))),
          settled
        )
      case "question":
        return onQuestion && Effect.suspend(() => onQuestion(part, turn)).pipe(
          Effect.map((result) => ({ result, isFailure: false })),
          Effect.catchDefect((defect) => Effect.succeed({ result: handlerFailed(defect), isFailure: true })),
          Effect.flatMap(({ isFailure, result }) => submit(part.questionId, result, isFailure)),
          settled
        )
      default:
        return undefined
    }
  }

  yield* respond({ parts: turn.parts({ from: started.from }), liveFrom: started.next, answer }).pipe(
    // Whoever reads the turn is told.
    Effect.catchCause((cause) => Effect.logDebug(`Turn ${turn.turn} is no longer answered`, cause)),
    Effect.forkIn(core.scope)
  )
})

// While a session goes from one bridge to another nobody takes an answer. The agent waits all the same, until an answer
// comes or its attempt is over, which interrupts this.
const untilHeld = <A, E extends { readonly _tag: string }>(answer: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.retry(answer, { schedule: Schedule.spaced("1 second"), while: ({ _tag }) => _tag === "SessionBusy" })

const handlerFailed = (defect: unknown) => `The host's handler failed: ${describe(defect)}`

const isBridgeDeath = (end: Bridge.End) =>
  end.type === "aborted" &&
  (end.reason === "bridge-died" || end.reason === "bridge-replaced" || end.reason === "shutdown")

// It was in the log: what isn't found any more was closed by an attempt's end.
const closed: ReadonlySet<string> = new Set(["AlreadyAnswered", "TurnEnded", "ToolCallNotFound", "ApprovalNotFound"])

// That the question was settled otherwise is as good; what else is wrong is told to whoever reads the turn.
const settled = (effect: Effect.Effect<void, Turn.AnswerError | Turn.ApproveError | BridgeUnavailable>) =>
  Effect.catch(effect, (error) =>
    closed.has(error._tag)
      ? Effect.void
      : Effect.logWarning("An answer could not be given", error))
