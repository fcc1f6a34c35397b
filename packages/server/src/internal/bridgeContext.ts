/**
 * What all sessions of a bridge share.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { Driver } from "../Driver.ts"
import type { Holder } from "../SessionLock.ts"
import type { StateDirectory } from "../StateDirectory.ts"

export interface BridgeContext {
  /** The bridge's life; before it closes, every running turn has been ended. */
  readonly scope: Scope.Scope
  readonly driver: Driver
  readonly state: StateDirectory
  /** Who this bridge is in the locks it holds. */
  readonly holder: Holder
  readonly sync: boolean
  readonly maxTurnBytes: number
  /** The bridge's own secrets, by the name that stands in their place. */
  readonly secrets: Readonly<Record<string, Redacted.Redacted<string>>>
  /** Whether a newer bridge serves the state directory; what `Ownership` last saw. */
  readonly isReplaced: () => boolean
  /** Looks now; before anything new is begun. */
  readonly check: Effect.Effect<void, Bridge.Replaced>
  /** What the listening file says now. */
  readonly listening: Effect.Effect<Bridge.ListeningFile | undefined>
  /** The ids of sessions that were destroyed within the last day. */
  readonly destroyed: {
    readonly has: (session: Bridge.SessionId) => Effect.Effect<boolean>
    readonly add: (session: Bridge.SessionId) => Effect.Effect<void, Bridge.LogUnavailable>
  }
  /** Counts running turns, for the decision to exit. */
  readonly turnStarted: Effect.Effect<void>
  readonly turnEnded: Effect.Effect<void>
}
