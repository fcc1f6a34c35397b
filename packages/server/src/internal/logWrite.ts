/**
 * Writing a turn's file: one writer, one write a batch, visible once it's written.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Latch from "effect/Latch"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import type { TurnHeader, TurnLog, WriteFailure } from "../TurnLog.ts"
import type { TurnUsage } from "../TurnUsage.ts"
import { LineTail } from "./lineTail.ts"
import * as LogDisk from "./logDisk.ts"
import { encodePart, endLine, partLine } from "./logLine.ts"
import { type LogView, parts, read, toUnavailable } from "./logRead.ts"

export interface Options extends Omit<LogDisk.Options, "index"> {
  readonly sync: boolean
  readonly maxTurnBytes: number
  readonly header: TurnHeader
  readonly view: LogView
  readonly usage: TurnUsage
  /** The end that the file must get before anybody reads it. */
  readonly missingEnd: Bridge.EndLine | undefined
}

interface Batch {
  readonly lines: Array<string>
  /** UTF-16 units. */
  length: number
  sync: boolean
}

const encoder = new TextEncoder()
const newline = 10

/** Opens the log of a file whose lines are known. */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<TurnLog, never, FileSystem.FileSystem | Scope.Scope> {
  const { header, usage, view } = options
  const { index, limits } = view
  const disk = yield* LogDisk.make({ ...options, index })

  // One writes at a time: the flusher, or whoever waits for the disk.
  const lock = Semaphore.makeUnsafe(1)
  const work = Latch.makeUnsafe(false)
  const tail = new LineTail(index.count + 1, limits.tailParts, limits.tailBytes)
  view.tail = tail

  // The next part's number, and what waits to be written.
  let next = index.count + 1
  let batches: Array<Batch> = []
  let pending = 0
  let accepting = options.missingEnd === undefined && view.end === undefined
  // An end that is told, but isn't in the file.
  let unwritten: Bridge.EndLine | undefined
  let failure: WriteFailure | undefined
  let failed = Deferred.makeUnsafe<WriteFailure>()

  // ---------------------------------------------------------------------------
  // Parts
  // ---------------------------------------------------------------------------

  const enqueue = (line: string) => {
    let batch = batches[batches.length - 1]
    if (batch === undefined || batch.length + line.length > limits.write) {
      batch = { lines: [], length: 0, sync: options.sync }
      batches.push(batch)
    }
    batch.lines.push(line)
    batch.length += line.length
    pending += line.length
    next++
    return batch
  }

  const isTooLong = (line: string) =>
    line.length * 3 > limits.lineBytes &&
    (line.length > limits.lineBytes || encoder.encode(line).length > limits.lineBytes)

  /** Numbers the part's lines; they're written with the last one's batch at the latest. */
  const push = (
    part: Bridge.Part
  ): { readonly n: number; readonly last: number; readonly batch: Batch } | undefined => {
    if (!accepting) return undefined
    const n = next
    const json = encodePart(part)
    const line = partLine(n, json)
    usage.add(part)
    if (!isTooLong(line)) return { n, last: n, batch: enqueue(line) }
    let batch: Batch
    for (const fragment of Bridge.splitPart(json, n, limits.lineBytes)) {
      batch = enqueue(partLine(next, JSON.stringify(fragment)))
    }
    return { n, last: next - 1, batch: batch! }
  }

  const fail = (kind: WriteFailure["kind"], problem: string) => {
    if (failure !== undefined) return
    failure = { kind, problem }
    accepting = false
    batches = []
    pending = 0
    next = index.count + 1
    Deferred.doneUnsafe(failed, Effect.succeed(failure))
  }

  /** The first lines of a batch are in the file. */
  const publish = (lines: ReadonlyArray<string>, ends: ReadonlyArray<number>, count: number) => {
    const start = index.size
    for (let i = 0; i < count; i++) {
      tail.push(lines[i]!, ends[i]! - (i === 0 ? 0 : ends[i - 1]!) - 1)
      index.push(start + ends[i]!)
    }
  }

  const writeBatch = Effect.fnUntraced(function*({ length, lines, sync }: Batch) {
    const bytes = encoder.encode(`${lines.join("\n")}\n`)
    const ends = lineEnds(lines, bytes)
    const fits = countUpTo(ends, options.maxTurnBytes - limits.endBytes - index.size)
    const { error, written } = yield* disk.write(fits === ends.length ? bytes : bytes.subarray(0, ends[fits - 1] ?? 0))
    // A reader without the lock may have seen every whole line: they stay.
    let whole = error === undefined ? fits : countUpTo(ends, written)
    let problem = error
    if (problem === undefined && sync) {
      const synced = yield* Effect.result(disk.sync)
      if (Result.isFailure(synced)) {
        // The system may have dropped what it couldn't write: nothing of it may be read.
        whole = 0
        problem = synced.failure
      }
    }
    publish(lines, ends, whole)
    pending -= length
    if (problem !== undefined) {
      fail(problem.kind === "disk-full" ? "disk-full" : "unknown", problem.problem)
      yield* disk.cutBack
    } else if (fits < ends.length) {
      fail("log-full", `the turn's file has reached ${options.maxTurnBytes} bytes`)
    }
    view.notify()
  })

  /** Writes all that is pending; the lock is held. */
  const flush = Effect.gen(function*() {
    for (let batch = batches.shift(); batch !== undefined; batch = batches.shift()) yield* writeBatch(batch)
  })

  const locked = <A, E>(effect: Effect.Effect<A, E>) => Effect.uninterruptible(lock.withPermit(effect))

  const append = (part: Bridge.Part): Effect.Effect<number> =>
    Effect.suspend(() => {
      if (pending >= limits.pending) return Effect.flatMap(view.changed(), () => append(part))
      const pushed = push(part)
      if (pushed === undefined) return Effect.succeed(next)
      work.openUnsafe()
      return Effect.succeed(pushed.n)
    })

  const appendSynced = Effect.fnUntraced(function*(part: Bridge.Part) {
    const pushed = push(part)
    if (pushed !== undefined) {
      pushed.batch.sync = true
      yield* lock.withPermit(flush)
      if (pushed.last <= index.count) return pushed.n
    }
    return yield* new Bridge.LogUnavailable({ problem: failure?.problem ?? "no attempt of the turn runs" })
  }, Effect.uninterruptible)

  // ---------------------------------------------------------------------------
  // Attempts
  // ---------------------------------------------------------------------------

  const writeEnd = Effect.fnUntraced(function*(value: Bridge.EndLine): Effect.fn.Return<void, LogDisk.NotWritten> {
    const line = endLine(value)
    const bytes = encoder.encode(`${line}\n`)
    yield* disk.writeSynced(bytes)
    index.pushEnd(index.size + bytes.length)
    view.end = { line, value }
    view.unavailable = undefined
    unwritten = undefined
  })

  /** Writes the end, with the reserve freed if it must be; answers what was written. */
  const conclude = Effect.fnUntraced(function*(
    value: Bridge.EndLine
  ): Effect.fn.Return<Bridge.EndLine, Bridge.LogUnavailable> {
    const first = yield* Effect.result(writeEnd(value))
    if (Result.isSuccess(first)) return value
    const { error, step } = first.failure
    fail(error.kind === "disk-full" ? "disk-full" : "unknown", error.problem)
    yield* disk.freeReserve
    // A sync isn't tried again: what it was for may be lost, and the turn has failed.
    const second = step === "sync" ? { ...value, end: toFailed(value.end, failure!) } : value
    yield* Effect.mapError(writeEnd(second), ({ error }) => toUnavailable(error))
    return second
  })

  /** Tells an end that the file is still to get. */
  const tell = (value: Bridge.EndLine) => {
    unwritten = value
    view.end = { line: endLine(value), value }
  }

  const end = Effect.fnUntraced(function*(end: Bridge.End): Effect.fn.Return<Bridge.EndLine, Bridge.LogUnavailable> {
    if (view.end !== undefined) return view.end.value
    accepting = false
    yield* flush
    const lost = failure !== undefined && end.type === "finished"
    return yield* conclude({
      end: lost ? toFailed(end, failure!) : end,
      attempt: index.attempt.attempt,
      next: index.count + 1
    }).pipe(
      Effect.tapError((error) =>
        Effect.sync(() => {
          view.unavailable = error.problem
        })
      ),
      Effect.ensuring(Effect.sync(() => view.notify()))
    )
  })

  const beginAttempt = Effect.fnUntraced(function*(
    { attempt, keep }: { readonly attempt: number; readonly keep: number }
  ): Effect.fn.Return<number, Bridge.LogUnavailable> {
    if (view.end === undefined || attempt <= index.attempt.attempt) {
      return yield* Effect.die(`attempt ${attempt} can't follow`)
    }
    if (unwritten !== undefined) yield* Effect.mapError(writeEnd(unwritten), ({ error }) => toUnavailable(error))
    const part: Bridge.Part = { type: "turn-continued", attempt, keep }
    const n = index.count + 1
    const line = partLine(n, encodePart(part))
    const bytes = encoder.encode(`${line}\n`)
    yield* Effect.mapError(disk.writeSynced(bytes), ({ error }) => toUnavailable(error))
    index.begin(attempt, keep)
    publish([line], [bytes.length], 1)
    usage.add(part)
    view.end = undefined
    next = n + 1
    accepting = true
    failure = undefined
    failed = Deferred.makeUnsafe()
    view.notify()
    yield* disk.keepReserve
    return n
  })

  // ---------------------------------------------------------------------------
  // The log
  // ---------------------------------------------------------------------------

  const { missingEnd } = options
  if (missingEnd !== undefined) {
    if (missingEnd.attempt > index.attempt.attempt) index.begin(missingEnd.attempt)
    yield* Effect.uninterruptible(Effect.catch(conclude(missingEnd), () => Effect.sync(() => tell(missingEnd))))
  }
  if (accepting) yield* disk.keepReserve

  yield* Effect.addFinalizer(() =>
    locked(Effect.andThen(
      flush,
      Effect.sync(() => {
        accepting = false
        view.unavailable = "the turn's file was closed"
        view.notify()
      })
    ))
  )
  // An open latch resumes at once: yielding lets what comes in the same tick into the batch.
  const flusher = Effect.flatMap(Effect.andThen(work.await, Effect.yieldNow), () => {
    work.closeUnsafe()
    return locked(flush)
  })
  yield* Effect.forkScoped(Effect.forever(flusher, { disableYield: true }))

  return {
    turn: header.turn,
    header,
    status: Effect.sync(() => ({
      attempt: index.attempt.attempt,
      from: index.attempt.first,
      next,
      end: view.end?.value.end,
      usage: usage.total({}),
      begun: usage.begun()
    })),
    append,
    appendSynced,
    beginAttempt: (options) => locked(beginAttempt(options)),
    end: (value) => locked(end(value)),
    failure: Effect.suspend(() => Deferred.await(failed)),
    read: (options) => read(view, options),
    parts: parts(view)
  }
})

/** Where each line ends, newline included, from the first one's start. */
const lineEnds = (lines: ReadonlyArray<string>, bytes: Uint8Array): ReadonlyArray<number> => {
  const ends: Array<number> = []
  let end = 0
  for (const line of lines) {
    // Where a line isn't ASCII, its newline has to be looked for.
    end += line.length
    end = (bytes[end] === newline ? end : bytes.indexOf(newline, end)) + 1
    ends.push(end)
  }
  return ends
}

/** How many of the ascending values are at most `limit`. */
const countUpTo = (ends: ReadonlyArray<number>, limit: number): number => {
  let count = ends.length
  while (count > 0 && ends[count - 1]! > limit) count--
  return count
}

const toFailed = ({ usage }: Bridge.End, { kind, problem }: WriteFailure): Bridge.End => ({
  type: "failed",
  error: { kind, message: problem },
  usage
})
