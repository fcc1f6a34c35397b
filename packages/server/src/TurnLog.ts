/**
 * The file of a turn: numbered lines, written before they're sent, read by any number of readers from any number on.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import * as LogFollow from "./internal/logFollow.ts"
import * as LogOpen from "./internal/logOpen.ts"

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
  /** What the parts of all attempts add up to. */
  readonly usage: Bridge.Usage
  /** Whether the agent did anything, as far as the file says. */
  readonly begun: boolean
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
   * for a line becomes fragments, of which this is the first one's number. Parts after a write failure are dropped,
   * and so are those between an end and the next attempt.
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
   * tried again at the next `end` and at the next open. The answer is what was written: `failed` in the place of
   * `finished` where parts were lost, and of any end whose first sync failed. A repeat answers the first end.
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

/**
 * How a turn's file is written.
 *
 * @category options
 * @since 0.1.0
 */
export interface WriteOptions {
  /** The path of the file, in a directory that exists. */
  readonly path: string
  /** Whether each batch of parts is synced before it's visible; by default it isn't. */
  readonly sync?: boolean | undefined
  /** The largest file in bytes, of which 64 KiB are kept for the end; by default 1 GiB. */
  readonly maxTurnBytes?: number | undefined
  /** The path of a file of 64 KiB that is kept as long as there's room, and freed to write an end on a full disk. */
  readonly reserve?: string | undefined
}

/** @category options @since 0.1.0 */
export interface CreateOptions extends WriteOptions {
  readonly header: TurnHeader
}

/** @category options @since 0.1.0 */
export interface OpenOptions extends WriteOptions {
  readonly turn: Bridge.TurnId
  /**
   * What the session's file says: the log keeps this attempt where its own is lower, and gets this end where it has
   * none of that attempt.
   */
  readonly known: { readonly attempt: number; readonly end?: Bridge.End | undefined }
  /** Where a damaged file is kept, in the place of an earlier one; by default `damaged` in the file's directory. */
  readonly damaged?: string | undefined
}

/** @category options @since 0.1.0 */
export interface FollowOptions<E, R> {
  readonly path: string
  readonly turn: Bridge.TurnId
  /** As in `read`. */
  readonly from: number
  readonly attempt?: number | undefined
  /**
   * Tried each second: gets the session's lock if it's free, and answers how to read on from the log that was opened
   * then; `undefined` while another bridge has it.
   */
  readonly takeOver: Effect.Effect<ReadOn<E> | undefined, E, R>
}

/**
 * Reads a turn on, as `TurnLog.read` does; it may fail otherwise too.
 *
 * @category models
 * @since 0.1.0
 */
export type ReadOn<E> = (
  options: Parameters<TurnLog["read"]>[0]
) => Stream.Stream<ReadEvent, Bridge.PartNotFound | Bridge.TurnDamaged | Bridge.LogUnavailable | E>

/**
 * Creates the file of a new turn, mode 0600: its header and its name are on the disk when this returns. A file that
 * is there already belongs to a turn that no session's file names, and is replaced.
 *
 * @category constructors
 * @since 0.1.0
 */
export const create: (
  options: CreateOptions
) => Effect.Effect<TurnLog, Bridge.LogUnavailable, FileSystem.FileSystem | Scope.Scope> = LogOpen.create

/**
 * Opens a turn's file under the session's lock. Bytes after the last newline are cut; a turn without an end gets
 * `aborted`, `bridge-died`, before anybody reads on; a damaged file is replaced by what's readable of it, with the end
 * `log-damaged`, and kept aside; where that can't be written it's answered all the same, and written with the next
 * attempt or at the next open. A file that's missing counts as damaged from its first part on. A newer format isn't
 * touched.
 *
 * @category constructors
 * @since 0.1.0
 */
export const open: (
  options: OpenOptions
) => Effect.Effect<
  TurnLog,
  Bridge.LogUnavailable | Bridge.UnsupportedFormat,
  FileSystem.FileSystem | Scope.Scope
> = LogOpen.open

/**
 * Reads a turn that another bridge writes, from its file as it grows: whole lines only. It concludes nothing from an
 * end that's missing: once `takeOver` has the lock, it reads on from the log that was opened then.
 *
 * @category constructors
 * @since 0.1.0
 */
export const follow: <E = never, R = never>(
  options: FollowOptions<E, R>
) => Stream.Stream<
  ReadEvent,
  Bridge.PartNotFound | Bridge.TurnDamaged | Bridge.LogUnavailable | Bridge.UnsupportedFormat | E,
  FileSystem.FileSystem | R
> = LogFollow.follow
