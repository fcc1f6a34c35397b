/**
 * The sizes by which a turn's log bounds its memory and its batches; a reference, so that tests can reach them with
 * few parts.
 */
import { maxLineBytes } from "@gangway/protocol/Bridge"
import * as Context from "effect/Context"

export interface LogLimits {
  /** The longest line in bytes: a longer part is cut into fragments. */
  readonly lineBytes: number
  /** A reader's batch; a longer line goes alone. */
  readonly batchParts: number
  readonly batchBytes: number
  /** What the tail in memory keeps. */
  readonly tailParts: number
  readonly tailBytes: number
  /** What waits to be written, in UTF-16 units: above it, `append` waits. One part more than this may wait. */
  readonly pending: number
  /** One write, in UTF-16 units; a longer line is written alone. */
  readonly write: number
  /** What is read at once when a file is checked, in bytes. */
  readonly scanBytes: number
  /** What parts leave free below `maxTurnBytes` for the end. */
  readonly endBytes: number
}

export const LogLimits = Context.Reference<LogLimits>("@gangway/server/internal/LogLimits", {
  defaultValue: () => ({
    lineBytes: maxLineBytes,
    batchParts: 2048,
    batchBytes: 256 * 1024,
    tailParts: 4096,
    tailBytes: 1024 * 1024,
    pending: 4 * 1024 * 1024,
    write: 1024 * 1024,
    scanBytes: 256 * 1024,
    endBytes: 64 * 1024
  })
})
