/**
 * How a bridge is launched and found: the line it reads from standard input, and the file that names its port.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Schema from "effect/Schema"
import { BridgeId } from "./Id.ts"

/**
 * The version of the bridge protocol.
 *
 * @category constants
 * @since 0.1.0
 */
export const protocolVersion = 1

/**
 * The longest launch line in bytes, 1 MiB.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxLaunchLineBytes = 1024 * 1024

const absolutePath = Schema.String.check(
  Schema.makeFilter((path) => (path.startsWith("/") && !path.includes("\0")) || "an absolute path", {
    expected: "an absolute path"
  })
)

const token = Schema.String.check(
  Schema.makeFilter((value) => /^[\x21-\x7e]{32,4096}$/.test(value) || "32 to 4096 visible ASCII characters", {
    expected: "32 to 4096 visible ASCII characters"
  })
)

const someTime = Schema.DurationFromString.check(
  Schema.makeFilter((duration) => Duration.toMillis(duration) > 0 || "more than no time", {
    expected: "more than no time"
  })
)

/**
 * The agent's options: `agent` names the driver, the rest is that driver's own.
 *
 * @category schemas
 * @since 0.1.0
 */
export const AgentOptions = Schema.StructWithRest(
  Schema.Struct({ agent: Schema.String.check(Schema.isPattern(/^[a-z0-9][a-z0-9-]{0,63}$/)) }),
  [Schema.JsonObject]
)

/** @category models @since 0.1.0 */
export type AgentOptions = typeof AgentOptions.Type

/**
 * The line of JSON that a host writes to the bridge's standard input.
 *
 * @category schemas
 * @since 0.1.0
 */
export const LaunchOptions = Schema.Struct({
  /** The secret that hosts present; the caller wraps it in `Redacted` at once. */
  token,
  bridge: BridgeId,
  /** Absolute, on a local disk of one kernel. */
  stateDirectory: absolutePath,
  agentOptions: AgentOptions,
  /** The port to listen on; absent or 0, the system chooses. */
  port: Schema.optional(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 65_535 }))),
  /** The address to listen on; absent, `0.0.0.0`. */
  hostname: Schema.optional(Schema.String),
  /** A nonce by which the launcher recognises this bridge; absent, the bridge makes one. */
  launch: Schema.optional(Schema.String.check(Schema.isPattern(/^[A-Za-z0-9_-]{8,64}$/))),
  /** How long a bridge without work stays, such as `"10 minutes"`, which is what an absent one means. */
  idleTimeout: Schema.optional(someTime),
  /** A token that is accepted beside `token`, while hosts are handed the new one. */
  previousToken: Schema.optional(Schema.RedactedFromValue(token)),
  /** The web origins that may connect; absent, none. */
  allowedOrigins: Schema.optional(Schema.Array(Schema.String)),
  /** Whether each batch of parts is synced to the disk before it is visible; absent, it isn't. */
  sync: Schema.optional(Schema.Boolean),
  /** The largest turn file in bytes; absent, 1 GiB. */
  maxTurnBytes: Schema.optional(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1024 * 1024)))
})

/** @category models @since 0.1.0 */
export type LaunchOptions = typeof LaunchOptions.Type

/**
 * The path of the listening file of a state directory.
 *
 * @category paths
 * @since 0.1.0
 */
export const listeningFile = (stateDirectory: string): string => `${stateDirectory}/listening.json`

/**
 * What the listening file holds. Files outlive their bridges: a host is ready only when `Hello`, with its token,
 * answers the right bridge id and the file's `launch`.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ListeningFile = Schema.Struct({
  protocol: Schema.Int,
  bridge: BridgeId,
  launch: Schema.String,
  port: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65_535 })),
  pid: Schema.Int
})

/** @category models @since 0.1.0 */
export type ListeningFile = typeof ListeningFile.Type

/**
 * The exit codes of a bridge program.
 *
 * @category constants
 * @since 0.1.0
 */
export const ExitCode = {
  /** No turn ran, and the bridge was idle or replaced. */
  done: 0,
  /** The launch line is not usable, or the state directory is another bridge's. */
  launchLine: 2,
  /** The given port is taken. */
  portTaken: 3,
  /** The state directory can't be written. */
  notWritable: 4
} as const
