/**
 * What hosts saw of a turn.
 */
import type { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"

export class Observed {
  /** Chunks of reads by hosts without a client, as they came. */
  readonly frames: Array<string> = []
  /** What reads of the client gave: each is one stream, from its first element on. */
  readonly streams: Array<Array<Turn.TurnPart>> = []
  /** Ends, by whoever saw them. */
  readonly ends: Array<Bridge.EndLine> = []
  /** Answers that a bridge accepted. */
  readonly accepted: Array<string> = []
  /** What `StartTurn` answered. */
  readonly started: Array<{ readonly attempt: number; readonly from: number; readonly status: string }> = []
  /** The highest number that any host has read. */
  highest = 0
}
