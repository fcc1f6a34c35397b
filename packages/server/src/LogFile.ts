/**
 * How the files of turns are read and written: replaceable, so that a program can write faster than the portable
 * file system does, and a test can have the disk fail under the code that really runs.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import type * as PlatformError from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { explained } from "./internal/unavailable.ts"

/**
 * A file open for reading, by any number of fibers at once.
 *
 * @category models
 * @since 0.1.0
 */
export interface LogReader {
  /** Reads into the buffer from the offset on and returns the number of bytes, 0 at the end; may read short. */
  readonly read: (buffer: Uint8Array, offset: number) => Effect.Effect<number, LogFileError>
  /** The size in bytes, and what identifies the file whatever its name, where the system tells. */
  readonly stat: Effect.Effect<{ readonly size: number; readonly inode: number | undefined }, LogFileError>
}

/**
 * A file open for writing at its end, by one fiber at a time.
 *
 * @category models
 * @since 0.1.0
 */
export interface LogWriter {
  /** Writes at the end of the file and returns the number of bytes; may write short, the caller goes on. */
  readonly write: (bytes: Uint8Array) => Effect.Effect<number, LogFileError>
  /** Returns when all that was written is on the disk. */
  readonly sync: Effect.Effect<void, LogFileError>
  /** Cuts the file to a size; later writes go there. */
  readonly truncate: (size: number) => Effect.Effect<void, LogFileError>
}

/**
 * What a turn's log asks of the system for its file. Files close with their scope, after what is under way; whatever
 * is called after that fails.
 *
 * @category models
 * @since 0.1.0
 */
export interface LogFile {
  readonly openReader: (
    path: string
  ) => Effect.Effect<LogReader, LogFileError, FileSystem.FileSystem | Scope.Scope>
  /** Opens a file that exists. */
  readonly openWriter: (
    path: string
  ) => Effect.Effect<LogWriter, LogFileError, FileSystem.FileSystem | Scope.Scope>
  /** Creates a file that doesn't exist, with mode 0600. */
  readonly create: (
    path: string
  ) => Effect.Effect<LogWriter, LogFileError, FileSystem.FileSystem | Scope.Scope>
  /** Returns when the names of the directory's files are on the disk. */
  readonly syncDirectory: (path: string) => Effect.Effect<void, LogFileError, FileSystem.FileSystem>
}

/**
 * A file of a turn can't be opened, read or written; hosts are told `LogUnavailable`, or a turn that failed with
 * `disk-full`.
 *
 * @remedy Make room where `kind` is `disk-full`; otherwise look after the disk.
 * @category errors
 * @since 0.1.0
 */
export class LogFileError extends Data.TaggedError("LogFileError")<{
  readonly kind: "disk-full" | "not-found" | "unknown"
  /** What failed, for a person, such as `write: ENOSPC`. */
  readonly problem: string
}> {
  override get message() {
    return this.problem
  }
}

/**
 * The error of a system call by its code, such as `ENOSPC`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const errorFromCode = (operation: string, code: string): LogFileError =>
  new LogFileError({
    kind: code === "ENOSPC" || code === "EDQUOT" ? "disk-full" : code === "ENOENT" ? "not-found" : "unknown",
    problem: `${operation}: ${code === "EISDIR" || code === "ENOTDIR" ? explained(code) : code}`
  })

/**
 * The error of Effect's file system, which has no tag of its own for a full disk: the system's code is in the cause.
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromPlatformError = ({ reason }: PlatformError.PlatformError): LogFileError => {
  const cause = reason.cause
  if (Predicate.hasProperty(cause, "code") && typeof cause.code === "string") {
    return errorFromCode(reason.method, cause.code)
  }
  return new LogFileError({
    kind: reason._tag === "NotFound" ? "not-found" : "unknown",
    problem: `${reason.method}: ${reason._tag}`
  })
}

// A handle is used by one at a time: it has one position, and its number may be another file's once it's closed.
const openFile = Effect.fnUntraced(
  function*(path: string, flag: FileSystem.OpenFlag) {
    const fs = yield* FileSystem.FileSystem
    const file = yield* fs.open(path, { flag, mode: 0o600 })
    const one = Semaphore.makeUnsafe(1)
    let isOpen = true
    yield* Effect.addFinalizer(() =>
      one.withPermit(Effect.sync(() => {
        isOpen = false
      }))
    )
    return <A>(run: (file: FileSystem.File) => Effect.Effect<A, PlatformError.PlatformError>) =>
      one.withPermit(
        Effect.suspend(() =>
          isOpen ? Effect.mapError(run(file), fromPlatformError) : Effect.fail(errorFromCode("file", "EBADF"))
        )
      )
  },
  Effect.mapError(fromPlatformError)
)

const openReader: LogFile["openReader"] = Effect.fnUntraced(function*(path) {
  const use = yield* openFile(path, "r")
  return {
    read: (buffer, offset) => use((file) => Effect.andThen(file.seek(BigInt(offset), "start"), file.read(buffer))),
    stat: Effect.map(
      use((file) => file.stat),
      (info) => ({ size: Number(info.size), inode: Option.getOrUndefined(info.ino) })
    )
  }
})

const openWriter = Effect.fnUntraced(function*(path: string, flag: FileSystem.OpenFlag) {
  const use = yield* openFile(path, flag)
  return {
    write: (bytes: Uint8Array) => use((file) => file.write(bytes)),
    sync: use((file) => file.sync),
    truncate: (size: number) => use((file) => file.truncate(size))
  }
})

const portable: LogFile = {
  openReader,
  openWriter: (path) => openWriter(path, "a"),
  create: (path) => openWriter(path, "ax"),
  syncDirectory: (path) => Effect.scoped(Effect.flatMap(openFile(path, "r"), (use) => use((file) => file.sync)))
}

/**
 * The files of turns; by default those of Effect's `FileSystem`, which takes about 35 µs a write.
 *
 * @category services
 * @since 0.1.0
 */
export const LogFile: Context.Reference<LogFile> = Context.Reference<LogFile>("@gangway/server/LogFile", {
  defaultValue: () => portable
})
