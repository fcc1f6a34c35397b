/**
 * Makes sessions.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { Session, SessionOptions, StartTurnOptions } from "../Session.ts"
import type { StartSessionError, StartTurnError } from "../Turn.ts"
import type { Commands } from "./connection.ts"
import type { Command, CommandError, Core } from "./core.ts"
import * as Turn from "./turn.ts"

export const start = Effect.fnUntraced(
  function*(core: Core, options: SessionOptions): Effect.fn.Return<Session, StartSessionError> {
    const session = make(core, options.session, options)
    const { resumed } = yield* session.start
    return { ...session.handle, resumed }
  }
)

export const attach = (core: Core, session: Bridge.SessionId): Session => make(core, session, undefined).handle

const make = (core: Core, session: Bridge.SessionId, options: SessionOptions | undefined) => {
  // The launch that this host started the session on.
  let startedOn: string | undefined

  // A bridge that isn't the newest any more can't have the session: the newest one takes it from whoever holds it.
  const need = <A, E>(command: Command<A, E>, searches = maxSearches): Effect.Effect<A, CommandError<E>> =>
    Effect.suspend(() => {
      let answeredBy = ""
      return core.call((commands, launch) => {
        answeredBy = launch
        return command(commands, launch)
      }).pipe(
        Effect.catch((error): Effect.Effect<A, CommandError<E>> => {
          const failed = Effect.fail(error)
          if (!isBusy(error) || searches === 0) return failed
          return Effect.flatMap(
            core.refresh(answeredBy),
            (isAnother) => isAnother ? need(command, searches - 1) : failed
          )
        })
      )
    })

  const start = Effect.suspend(() =>
    need((commands, launch) =>
      Effect.tap(commands.StartSession(payload(options!)), () =>
        Effect.sync(() => {
          startedOn = launch
        }))
    )
  )

  const takeOver = options === undefined ? undefined : start

  // A session is dormant on a new bridge, so it's started again; one that somebody stopped stays stopped. While hosts
  // launch bridges at once, the next command may find yet another one.
  const restarting = <A, E extends { readonly _tag: string }>(
    command: (commands: Commands) => Effect.Effect<A, E>,
    searches = maxSearches
  ): Effect.Effect<A, CommandError<E> | StartSessionError> =>
    Effect.suspend(() => {
      let answeredBy: string | undefined
      return need((commands, launch) => {
        answeredBy = launch
        return command(commands)
      }).pipe(
        Effect.catch((error): Effect.Effect<A, CommandError<E> | StartSessionError> => {
          const isNew = error._tag === "SessionNotStarted" && answeredBy !== startedOn
          if (!isNew || options === undefined || searches === 0) return Effect.fail(error)
          return Effect.andThen(start, restarting(command, searches - 1))
        })
      )
    })

  // Another bridge that holds the session takes its answers; where it can't be reached, the session is taken over.
  const answer: Turn.Owner["answer"] = <A, E>(command: (commands: Commands) => Effect.Effect<A, E>) =>
    core.call(command).pipe(
      Effect.catchIf(isBusy as (error: CommandError<E>) => error is never, (busy: Bridge.SessionBusy) => {
        const failed = Effect.fail(busy as CommandError<E>)
        const takenOver = options === undefined
          ? failed
          : Effect.matchEffect(start, { onFailure: () => failed, onSuccess: () => core.call(command) })
        if (busy.port === undefined || busy.launch === undefined) return takenOver
        return core.callAt({ port: busy.port, launch: busy.launch }, command).pipe(
          Effect.timeoutOrElse({ duration: "5 seconds", orElse: () => takenOver }),
          Effect.catchIf(
            (error): error is never =>
              isTagged(error, "Lost") || isTagged(error, "Replaced") || isTagged(error, "Closing"),
            () => takenOver
          )
        ) as Effect.Effect<A, CommandError<E>>
      })
    ) as Effect.Effect<A, CommandError<E>>

  const startTurn: Session["startTurn"] = Effect.fnUntraced(function*(turnOptions) {
    const { maxContinuations, onBridgeDeath, turn } = turnOptions
    const startAttempt = (attempt: number) =>
      restarting((commands) => commands.StartTurn(turnPayload(session, turnOptions, attempt)))
    const owner: Turn.Owner = { core, session, need, answer, takeOver, start: startAttempt }
    // Without an attempt of its own the call joins the turn as it stands, which changes nothing. It may go on meanwhile.
    const join = (attempt: number): ReturnType<typeof startAttempt> =>
      Effect.catchIf(
        startAttempt(attempt),
        (error): error is Bridge.TurnConflict =>
          error._tag === "TurnConflict" && error.field === "attempt" && error.attempt > attempt,
        (conflict) => join(conflict.attempt)
      )
    const started = yield* (turnOptions.attempt === undefined
      ? join(1)
      : startAttempt(turnOptions.attempt)) as Effect.Effect<Rpc.Success<typeof Bridge.StartTurn>, StartTurnError>
    const handle = Turn.make(owner, turn, { maxContinuations, onBridgeDeath }, started)
    if (options !== undefined) yield* Turn.serve(owner, options, handle, started)
    return handle
  })

  const handle: Session = {
    session,
    resumed: undefined,
    startTurn,
    turn: (turn, policy = {}) =>
      Turn.make(
        {
          core,
          session,
          need,
          answer,
          takeOver,
          start: (attempt) => restarting((commands) => commands.StartTurn({ session, turn, attempt }))
        },
        turn,
        policy
      ),
    compact: (options) => restarting((commands) => commands.Compact({ session, ...options })) as never,
    readState: answer((commands) => commands.ReadState({ session })),
    stop: need((commands) => commands.StopSession({ session })),
    destroy: need((commands) => commands.DestroySession({ session }))
  }

  return { handle, start }
}

// How often another bridge is looked for, while hosts launch them at once.
const maxSearches = 5

const isTagged = (error: unknown, tag: string) =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === tag

const isBusy = (error: unknown) => isTagged(error, "SessionBusy")

const millis = (input: Duration.Input | undefined) =>
  input === undefined ? undefined : Duration.toMillis(Duration.fromInputUnsafe(input))

// A field that's undefined is left out: on the wire it would be one that doesn't fit.
const defined = <A extends object>(fields: A): { [K in keyof A]: Exclude<A[K], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never

const payload = ({ onApproval: _, onQuestion: __, ...options }: SessionOptions) =>
  defined({
    ...options,
    permissions: options.permissions ?? "ask",
    settings: options.settings ?? "project",
    tools: options.tools?.tools,
    approvalTimeout: millis(options.approvalTimeout),
    limits: options.limits === undefined
      ? undefined
      : defined({ ...options.limits, time: millis(options.limits.time) })
  }) as Rpc.PayloadConstructor<typeof Bridge.StartSession>

const turnPayload = (session: Bridge.SessionId, options: StartTurnOptions, attempt: number) => {
  const { maxContinuations: _, onBridgeDeath: __, ...turn } = options
  return defined({
    ...turn,
    session,
    attempt,
    prompt: typeof turn.prompt === "string" ? [{ type: "text", text: turn.prompt }] as const : turn.prompt,
    timeout: millis(turn.timeout)
  }) as Rpc.PayloadConstructor<typeof Bridge.StartTurn>
}
