/**
 * How a bridge is launched and found: the line it reads from standard input, and the file that names its port.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import { BridgeId, idPattern } from "./Id.ts"

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

// What is said of a field, whatever is wrong with it: the words of docs/protocol.md.
const expectations = {
  token: "32 to 4096 visible ASCII characters",
  bridge: "1 to 64 of a-z, 0-9 and '-', the first of them no '-'",
  stateDirectory: "an absolute path",
  agentOptions: "an object whose 'agent' names the driver",
  port: "a whole number from 0 to 65535",
  hostname: "a host name or an IP address",
  launch: "8 to 64 of A-Z, a-z, 0-9, '_' and '-'",
  idleTimeout: "a number more than 0 and a unit, such as \"10 minutes\"",
  previousToken: "32 to 4096 visible ASCII characters",
  allowedOrigins: "an array of web origins, such as \"https://app.example\"",
  sync: "true or false",
  maxTurnBytes: "a whole number of bytes, at least 1048576",
  keepAwake: "an http or https URL, headers, and how often, such as \"30 seconds\""
}

const matching = (expected: string, pattern: RegExp) => Schema.String.check(Schema.isPattern(pattern, { expected }))

const absolutePath = matching(expectations.stateDirectory, /^\/[^\0]*$/)

const token = matching(expectations.token, /^[\x21-\x7e]{32,4096}$/)

const launchNonce = matching(expectations.launch, /^[A-Za-z0-9_-]{8,64}$/)

const someTime = Schema.DurationFromString.check(
  Schema.makeFilter((duration) => Duration.toMillis(duration) > 0 || expectations.idleTimeout, {
    expected: expectations.idleTimeout
  })
)

const label = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i

// A name whose last label is a number is an IPv4 address, or a wrong one.
const isHostname = (value: string): boolean => {
  if (value.includes(":")) return /^[0-9a-f:.]+$/i.test(value) && URL.canParse(`http://[${value}]/`)
  const labels = value.split(".")
  if (!/^\d+$/.test(labels.at(-1)!)) return value.length <= 253 && labels.every((part) => label.test(part))
  return labels.length === 4 && labels.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255)
}

const hostname = Schema.String.check(
  Schema.makeFilter((value) => isHostname(value) || expectations.hostname, { expected: expectations.hostname })
)

const origin = matching("a web origin", /^(null|[a-z][a-z0-9+.-]*:\/\/[^\s/?#@]+)$/)

const webAddress = matching(expectations.keepAwake, /^https?:\/\/[^\s]+$/).check(
  Schema.makeFilter((value) => URL.canParse(value) || expectations.keepAwake, { expected: expectations.keepAwake })
)

/**
 * A request that counts as use of the sandbox, where one that nobody uses is stopped: the bridge makes it while a turn
 * runs, and takes no notice of what's answered. The headers may be secrets, such as a proxy's token.
 *
 * @category schemas
 * @since 0.1.0
 */
export const KeepAwake = Schema.Struct({
  url: webAddress,
  headers: Schema.Record(
    matching(expectations.keepAwake, /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/),
    Schema.RedactedFromValue(matching(expectations.keepAwake, /^[\x20-\x7e]*$/))
  ),
  /** How often it's made. */
  every: someTime
})

/** @category models @since 0.1.0 */
export type KeepAwake = typeof KeepAwake.Type

/**
 * The agent's options: `agent` names the driver, `agentUser` the user of the sandbox that the agent runs as, by name or
 * uid, where that isn't the bridge's own; the rest is that driver's own.
 *
 * @category schemas
 * @since 0.1.0
 */
export const AgentOptions = Schema.StructWithRest(
  Schema.Struct({
    agent: Schema.String.check(Schema.isPattern(idPattern)),
    agentUser: Schema.optionalKey(Schema.Union([
      Schema.NonEmptyString,
      Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
    ]))
  }),
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
  port: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 65_535 }))),
  /** The host name or IP address to listen on; absent, `0.0.0.0`. */
  hostname: Schema.optionalKey(hostname),
  /** A nonce by which the launcher recognises this bridge; absent, the bridge makes one. */
  launch: Schema.optionalKey(launchNonce),
  /** How long a bridge without work stays, such as `"10 minutes"`, which is what an absent one means. */
  idleTimeout: Schema.optionalKey(someTime),
  /** A token that is accepted beside `token`, while hosts are handed the new one. */
  previousToken: Schema.optionalKey(Schema.RedactedFromValue(token)),
  /** The web origins that may connect, such as `https://app.example`; absent, none. */
  allowedOrigins: Schema.optionalKey(Schema.Array(origin)),
  /** Whether each batch of parts is synced to the disk before it is visible; absent, it isn't. */
  sync: Schema.optionalKey(Schema.Boolean),
  /** The largest turn file in bytes; absent, 1 GiB. */
  maxTurnBytes: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1024 * 1024))),
  /** How the sandbox is kept from being stopped while a turn runs; absent, it isn't. */
  keepAwake: Schema.optionalKey(KeepAwake)
})

/** @category models @since 0.1.0 */
export type LaunchOptions = typeof LaunchOptions.Type

const jsonTypes: Readonly<Record<string, string>> = {
  array: "an array",
  boolean: "true or false",
  number: "a number",
  object: "an object",
  string: "a string"
}

const formatIssue = SchemaIssue.makeFormatterStandardSchemaV1()

/**
 * What is wrong with launch options: the field, such as `agentOptions.agent`, absent where it's the whole, and what was
 * expected of it. One line without a value, so it may be shown and logged. `at` is where in the options a schema of
 * less than the whole was used.
 *
 * @category formatting
 * @since 0.1.0
 */
export const launchProblem = (
  issue: SchemaIssue.Issue,
  at: ReadonlyArray<string> = []
): { readonly field: string | undefined; readonly expected: string } => {
  const { issues } = formatIssue(issue)
  const { message, path = [] } = issues.find(({ message }) => inWords(message) !== "") ?? issues[0]!
  const names = [...at, ...path.map(String)]
  const field = names.length === 0 ? undefined : names.join(".").replaceAll(/[\s\x00-\x1f\x7f]+/g, " ")
  if (message === "Missing key") return { field, expected: "is missing" }
  const known: Readonly<Record<string, string | undefined>> = {
    ...expectations,
    "agentOptions.agent": "the name of a driver, such as \"claude-code\"",
    "agentOptions.agentUser": "the name or the uid of a user"
  }
  // The elements of an array are of the field.
  const own = at.length > 0 ? undefined : known[field ?? ""] ?? known[names[0] ?? ""]
  return { field, expected: `expected ${own ?? inWords(message)}` }
}

// Nothing is left of what the codec adds for values that JSON lacks.
const inWords = (message: string): string =>
  message.replace(/^Expected /, "").replaceAll(/\s+/g, " ")
    .split(" | ")
    .filter((type) => !/^(null|"-?Infinity"|"NaN")$/.test(type))
    .map((type) => jsonTypes[type] ?? type)
    .join(" or ")

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
