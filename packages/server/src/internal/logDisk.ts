/**
 * The end of a turn's file: what is written there is whole, or is cut off again.
 */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Result from "effect/Result"
import * as Scope from "effect/Scope"
import { LogFile, type LogFileError, type LogWriter } from "../LogFile.ts"
import { writeFully, writeWhole } from "./fileBytes.ts"
import type { LineIndex } from "./lineIndex.ts"

export interface Options {
  readonly path: string
  /** Its `size` is where whole lines end; it grows once they're written. */
  readonly index: LineIndex
  /** Absent where the file is open for reading only so far. */
  readonly writer: LogWriter | undefined
  /** Whether bytes follow the last whole line. */
  readonly torn: boolean
  /** Where the file is damaged: writes what's good of it and the given bytes, synced, to a file in its place. */
  readonly repair: ((bytes: Uint8Array) => Effect.Effect<LogWriter, LogFileError>) | undefined
  /** The path of the reserve. */
  readonly reserve: string | undefined
}

/** Why lines that must be synced are not in the file. */
export interface NotWritten {
  readonly step: "write" | "sync"
  readonly error: LogFileError
}

/** For one fiber at a time. */
export interface LogDisk {
  /** Writes lines and answers how much of them was written before an error. */
  readonly write: (
    bytes: Uint8Array
  ) => Effect.Effect<{ readonly written: number; readonly error: LogFileError | undefined }>
  /** Syncs what was written; where that fails nothing of it counts. */
  readonly sync: Effect.Effect<void, LogFileError>
  /** Cuts off what follows the last whole line; tried again before the next write. */
  readonly cutBack: Effect.Effect<void>
  /** Writes all of the lines and syncs them, or none of them. */
  readonly writeSynced: (bytes: Uint8Array) => Effect.Effect<void, NotWritten>
  /** Keeps some room for an end, if there is any. */
  readonly keepReserve: Effect.Effect<void>
  readonly freeReserve: Effect.Effect<void>
}

const reserveBytes = 64 * 1024

export const make = Effect.fnUntraced(function*(
  { index, path, reserve, ...options }: Options
): Effect.fn.Return<LogDisk, never, FileSystem.FileSystem | Scope.Scope> {
  const fs = yield* FileSystem.FileSystem
  const files = yield* LogFile
  const scope = yield* Effect.scope
  let { repair, torn, writer } = options

  const openWriter: Effect.Effect<LogWriter, LogFileError> = Effect.suspend(() => {
    if (writer !== undefined) return Effect.succeed(writer)
    return files.openWriter(path).pipe(
      Effect.tap((opened) =>
        Effect.sync(() => {
          writer = opened
        })
      ),
      Scope.provide(scope),
      Effect.provideService(FileSystem.FileSystem, fs)
    )
  })

  const cut = Effect.suspend(() =>
    torn
      ? Effect.map(Effect.flatMap(openWriter, (writer) => writer.truncate(index.size)), () => {
        torn = false
      })
      : Effect.void
  )
  const cutBack = Effect.ignore(cut)

  const write = Effect.fnUntraced(function*(bytes: Uint8Array) {
    const file = yield* Effect.result(Effect.andThen(cut, openWriter))
    if (Result.isFailure(file)) return { written: 0, error: file.failure }
    const outcome = yield* writeFully(file.success, bytes)
    torn = outcome.error !== undefined
    return outcome
  })

  const sync = Effect.tapError(
    Effect.flatMap(openWriter, (writer) => writer.sync),
    () =>
      Effect.sync(() => {
        torn = true
      })
  )

  const writeSynced = Effect.fnUntraced(function*(bytes: Uint8Array): Effect.fn.Return<void, NotWritten> {
    if (repair !== undefined) {
      writer = yield* Effect.mapError(repair(bytes), (error): NotWritten => ({ step: "write", error }))
      repair = undefined
      torn = false
      return
    }
    const { error } = yield* write(bytes)
    if (error !== undefined) return yield* Effect.fail<NotWritten>({ step: "write", error })
    yield* Effect.mapError(sync, (error): NotWritten => ({ step: "sync", error }))
  }, Effect.tapError(() => cutBack))

  const keepReserve = Effect.fnUntraced(
    function*(path: string) {
      if (yield* fs.exists(path)) return
      yield* files.create(path).pipe(
        Effect.flatMap((file) => Effect.andThen(writeWhole(file, new Uint8Array(reserveBytes)), file.sync)),
        Effect.onError(() => Effect.ignore(fs.remove(path)))
      )
    },
    Effect.scoped,
    Effect.provideService(FileSystem.FileSystem, fs)
  )

  return {
    write,
    sync,
    cutBack,
    writeSynced,
    keepReserve: reserve === undefined ? Effect.void : Effect.ignore(keepReserve(reserve)),
    freeReserve: reserve === undefined
      ? Effect.void
      : Effect.ignore(fs.remove(reserve, { recursive: true, force: true }))
  }
})
