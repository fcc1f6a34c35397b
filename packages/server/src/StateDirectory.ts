/**
 * The state directory: where everything is, who owns it, and how its small files are written.
 *
 * ```
 * owner.json                          the bridge it belongs to
 * listening.json, process.json        the bridge that listens, and the identity of its process
 * destroyed/<session>                 a session that was destroyed, for a day
 * sessions/<session>/session.json     a session; without it there's none
 *                    lock-<n>         who writes in the session's directory: the highest counts
 *                    request.json     who asks the holder for the session
 *                    earlier.ndjson   how the turns before the latest one ended
 *                    reserve          space that is freed when the disk is full
 *                    turns/<turn>.ndjson
 * ```
 *
 * Directories have mode 0700 and files 0600, whatever the umask. It must be on a file system with hard links.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Clock from "effect/Clock"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type { PlatformError } from "effect/PlatformError"
import * as Random from "effect/Random"
import * as Runtime from "effect/Runtime"
import * as Schema from "effect/Schema"
import { problemOf, unavailable } from "./internal/unavailable.ts"

/**
 * A state directory that belongs to this bridge.
 *
 * @category models
 * @since 0.1.0
 */
export interface StateDirectory {
  /** Its real path. */
  readonly path: string
  readonly listeningFile: string
  /** The identity of the process that wrote the listening file. */
  readonly processFile: string
  readonly destroyedDirectory: string
  /** The ids of the sessions on disk; none where they can't be listed. */
  readonly sessions: Effect.Effect<ReadonlyArray<Bridge.SessionId>>
  readonly hasSession: (session: Bridge.SessionId) => Effect.Effect<boolean>
  readonly sessionDirectory: (session: Bridge.SessionId) => string
  readonly sessionFile: (session: Bridge.SessionId) => string
  readonly earlierFile: (session: Bridge.SessionId) => string
  readonly reserveFile: (session: Bridge.SessionId) => string
  readonly turnFile: (session: Bridge.SessionId, turn: Bridge.TurnId) => string
  /** The paths of all turns' files, half repaired ones too. */
  readonly turnFiles: (session: Bridge.SessionId) => Effect.Effect<ReadonlyArray<string>, Bridge.LogUnavailable>
  /**
   * Takes a session's directory away at once, and then removes it: nobody finds a part of it, or makes another one there
   * that is removed too. Whoever calls this has its lock.
   */
  readonly removeSession: (session: Bridge.SessionId) => Effect.Effect<void, Bridge.LogUnavailable>
  /** Removes what bridges that died left of sessions that were to be removed. */
  readonly removeRemains: Effect.Effect<void, Bridge.LogUnavailable>
  /** See {@link writeAtomic}. */
  readonly writeAtomic: (
    path: string,
    text: string,
    options: { readonly sync: boolean | "text" }
  ) => Effect.Effect<void, Bridge.LogUnavailable>
}

/**
 * What `owner.json` holds.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Owner = Schema.Struct({ bridge: Bridge.BridgeId })

/**
 * The state directory belongs to a bridge of another id.
 *
 * @remedy Give each bridge id a state directory of its own.
 * @client It is `BridgeUnavailable` with the reason `LaunchFailed`, and final.
 * @category errors
 * @since 0.1.0
 */
export class OwnerMismatch extends Data.TaggedError("OwnerMismatch")<{
  readonly path: string
  readonly bridge: Bridge.BridgeId
  readonly owner: Bridge.BridgeId
}> {
  /** What the bridge program exits with. */
  readonly exitCode = Bridge.ExitCode.launchLine
  override readonly [Runtime.errorExitCode] = this.exitCode
  override get message() {
    return `stateDirectory: ${this.path} belongs to bridge '${this.owner}', not to '${this.bridge}': use another one.`
  }
}

/**
 * The state directory can't be used.
 *
 * @remedy Let the bridge's user write there, make room, or name another directory.
 * @client It is `BridgeUnavailable` with the reason `LaunchFailed`, and final.
 * @category errors
 * @since 0.1.0
 */
export class NotWritable extends Data.TaggedError("NotWritable")<{
  readonly path: string
  readonly problem: string
}> {
  /** What the bridge program exits with. */
  readonly exitCode = Bridge.ExitCode.notWritable
  override readonly [Runtime.errorExitCode] = this.exitCode
  override get message() {
    return `stateDirectory: ${this.path} can't be used: ${this.problem}. ` +
      "Let the bridge's user write there, or name another one."
  }
}

/**
 * Makes the directory if there's none, and makes it this bridge's; for before the bridge listens. A bridge of the
 * same id may be using it.
 *
 * @category constructors
 * @since 0.1.0
 */
export const open = Effect.fnUntraced(function*(options: {
  readonly path: string
  readonly bridge: Bridge.BridgeId
}): Effect.fn.Return<StateDirectory, OwnerMismatch | NotWritable, FileSystem.FileSystem> {
  const fs = yield* FileSystem.FileSystem
  const unusable = (problem: string) => new NotWritable({ path: options.path, problem })

  const { holders, names, path } = yield* Effect.gen(function*() {
    const holders = yield* holdersOf(options.path)
    const before = yield* Effect.catchIf(
      fs.readDirectory(options.path),
      (error) => error.reason._tag === "NotFound",
      () => Effect.succeed<Array<string>>([])
    )
    yield* fs.makeDirectory(options.path, { recursive: true, mode: directoryMode })
    // A directory with something in it may be somebody else's too; what's private is one level below.
    if (before.length === 0) yield* Effect.ignore(fs.chmod(options.path, directoryMode))
    yield* fs.access(options.path, { writable: true })
    return { holders, names: before, path: yield* fs.realPath(options.path) }
  }).pipe(Effect.mapError((error) => unusable(problemOf(error))))

  const ownerFile = `${path}/owner.json`
  const sessionsDirectory = `${path}/sessions`
  const destroyedDirectory = `${path}/destroyed`
  // Whoever could place a link here would choose where the bridge writes.
  for (const name of ["owner.json", "listening.json", "process.json", "destroyed", "sessions"]) {
    if (names.includes(name) && (yield* isLink(`${path}/${name}`))) return yield* unusable(`${name} is a symbolic link`)
  }

  const created = !names.includes("owner.json") &&
    (yield* Effect.mapError(
      createExclusive(ownerFile, `${JSON.stringify({ bridge: options.bridge })}\n`, { sync: true }),
      ({ problem }) => unusable(problem)
    ))
  if (!created) {
    const { bridge } = yield* fs.readFileString(ownerFile).pipe(
      Effect.mapError((error) => unusable(problemOf(error))),
      Effect.flatMap((text) =>
        Effect.mapError(
          Schema.decodeEffect(Schema.fromJsonString(Owner))(text),
          () => unusable("owner.json is damaged, and says who may use this directory")
        )
      )
    )
    if (bridge !== options.bridge) {
      return yield* new OwnerMismatch({ path: options.path, bridge: options.bridge, owner: bridge })
    }
  }
  yield* Effect.forEach(
    [sessionsDirectory, destroyedDirectory],
    (directory) => Effect.mapError(makePrivateDirectory(directory), ({ problem }) => unusable(problem)),
    { concurrency: 2, discard: true }
  )
  // Also where another bridge made all this: it may have been killed before it got here.
  yield* Effect.forEach([path, ...holders], syncDirectory, { concurrency: "unbounded", discard: true })
  if (names.some((name) => name.endsWith(temporarySuffix))) yield* removeStale(path)
  if (names.includes("destroyed")) yield* removeStale(destroyedDirectory)

  const sessionDirectory = (session: Bridge.SessionId) => `${sessionsDirectory}/${session}`
  const sessionFile = (session: Bridge.SessionId) => `${sessionDirectory(session)}/session.json`
  const hasSession = (session: Bridge.SessionId) => Effect.orElseSucceed(fs.exists(sessionFile(session)), () => false)

  const removeRemains = fs.readDirectory(sessionsDirectory).pipe(
    Effect.flatMap(Effect.forEach((name) =>
      name.startsWith(removedPrefix)
        ? fs.remove(`${sessionsDirectory}/${name}`, { recursive: true, force: true })
        : Effect.void, { discard: true })),
    Effect.mapError(unavailable)
  )

  return {
    path,
    listeningFile: Bridge.listeningFile(path),
    processFile: `${path}/process.json`,
    destroyedDirectory,
    sessions: fs.readDirectory(sessionsDirectory).pipe(
      Effect.orElseSucceed((): Array<string> => []),
      Effect.map((names) => names.filter(Schema.is(Bridge.SessionId))),
      Effect.flatMap(Effect.filter(hasSession, { concurrency: 16 })),
      Effect.map((sessions) => sessions.sort())
    ),
    hasSession,
    sessionDirectory,
    sessionFile,
    earlierFile: (session) => `${sessionDirectory(session)}/earlier.ndjson`,
    reserveFile: (session) => `${sessionDirectory(session)}/reserve`,
    turnFile: (session, turn) => `${turnsDirectory(sessionDirectory(session))}/${turn}${turnSuffix}`,
    turnFiles: (session) => {
      const directory = turnsDirectory(sessionDirectory(session))
      return fs.readDirectory(directory).pipe(
        Effect.map((names) => names.filter((name) => isTurnFile.test(name)).map((name) => `${directory}/${name}`)),
        Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.succeed([])),
        Effect.mapError(unavailable)
      )
    },
    removeSession: Effect.fnUntraced(function*(session) {
      const removed = `${sessionsDirectory}/${removedPrefix}${yield* randomSuffix}`
      yield* fs.rename(sessionDirectory(session), removed).pipe(
        Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.void)
      )
      yield* fs.remove(removed, { recursive: true, force: true })
    }, Effect.mapError(unavailable)),
    removeRemains,
    writeAtomic: (path, text, options) =>
      Effect.provideService(writeAtomic(path, text, options), FileSystem.FileSystem, fs)
  }
})

/**
 * Makes a session's directory, for whoever takes its lock.
 *
 * @category combinators
 * @since 0.1.0
 */
export const makeSessionDirectory = Effect.fnUntraced(function*(
  directory: string,
  options: {
    /** Whether it's made to be removed, with whatever has the place of its turns. By default false. */
    readonly toDestroy?: boolean | undefined
  } = {}
): Effect.fn.Return<void, Bridge.LogUnavailable, FileSystem.FileSystem> {
  for (const made of options.toDestroy === true ? [directory] : [directory, turnsDirectory(directory)]) {
    // What's synced in it is lost with its name.
    if (yield* makePrivateDirectory(made)) yield* syncDirectory(parentOf(made))
  }
})

/**
 * Replaces a file as a whole: a reader, and whoever comes after a crash, sees the old text or the new one. With
 * `sync`, the new one is on the disk when this returns; with `"text"`, it's the old or the new one after a power cut,
 * too, where without it may be neither.
 *
 * @category combinators
 * @since 0.1.0
 */
export const writeAtomic = Effect.fnUntraced(
  function*(path: string, text: string, options: {
    readonly sync: boolean | "text"
  }): Effect.fn.Return<void, PlatformError, FileSystem.FileSystem> {
    const fs = yield* FileSystem.FileSystem
    yield* withTemporary(path, text, options, (temporary) => fs.rename(temporary, path))
    if (options.sync === true) yield* syncDirectory(parentOf(path))
  },
  Effect.mapError(unavailable)
)

/**
 * Makes a file its own first `offset` bytes and these, on the disk when this returns: for a file that grows, and of
 * which another one says how much counts.
 *
 * @category combinators
 * @since 0.1.0
 */
export const appendAt = Effect.fnUntraced(
  function*(
    path: string,
    offset: number,
    bytes: Uint8Array
  ): Effect.fn.Return<void, PlatformError | Bridge.LogUnavailable, FileSystem.FileSystem> {
    const fs = yield* FileSystem.FileSystem
    yield* Effect.scoped(Effect.gen(function*() {
      const file = yield* fs.open(path, { flag: "a", mode: fileMode })
      yield* fs.chmod(path, fileMode)
      const { size } = yield* file.stat
      if (size < offset) return yield* new Bridge.LogUnavailable({ problem: `${nameOf(path)} has lost its end` })
      if (size > offset) yield* file.truncate(offset)
      yield* file.writeAll(bytes)
      yield* file.sync
    }))
    if (offset === 0) yield* syncDirectory(parentOf(path))
  },
  Effect.uninterruptible,
  Effect.mapError((error) => error._tag === "LogUnavailable" ? error : unavailable(error))
)

/**
 * Creates a file that appears with its whole text, or not at all; `false` where it's there already. With `sync`, its
 * text is on the disk when this returns; its name is once its directory is synced.
 *
 * @category combinators
 * @since 0.1.0
 */
export const createExclusive = Effect.fnUntraced(
  function*(path: string, text: string, options: {
    readonly sync: boolean
  }): Effect.fn.Return<boolean, PlatformError, FileSystem.FileSystem> {
    const fs = yield* FileSystem.FileSystem
    return yield* withTemporary(path, text, options, (temporary) =>
      // Unlike a rename, a link never takes another's place.
      fs.link(temporary, path).pipe(
        Effect.as(true),
        Effect.catchIf((error) => error.reason._tag === "AlreadyExists", () => Effect.succeed(false)),
        Effect.tap(() => Effect.ignore(fs.remove(temporary)))
      ))
  },
  Effect.mapError(unavailable)
)

/**
 * Removes temporary files of bridges that died while they wrote.
 *
 * @category combinators
 * @since 0.1.0
 */
export const removeStale = Effect.fnUntraced(
  function*(directory: string): Effect.fn.Return<void, PlatformError, FileSystem.FileSystem> {
    const fs = yield* FileSystem.FileSystem
    const now = yield* Clock.currentTimeMillis
    for (const name of yield* fs.readDirectory(directory)) {
      if (!name.endsWith(temporarySuffix)) continue
      const { mtime } = yield* fs.stat(`${directory}/${name}`)
      if (Option.isSome(mtime) && now - mtime.value.getTime() > staleAfter) yield* fs.remove(`${directory}/${name}`)
    }
  },
  (removal) => Effect.ignore(removal)
)

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const directoryMode = 0o700
const fileMode = 0o600
const turnSuffix = ".ndjson"
const isTurnFile = /\.ndjson(\.repair)?$/
const temporarySuffix = ".tmp"
// No session has such an id.
const removedPrefix = ".removed-"

// Another bridge may be writing right now, and be stopped for a while.
const staleAfter = Duration.toMillis(Duration.hours(1))

const turnsDirectory = (sessionDirectory: string): string => `${sessionDirectory}/turns`

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf("/"))

const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

/** The directories that get a new name when this one is made: what's synced in it is lost with that. */
const holdersOf = Effect.fnUntraced(function*(path: string) {
  const fs = yield* FileSystem.FileSystem
  const holders: Array<string> = []
  for (let made = path; made !== "/" && !(yield* fs.exists(made)); made = holders[holders.length - 1]!) {
    holders.push(parentOf(made) || "/")
  }
  return holders
})

const isLink = (path: string): Effect.Effect<boolean, never, FileSystem.FileSystem> =>
  Effect.flatMap(FileSystem.FileSystem, (fs) => Effect.isSuccess(fs.readLink(path)))

/** `false` where it's there already. */
const makePrivateDirectory = Effect.fnUntraced(function*(
  path: string
): Effect.fn.Return<boolean, Bridge.LogUnavailable, FileSystem.FileSystem> {
  const fs = yield* FileSystem.FileSystem
  const created = yield* fs.makeDirectory(path, { mode: directoryMode }).pipe(
    Effect.as(true),
    Effect.catchIf((error) => error.reason._tag === "AlreadyExists", () => Effect.succeed(false)),
    Effect.mapError(unavailable)
  )
  if (created) {
    yield* Effect.mapError(fs.chmod(path, directoryMode), unavailable)
    return true
  }
  const { type } = yield* Effect.mapError(fs.stat(path), unavailable)
  if (type !== "Directory" || (yield* isLink(path))) {
    return yield* new Bridge.LogUnavailable({ problem: `${nameOf(path)} is not a directory: remove it` })
  }
  return false
})

const syncDirectory = (path: string): Effect.Effect<void, never, FileSystem.FileSystem> =>
  Effect.flatMap(FileSystem.FileSystem, (fs) => Effect.scoped(Effect.flatMap(fs.open(path), (file) => file.sync))).pipe(
    // Some file systems can't sync a directory; the file itself is synced.
    Effect.ignore
  )

const randomSuffix = Effect.map(Random.nextIntBetween(0, 2 ** 48), (number) => number.toString(36))

const withTemporary = <A>(
  path: string,
  text: string,
  options: { readonly sync: boolean | "text" },
  use: (temporary: string) => Effect.Effect<A, PlatformError>
): Effect.Effect<A, PlatformError, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const temporary = `${path}.${yield* randomSuffix}${temporarySuffix}`
    return yield* Effect.gen(function*() {
      yield* Effect.scoped(Effect.gen(function*() {
        const file = yield* fs.open(temporary, { flag: "wx", mode: fileMode })
        yield* fs.chmod(temporary, fileMode)
        yield* file.writeAll(new TextEncoder().encode(text))
        if (options.sync !== false) yield* file.sync
      }))
      return yield* use(temporary)
    }).pipe(Effect.onError(() => Effect.ignore(fs.remove(temporary))))
  }).pipe(Effect.uninterruptible)
