/**
 * How a bridge is found by its listening file, and launched where there's none that lives.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { Endpoint, Sandbox, SandboxError, Started } from "@gangway/sandbox/Sandbox"
import type { Crypto } from "effect/Crypto"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { describeReason, type Reason } from "../BridgeUnavailable.ts"
import type { LaunchOptions, Program } from "../Launcher.ts"
import type { TokenStore } from "../TokenStore.ts"
import { toHello } from "./client.ts"
import * as Connection from "./connection.ts"
import type { Connector } from "./core.ts"
import * as Monotonic from "./monotonic.ts"
import type { Tell } from "./statuses.ts"

/** How long a bridge that the file names is given to answer `Hello`. */
const helloTimeout = 10_000

/** How long a launched bridge is given to do so. */
const launchTimeout = 60_000

// Exit codes 3 and 0 say that another bridge serves or will; so many in a row say that none does.
const maxElsewhere = 3

/** A log that's longer at a launch is cut to its last half of it. */
const maxLogBytes = 1024 * 1024

const newline = 10

/** A bridge that dies within this of its answer counts as one that died at its launch. */
const young = 10_000

export const connector = (
  { crypto, sandbox, tokens }: {
    readonly sandbox: Sandbox["Service"]
    readonly tokens: TokenStore["Service"]
    readonly crypto: Crypto
  },
  program: Program,
  options: LaunchOptions,
  tell: Tell
): Connector => {
  const { bridge, maxRelaunches = 5, stateDirectory } = options
  const log = `${stateDirectory}/bridge.log`

  const token = Effect.mapError(
    tokens.get(bridge),
    ({ message }) => new Connection.Lost({ reason: { _tag: "NoToken", problem: message } })
  )

  // What a sandbox says of a file of the state directory is for people, and names the file.
  const failed = (error: SandboxError) =>
    new Connection.Lost({
      reason: error.reason.problem.includes(stateDirectory)
        ? { _tag: "StateDirectoryUnusable", path: stateDirectory, error }
        : { _tag: "SandboxFailed", error }
    })
  const wake = Effect.mapError(sandbox.wake, failed)
  // Whether it was started since a connection is sought: then no bridge is left in it.
  let restarted = false
  // A sandbox that stopped is started by the first thing that's asked of it.
  const awake = <A>(effect: Effect.Effect<A, SandboxError>) =>
    Effect.catch(effect, (error) =>
      error.reason._tag === "NotRunning"
        ? Effect.flatMap(wake, (woke) => {
          restarted ||= woke === "restarted"
          return Effect.mapError(effect, failed)
        })
        : Effect.fail(failed(error)))

  const listeningFile = Effect.map(
    awake(sandbox.readFile(Bridge.listeningFile(stateDirectory))),
    Option.flatMap((bytes) => decodeListeningFile(new TextDecoder().decode(bytes)))
  )

  const open = Effect.fnUntraced(function*(port: number) {
    const { headers, url } = yield* awake(sandbox.endpoint(port))
    return yield* Connection.open({
      bridge,
      port,
      address: { url, headers, token: yield* token },
      ...toHello(options)
    })
  })

  // The bridge that the file names, or why it's not to be had.
  const openFile = Effect.fnUntraced(function*(file: Bridge.ListeningFile) {
    const outer = yield* Effect.scope
    const scope = yield* Scope.fork(outer)
    return yield* open(file.port).pipe(
      Effect.filterOrFail(
        ({ hello }) => hello.launch === file.launch,
        ({ hello }) => new Connection.Lost({ reason: { _tag: "WrongBridge", bridge, launch: hello.launch } })
      ),
      Scope.provide(scope),
      Effect.onExit((exit) => Exit.isFailure(exit) ? Scope.close(scope, exit) : Effect.void),
      Effect.result
    )
  })

  // Bridges write to one log, one after the other: what's told of a launch is what came since.
  let logStart = 0
  const logBytes = awake(sandbox.readFile(log)).pipe(
    Effect.map(Option.getOrElse(() => new Uint8Array())),
    Effect.orElseSucceed(() => new Uint8Array())
  )
  // What earlier bridges wrote is kept, as far as anybody may want to read it. Where it can't be cut, it stays.
  const cutLog = Effect.gen(function*() {
    const bytes = yield* logBytes
    if (bytes.length <= maxLogBytes) return bytes.length
    const half = bytes.subarray(bytes.length - maxLogBytes / 2)
    const kept = half.subarray(half.indexOf(newline) + 1)
    return yield* awake(sandbox.writeFile(log, kept, 0o600)).pipe(
      Effect.as(kept.length),
      Effect.orElseSucceed(() => bytes.length)
    )
  })
  const logTail = Effect.gen(function*() {
    const bytes = yield* logBytes
    const text = new TextDecoder().decode(bytes.subarray(Math.max(logStart, bytes.length - 2048))).trimEnd()
    return text.replaceAll(Redacted.value(yield* token), "[redacted:TOKEN]")
  }).pipe(Effect.orElseSucceed(() => ""))

  // The bridge that this client launched last, and how many died young in a row.
  let latest: { readonly started: Started; readonly launch: string; answeredAt?: number } | undefined
  let deaths = 0

  const exitCodeOf = ({ started }: { readonly started: Started }) =>
    Effect.orElseSucceed(started.exitCode, Option.none<number>)

  const launchFailed = Effect.fnUntraced(function*(launches: number, exitCode?: number, problem?: string) {
    // Whoever asks again begins anew.
    latest = undefined
    deaths = 0
    const reason: Reason = {
      _tag: "LaunchFailed",
      launches,
      log: yield* logTail,
      ...(exitCode === undefined ? {} : { exitCode }),
      ...(problem === undefined ? {} : { problem })
    }
    return yield* new Connection.Lost({ reason })
  })

  // Before another bridge is launched: whether that had to wait, for what the last one came to.
  const relaunching = Effect.fnUntraced(function*(retired: string | undefined, reason: Reason) {
    if (latest === undefined) return false
    const { answeredAt, launch } = latest
    const exitCode = Option.getOrUndefined(yield* exitCodeOf(latest))
    latest = undefined
    const lived = answeredAt === undefined ? 0 : (yield* Monotonic.now) - answeredAt
    if (launch === retired || lived >= young || exitCode === Bridge.ExitCode.done) {
      deaths = 0
      return false
    }
    if (deaths++ === maxRelaunches) {
      return yield* launchFailed(deaths, exitCode, answeredAt === undefined ? undefined : describeReason(reason))
    }
    const retryIn = Duration.millis(deaths === 1 ? 0 : Math.min(4000, 250 * 2 ** (deaths - 1)))
    yield* tell({
      _tag: "Relaunching",
      relaunch: deaths,
      maxRelaunches,
      ...(exitCode === undefined ? {} : { exitCode }),
      reason,
      retryIn
    })
    yield* Effect.sleep(retryIn)
    return true
  })

  const start = Effect.gen(function*() {
    yield* tell({ _tag: "Launching" })
    const launch = Encoding.encodeBase64Url(yield* Effect.orDie(crypto.randomBytes(12)))
    const use = sandbox.use === undefined
      ? undefined
      : { ...(yield* awake(sandbox.use.endpoint)), every: sandbox.use.every }
    const stdinLine = yield* launchLine(options, sandbox, launch, yield* token, use)
    logStart = yield* cutLog
    return { launch, started: yield* awake(sandbox.start({ ...program, stdinLine, log })) }
  })

  // Launches, and waits for a bridge other than the `dead` one, whoever launched it; or says why it's sought again.
  const launched = Effect.fnUntraced(function*(dead: string | undefined) {
    const own: NonNullable<typeof latest> = yield* start
    latest = own
    const since = yield* Monotonic.now
    let interval = 15
    let exitCode = Option.none<number>()
    while ((yield* Monotonic.now) - since < launchTimeout) {
      const file = yield* listeningFile
      if (Option.isSome(file) && file.value.launch !== dead) {
        const opened = yield* openFile(file.value)
        if (Result.isSuccess(opened)) {
          if (file.value.launch === own.launch) own.answeredAt = yield* Monotonic.now
          else latest = undefined
          return opened.success
        }
        if (isFinal(opened.failure.reason, file.value)) return yield* opened.failure
      }
      if (Option.isSome(exitCode)) {
        // The file was read once more since it ended.
        const { done, portTaken } = Bridge.ExitCode
        if (killedCodes.has(exitCode.value)) return "killed"
        latest = undefined
        if (exitCode.value === portTaken || exitCode.value === done) return { elsewhere: exitCode.value }
        return yield* launchFailed(1, exitCode.value)
      }
      exitCode = yield* exitCodeOf(own)
      if (Option.isNone(exitCode)) yield* Effect.sleep(Duration.millis(interval))
      interval = Math.min(250, interval * 1.5)
    }
    return yield* launchFailed(1)
  })

  // A proxy may refuse for a bridge that died as it does for one that's about to listen. Its process says which, where
  // it's gone; that there is one says nothing.
  const isGone = ({ pid }: Bridge.ListeningFile) =>
    sandbox.run({
      command: ["sh", "-c", `kill -0 "$0" 2>&1`, String(pid)],
      env: { LC_ALL: "C" },
      timeout: "5 seconds"
    }).pipe(
      Effect.map(({ exitCode, stdout }) => exitCode !== 0 && /no such process/i.test(stdout)),
      Effect.orElseSucceed(() => false)
    )

  const connect: Connector["connect"] = Effect.fnUntraced(function*({ launch, retired }) {
    restarted = false
    let dead: string | undefined = retired
    let suspect: { readonly launch: string; readonly since: number } | undefined
    let elsewhere = 0
    let reason: Reason = { _tag: "Refused" }
    while (true) {
      const file = yield* listeningFile
      if (Option.isNone(file) || file.value.launch === dead) {
        if (!launch) return yield* new Connection.Lost({ reason, final: true })
        if (yield* relaunching(retired, reason)) continue
        const found = yield* launched(dead)
        if (found === "killed") continue
        if (!("elsewhere" in found)) return found
        if (++elsewhere === maxElsewhere) return yield* launchFailed(elsewhere, found.elsewhere)
        continue
      }
      const opened = yield* openFile(file.value)
      if (Result.isSuccess(opened)) return opened.success
      reason = opened.failure.reason
      if (isFinal(reason, file.value)) return yield* opened.failure
      if (isStale(reason) || restarted) {
        // Only if the file still says so when it's read again.
        dead = file.value.launch
        restarted = false
        continue
      }
      const now = yield* Monotonic.now
      if (suspect?.launch !== file.value.launch) {
        suspect = { launch: file.value.launch, since: now }
        if ((yield* wake) === "restarted" || (yield* isGone(file.value))) {
          dead = file.value.launch
          continue
        }
      }
      if (reason._tag === "TimedOut" || now - suspect.since >= helloTimeout) {
        // A proxy that refuses this host would refuse it another bridge too.
        if (isProxy(reason)) return yield* opened.failure
        dead = file.value.launch
        continue
      }
      yield* Effect.sleep("250 millis")
    }
  })

  return { connect, connectTo: open }
}

// SIGHUP, SIGINT, SIGKILL and SIGTERM, as a sandbox tells them; 128 is a signal that it can't name. What ends a bridge
// while it starts, for memory or by hand, is what ends one at any other time: the next one may live.
const killedCodes: ReadonlySet<number> = new Set([128, 129, 130, 137, 143])

const decodeListeningFile = Schema.decodeUnknownOption(Schema.fromJsonString(Bridge.ListeningFile))

// What another bridge wouldn't change. A 401 counts only from the bridge that the file names.
const isFinal = (reason: Reason, file: Bridge.ListeningFile): boolean => {
  switch (reason._tag) {
    case "TokenMismatch":
      return reason.launch === file.launch
    case "Forbidden":
    case "ProtocolMismatch":
    case "NoWebSocket":
    case "NoToken":
    case "SandboxFailed":
    case "StateDirectoryUnusable":
      return true
    default:
      return false
  }
}

// Nobody's there, or somebody else is.
const isStale = (reason: Reason): boolean =>
  reason._tag === "Refused" || reason._tag === "TokenMismatch" || reason._tag === "WrongBridge"

const isProxy = (reason: Reason): boolean => reason._tag === "Redirected" || reason._tag === "UpgradeRefused"

const decodeLaunchOptions = Schema.decodeUnknownEffect(Schema.toCodecJson(Bridge.LaunchOptions))

// A host may name times as Effect does; what isn't one is left for the check to refuse.
const toTime = (input: Duration.Input): unknown => {
  const duration = Option.getOrUndefined(Duration.fromInput(input))
  return duration === undefined ? null : `${Duration.toMillis(duration)} millis`
}

// What is checked here holds no secret but the token, and a message about it holds no value.
const launchLine = Effect.fnUntraced(function*(
  options: LaunchOptions,
  sandbox: Sandbox["Service"],
  launch: string,
  token: Redacted.Redacted<string>,
  use: (Endpoint & { readonly every: Duration.Input }) | undefined
) {
  const { agentOptions, allowedOrigins, bridge, idleTimeout, maxTurnBytes, port, stateDirectory, sync } = options
  if (Bridge.isTooDeep({ agentOptions })) {
    return yield* new Connection.Lost({
      reason: { _tag: "InvalidOptions", problem: `agentOptions: ${Bridge.expectedDepth}` }
    })
  }
  const line = {
    token: Redacted.value(token),
    bridge,
    stateDirectory,
    agentOptions: revealed(agentOptions),
    port: port ?? (sandbox.ports === "any" ? 0 : sandbox.ports[0]),
    hostname: sandbox.hostname,
    launch,
    ...(idleTimeout === undefined ? {} : { idleTimeout: toTime(idleTimeout) }),
    ...(allowedOrigins === undefined ? {} : { allowedOrigins }),
    ...(maxTurnBytes === undefined ? {} : { maxTurnBytes }),
    ...(sync === undefined ? {} : { sync }),
    ...(use === undefined
      ? {}
      : { keepAwake: { url: use.url.href, headers: revealed(use.headers), every: toTime(use.every) } })
  }
  yield* Effect.mapError(decodeLaunchOptions(line), ({ issue }) => {
    const { expected, field } = Bridge.launchProblem(issue)
    return new Connection.Lost({ reason: { _tag: "InvalidOptions", problem: `${field}: ${expected}` } })
  })
  return Redacted.make(JSON.stringify(line))
})

const revealed = (value: unknown): unknown => {
  if (Redacted.isRedacted(value)) return Redacted.value(value)
  if (Array.isArray(value)) return value.map(revealed)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, value]) => [key, revealed(value)]))
}
