/**
 * The connection to a bridge that comes back by itself, and the commands that go over it.
 */
import type { BridgeId, Closing, Replaced } from "@gangway/protocol/Bridge"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import type { RpcClientError } from "effect/unstable/rpc/RpcClientError"
import { BridgeUnavailable, type Reason } from "../BridgeUnavailable.ts"
import { attempt, type Commands, type Connection, Lost } from "./connection.ts"
import * as Monotonic from "./monotonic.ts"
import type { Tell } from "./statuses.ts"

/** How a bridge is found. Each call opens a connection, closed with the scope. */
export interface Connector {
  /**
   * Connects to the bridge where it is now. `retired` is a launch that said it's replaced or closing. Without `launch`
   * no bridge is launched.
   */
  readonly connect: (options: {
    readonly launch: boolean
    readonly retired: string | undefined
  }) => Effect.Effect<Connection, Lost, Scope.Scope>
  /** Connects to the bridge on a port, if that's possible. */
  readonly connectTo: (port: number) => Effect.Effect<Connection, Lost, Scope.Scope>
}

/** What a command fails with: finding a bridge that takes it is the client's business. */
export type CommandError<E> = Exclude<E, Replaced | Closing | RpcClientError> | BridgeUnavailable

export interface Core {
  readonly bridge: BridgeId
  /** Its fibers end with the client. */
  readonly scope: Scope.Scope
  /** How long what brings nothing is tried again. */
  readonly reconnectFor: Duration.Duration
  /** The connection, made anew where it was lost, got suspect, or its bridge retired. */
  readonly connection: (options: { readonly launch: boolean }) => Effect.Effect<Connection, BridgeUnavailable>
  readonly unavailable: (reason: Reason) => Effect.Effect<never, BridgeUnavailable>
  /** Runs a command, again where its connection was lost on the way: commands are safe to repeat. */
  readonly call: <A, E>(command: Command<A, E>) => Effect.Effect<A, CommandError<E>>
  /** Looks for the bridge anew. Whether that's another launch than the one given. */
  readonly refresh: (launch: string) => Effect.Effect<boolean, BridgeUnavailable>
  /** Whether the bridge on the port answers, within 10 s and as that launch. */
  readonly answers: (at: { readonly port: number; readonly launch: string }) => Effect.Effect<boolean>
  /** Runs a command on the bridge that listens on the port, if it answers as that launch. */
  readonly callAt: <A, E>(
    at: { readonly port: number; readonly launch: string },
    command: Command<A, E>
  ) => Effect.Effect<A, Exclude<E, RpcClientError> | Lost>
}

/** A command, told which launch of the bridge it goes to. */
export type Command<A, E> = (commands: Commands, launch: string) => Effect.Effect<A, E>

// A command that was lost with its connection this many times in a row is at fault itself.
const maxRepeats = 10

export const make = Effect.fnUntraced(function*(options: {
  readonly bridge: BridgeId
  readonly connector: Connector
  readonly tell: Tell
  /** How long a connection is sought before `BridgeUnavailable`. */
  readonly reconnectFor: Duration.Input
}): Effect.fn.Return<Core, never, Scope.Scope> {
  const { bridge, connector, tell } = options
  const reconnectFor = Duration.fromInputUnsafe(options.reconnectFor)
  const scope = yield* Effect.scope
  const semaphore = Semaphore.makeUnsafe(1)
  const open = new Set<Connection>()
  let current: { readonly connection: Connection; readonly close: Effect.Effect<void> } | undefined
  let retired: string | undefined

  const isUsable = ({ hello, socket }: Connection) =>
    !socket.isLost() && !socket.isSuspect() && hello.launch !== retired

  const establish = Effect.fnUntraced(function*(launch: boolean) {
    yield* tell({ _tag: "Connecting" })
    const connectionScope = yield* Scope.fork(scope)
    const connection = yield* connector.connect({ launch, retired }).pipe(
      Scope.provide(connectionScope),
      Effect.onExit((exit) => Exit.isFailure(exit) ? Scope.close(connectionScope, exit) : Effect.void)
    )
    const close = Effect.suspend(() => {
      open.delete(connection)
      return Scope.close(connectionScope, Exit.void)
    })
    open.add(connection)
    yield* Effect.forkIn(
      Effect.flatMap(connection.socket.lost, (reason) => {
        const isCurrent = current?.connection === connection
        return Effect.andThen(close, isCurrent ? tell({ _tag: "Disconnected", reason }) : Effect.void)
      }),
      scope
    )
    yield* Effect.forkIn(
      Effect.flatMap(connection.socket.suspected, () => tell({ _tag: "Silent" })),
      connectionScope
    )
    // What is in flight on the one before may still be answered there.
    if (current !== undefined) {
      yield* Effect.forkIn(Effect.andThen(current.connection.socket.idle, current.close), scope)
    }
    current = { connection, close }
    yield* tell({ _tag: "Connected", launch: connection.hello.launch })
    return connection
  })

  const unavailable = (reason: Reason) => Effect.fail(new BridgeUnavailable({ bridge, reason }))

  const usable = <E>(otherwise: Effect.Effect<Connection, E>) =>
    Effect.suspend(() =>
      current !== undefined && isUsable(current.connection) ? Effect.succeed(current.connection) : otherwise
    )

  // The time of a schedule is that of the machine's clock, which goes on while a laptop sleeps.
  const established = (attempt: Effect.Effect<Connection, Lost>) =>
    Effect.gen(function*() {
      const since = yield* Monotonic.now
      for (let failures = 1;; failures++) {
        const result = yield* Effect.result(attempt)
        if (Result.isSuccess(result)) return result.success
        const { reason } = result.failure
        if (isFinal(result.failure) || (yield* Monotonic.now) - since >= Duration.toMillis(reconnectFor)) {
          yield* tell({ _tag: "Unavailable", reason })
          return yield* unavailable(reason)
        }
        const jitter = yield* Random.nextBetween(0.8, 1.2)
        const retryIn = Duration.millis(Math.round(jitter * Math.min(5000, 100 * 2 ** (failures - 1))))
        yield* tell({ _tag: "Reconnecting", attempt: failures, reason, retryIn })
        yield* Effect.sleep(retryIn)
      }
    }).pipe(semaphore.withPermit)

  const connection: Core["connection"] = ({ launch }) =>
    // Who waited for another's attempt finds what came of it.
    usable(established(usable(establish(launch))))

  const repeat = <A, E>(
    command: Command<A, E>,
    repeats: number,
    reason: Reason
  ): Effect.Effect<A, CommandError<E>> =>
    repeats > maxRepeats
      ? unavailable(reason)
      : Effect.delay(run(command, repeats), Duration.millis(Math.min(5000, 25 * 2 ** repeats)))

  const run = <A, E>(
    command: Command<A, E>,
    repeats: number
  ): Effect.Effect<A, CommandError<E>> =>
    Effect.flatMap(
      connection({ launch: true }),
      ({ commands, hello, socket }) =>
        attempt(command(commands, hello.launch)).pipe(
          Effect.catch((error) => {
            const known = error as Exclude<E, RpcClientError> | Lost | Replaced | Closing
            if (known instanceof Lost) {
              return known.reason._tag === "ProtocolError"
                ? unavailable(known.reason)
                : repeat(command, repeats + 1, known.reason)
            }
            if (isRetired(known)) {
              retired = hello.launch
              return repeat(command, repeats + 1, { _tag: "Retired", error: known })
            }
            return Effect.fail(known as CommandError<E>)
          }),
          // The answer may still come on the suspect connection; the first outcome is the same on either.
          Effect.raceFirst(Effect.andThen(socket.suspected, Effect.suspend(() => run(command, repeats))))
        )
    )

  return {
    bridge,
    scope,
    reconnectFor,
    connection,
    unavailable,
    refresh: (launch) =>
      Effect.map(
        established(
          Effect.suspend(() =>
            current !== undefined && isUsable(current.connection) && current.connection.hello.launch !== launch
              ? Effect.succeed(current.connection)
              : establish(true)
          )
        ),
        ({ hello }) => hello.launch !== launch
      ),
    call: (command) => run(command, 0),
    answers: ({ launch, port }) =>
      connector.connectTo(port).pipe(
        Effect.map(({ hello }) => hello.launch === launch),
        Effect.scoped,
        Effect.orElseSucceed(() => false)
      ),
    callAt: ({ launch, port }, command) =>
      Effect.suspend(() => {
        const known = [...open].find((connection) => connection.hello.launch === launch && !connection.socket.isLost())
        const at = known === undefined ? connector.connectTo(port) : Effect.succeed(known)
        return Effect.flatMap(at, ({ commands, hello }) =>
          hello.launch === launch
            ? attempt(command(commands, launch))
            : new Lost({ reason: { _tag: "WrongBridge", bridge: hello.bridge, launch: hello.launch } }))
      }).pipe(Effect.scoped)
  }
})

const isRetired = (error: unknown): error is Replaced | Closing =>
  typeof error === "object" && error !== null && "_tag" in error &&
  (error._tag === "Replaced" || error._tag === "Closing")

const isFinal = ({ final, reason }: Lost): boolean => {
  if (final === true) return true
  switch (reason._tag) {
    case "TokenMismatch":
    case "Forbidden":
    case "WrongBridge":
    case "ProtocolMismatch":
    case "NoWebSocket":
    case "LaunchFailed":
    case "NoToken":
    case "InvalidOptions":
      return true
    case "SandboxFailed":
    case "StateDirectoryUnusable":
      return reason.error.reason._tag !== "Transient" && reason.error.reason._tag !== "NotRunning"
    default:
      return false
  }
}
