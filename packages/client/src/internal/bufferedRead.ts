/**
 * What arrived for a read, and waits for its consumer.
 */
import type { TurnEvent } from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import type { ResponseExitEncoded } from "effect/unstable/rpc/RpcMessage"
import type { Reason } from "../BridgeUnavailable.ts"

/**
 * What a read has to say when its consumer asks.
 *
 * `Suspect` comes when nothing arrived for 30 s after a ping. The WebSocket API shows whole messages only, so this may
 * be a dead connection, or a big message on a slow link, whose bytes are on their way. The reader can't tell, so it
 * opens a second connection and takes whichever brings something first: a dead connection costs no more than the 30 s,
 * and on a slow link no byte that arrived is thrown away.
 */
export type Signal =
  | { readonly _tag: "Events"; readonly events: ReadonlyArray<TurnEvent> }
  | { readonly _tag: "Ended"; readonly exit: ResponseExitEncoded["exit"] }
  | { readonly _tag: "Overflown" }
  | { readonly _tag: "Lost"; readonly reason: Reason }
  | { readonly _tag: "Suspect" }

/** A read of a turn on one connection. It has one consumer. */
export interface Read {
  /** What there is, without waiting. */
  readonly poll: () => Signal | undefined
  /** Waits until `poll` has something to say; with `ignoreSuspicion` until that is something else than `Suspect`. */
  readonly wait: (ignoreSuspicion: boolean) => Effect.Effect<void>
  /** Ends it, and tells the bridge. */
  readonly close: () => void
}

/** A read, as its connection fills it. */
export interface BufferedRead extends Read {
  /** Takes events; gives how much waits then. */
  readonly push: (events: ReadonlyArray<TurnEvent>, size: number) => number
  /** One more batch that the bridge isn't told of before the consumer has taken what waits. */
  readonly hold: () => void
  readonly end: (last: Signal) => void
  readonly wake: () => void
}

export const make = (options: {
  readonly isSuspect: () => boolean
  readonly onTaken: (held: number) => void
  readonly onClose: () => void
}): BufferedRead => {
  let events: Array<TurnEvent> = []
  let buffered = 0
  let held = 0
  let last: Signal | undefined
  let waiter: { readonly ignoreSuspicion: boolean; readonly resume: (_: Effect.Effect<void>) => void } | undefined

  const isReady = (ignoreSuspicion: boolean) =>
    events.length > 0 || last !== undefined || (!ignoreSuspicion && options.isSuspect())
  const wake = () => {
    if (waiter === undefined || !isReady(waiter.ignoreSuspicion)) return
    const { resume } = waiter
    // It may wait again before `resume` returns.
    waiter = undefined
    resume(Effect.void)
  }

  return {
    poll: () => {
      if (events.length === 0) return last ?? (options.isSuspect() ? { _tag: "Suspect" } : undefined)
      const signal: Signal = { _tag: "Events", events }
      events = []
      buffered = 0
      if (held > 0) options.onTaken(held)
      held = 0
      return signal
    },
    wait: (ignoreSuspicion) =>
      Effect.callback((resume) => {
        if (isReady(ignoreSuspicion)) return resume(Effect.void)
        waiter = { ignoreSuspicion, resume }
        return Effect.sync(() => {
          waiter = undefined
        })
      }),
    close: options.onClose,
    push: (chunk, size) => {
      events.push(...chunk)
      buffered += size
      wake()
      return buffered
    },
    hold: () => {
      held++
    },
    end: (signal) => {
      last ??= signal
      wake()
    },
    wake
  }
}
