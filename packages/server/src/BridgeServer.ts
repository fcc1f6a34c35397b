/**
 * The bridge: drives an agent in the sandbox, and serves it to hosts.
 *
 * **Example** (A bridge program)
 *
 * ```ts
 * import { BunHttpServer, BunRuntime, BunServices } from "@effect/platform-bun"
 * import { Effect, Redacted, Runtime } from "effect"
 * import { Bridge, BridgeServer } from "@gangway/server"
 * import { echo } from "./echo.ts"
 *
 * const program = Effect.gen(function*() {
 *   const { agentOptions, token, ...options } = yield* BridgeServer.readLaunchOptions
 *   const { hostname = "0.0.0.0", port = 0 } = options
 *   yield* Effect.provide(
 *     BridgeServer.serve(echo, { ...options, token: Redacted.make(token) }),
 *     BunHttpServer.layer({ hostname, port, websocket: BridgeServer.webSocketOptions })
 *   )
 * }).pipe(Effect.scoped, Effect.provide(BunServices.layer))
 *
 * // Standard input may be open for ever: the process is ended, not only its work.
 * BunRuntime.runMain(program, { teardown: (exit) => Runtime.defaultTeardown(exit, process.exit) })
 * ```
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Layer from "effect/Layer"
import type * as Path from "effect/Path"
import * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as HttpServer from "effect/unstable/http/HttpServer"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type * as RpcGroup from "effect/unstable/rpc/RpcGroup"
import * as RpcServer from "effect/unstable/rpc/RpcServer"
import type { Driver } from "./Driver.ts"
import * as BridgeCore from "./internal/bridgeCore.ts"
import { randomName } from "./internal/digest.ts"
import { keepAwake } from "./internal/keepAwake.ts"
import * as Token from "./internal/token.ts"
import * as Transport from "./internal/transport.ts"
import { WireRpcs } from "./internal/wireRpcs.ts"
import * as Ownership from "./Ownership.ts"
import { ProcessTable } from "./ProcessTable.ts"
import * as StateDirectory from "./StateDirectory.ts"
import type { ReadEvent } from "./TurnLog.ts"

export {
  /**
   * Reads the launch line from standard input.
   *
   * @category launching
   * @since 0.1.0
   */
  readLaunchOptions
} from "./LaunchLine.ts"

/**
 * What a bridge does: how many turns and compactions run, and when one was last asked for or ended, in milliseconds of
 * the monotonic clock.
 *
 * @category models
 * @since 0.1.0
 */
export interface Activity extends BridgeCore.Activity {}

/**
 * Options of a bridge without a transport.
 *
 * @category options
 * @since 0.1.0
 */
export interface HandlerOptions {
  readonly bridge: Bridge.BridgeId
  /** Its path, absolute, on a local disk of one kernel; or what `StateDirectory.open` gave for this bridge. */
  readonly stateDirectory: string | StateDirectory.StateDirectory
  /** Shows what the bridge does; absent, nobody is shown. */
  readonly activity?: Ref.Ref<Activity> | undefined
  /** By default false: a batch of parts is visible once the operating system has it, and synced with the next answer. */
  readonly sync?: boolean | undefined
  /** By default 1 GiB. */
  readonly maxTurnBytes?: number | undefined
}

/**
 * Options of a bridge: those of its launch line, with secrets redacted. Port and address are the HTTP server's.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options extends HandlerOptions {
  readonly token: Redacted.Redacted<string>
  /** Accepted beside `token`. */
  readonly previousToken?: Redacted.Redacted<string> | undefined
  /** By default a random one. */
  readonly launch?: string | undefined
  /** By default 10 minutes. */
  readonly idleTimeout?: Duration.Input | undefined
  /** By default none. */
  readonly allowedOrigins?: ReadonlyArray<string> | undefined
  /** By default nothing. */
  readonly keepAwake?: Bridge.KeepAwake | undefined
}

/**
 * Why a bridge can't be served: the state directory is another bridge's, or can't be used. Both have the `exitCode` of
 * the program.
 *
 * @category errors
 * @since 0.1.0
 */
export type ServeError = StateDirectory.OwnerMismatch | StateDirectory.NotWritable

/**
 * The options that the bridge relies on, for the program to give to its HTTP server as `websocket`.
 *
 * @category launching
 * @since 0.1.0
 */
export const webSocketOptions = Transport.webSocketOptions

/**
 * The procedures of a bridge, without a transport and without a listening file: for a server of another protocol, or a
 * test. Closing the layer's scope ends the sessions, aborting their turns.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerHandlers = (
  driver: Driver,
  options: HandlerOptions
): Layer.Layer<
  Rpc.ToHandler<RpcGroup.Rpcs<typeof Bridge.Rpcs>>,
  ServeError,
  FileSystem.FileSystem | Path.Path
> =>
  Bridge.Rpcs.toLayer(Effect.gen(function*() {
    const { handlers } = yield* makeCore(driver, options, {
      launch: yield* randomName,
      port: 0,
      secrets: {},
      standing: { isReplaced: () => false, check: Effect.void, listening: Effect.undefined }
    })
    return Bridge.Rpcs.of({
      ...handlers,
      StartSession: unlessTooDeep(handlers.StartSession),
      StartTurn: unlessTooDeep(handlers.StartTurn),
      SubmitToolResult: unlessTooDeep(handlers.SubmitToolResult),
      ReadTurn: (payload) => Stream.map(handlers.ReadTurn(payload), toTurnEvent)
    })
  }))

/**
 * Serves a driver until it's idle or replaced, with no turn running. Closing its scope ends the sessions, aborting
 * their turns, and then every socket.
 *
 * @category running
 * @since 0.1.0
 */
export const serve = Effect.fnUntraced(function*(
  driver: Driver,
  options: Options
): Effect.fn.Return<void, ServeError, HttpServer.HttpServer | FileSystem.FileSystem | Path.Path | Scope.Scope> {
  const scope = yield* Scope.fork(yield* Effect.scope)
  yield* Scope.provide(serveScoped(driver, options), scope).pipe(
    Effect.onExit((exit) => Scope.close(scope, exit))
  )
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const defaultIdleTimeout = Duration.minutes(10)
const defaultMaxTurnBytes = 1024 ** 3

const makeActivity = Ref.make<Activity>({ turns: 0, lastActiveAt: 0 })

const makeCore = Effect.fnUntraced(function*(
  driver: Driver,
  options: HandlerOptions,
  bridge: Pick<BridgeCore.Options, "secrets" | "standing"> & { readonly launch: string; readonly port: number }
) {
  const table = yield* ProcessTable
  return yield* BridgeCore.make({
    driver,
    bridge: options.bridge,
    state: typeof options.stateDirectory === "string"
      ? yield* StateDirectory.open({ path: options.stateDirectory, bridge: options.bridge })
      : options.stateDirectory,
    holder: { launch: bridge.launch, port: bridge.port, ...(yield* table.self) },
    standing: bridge.standing,
    activity: options.activity ?? (yield* makeActivity),
    secrets: bridge.secrets,
    sync: options.sync ?? false,
    maxTurnBytes: options.maxTurnBytes ?? defaultMaxTurnBytes
  })
})

// The transport's doing where there is one. No other procedure takes JSON of any form.
const unlessTooDeep =
  <P, A, E>(handler: (payload: P) => Effect.Effect<A, E>) => (payload: P): Effect.Effect<A, E | Bridge.TooDeep> =>
    Bridge.isTooDeep(payload) ? Effect.fail(new Bridge.TooDeep({ limit: Bridge.maxJsonDepth })) : handler(payload)

const toTurnEvent = (event: ReadEvent): Bridge.TurnEvent =>
  JSON.parse(event._tag === "End" ? event.line : `{"attempt":${event.attempt},"parts":[${event.lines}]}`)

const portOf = (server: HttpServer.HttpServer["Service"]): number => "port" in server.address ? server.address.port : 0

const serveScoped = Effect.fnUntraced(function*(driver: Driver, options: Options) {
  const server = yield* HttpServer.HttpServer
  const launch = options.launch ?? (yield* randomName)
  const secrets: Record<string, Redacted.Redacted<string>> = { token: options.token }
  if (options.previousToken !== undefined) secrets.previousToken = options.previousToken

  // Known once the listening file is written, which says that hosts may come.
  const owned = Deferred.makeUnsafe<Ownership.Ownership>()
  let ownership: Ownership.Ownership | undefined
  const activity = options.activity ?? (yield* makeActivity)
  const core = yield* makeCore(driver, { ...options, activity }, {
    launch,
    port: portOf(server),
    secrets,
    standing: {
      isReplaced: () => ownership?.isReplaced() ?? false,
      check: Effect.flatMap(Deferred.await(owned), ({ check }) => check),
      listening: Effect.flatMap(Deferred.await(owned), ({ listening }) => listening)
    }
  })
  const transport = yield* Transport.make({
    tokens: yield* Effect.forEach(Object.values(secrets), (token) => Token.digest(Redacted.value(token))),
    launch,
    allowedOrigins: options.allowedOrigins
  })
  yield* RpcServer.make(WireRpcs, { disableFatalDefects: true }).pipe(
    Effect.provide(WireRpcs.toLayer(core.handlers)),
    Effect.provideService(RpcServer.Protocol, transport.protocol),
    Effect.forkScoped
  )
  yield* transport.serve
  // Turns get their ends, and hosts are told, before a socket is closed.
  yield* Effect.addFinalizer(() => core.shutdown)
  ownership = yield* Ownership.make({
    stateDirectory: core.state,
    bridge: options.bridge,
    launch,
    port: portOf(server)
  }).pipe(Effect.mapError(({ problem }) => new StateDirectory.NotWritable({ path: core.state.path, problem })))
  yield* Deferred.succeed(owned, ownership)
  yield* Effect.forkScoped(Effect.andThen(ownership.replaced, core.yieldToNewer))
  if (options.keepAwake !== undefined) yield* Effect.forkScoped(keepAwake(activity, options.keepAwake))
  yield* awaitExit(core, ownership, Duration.fromInputUnsafe(options.idleTimeout ?? defaultIdleTimeout))
})

// A machine that was frozen wakes with all its clocks ahead: whoever waits for this bridge gets one more full tick.
const awaitExit = Effect.fnUntraced(function*(
  core: BridgeCore.BridgeCore,
  ownership: Ownership.Ownership,
  idleTimeout: Duration.Duration
) {
  const idle = Duration.toMillis(idleTimeout)
  const tick = Math.max(20, Math.min(1000, idle / 4))
  const now = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))
  let last = yield* now
  while (true) {
    yield* Effect.sleep(Duration.millis(tick))
    const time = yield* now
    const late = time - last > 2 * tick
    last = time
    if (late) continue
    const exits = yield* core.closeIf(({ lastActiveAt }) => ownership.isReplaced() || time - lastActiveAt >= idle)
    if (exits) return
  }
})
