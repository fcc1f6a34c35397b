/**
 * Opening a turn's file: created, or as an earlier bridge left it.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FileSystem from "effect/FileSystem"
import * as Scope from "effect/Scope"
import { fromPlatformError, LogFile, type LogFileError, type LogReader, type LogWriter } from "../LogFile.ts"
import type { CreateOptions, OpenOptions, TurnHeader, TurnLog } from "../TurnLog.ts"
import * as TurnUsage from "../TurnUsage.ts"
import { readFully, writeWhole } from "./fileBytes.ts"
import { LineIndex } from "./lineIndex.ts"
import { LogLimits } from "./logLimits.ts"
import { format, headerLine, LogScan } from "./logLine.ts"
import { LogView, toUnavailable } from "./logRead.ts"
import * as LogWrite from "./logWrite.ts"

const encoder = new TextEncoder()
const newline = 10
const defaultMaxTurnBytes = 1024 * 1024 * 1024

// No line is nearly as long. Zeros that a power cut left may be.
const longestLine = 64 * 1024 * 1024

/**
 * Takes the whole lines that the file has after `scan.index.size`; returns whether bytes follow the last of them.
 */
export const scanFile = Effect.fnUntraced(function*(
  reader: LogReader,
  scan: LogScan,
  sliceBytes: number
): Effect.fn.Return<boolean, LogFileError> {
  let length = sliceBytes
  while (scan.damage === undefined && scan.newerFormat === undefined) {
    const buffer = new Uint8Array(length)
    const count = yield* readFully(reader, buffer, scan.index.size)
    const end = buffer.subarray(0, count).lastIndexOf(newline) + 1
    if (end > 0) scan.add(buffer.subarray(0, end))
    if (count < length) return end < count
    if (end === 0 && length >= longestLine) scan.damage = "a line without an end"
    length = end > 0 ? sliceBytes : length * 2
    // Others have their turn between slices.
    yield* Effect.yieldNow
  }
  return false
})

// Also a directory.
const whateverIsThere = { recursive: true, force: true } as const

const directoryOf = (path: string) => path.slice(0, path.lastIndexOf("/"))

/** Creates the file of a new turn; an unnamed one of that path is replaced. */
export const create = Effect.fnUntraced(function*(
  options: CreateOptions
): Effect.fn.Return<TurnLog, Bridge.LogUnavailable, FileSystem.FileSystem | Scope.Scope> {
  const { header, path } = options
  const fs = yield* FileSystem.FileSystem
  const files = yield* LogFile
  const bytes = encoder.encode(`${headerLine(header)}\n`)
  const { reader, writer } = yield* Effect.gen(function*() {
    yield* Effect.ignore(fs.remove(path, whateverIsThere))
    const writer = yield* files.create(path)
    yield* writeWhole(writer, bytes)
    yield* writer.sync
    yield* files.syncDirectory(directoryOf(path))
    return { writer, reader: yield* files.openReader(path) }
  }).pipe(
    Effect.onError(() => Effect.ignore(fs.remove(path))),
    Effect.mapError(toUnavailable)
  )
  const index = new LineIndex()
  index.begin(1)
  index.size = bytes.length
  return yield* LogWrite.make({
    path,
    sync: options.sync ?? false,
    maxTurnBytes: options.maxTurnBytes ?? defaultMaxTurnBytes,
    reserve: options.reserve,
    header,
    view: new LogView(header.turn, index, yield* LogLimits, reader),
    usage: TurnUsage.make(),
    writer,
    torn: false,
    missingEnd: undefined,
    repair: undefined
  })
})

/** Opens a file as its bridge left it; the caller holds the session's lock. */
export const open = Effect.fnUntraced(function*(
  options: OpenOptions
): Effect.fn.Return<TurnLog, Bridge.LogUnavailable | Bridge.UnsupportedFormat, FileSystem.FileSystem | Scope.Scope> {
  const { known, path, turn } = options
  const files = yield* LogFile
  const limits = yield* LogLimits

  const scan = new LogScan()
  const found = yield* Effect.catchIf(
    files.openReader(path),
    (error) => error.kind === "not-found",
    () => Effect.undefined
  ).pipe(Effect.mapError(toUnavailable))
  const reader = found ?? emptyReader
  const torn = yield* Effect.mapError(scanFile(reader, scan, limits.scanBytes), toUnavailable)
  if (scan.newerFormat !== undefined) {
    return yield* new Bridge.UnsupportedFormat({ found: scan.newerFormat, known: format })
  }

  // Without a readable header of this turn nothing of the file counts; the prompt's digest is lost with it.
  const isReadable = scan.header?.turn === turn
  const header: TurnHeader = isReadable ? scan.header! : { format, turn, prompt: "", startedAt: 0 }
  const { end, index, usage } = isReadable ? scan : emptyScan(header)
  const isDamaged = scan.damage !== undefined || !isReadable
  const attempt = Math.max(index.attempt.attempt, known.attempt)

  // Where the last line is an end, nothing is missing, unless the session's file knows of an attempt after it.
  const isEnded = end !== undefined && (end.value.end.type !== "aborted" || end.value.attempt === attempt)
  const missingEnd: Bridge.EndLine | undefined = isEnded ? undefined : {
    end: isDamaged
      ? { type: "aborted", reason: "log-damaged", usage: { ...usage.total({}), measured: false } }
      // One that couldn't be written when it came.
      : (known.attempt === attempt ? known.end : undefined) ??
        { type: "aborted", reason: "bridge-died", usage: usage.total({}) },
    attempt,
    next: index.count + 1
  }

  const view = new LogView(turn, index, limits, reader)
  view.end = end
  return yield* LogWrite.make({
    path,
    sync: options.sync ?? false,
    maxTurnBytes: options.maxTurnBytes ?? defaultMaxTurnBytes,
    reserve: options.reserve,
    header,
    view,
    usage,
    writer: undefined,
    torn,
    missingEnd,
    repair: isDamaged
      ? yield* makeRepair({
        path,
        damaged: found === undefined ? undefined : options.damaged ?? `${directoryOf(path)}/damaged`,
        header: isReadable ? undefined : header,
        view
      })
      : undefined
  })
})

const emptyReader: LogReader = { read: () => Effect.succeed(0), stat: Effect.succeed({ size: 0, inode: undefined }) }

const emptyScan = (header: TurnHeader): LogScan => {
  const scan = new LogScan()
  scan.add(encoder.encode(`${headerLine(header)}\n`))
  return scan
}

/**
 * A file in the place of the damaged one, with what's good of that and some bytes after it; it's whole before it gets
 * the name. The damaged one goes to `damaged`.
 */
const makeRepair = Effect.fnUntraced(function*(options: {
  readonly path: string
  readonly damaged: string | undefined
  /** Set where nothing of the file is good. */
  readonly header: TurnHeader | undefined
  readonly view: LogView
}) {
  const { damaged, header, path, view } = options
  const fs = yield* FileSystem.FileSystem
  const files = yield* LogFile
  const scope = yield* Effect.scope
  const size = view.index.size
  const temporary = `${path}.repair`
  const keepAside = damaged === undefined ? Effect.void : Effect.andThen(
    Effect.ignore(fs.remove(damaged, whateverIsThere)),
    Effect.catch(fs.link(path, damaged), () => fs.copyFile(path, damaged))
  )

  return Effect.fnUntraced(function*(bytes: Uint8Array): Effect.fn.Return<LogWriter, LogFileError> {
    const opened = yield* Scope.fork(scope)
    return yield* Effect.gen(function*() {
      yield* Effect.ignore(fs.remove(temporary, whateverIsThere))
      const writer = yield* files.create(temporary)
      if (header !== undefined) {
        yield* writeWhole(writer, encoder.encode(`${headerLine(header)}\n`))
      } else {
        for (let offset = 0; offset < size; offset += view.limits.scanBytes) {
          const slice = new Uint8Array(Math.min(view.limits.scanBytes, size - offset))
          yield* readFully(view.reader, slice, offset)
          yield* writeWhole(writer, slice)
          yield* Effect.yieldNow
        }
      }
      yield* writeWhole(writer, bytes)
      yield* writer.sync
      const reader = yield* files.openReader(temporary)
      yield* keepAside
      yield* fs.rename(temporary, path)
      yield* files.syncDirectory(directoryOf(path))
      view.reader = reader
      return writer
    }).pipe(
      Effect.provideService(FileSystem.FileSystem, fs),
      Scope.provide(opened),
      Effect.onError((cause) =>
        Effect.andThen(Scope.close(opened, Exit.failCause(cause)), Effect.ignore(fs.remove(temporary)))
      ),
      Effect.mapError((error) => error._tag === "LogFileError" ? error : fromPlatformError(error))
    )
  })
})
