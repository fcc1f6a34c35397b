/**
 * A bridge's standing on its state directory: the listening file names the newest, and the others find out.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { liveness, ProcessIdentity, ProcessTable } from "./ProcessTable.ts"
import type * as StateDirectory from "./StateDirectory.ts"

/**
 * Whether this bridge is still the one that hosts find.
 *
 * @category models
 * @since 0.1.0
 */
export interface Ownership {
  /** Whether a newer bridge serves the state directory, as it was seen last. It stays so. */
  readonly isReplaced: () => boolean
  /** Looks now: before anything new is accepted. */
  readonly check: Effect.Effect<void, Bridge.Replaced>
  /** Waits until a newer bridge serves the state directory; that's noticed within a second. */
  readonly replaced: Effect.Effect<void>
  /** What the listening file says now. */
  readonly listening: Effect.Effect<Bridge.ListeningFile | undefined>
}

/**
 * Which bridge this is, and where it listens.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  readonly stateDirectory: StateDirectory.StateDirectory
  readonly bridge: Bridge.BridgeId
  readonly launch: string
  readonly port: number
}

/**
 * What `process.json` holds: which process a launch is, for whoever must end it. It's a file of its own because the
 * listening file is part of the protocol.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ListeningProcess = Schema.Struct({ launch: Schema.String, ...ProcessIdentity.fields })

/**
 * What answers on a port that is taken: a bridge of the wanted id, nobody, or something else.
 *
 * @category models
 * @since 0.1.0
 */
export type Probe = "ours" | "none" | "other"

/**
 * The given port is taken, by the bridge that's wanted or by something that may not be ended.
 *
 * @remedy Use the bridge that is there, or another port; 0 lets the system choose.
 * @client It reads the listening file again, and uses the bridge that it names.
 * @category errors
 * @since 0.1.0
 */
export class PortTaken extends Data.TaggedError("PortTaken")<{
  readonly port: number
  readonly by: Probe
}> {
  /** What the bridge program exits with. */
  readonly exitCode = Bridge.ExitCode.portTaken
  override readonly [Runtime.errorExitCode] = this.exitCode
  override get message() {
    return this.by === "ours"
      ? `port: the bridge already listens on ${this.port}: use that one.`
      : `port: ${this.port} is taken by something that isn't this bridge: end it, or use another one.`
  }
}

/**
 * Writes the listening file, and looks each second whether a newer bridge did; from then on it's never written again.
 * One that's missing, damaged or of another bridge id is written again. For when the bridge listens.
 *
 * **Details**
 *
 * However many bridges are started at once, exactly one isn't replaced in the end: the one whose file was written
 * last, because only the others ever read a file that names another.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<
  Ownership,
  Bridge.LogUnavailable,
  FileSystem.FileSystem | Scope.Scope
> {
  const fs = yield* FileSystem.FileSystem
  const table = yield* ProcessTable
  const self = yield* table.self
  const { stateDirectory } = options
  const replaced = Deferred.makeUnsafe<void>()
  const isReplaced = () => Deferred.isDoneUnsafe(replaced)
  const listening = Effect.provideService(readListening(stateDirectory), FileSystem.FileSystem, fs)
  const identity = Effect.provideService(
    readJson(stateDirectory.processFile, ListeningProcess),
    FileSystem.FileSystem,
    fs
  )
  // Reading the file, deciding and writing it are one step: otherwise a bridge could learn that it's replaced between
  // its decision to write and the write, and still write.
  const one = Semaphore.makeUnsafe(1)

  const writeProcess = stateDirectory.writeAtomic(
    stateDirectory.processFile,
    `${encodeProcess({ launch: options.launch, ...self })}\n`,
    { sync: false }
  )
  const write = Effect.andThen(
    writeProcess,
    stateDirectory.writeAtomic(
      stateDirectory.listeningFile,
      `${
        encodeListening({
          protocol: Bridge.protocolVersion,
          bridge: options.bridge,
          launch: options.launch,
          port: options.port,
          pid: self.pid
        })
      }\n`,
      { sync: false }
    )
  )

  const look = Effect.gen(function*() {
    if (isReplaced()) return
    const file = yield* listening
    if (file !== undefined && file.bridge === options.bridge) {
      if (file.launch !== options.launch || file.port !== options.port) {
        yield* Deferred.succeed(replaced, undefined)
        return
      }
      const process = yield* identity
      // Two that were started at once wrote two files each, in whatever order.
      if (process?.launch !== options.launch) yield* Effect.ignore(writeProcess)
      return
    }
    // If it can't be written now, the next look tries again.
    yield* Effect.ignore(write)
  }).pipe(Effect.uninterruptible, one.withPermit)

  yield* one.withPermit(write)
  yield* look.pipe(
    Effect.delay("1 second"),
    Effect.repeat({ until: isReplaced }),
    Effect.forkScoped
  )

  return {
    isReplaced,
    check: Effect.andThen(
      look,
      Effect.suspend(() => isReplaced() ? Effect.fail(new Bridge.Replaced()) : Effect.void)
    ),
    replaced: Deferred.await(replaced),
    listening
  }
})

/**
 * Reads the listening file; `undefined` where it's missing or makes no sense.
 *
 * @category combinators
 * @since 0.1.0
 */
export const readListening = (
  stateDirectory: StateDirectory.StateDirectory
): Effect.Effect<Bridge.ListeningFile | undefined, never, FileSystem.FileSystem> =>
  readJson(stateDirectory.listeningFile, Bridge.ListeningFile)

/**
 * Frees a given port that turned out to be taken: the process that the listening file names is killed if it had that
 * port, is a bridge of this id, still is the same process, and doesn't answer within 10 s. Success means that the port
 * can be bound; every other case is for the bridge program to exit.
 *
 * @category combinators
 * @since 0.1.0
 */
export const freePort = Effect.fnUntraced(function*(options: {
  readonly stateDirectory: StateDirectory.StateDirectory
  readonly bridge: Bridge.BridgeId
  readonly port: number
  /** Asks what has the port. */
  readonly probe: Effect.Effect<Probe, never, FileSystem.FileSystem>
}): Effect.fn.Return<void, PortTaken, FileSystem.FileSystem> {
  const table = yield* ProcessTable
  const by = yield* Effect.timeoutOrElse(options.probe, {
    duration: "10 seconds",
    orElse: () => Effect.succeed<Probe>("none")
  })
  const taken = new PortTaken({ port: options.port, by })
  if (by !== "none") return yield* taken

  const file = yield* readListening(options.stateDirectory)
  const process = yield* readJson(options.stateDirectory.processFile, ListeningProcess)
  const self = yield* table.self
  if (
    file === undefined || process === undefined || file.bridge !== options.bridge || file.port !== options.port ||
    process.launch !== file.launch || process.pid !== file.pid || process.pid === self.pid
  ) return yield* taken
  if ((yield* liveness(process)) !== "alive" || !(yield* table.signal(process, "SIGKILL"))) return yield* taken
  for (let looks = 0; looks < 100; looks++) {
    if ((yield* liveness(process)) === "gone") return
    yield* Effect.sleep("50 millis")
  }
  return yield* taken
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const encodeListening = Schema.encodeSync(Schema.fromJsonString(Bridge.ListeningFile))
const encodeProcess = Schema.encodeSync(Schema.fromJsonString(ListeningProcess))

const readJson = <S extends Schema.ConstraintDecoder<unknown>>(
  path: string,
  schema: S
): Effect.Effect<S["Type"] | undefined, never, FileSystem.FileSystem> =>
  FileSystem.FileSystem.pipe(
    Effect.flatMap((fs) => fs.readFileString(path)),
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.fromJsonString(schema))),
    Effect.option,
    Effect.map(Option.getOrUndefined)
  )
