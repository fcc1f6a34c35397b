/**
 * Reading a turn's file that another bridge writes.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { LogFile } from "../LogFile.ts"
import type { FollowOptions, ReadEvent, ReadOn } from "../TurnLog.ts"
import { LogLimits } from "./logLimits.ts"
import { format, LogScan } from "./logLine.ts"
import { scanFile } from "./logOpen.ts"
import { check, type Cursor, LogView, pull, toUnavailable } from "./logRead.ts"

const pollInterval = Duration.millis(50)
// The lock is tried each second.
const pollsPerTry = 20

type ReadError = Bridge.PartNotFound | Bridge.TurnDamaged | Bridge.LogUnavailable | Bridge.UnsupportedFormat

export const follow = <E, R>(
  options: FollowOptions<E, R>
): Stream.Stream<ReadEvent, ReadError | E, FileSystem.FileSystem | R> =>
  Stream.suspend(() => {
    const cursor: Cursor = { next: options.from, attempt: options.attempt }
    // What comes after this file, which isn't the turn's any more, or is this bridge's now.
    let then: ReadOn<E> | "again" | undefined
    return Stream.concat(
      Stream.unwrap(followFile(options, cursor, (next) => {
        then = next
      })),
      Stream.suspend((): Stream.Stream<ReadEvent, ReadError | E, FileSystem.FileSystem | R> => {
        const rest = { from: cursor.next, attempt: cursor.attempt }
        if (then === undefined) return Stream.empty
        return then === "again" ? follow({ ...options, ...rest }) : then(rest)
      })
    )
  })

const followFile = Effect.fnUntraced(function*<E, R>(
  { path, takeOver, turn }: FollowOptions<E, R>,
  cursor: Cursor,
  goOn: (then: ReadOn<E> | "again") => void
) {
  const fs = yield* FileSystem.FileSystem
  const files = yield* LogFile
  const limits = yield* LogLimits
  const reader = yield* Effect.mapError(files.openReader(path), toUnavailable)
  const { inode } = yield* Effect.mapError(reader.stat, toUnavailable)

  const scan = new LogScan()
  const view = new LogView(turn, scan.index, limits, reader)
  const scanMore = Effect.map(Effect.mapError(scanFile(reader, scan, limits.scanBytes), toUnavailable), () => {
    view.end = scan.end
  })
  const damaged = Effect.suspend(() => new Bridge.TurnDamaged({ turn, readable: scan.index.count }))

  yield* scanMore
  if (scan.newerFormat !== undefined) {
    return yield* new Bridge.UnsupportedFormat({ found: scan.newerFormat, known: format })
  }
  if (scan.damage !== undefined && cursor.next > scan.index.count + 1) return yield* damaged
  if (scan.header === undefined) return yield* new Bridge.LogUnavailable({ problem: "the turn has no file yet" })
  const problem = check(view, cursor.next, cursor.attempt)
  if (problem !== undefined) return yield* problem

  // The file that has the name now; `undefined` where none has.
  const named = fs.stat(path).pipe(
    Effect.map((info) => ({ inode: Option.getOrUndefined(info.ino) })),
    Effect.option,
    Effect.map(Option.getOrUndefined)
  )

  let polls = 0
  const poll = Effect.fnUntraced(function*() {
    // What's wrong with it is for the one who has the lock to repair.
    if (scan.damage !== undefined) return yield* damaged
    yield* Effect.sleep(pollInterval)
    const isTry = ++polls % pollsPerTry === 0
    const file = isTry ? yield* named : { inode }
    const read = isTry ? yield* takeOver : undefined
    if (read !== undefined) {
      goOn(read)
      return yield* Cause.done()
    }
    const { size } = yield* Effect.mapError(reader.stat, toUnavailable)
    if (size < scan.index.size || (file !== undefined && file.inode !== inode)) {
      goOn("again")
      return yield* Cause.done()
    }
    const before = scan.index.size
    yield* scanMore
    if (file === undefined && scan.index.size === before) {
      return yield* new Bridge.LogUnavailable({ problem: "the turn's file was removed before its end" })
    }
  })
  return Stream.fromPull(Effect.succeed(pull(view, cursor, poll)))
})
