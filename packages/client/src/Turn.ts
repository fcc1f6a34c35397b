/**
 * A turn, as a host holds it: its parts, its end, and the answers it waits for.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { BridgeUnavailable } from "./BridgeUnavailable.ts"

/**
 * A part with its number. A part that travelled in pieces has its first piece's number, and `last` is that of its last
 * piece: reading on after it begins at `last + 1`, see `nextNumber`.
 *
 * @category models
 * @since 0.1.0
 */
export interface TurnPart extends Bridge.NumberedPart {
  readonly last?: number | undefined
}

/**
 * What is done when the bridge of a turn dies, or hands the turn over to a newer one.
 *
 * @category models
 * @since 0.1.0
 */
export interface Policy {
  /**
   * - `continue` launches the bridge again, and continues the turn in its next attempt where its attempt ended as
   *   `bridge-died`, `bridge-replaced` or `shutdown`.
   * - `fail` launches nothing, so a bridge that's gone is `BridgeUnavailable`, and takes each end as the turn's end.
   *
   * By default `continue` for a turn that this host started, `fail` for one that it only reads. It's done by whatever
   * reads the turn: `parts`, `end`, `text`, or what answers the agent's calls and requests.
   */
  readonly onBridgeDeath?: "continue" | "fail" | undefined
  /** How often this host continues the turn at most: 3. After that the end is taken as it is. */
  readonly maxContinuations?: number | undefined
}

/**
 * Where to read a turn from.
 *
 * @category models
 * @since 0.1.0
 */
export interface ReadOptions {
  /**
   * The number of the first part; 1. To read on after a part that was kept, `nextNumber` of it. Inside a part that
   * travelled in pieces it begins with that part.
   */
  readonly from?: number | undefined
  /**
   * The attempt of the part before `from`, where the host knows it: that the log has another one there is then
   * `PartsLost`, as it can be after a power cut.
   */
  readonly attempt?: number | undefined
}

/**
 * A turn of a session.
 *
 * @category models
 * @since 0.1.0
 */
export interface Turn {
  readonly session: Bridge.SessionId
  readonly turn: Bridge.TurnId
  /** What `StartTurn` answered; absent in a turn that this host only reads. */
  readonly started: StartedTurn | undefined
  /**
   * Reads the parts, live, to the turn's end. A connection that's lost is made again and the stream goes on with the
   * next number, so each part comes exactly once, in order; where that can't be, it fails with `PartsLost`. May be run
   * any number of times, at once too. A `turn-continued` part says which earlier parts are void, see `counted`.
   */
  readonly parts: (options?: ReadOptions) => Stream.Stream<TurnPart, ReadError>
  /** Waits for the turn's end: reads what no other read of this turn has read. */
  readonly end: Effect.Effect<Bridge.End, ReadError>
  /**
   * As `end`, with the number of the attempt that ended so, and in `next` the one that a further part would have had: one
   * more than the turn has parts.
   */
  readonly endLine: Effect.Effect<Bridge.EndLine, ReadError>
  /** Waits for the turn's end, whatever it is, and gives the agent's text, its blocks separated by empty lines. */
  readonly text: Effect.Effect<string, ReadError>
  /** Ends the turn. It isn't continued by this host then. */
  readonly abort: (options?: {
    /** Only this attempt; whichever runs. */
    readonly attempt?: number | undefined
    /** For people; recorded in the end. */
    readonly reason?: string | undefined
  }) => Effect.Effect<Rpc.Success<typeof Bridge.AbortTurn>, AbortError>
  /**
   * Sends a message into the running turn, and says how it's delivered. Its id is a random one unless it's given; a
   * host that may send it again after it died gives one: a repeat is answered as the first call was.
   */
  readonly send: (
    prompt: string | Bridge.Prompt,
    options?: {
      readonly messageId?: Bridge.MessageId | undefined
      /** `steer` by default where the agent can be steered, otherwise `queue`. */
      readonly delivery?: Bridge.Delivery | undefined
    }
  ) => Effect.Effect<Bridge.Delivery, SendError>
  /** Decides on a `tool-approval-request`. */
  readonly approve: (approval: Approval & { readonly approvalId: string }) => Effect.Effect<void, ApproveError>
  /** Answers a `question` by its `questionId`, or a tool call by its `id`. */
  readonly answer: (answer: {
    readonly id: string
    readonly result: Schema.Json
    /** Whether the tool failed, or nobody answered; false. */
    readonly isFailure?: boolean | undefined
  }) => Effect.Effect<void, AnswerError>
}

/**
 * What `StartTurn` answered.
 *
 * @category models
 * @since 0.1.0
 */
export type StartedTurn = Rpc.Success<typeof Bridge.StartTurn>

/**
 * A decision on an approval request.
 *
 * @category models
 * @since 0.1.0
 */
export interface Approval {
  readonly decision: Bridge.Decision
  /** Told to the agent where the decision is `deny`. */
  readonly reason?: string | undefined
}

/**
 * Parts that this host had, or was to read, are gone: of a turn whose successor came, by a power cut, or by a fault.
 *
 * @remedy Read on from `next` where it's given, and take what came before for lost; with `end`, the turn is over and
 *   nothing is left to read.
 * @category errors
 * @since 0.1.0
 */
export class PartsLost extends Data.TaggedError("PartsLost")<{
  readonly turn: Bridge.TurnId
  /** The number that was to come. */
  readonly expected: number
  /** The number from which on the log can be read, where it's known. */
  readonly next?: number | undefined
  /** How the turn ended, where it has and its parts are gone. */
  readonly end?: Bridge.End | undefined
  readonly problem: string
}> {
  override get message() {
    return `Turn ${this.turn}: parts from number ${this.expected} on are lost: ${this.problem}.`
  }
}

/**
 * The turn's bridge died, and the turn couldn't be continued.
 *
 * @remedy By its `reason`, an error of this page. `end` says how the last attempt ended; the turn can be continued
 *   once what stood in the way is gone.
 * @category errors
 * @since 0.1.0
 */
export class ContinueFailed extends Data.TaggedError("ContinueFailed")<{
  readonly turn: Bridge.TurnId
  /** How the last attempt ended. */
  readonly end: Bridge.End
  readonly reason: StartTurnError | StartSessionError
}> {
  override get message() {
    return `Turn ${this.turn} can't be continued: ${this.reason.message}`
  }
}

/**
 * Why a turn can't be read.
 *
 * @category errors
 * @since 0.1.0
 */
export type ReadError =
  | PartsLost
  | ContinueFailed
  | Bridge.SessionNotFound
  | Bridge.TurnNotFound
  | Bridge.TurnDamaged
  | Bridge.UnsupportedFormat
  | Bridge.TooManyStreams
  | Bridge.LogUnavailable
  | BridgeUnavailable

type CommandError<R> = Exclude<Rpc.Error<R>, Bridge.Replaced | Bridge.Closing> | BridgeUnavailable

/** @category errors @since 0.1.0 */
export type StartSessionError = CommandError<typeof Bridge.StartSession>

/** @category errors @since 0.1.0 */
export type StartTurnError = CommandError<typeof Bridge.StartTurn>

/** @category errors @since 0.1.0 */
export type AbortError = CommandError<typeof Bridge.AbortTurn>

/** @category errors @since 0.1.0 */
export type ApproveError = CommandError<typeof Bridge.Approve>

/** @category errors @since 0.1.0 */
export type SendError = CommandError<typeof Bridge.SendMessage>

/** @category errors @since 0.1.0 */
export type AnswerError = CommandError<typeof Bridge.SubmitToolResult>

/**
 * The number to read on from after a part.
 *
 * @category getters
 * @since 0.1.0
 */
export const nextNumber = (part: TurnPart): number => (part.last ?? part.n) + 1

/**
 * The parts that count: those that a later `turn-continued` voids are left out, and so is that part itself.
 *
 * @category filtering
 * @since 0.1.0
 */
export const counted = <A extends Bridge.NumberedPart>(parts: ReadonlyArray<A>): Array<A> => {
  const out: Array<A> = []
  for (const part of parts) {
    if (part.part.type === "turn-continued") {
      const { keep } = part.part
      while (out.length > 0 && out[out.length - 1]!.n > keep) out.pop()
    } else {
      out.push(part)
    }
  }
  return out
}

/**
 * Reads parts to the turn's end, and gives those that count.
 *
 * @category destructors
 * @since 0.1.0
 */
export const collect = <A extends Bridge.NumberedPart, E, R>(
  parts: Stream.Stream<A, E, R>
): Effect.Effect<Array<A>, E, R> => Effect.map(Stream.runCollect(parts), counted)

/**
 * The agent's text in parts that count, its blocks separated by empty lines. What sub-agents say is left out.
 *
 * @category destructors
 * @since 0.1.0
 */
export const toText = (parts: ReadonlyArray<Bridge.NumberedPart>): string => {
  const blocks: Array<string> = []
  for (const { part } of counted(parts)) {
    if (part.type === "text-start") {
      if (part.parent === undefined) blocks.push("")
    } else if (part.type === "text-delta") {
      const { delta, parent } = part
      if (parent === undefined) blocks.push(`${blocks.pop() ?? ""}${delta}`)
    }
  }
  return blocks.filter((block) => block !== "").join("\n\n")
}
