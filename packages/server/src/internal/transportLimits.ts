/**
 * The bounds of a connection, and the options of the server below that belong to them.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { WindowLimits } from "./window.ts"

/** The bounds of a connection. */
export interface TransportLimits extends WindowLimits {
  /** Bytes of an encoded request; a longer one fails with `TooLarge`. */
  readonly requestBytes: number
  /** Turns read at once; one more fails with `TooManyStreams`. */
  readonly streams: number
  /** Requests that are open at once, and the bytes of their frames; one more is answered with a defect. */
  readonly requests: number
  readonly openBytes: number
  /** Bytes of replies that the socket holds; at more, the connection is closed. */
  readonly unreadBytes: number
  /**
   * Milliseconds without a message after which a host that owes an acknowledgement is sent nothing more, so that the
   * silence can end the connection.
   */
  readonly silence: number
}

/** The bounds as `docs/protocol.md` gives them. */
export const defaultLimits: TransportLimits = {
  requestBytes: Bridge.maxRequestBytes,
  streams: Bridge.maxStreams,
  requests: 1024,
  openBytes: 64 * 1024 * 1024,
  unreadBytes: 16 * 1024 * 1024,
  streamFrames: 64,
  streamBytes: 256 * 1024,
  connectionBytes: 8 * 1024 * 1024,
  silence: 45_000
}

/**
 * The options of Bun's server that the transport relies on, for programs to give to `BunHttpServer.layer`: frames of at
 * most 16 MiB, no message ever dropped, and 45 s of silence, which Bun counts from the last byte, not the last message.
 */
export const webSocketOptions = {
  maxPayloadLength: 16 * 1024 * 1024,
  // Twice what the transport lets a socket hold: it closes the connection first, and Bun would rather than drop.
  backpressureLimit: 2 * defaultLimits.unreadBytes,
  closeOnBackpressureLimit: true,
  idleTimeout: defaultLimits.silence / 1000,
  // Bun's own pings would keep alive what is silent, and cost money where a host asked for none.
  sendPings: false,
  perMessageDeflate: false
} as const
