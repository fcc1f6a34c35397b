/**
 * The file of a turn: numbered lines, written before they're sent, read by any number of readers from any number on.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type * as Effect from "effect/Effect"
import type * as Stream from "effect/Stream"

/**
 * An element of a read, as JSON text that is ready to be sent: a batch of lines of one attempt, or the end line.
 *
 * @category models
 * @since 0.1.0
 */
export type ReadEvent =
  | {
    readonly _tag: "Batch"
    readonly attempt: number
    /** The number of the first line, and how many lines there are. */
    readonly first: number
    readonly count: number
    /** The lines without newlines, joined by commas. */
    readonly lines: string
    /** The UTF-8 bytes of `lines`. */
    readonly bytes: number
  }
  | { readonly _tag: "End"; readonly line: string }

/**
 * Why a turn's file can't be written any further.
 *
 * @category models
 * @since 0.1.0
 */
export interface WriteFailure {
  readonly kind: "disk-full" | "log-full" | "unknown"
  readonly problem: string
}

/**
 * How a turn stands in its file.
 *
 * @category models
 * @since 0.1.0
 */
export interface TurnStatus {
  readonly attempt: number
  /** The number of the attempt's first part. */
  readonly from: number
  /** The number that the next part will have. */
  readonly next: number
  /** Absent while the attempt runs. */
  readonly end: Bridge.End | undefined
}

/**
 * The file of a turn, open for reading and, by the one who holds the session's lock, for writing.
 *
 * @category models
 * @since 0.1.0
 */
export interface TurnLog {
  readonly turn: Bridge.TurnId
  /** The header: digests by which a repeated StartTurn is recognised. */
  readonly header: TurnHeader
  readonly status: Effect.Effect<TurnStatus>
  /**
   * Takes a part and returns its number, before it's written; waits while 4 MiB are pending. A part that's too long
   * for a line becomes fragments. Parts after a write failure are dropped.
   */
  readonly append: (part: Bridge.Part) => Effect.Effect<number>
  /** Appends a part, and returns when it's written, synced and visible: for answers. */
  readonly appendSynced: (part: Bridge.Part) => Effect.Effect<number, Bridge.LogUnavailable>
  /** Begins the next attempt: `turn-continued`, synced. Only after an end. */
  readonly beginAttempt: (options: {
    readonly attempt: number
    readonly keep: number
  }) => Effect.Effect<number, Bridge.LogUnavailable>
  /**
   * Ends the attempt, after all that is pending; synced. After a write failure it cuts back to the last good line,
   * frees the reserve and writes the end there. Where even that fails, readers get `LogUnavailable`, and the end is
   * tried again at the next `end` and at the next open.
   */
  readonly end: (end: Bridge.End) => Effect.Effect<Bridge.EndLine, Bridge.LogUnavailable>
  /** Waits until the file can't be written any further. */
  readonly failure: Effect.Effect<WriteFailure>
  /**
   * Reads from a number on, live, to the end line of the last attempt. `attempt` is that of the part before `from` as
   * the reader has it.
   */
  readonly read: (options: {
    readonly from: number
    readonly attempt?: number | undefined
  }) => Stream.Stream<ReadEvent, Bridge.PartNotFound | Bridge.TurnDamaged | Bridge.LogUnavailable>
  /** The parts so far, fragments put together, void ones left out; for `reconcile`. */
  readonly parts: Stream.Stream<Bridge.NumberedPart, Bridge.LogUnavailable>
}

/**
 * The first line of a turn's file.
 *
 * @category models
 * @since 0.1.0
 */
export interface TurnHeader {
  readonly format: number
  readonly turn: Bridge.TurnId
  /** SHA-256 of the canonical JSON of the prompt, in hexadecimal. */
  readonly prompt: string
  /** Likewise of the response format; absent where there's none. */
  readonly responseFormat?: string | undefined
  /** When the turn was started, in milliseconds since 1970. */
  readonly startedAt: number
}
