/**
 * What a client does about its connection, while it's lost and found, told to whoever wants to show it.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Schema from "effect/Schema"
import { describeReason, Reason } from "./BridgeUnavailable.ts"

/**
 * The states of a connection. None holds a secret.
 *
 * - `Connecting`: the bridge is looked for.
 * - `Launching`: none lives, so one is launched.
 * - `Connected`: the bridge of that launch answered.
 * - `Disconnected`: the connection was lost. It's made again when something needs it, which for a read is at once.
 * - `Silent`: nothing came for 30 s after a ping. Another connection is made beside it, and what brings something first
 *   counts.
 * - `Reconnecting`: attempt number `attempt` failed, the first is 1; the next one comes after `retryIn`.
 * - `Relaunching`: a bridge died before it answered or within 10 s of that, the `relaunch`th in a row of the
 *   `maxRelaunches` that are launched again; the next one is launched after `retryIn`.
 * - `Unavailable`: that was given up, and what needed the connection fails with `BridgeUnavailable`.
 *
 * Encoded, `retryIn` is a number of milliseconds.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Status = Schema.TaggedUnion({
  Connecting: {},
  Launching: {},
  Connected: { launch: Schema.String },
  Disconnected: { reason: Reason },
  Silent: {},
  Reconnecting: { attempt: Schema.Int, reason: Reason, retryIn: Schema.DurationFromMillis },
  Relaunching: {
    relaunch: Schema.Int,
    maxRelaunches: Schema.Int,
    exitCode: Schema.optionalKey(Schema.Int),
    reason: Reason,
    retryIn: Schema.DurationFromMillis
  },
  Unavailable: { reason: Reason }
})

/** @category models @since 0.1.0 */
export type Status = typeof Status.Type

/**
 * A status in one line, without a full stop.
 *
 * @category formatting
 * @since 0.1.0
 */
export const toMessage: (status: Status) => string = Status.match({
  Connecting: () => "looking for the bridge",
  Launching: () => "launching a bridge",
  Connected: ({ launch }) => `connected to the bridge (launch ${launch})`,
  Disconnected: ({ reason }) => describeReason(reason),
  Silent: () => "the connection is silent; another one is made",
  Reconnecting: ({ attempt, reason, retryIn }) =>
    `attempt ${attempt} to connect failed: ${describeReason(reason)}; again ${after(retryIn)}`,
  Relaunching: ({ exitCode, maxRelaunches, relaunch, retryIn }) =>
    `the bridge ${exitCode === undefined ? "died" : `ended with exit code ${exitCode}`} soon after its launch; ` +
    `launched again ${after(retryIn)} (${relaunch} of ${maxRelaunches})`,
  Unavailable: ({ reason }) => `given up: ${describeReason(reason)}`
})

const after = (duration: Duration.Duration) =>
  Duration.toMillis(duration) === 0 ? "at once" : `in ${(Duration.toMillis(duration) / 1000).toFixed(1)} s`
