/**
 * A sandbox of Daytona. It asks for the package `@daytona/sdk`, which is loaded when one is made and not before.
 *
 * @since 0.1.0
 */
import type { Daytona, Sandbox as SdkSandbox } from "@daytona/sdk"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Errors from "./internal/daytonaErrors.ts"
import { inside, makeId, runScript, start } from "./internal/daytonaProcess.ts"
import * as Shell from "./internal/daytonaShell.ts"
import { pin, running, wake } from "./internal/daytonaWake.ts"
import * as Sandbox from "./Sandbox.ts"

/**
 * A sandbox that Gangway created.
 *
 * @category models
 * @since 0.1.0
 */
export interface CreatedSandbox {
  readonly id: string
  readonly name: string
  /** As Daytona tells, such as `started`, `stopped`, `archived`. */
  readonly state: string
  /** As Daytona tells, an ISO time. */
  readonly created?: string | undefined
  readonly labels: Readonly<Record<string, string>>
}

/**
 * Which Daytona, and whose.
 *
 * @category options
 * @since 0.1.0
 */
export interface ClientOptions {
  readonly apiKey: Redacted.Redacted<string>
  /** `https://app.daytona.io/api`. */
  readonly apiUrl?: string | undefined
  /** The region; the organization's own. */
  readonly target?: string | undefined
}

/**
 * The sandbox that is made.
 *
 * @category options
 * @since 0.1.0
 */
export interface CreateOptions extends ClientOptions {
  /** What it's made of; Daytona's default snapshot. An image that is new to Daytona is fetched first. */
  readonly from?:
    | { readonly snapshot: string }
    | {
      readonly image: string
      /** Cores, and GiB of memory and disk; Daytona's defaults. */
      readonly resources?: {
        readonly cpu?: number | undefined
        readonly memory?: number | undefined
        readonly disk?: number | undefined
      } | undefined
    }
    | undefined
  /** Absent, the image's own. */
  readonly user?: string | undefined
  /** Variables for all that runs in it. Secrets don't belong here. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Added to the one that `list` finds it by. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /** Whether its ports are reached without Daytona's token; false. A bridge asks for a token of its own in any case. */
  readonly public?: boolean | undefined
  /**
   * After how long without use it's stopped, in whole minutes, rounded up; 15 minutes. Zero is never. Its bridge keeps it
   * awake while a turn runs; for other work see `Sandbox.keepAwake`.
   */
  readonly autoStop?: Duration.Input | undefined
  /** Whether it's left alone when the scope closes, and so goes on and costs; false. */
  readonly keep?: boolean | undefined
}

/**
 * A sandbox that exists.
 *
 * @category options
 * @since 0.1.0
 */
export interface AttachOptions extends ClientOptions {
  /** Its id or name. */
  readonly sandbox: string
}

/**
 * The label of what Gangway created.
 *
 * @category constants
 * @since 0.1.0
 */
export const label = "dev.gangway.sandbox"

/**
 * Makes a sandbox, within 10 minutes, and deletes it when the scope closes, unless it's kept. One that doesn't start is
 * deleted; so that it's known, an interruption waits.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: (
  options: CreateOptions
) => Effect.Effect<Sandbox.Sandbox["Service"], Sandbox.SandboxError, Scope.Scope> = Effect.fnUntraced(
  function*(options) {
    const daytona = yield* client("create", options)
    const sdk = yield* Effect.acquireRelease(
      create(daytona, options),
      (sdk) => options.keep === true ? Effect.void : discard(sdk)
    )
    yield* ready("create", sdk)
    return fromSdk(sdk)
  }
)

/**
 * Attaches to a sandbox that exists, running or not. It's left alone when the scope closes.
 *
 * @category constructors
 * @since 0.1.0
 */
export const attach: (
  options: AttachOptions
) => Effect.Effect<Sandbox.Sandbox["Service"], Sandbox.SandboxError, Scope.Scope> = Effect.fnUntraced(
  function*(options) {
    const daytona = yield* client("attach", options)
    return fromSdk(
      yield* Effect.tryPromise({ try: () => daytona.get(options.sandbox), catch: Errors.toError("attach") }).pipe(
        Effect.filterOrFail(({ id }) => typeof id === "string", () => Errors.odd("attach"))
      )
    )
  }
)

/**
 * A sandbox that is made, and deleted with the layer unless it's kept.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: CreateOptions): Layer.Layer<Sandbox.Sandbox, Sandbox.SandboxError> =>
  Layer.effect(Sandbox.Sandbox, make(options))

/**
 * A sandbox that exists.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerAttach = (options: AttachOptions): Layer.Layer<Sandbox.Sandbox, Sandbox.SandboxError> =>
  Layer.effect(Sandbox.Sandbox, attach(options))

/**
 * The sandboxes that Gangway created, of all that the key may see: whoever shares its organization may be using them.
 *
 * @category management
 * @since 0.1.0
 */
export const list: (
  options: ClientOptions
) => Effect.Effect<ReadonlyArray<CreatedSandbox>, Sandbox.SandboxError> = Effect.fnUntraced(
  function*(options) {
    const daytona = yield* client("list", options)
    const found = yield* labelled("list", daytona, { [label]: "1" })
    return found.map(({ createdAt, id, labels, name, state = "unknown" }) => ({
      id,
      name,
      state,
      labels,
      ...(createdAt === undefined ? {} : { created: createdAt })
    }))
  },
  Effect.scoped
)

/**
 * Deletes a sandbox with all that's in it; one that's gone already is no error.
 *
 * @category management
 * @since 0.1.0
 */
export const remove: (
  sandbox: string,
  options: ClientOptions
) => Effect.Effect<void, Sandbox.SandboxError> = Effect.fnUntraced(
  function*(sandbox, options) {
    const daytona = yield* client("remove", options)
    yield* Effect.tryPromise({ try: () => daytona.get(sandbox), catch: Errors.toError("remove") }).pipe(
      Effect.flatMap(removeSdk),
      Effect.catchIf(({ reason }) => reason._tag === "NotFound", () => Effect.void)
    )
  },
  Effect.scoped
)

// The SDK's own default is a day.
const requestTimeout = 60_000

// In seconds.
const createTimeout = 600

// What a failed creation left is found by it.
const creationLabel = "dev.gangway.creation"

const client = Effect.fnUntraced(function*(
  operation: Sandbox.SandboxError["operation"],
  { apiKey, apiUrl = "https://app.daytona.io/api", target }: ClientOptions
) {
  const sdk = yield* Effect.tryPromise({
    try: () => import("@daytona/sdk"),
    catch: (cause) =>
      Errors.error(operation, new Sandbox.Unsupported({ problem: "the package @daytona/sdk isn't installed", cause }))
  })
  return yield* Effect.acquireDisposable(
    Effect.try({
      try: () =>
        new sdk.Daytona({
          apiKey: Redacted.value(apiKey),
          apiUrl,
          ...(target === undefined ? {} : { target }),
          requestTimeoutMs: requestTimeout,
          // Events would be a connection more, that keeps the host's process alive.
          useDeprecatedPolling: true
        }),
      catch: Errors.toError(operation)
    })
  )
})

const create = Effect.fnUntraced(function*(daytona: Daytona, options: CreateOptions) {
  const { env, from, user } = options
  const creation = yield* makeId
  const base = {
    labels: { ...options.labels, [label]: "1", [creationLabel]: creation },
    ...(env === undefined ? {} : { envVars: { ...env } }),
    ...(user === undefined ? {} : { user }),
    ...(options.public === undefined ? {} : { public: options.public }),
    ...(options.autoStop === undefined
      ? {}
      : { autoStopInterval: Math.ceil(Duration.toMinutes(Duration.fromInputUnsafe(options.autoStop))) })
  }
  const timeout = { timeout: createTimeout }
  return yield* Effect.tryPromise({
    try: () => {
      if (from === undefined || "snapshot" in from) return daytona.create({ ...base, ...from }, timeout)
      const resources = Object.fromEntries(
        Object.entries(from.resources ?? {}).filter(([, value]) => value !== undefined)
      )
      return daytona.create({ ...base, image: from.image, resources }, timeout)
    },
    catch: Errors.toError("create")
  }).pipe(Effect.tapError(() => removeCreation(daytona, creation)))
})

// Creating fails also where the sandbox was made and then didn't start, and doesn't tell its id.
const removeCreation = (daytona: Daytona, creation: string) =>
  labelled("create", daytona, { [creationLabel]: creation }).pipe(
    Effect.flatMap(Effect.forEach(discard)),
    Effect.ignore
  )

const labelled = (operation: Sandbox.SandboxError["operation"], daytona: Daytona, labels: Record<string, string>) =>
  Effect.tryPromise({ try: () => Array.fromAsync(daytona.list({ labels })), catch: Errors.toError(operation) })

// While its state changes it can't be deleted, which is told as a bad request is.
const removeSdk = (sdk: SdkSandbox) =>
  Effect.tryPromise({ try: () => sdk.delete(), catch: Errors.toError("remove") }).pipe(
    Effect.retry({
      times: 6,
      schedule: Schedule.exponential("200 millis"),
      while: ({ reason }) => reason._tag === "Transient" || reason._tag === "Unsupported"
    }),
    Effect.catchIf(({ reason }) => reason._tag === "NotFound", () => Effect.void)
  )

// What can't be deleted now is found by its label.
const discard = (sdk: SdkSandbox) =>
  Effect.catch(removeSdk(sdk), (error) => Effect.logWarning(`The Daytona sandbox ${sdk.id} is left`, error))

// The SDK takes no other bytes. They aren't copied: a bridge has 100 MB.
const toBuffer = ({ buffer, byteLength, byteOffset }: Uint8Array) => Buffer.from(buffer, byteOffset, byteLength)

// A sandbox is `started` a moment before its own API answers.
const ready = (operation: Sandbox.SandboxError["operation"], sdk: SdkSandbox) =>
  Effect.retry(runScript(operation, sdk, ":", []), {
    times: 60,
    schedule: Schedule.spaced("500 millis"),
    while: ({ reason }) => reason._tag === "Transient"
  })

// Nobody listens there, most likely: a request of it is nothing to anyone but the proxy.
const usePort = 9009

const preview = (sdk: SdkSandbox, port: number) =>
  Effect.tryPromise({ try: () => sdk.getPreviewLink(port), catch: Errors.toError("endpoint") }).pipe(
    Effect.flatMap((link): Effect.Effect<Sandbox.Endpoint, Sandbox.SandboxError> => {
      const url = typeof link?.url === "string" ? URL.parse(link.url) : null
      return url === null || typeof link.token !== "string"
        ? Effect.fail(Errors.odd("endpoint"))
        : Effect.succeed({ url, headers: { "X-Daytona-Preview-Token": Redacted.make(link.token) } })
    })
  )

const fromSdk = (sdk: SdkSandbox): Sandbox.Sandbox["Service"] =>
  Sandbox.Sandbox.of({
    id: pin(sdk),
    kind: "daytona",
    // Daytona may reach a port from the sandbox's loopback or from its network: that isn't promised.
    hostname: "0.0.0.0",
    ports: "any",

    start: (options) => start(sdk, options),

    run: Effect.fnUntraced(function*({ command, cwd = "", env, timeout }) {
      const nonce = yield* makeId
      const { exitCode, result } = yield* runScript("run", sdk, Shell.runScript, [nonce, cwd, ...command], {
        env,
        timeout: Math.max(1, Math.ceil(Duration.toSeconds(Duration.fromInputUnsafe(timeout))))
      })
      if (result === nonce) {
        return yield* Errors.error("run", new Sandbox.NotFound({ problem: `there is no directory ${cwd}` }))
      }
      return { exitCode, stdout: result }
    }),

    readFile: (file) =>
      inside("readFile", sdk, () => sdk.fs.downloadFile(file)).pipe(
        Effect.asSome,
        Effect.catchIf(({ reason }) => Errors.isNoFile(reason.cause), () => Effect.succeedNone)
      ),

    writeFile: Effect.fnUntraced(function*(file, content, mode = 0o644) {
      const received = yield* runScript("writeFile", sdk, Shell.receiveScript, [Shell.parentOf(file), file])
      if (received.exitCode !== 0) return yield* Errors.toScriptError("writeFile", received.result)
      const directory = received.result.trim()
      // Names that an upload can't carry, and readers that would see half of it, are why it isn't uploaded in place.
      const uploaded = `${directory}/content`
      yield* inside("writeFile", sdk, () => sdk.fs.uploadFile(toBuffer(content), uploaded))
      const placed = yield* runScript("writeFile", sdk, Shell.placeScript, [
        uploaded,
        mode.toString(8),
        file,
        directory
      ])
      if (placed.exitCode !== 0) return yield* Errors.toScriptError("writeFile", placed.result)
    }),

    // Daytona tells where a port of a stopped sandbox would be, too.
    endpoint: (port) =>
      Effect.all([
        preview(sdk, port),
        running("endpoint", sdk)
      ], { concurrency: "unbounded" }).pipe(Effect.map(([endpoint]) => endpoint)),

    wake: wake("wake", sdk).pipe(
      Effect.tap((woke) => woke === "restarted" ? Effect.asVoid(ready("wake", sdk)) : Effect.void)
    ),

    keepAlive: Effect.tryPromise({ try: () => sdk.refreshActivity(), catch: Errors.toError("keepAlive") }),

    // The proxy counts a request that has its token, whether or not a port answers. The token is the sandbox's until it
    // stops, and opens no more than its ports.
    use: { endpoint: preview(sdk, usePort), every: "30 seconds" }
  })
