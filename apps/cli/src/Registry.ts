/**
 * The bridges, their tokens and their sessions that this user's command line knows: files under the user's state
 * directory, for their owner alone.
 *
 *   $XDG_STATE_HOME/gangway, or ~/.local/state/gangway
 *     tokens/<bridge>.token
 *     bridges/<bridge>/bridge.json
 *     bridges/<bridge>/sessions/<session>.json
 *     bridges/<bridge>/state                     the bridge's own state directory
 *     bridges/<bridge>/agent                     where the scripted agent keeps its conversations
 *     bridges/<bridge>/sandbox                   the id of its sandbox, where only the one who made it can tell
 *     bridges/<bridge>/trees                     what was copied into its sandbox, as a Git repository
 */
import { Bridge } from "@gangway/protocol"
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Schema from "effect/Schema"
import { Agent } from "./AgentOptions.ts"
import { UsageError } from "./Failure.ts"

/** The files of the user's state directory can't be read or written. */
export class RegistryError extends Data.TaggedError("RegistryError")<{ readonly problem: string }> {
  override get message() {
    return `the user's state directory can't be used: ${this.problem}; XDG_STATE_HOME names another one`
  }
}

/** What a bridge's sandbox is created with, and again where it's gone. */
export const SandboxRecord = Schema.Struct({
  kind: Schema.Literals(["docker", "daytona"]),
  /** One of them: what it's made of, or one that was there before. Without, what its provider makes. */
  from: Schema.optional(Schema.Struct({
    image: Schema.optional(Schema.String),
    snapshot: Schema.optional(Schema.String),
    sandbox: Schema.optional(Schema.String)
  })),
  /** The directory of this machine that's in it, mounted or as a copy. */
  directory: Schema.String,
  copy: Schema.Boolean
})

export type SandboxRecord = typeof SandboxRecord.Type

/** What's known of a bridge beside its token; without a sandbox it runs on this machine. */
export const BridgeRecord = Schema.Struct({
  agent: Agent,
  /** The user that the agent runs as, where that isn't the bridge's own. */
  agentUser: Schema.optional(Schema.String),
  sandbox: Schema.optional(SandboxRecord)
})

export type BridgeRecord = typeof BridgeRecord.Type

/**
 * What a session was started with, its directory as it is in the bridge's sandbox: the same is needed to start it again.
 * None of it is secret.
 */
export const SessionRecord = Schema.Struct({
  directory: Schema.String,
  permissions: Bridge.Permissions,
  instructions: Schema.optional(Schema.String),
  model: Schema.optional(Schema.String),
  effort: Schema.optional(Schema.String)
})

export type SessionRecord = typeof SessionRecord.Type

/** Where a bridge's files are. */
export interface Places {
  readonly stateDirectory: string
  readonly agentHome: string
  /** The states of what was copied into its sandbox. */
  readonly trees: string
}

export class Registry extends Context.Service<Registry, {
  /** The directory of it all. */
  readonly root: string
  readonly tokens: string
  readonly places: (bridge: Bridge.BridgeId) => Places
  /** The ids of the bridges that are known. */
  readonly bridges: Effect.Effect<ReadonlyArray<Bridge.BridgeId>, RegistryError>
  readonly bridge: (bridge: Bridge.BridgeId) => Effect.Effect<Option.Option<BridgeRecord>, RegistryError>
  readonly keepBridge: (bridge: Bridge.BridgeId, record: BridgeRecord) => Effect.Effect<void, RegistryError>
  /** Removes all that is known of a bridge, its token and its own files on this machine. */
  readonly forgetBridge: (bridge: Bridge.BridgeId) => Effect.Effect<void, RegistryError>
  /** The sandbox that a bridge has claimed. */
  readonly sandboxOf: (bridge: Bridge.BridgeId) => Effect.Effect<Option.Option<string>, RegistryError>
  /** Claims a sandbox for a bridge that has none, or no more the one it had, and gives the one that it has now. */
  readonly claimSandbox: (
    bridge: Bridge.BridgeId,
    sandbox: string,
    gone: Option.Option<string>
  ) => Effect.Effect<string, RegistryError>
  /** The ids of a bridge's sessions that were started from here. */
  readonly sessions: (bridge: Bridge.BridgeId) => Effect.Effect<ReadonlyArray<Bridge.SessionId>, RegistryError>
  readonly session: (
    bridge: Bridge.BridgeId,
    session: Bridge.SessionId
  ) => Effect.Effect<Option.Option<SessionRecord>, RegistryError>
  readonly keepSession: (
    bridge: Bridge.BridgeId,
    session: Bridge.SessionId,
    record: SessionRecord
  ) => Effect.Effect<void, RegistryError>
  readonly forgetSession: (
    bridge: Bridge.BridgeId,
    session: Bridge.SessionId
  ) => Effect.Effect<void, RegistryError>
}>()("@gangway/cli/Registry") {}

/** The user's state directory, by the rules of the XDG base directories. */
const stateHome = Effect.gen(function*() {
  const path = yield* Path.Path
  const variable = (name: string) =>
    Effect.map(Effect.option(Config.String(name)), Option.filter((value) => path.isAbsolute(value)))
  const given = yield* variable("XDG_STATE_HOME")
  if (Option.isSome(given)) return given.value
  const home = yield* variable("HOME")
  if (Option.isSome(home)) return path.join(home.value, ".local", "state")
  return yield* new UsageError({ problem: "there is no HOME: set XDG_STATE_HOME to an absolute path" })
})

export const layer: Layer.Layer<Registry, UsageError | RegistryError, FileSystem.FileSystem | Path.Path> = Layer.effect(
  Registry,
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const root = path.join(yield* stateHome, "gangway")
    const failed = (error: PlatformError) => new RegistryError({ problem: problemOf(error) })
    yield* Effect.mapError(
      Effect.andThen(fs.makeDirectory(root, { recursive: true, mode: 0o700 }), fs.chmod(root, 0o700)),
      failed
    )

    const directory = (bridge: Bridge.BridgeId) => path.join(root, "bridges", bridge)
    const bridgeFile = (bridge: Bridge.BridgeId) => path.join(directory(bridge), "bridge.json")
    const sessionFile = (bridge: Bridge.BridgeId, session: Bridge.SessionId) =>
      path.join(directory(bridge), "sessions", `${session}.json`)

    const sandboxFile = (bridge: Bridge.BridgeId) => path.join(directory(bridge), "sandbox")
    const sandboxOf = (bridge: Bridge.BridgeId) =>
      fs.readFileString(sandboxFile(bridge)).pipe(
        Effect.asSome,
        Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.succeedNone),
        Effect.mapError(failed)
      )

    const read = <S extends Schema.ConstraintDecoder<unknown>>(file: string, schema: S) =>
      fs.readFileString(file).pipe(
        Effect.flatMap(Schema.decodeUnknownEffect(Schema.fromJsonString(schema))),
        Effect.asSome,
        Effect.catchTag("PlatformError", (error) =>
          error.reason._tag === "NotFound" ? Effect.succeedNone : Effect.fail(error)),
        Effect.mapError((error) =>
          error._tag === "SchemaError"
            ? new RegistryError({ problem: `${file} isn't what gangway wrote there, so remove it` })
            : failed(error)
        )
      )

    // Whole at any time: several commands may write the same one at once.
    const write = (file: string, value: BridgeRecord | SessionRecord) =>
      Effect.gen(function*() {
        yield* fs.makeDirectory(path.dirname(file), { recursive: true, mode: 0o700 })
        const temporary = `${file}.${process.pid}`
        yield* fs.writeFileString(temporary, `${JSON.stringify(value)}\n`, { mode: 0o600 })
        yield* fs.rename(temporary, file)
      }).pipe(Effect.mapError(failed))

    const tokens = path.join(root, "tokens")
    const remove = (file: string) => Effect.mapError(fs.remove(file, { recursive: true, force: true }), failed)
    const names = (directory: string) =>
      fs.readDirectory(directory).pipe(
        Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.succeed<Array<string>>([])),
        Effect.mapError(failed)
      )

    return Registry.of({
      root,
      tokens,
      places: (bridge) => ({
        stateDirectory: path.join(directory(bridge), "state"),
        agentHome: path.join(directory(bridge), "agent"),
        trees: path.join(directory(bridge), "trees")
      }),
      bridges: Effect.map(
        names(path.join(root, "bridges")),
        (names) => names.filter(Schema.is(Bridge.BridgeId)).sort()
      ),
      bridge: (bridge) => read(bridgeFile(bridge), BridgeRecord),
      keepBridge: (bridge, record) => write(bridgeFile(bridge), record),
      forgetBridge: (bridge) => Effect.andThen(remove(directory(bridge)), remove(path.join(tokens, `${bridge}.token`))),
      sandboxOf,
      claimSandbox: Effect.fnUntraced(function*(bridge, sandbox, gone) {
        const file = sandboxFile(bridge)
        const before = yield* sandboxOf(bridge)
        const isGone = Option.isSome(before) && Option.getOrUndefined(gone) === before.value
        yield* Effect.gen(function*() {
          if (isGone) yield* fs.remove(file, { force: true })
          yield* fs.makeDirectory(path.dirname(file), { recursive: true, mode: 0o700 })
          const temporary = `${file}.${process.pid}`
          yield* fs.writeFileString(temporary, sandbox, { mode: 0o600 })
          // It fails where another one has claimed one meanwhile.
          yield* Effect.ensuring(fs.link(temporary, file), Effect.ignore(fs.remove(temporary)))
        }).pipe(
          Effect.catchIf(({ reason }) => reason._tag === "AlreadyExists", () => Effect.void),
          Effect.mapError(failed)
        )
        return Option.getOrElse(yield* sandboxOf(bridge), () => sandbox)
      }),
      sessions: (bridge) =>
        Effect.map(
          names(path.join(directory(bridge), "sessions")),
          (names) =>
            names.filter((name) => name.endsWith(".json")).map((name) => name.slice(0, -5))
              .filter(Schema.is(Bridge.SessionId)).sort()
        ),
      session: (bridge, session) => read(sessionFile(bridge, session), SessionRecord),
      keepSession: (bridge, session, record) => write(sessionFile(bridge, session), record),
      forgetSession: (bridge, session) => remove(sessionFile(bridge, session))
    })
  })
)

// The system's own words, which name the operation and mostly the file.
const problemOf = ({ message, reason }: PlatformError): string => {
  if (!(reason.cause instanceof Error)) return message
  const path = reason._tag === "BadArgument" ? undefined : reason.pathOrDescriptor
  const words = reason.cause.message
  return path === undefined || words.includes(`${path}`) ? words : `${path}: ${words}`
}
