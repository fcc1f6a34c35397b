/**
 * The files of turns by plain system calls: what goes to the system's cache is written sooner than a thread is asked to
 * (`bun test/bench/turnLog.ts` measures both). Syncing waits for a disk, so that's left to a thread.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { closeSync, fdatasync, fstatSync, ftruncateSync, openSync, readSync, writeSync } from "node:fs"
import { errorFromCode, type LogFile, type LogFileError } from "../../LogFile.ts"

/** Reads and writes synchronously. */
export const synchronousLogFile: LogFile = {
  openReader: (path) =>
    Effect.map(open(path, "r"), (file) => ({
      read: (buffer, offset) => file.call("read", (fd) => readSync(fd, buffer, 0, buffer.length, offset)),
      stat: file.call("stat", (fd) => {
        const { ino, size } = fstatSync(fd)
        return { inode: ino, size }
      })
    })),
  openWriter: (path) => Effect.map(open(path, "a"), toWriter),
  create: (path) => Effect.map(open(path, "ax"), toWriter),
  syncDirectory: (path) => Effect.scoped(Effect.flatMap(open(path, "r"), ({ sync }) => sync))
}

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

interface OpenFile {
  readonly call: <A>(operation: string, run: (fd: number) => A) => Effect.Effect<A, LogFileError>
  readonly sync: Effect.Effect<void, LogFileError>
}

const toError = (operation: string, error: unknown): LogFileError =>
  errorFromCode(operation, (error as { readonly code?: string }).code ?? "unknown")

const open = Effect.fnUntraced(function*(path: string, flags: string): Effect.fn.Return<
  OpenFile,
  LogFileError,
  Scope.Scope
> {
  // A descriptor's number is another file's soon after it's closed.
  let fd: number | undefined = yield* Effect.acquireRelease(
    Effect.try({ try: () => openSync(path, flags, 0o600), catch: (error) => toError("open", error) }),
    (opened) =>
      Effect.sync(() => {
        fd = undefined
        closeSync(opened)
      })
  )
  const withFd = <A, E>(run: (fd: number) => Effect.Effect<A, E>): Effect.Effect<A, E | LogFileError> =>
    Effect.suspend((): Effect.Effect<A, E | LogFileError> =>
      fd === undefined ? Effect.fail(errorFromCode("file", "EBADF")) : run(fd)
    )
  return {
    call: (operation, run) =>
      withFd((fd) => Effect.try({ try: () => run(fd), catch: (error) => toError(operation, error) })),
    sync: withFd((fd) =>
      // Not interrupted: the descriptor is in use until it's done.
      Effect.uninterruptible(Effect.callback<void, LogFileError>((resume) => {
        fdatasync(fd, (error) => resume(error === null ? Effect.void : Effect.fail(toError("sync", error))))
      }))
    )
  }
})

const toWriter = ({ call, sync }: OpenFile) => ({
  write: (bytes: Uint8Array) => call("write", (fd) => writeSync(fd, bytes)),
  sync,
  truncate: (size: number) => call("truncate", (fd) => ftruncateSync(fd, size))
})
