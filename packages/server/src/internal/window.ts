/**
 * How far a connection is sent ahead of what its host has acknowledged.
 *
 * Frames wait here, with those who want to send them: nothing is queued, and nothing is dropped. A stream has a window
 * of its own, and all streams of a connection share one. What the socket itself still holds, replies included, is asked
 * of the socket.
 */
import * as Effect from "effect/Effect"

/** The bounds of the windows. */
export interface WindowLimits {
  /** Unacknowledged frames of a stream. */
  readonly streamFrames: number
  /**
   * A stream sends while no more than these bytes of it are unacknowledged, so they're overstepped by at most a frame: a
   * full batch then follows another without waiting for its way back. A frame that's longer goes alone.
   */
  readonly streamBytes: number
  /** Unacknowledged bytes of all streams, and bytes in the socket up to which a frame is added. */
  readonly connectionBytes: number
}

/** The window of a connection. */
export interface ConnectionWindow {
  /** A stream's own window. */
  readonly open: () => StreamWindow
  /** Whether the host owes an acknowledgement. */
  readonly isOwed: () => boolean
  /** While it's held, no stream sends. */
  readonly hold: (held: boolean) => void
}

/** The window of a stream. */
export interface StreamWindow {
  /** Returns once a frame of so many bytes may be sent; it counts as unacknowledged from then on. */
  readonly take: (bytes: number) => Effect.Effect<void>
  /** The host has the oldest unacknowledged frame. Without any, nothing happens. */
  readonly acknowledge: () => void
  /** The stream is over, and its frames no longer count. */
  readonly end: () => void
}

interface Waiting {
  readonly bytes: number
  readonly fits: (bytes: number) => boolean
  readonly grant: () => void
}

// What a frame adds to a full batch, at most: it isn't counted against the stream's bytes.
const envelope = 1024

/**
 * Makes the window of a connection. `buffered` says how many bytes its socket holds that the system hasn't taken.
 */
export const make = (limits: WindowLimits, buffered: () => number): ConnectionWindow => {
  // In the order in which they came; whoever waits for the connection keeps the room for itself from those after it.
  const waiting = new Set<Waiting>()
  const streamBytes = limits.streamBytes + envelope
  let unacknowledged = 0
  let held = false
  let crowded = false

  const hasRoom = (bytes: number) => !held && (unacknowledged === 0 || unacknowledged + bytes <= limits.connectionBytes)

  const release = () => {
    crowded = false
    for (const each of waiting) {
      if (!each.fits(each.bytes)) continue
      if (!hasRoom(each.bytes)) {
        crowded = true
        return
      }
      waiting.delete(each)
      each.grant()
    }
  }

  // The socket drains by itself, and tells nobody. It's this full only where large replies aren't read.
  const drained = (bytes: number): Effect.Effect<void> =>
    Effect.suspend(() => {
      const held = buffered()
      return held === 0 || held + bytes <= limits.connectionBytes
        ? Effect.void
        : Effect.andThen(Effect.sleep(20), drained(bytes))
    })

  const open = (): StreamWindow => {
    // The bytes of each unacknowledged frame, the oldest first.
    const sent: Array<number> = []
    let total = 0

    const fits = (bytes: number) =>
      sent.length === 0 || (sent.length < limits.streamFrames && total <= streamBytes && bytes <= streamBytes)
    const count = (bytes: number) => {
      sent.push(bytes)
      total += bytes
      unacknowledged += bytes
    }
    return {
      take(bytes) {
        if (!crowded && fits(bytes) && hasRoom(bytes)) {
          count(bytes)
          const held = buffered()
          return held === 0 || held + bytes <= limits.connectionBytes ? Effect.void : drained(bytes)
        }
        return Effect.andThen(
          Effect.callback<void>((resume) => {
            const grant = () => {
              count(bytes)
              resume(Effect.void)
            }
            const entry: Waiting = { bytes, fits, grant }
            waiting.add(entry)
            crowded ||= fits(bytes)
            return Effect.sync(() => {
              waiting.delete(entry)
              release()
            })
          }),
          drained(bytes)
        )
      },
      acknowledge() {
        const bytes = sent.shift()
        if (bytes === undefined) return
        total -= bytes
        unacknowledged -= bytes
        if (waiting.size > 0) release()
      },
      end() {
        unacknowledged -= total
        total = 0
        sent.length = 0
        if (waiting.size > 0) release()
      }
    }
  }

  return {
    open,
    isOwed: () => unacknowledged > 0,
    hold(value) {
      if (held === value) return
      held = value
      if (!held) release()
    }
  }
}
