/**
 * The processes of the sandbox: who runs, whose child it is, whether it's still the same one, and how to end it.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

/**
 * Identifies a process beyond the reuse of its pid: `start` is its start time in clock ticks since boot, `boot` the
 * kernel's boot id, `pidNamespace` the id of its pid namespace. Fields are empty where the system doesn't tell.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ProcessIdentity = Schema.Struct({
  pid: Schema.Int,
  start: Schema.String,
  boot: Schema.String,
  pidNamespace: Schema.String
})

/** @category models @since 0.1.0 */
export type ProcessIdentity = typeof ProcessIdentity.Type

/**
 * A running process. Zombies are not listed.
 *
 * @category models
 * @since 0.1.0
 */
export interface RunningProcess {
  readonly pid: number
  readonly parent: number
  readonly start: string
  /** Program and arguments, separated by spaces. */
  readonly command: string
}

/**
 * What the bridge asks of the system's process table.
 *
 * @category models
 * @since 0.1.0
 */
export interface ProcessTable {
  /** The bridge's own identity. */
  readonly self: Effect.Effect<ProcessIdentity>
  /** The identity that a pid has now; `undefined` where there's no such process (a zombie counts as none). */
  readonly identify: (pid: number) => Effect.Effect<ProcessIdentity | undefined>
  /** All processes that the bridge may see. Empty where the system has no `/proc`. */
  readonly list: Effect.Effect<ReadonlyArray<RunningProcess>>
  /** Those of them whose initial environment holds exactly `name=value`. */
  readonly withEnvironment: (name: string, value: string) => Effect.Effect<ReadonlyArray<RunningProcess>>
  /** Sends a signal; `false` where there's no such process or it isn't ours. */
  readonly signal: (pid: number, signal: "SIGTERM" | "SIGKILL" | "SIGCONT") => Effect.Effect<boolean>
  /**
   * Makes the bridge the parent of its descendants' orphans, so that a walk by parent finds them, and reaps those
   * that end. `false` where the system can't.
   */
  readonly adoptOrphans: Effect.Effect<boolean>
}
