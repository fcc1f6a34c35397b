/**
 * Reading a turn's file: from memory's tail where it reaches, otherwise in slices from the file.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Arr from "effect/Array"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Pull from "effect/Pull"
import * as Stream from "effect/Stream"
import type { LogFileError, LogReader } from "../LogFile.ts"
import type { ReadEvent } from "../TurnLog.ts"
import { readFully } from "./fileBytes.ts"
import type { LineIndex, LineRange } from "./lineIndex.ts"
import type { LineTail } from "./lineTail.ts"
import type { LogLimits } from "./logLimits.ts"

/** What readers see of a turn: nothing that isn't written. */
export class LogView {
  readonly turn: Bridge.TurnId
  readonly index: LineIndex
  readonly limits: LogLimits
  reader: LogReader
  tail: LineTail | undefined
  /** The last attempt's end, if it has ended. */
  end: { readonly line: string; readonly value: Bridge.EndLine } | undefined
  /** Why readers get no end where they wait for one. */
  unavailable: string | undefined
  private changes = Deferred.makeUnsafe<void>()

  constructor(turn: Bridge.TurnId, index: LineIndex, limits: LogLimits, reader: LogReader) {
    this.turn = turn
    this.index = index
    this.limits = limits
    this.reader = reader
  }

  /** Waits for the first `notify` after this was called, however late it's run. */
  changed(): Effect.Effect<void> {
    return Deferred.await(this.changes)
  }

  notify(): void {
    const changes = this.changes
    this.changes = Deferred.makeUnsafe()
    Deferred.doneUnsafe(changes, Exit.void)
  }
}

/** The problem of a file as readers and callers are told it. */
export const toUnavailable = (error: LogFileError): Bridge.LogUnavailable =>
  new Bridge.LogUnavailable({ problem: error.problem })

/** Whether, and from where else, a reader can read on from a number. */
export const check = (
  view: LogView,
  from: number,
  attempt: number | undefined
): Bridge.PartNotFound | Bridge.TurnDamaged | undefined => {
  const { end, index, turn } = view
  const next = index.count + 1
  const end_ = end?.value.end
  if (from > next && end_?.type === "aborted" && end_.reason === "log-damaged") {
    return new Bridge.TurnDamaged({ turn, readable: index.count })
  }
  if (attempt !== undefined && from > 1) {
    const found = from <= next ? index.attempts[index.attemptOf(from - 1)]!.attempt : undefined
    if (found !== attempt) {
      const later = index.attempts.find((other) => other.attempt > attempt)
      return new Bridge.PartNotFound({ turn, next: later?.first ?? next })
    }
  }
  return from > next ? new Bridge.PartNotFound({ turn, next }) : undefined
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
const comma = 44

const readLines = (view: LogView, range: LineRange): Effect.Effect<string, Bridge.LogUnavailable> =>
  Effect.suspend(() => {
    const buffer = new Uint8Array(range.bytes)
    return Effect.flatMap(readFully(view.reader, buffer, range.start), (count) => {
      if (count < range.bytes) return Effect.fail(new Bridge.LogUnavailable({ problem: "the turn's file was cut" }))
      for (let i = 1; i < range.count; i++) buffer[view.index.start(range.first + i) - range.start - 1] = comma
      return Effect.succeed(decoder.decode(buffer))
    }).pipe(Effect.mapError((error) => error._tag === "LogFileError" ? toUnavailable(error) : error))
  })

const batch = ({ attempt, bytes, count, first }: LineRange, lines: string): Arr.NonEmptyReadonlyArray<ReadEvent> =>
  Arr.of({ _tag: "Batch", attempt, first, count, lines, bytes })

/** Where a reader is. */
export interface Cursor {
  next: number
  /** The attempt of the part before `next`, as far as this reader knows it. */
  attempt: number | undefined
}

/**
 * Batches, then the last attempt's end line. `wait` gives, as things stand when it's called, an effect that returns
 * when there may be more. A reader that isn't pulled holds nothing.
 */
export const pull = <E, R>(
  view: LogView,
  cursor: Cursor,
  wait: () => Effect.Effect<void, E, R>
): Pull.Pull<Arr.NonEmptyReadonlyArray<ReadEvent>, E | Bridge.LogUnavailable, void, R> => {
  let done = false
  const more = Effect.suspend(
    (): Pull.Pull<Arr.NonEmptyReadonlyArray<ReadEvent>, E | Bridge.LogUnavailable, void, R> => {
      if (done) return Cause.done()
      if (cursor.next <= view.index.count) {
        const range = view.index.range(cursor.next, view.limits.batchParts, view.limits.batchBytes)
        const lines = view.tail?.join(range)
        cursor.next += range.count
        cursor.attempt = range.attempt
        return lines === undefined
          ? Effect.map(readLines(view, range), (text) => batch(range, text))
          : Effect.succeed(batch(range, lines))
      }
      if (view.end !== undefined) {
        done = true
        return Effect.succeed(Arr.of<ReadEvent>({ _tag: "End", line: view.end.line }))
      }
      if (view.unavailable !== undefined) {
        return Effect.fail(new Bridge.LogUnavailable({ problem: view.unavailable }))
      }
      return Effect.flatMap(wait(), () => more)
    }
  )
  return more
}

/** Reads a turn that this bridge writes. */
export const read = (
  view: LogView,
  options: { readonly from: number; readonly attempt?: number | undefined }
): Stream.Stream<ReadEvent, Bridge.PartNotFound | Bridge.TurnDamaged | Bridge.LogUnavailable> =>
  Stream.fromPull(Effect.suspend(() => {
    const problem = check(view, options.from, options.attempt)
    return problem === undefined
      ? Effect.succeed(pull(view, { next: options.from, attempt: options.attempt }, () => view.changed()))
      : Effect.fail(problem)
  }))

const parseLines = (lines: string): Arr.NonEmptyReadonlyArray<Bridge.NumberedPart> => JSON.parse(`[${lines}]`)

/** The parts there are, fragments put together, void ones left out. */
export const parts = (view: LogView): Stream.Stream<Bridge.NumberedPart, Bridge.LogUnavailable> =>
  Stream.suspend(() => {
    const { attempts, count } = view.index
    const last = attempts.length
    const isVoid = (n: number) => {
      for (let i = 0; i < last; i++) {
        const { first, keep } = attempts[i]!
        if (keep !== undefined && keep < n && n < first) return true
      }
      return false
    }
    let next = 1
    const lines = Effect.suspend(
      (): Pull.Pull<Arr.NonEmptyReadonlyArray<Bridge.NumberedPart>, Bridge.LogUnavailable> => {
        if (next > count) return Cause.done()
        const range = view.index.range(next, view.limits.batchParts, view.limits.batchBytes)
        next += range.count
        return Effect.map(readLines(view, range), parseLines)
      }
    )
    return Stream.fromPull(Effect.succeed(lines)).pipe(
      Bridge.joinFragments,
      Stream.filter(({ n }) => n <= count && !isVoid(n))
    )
  })
