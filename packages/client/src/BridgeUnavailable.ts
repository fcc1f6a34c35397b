/**
 * Why a bridge can't be reached, launched or used.
 *
 * @since 0.1.0
 */
import { BridgeId, Closing, ProtocolMismatch, Replaced } from "@gangway/protocol/Bridge"
import { SandboxError } from "@gangway/sandbox/Sandbox"
import * as Schema from "effect/Schema"

/**
 * The reasons for which a bridge is unavailable.
 *
 * - `Refused`: nobody listens at the address. Launch a bridge there, or look whether its port is the right one.
 * - `Unreachable`: no answer, or a connection that broke off. Look after the network between host and sandbox.
 * - `TimedOut`: no `Hello` within 10 s. Look whether the bridge is frozen or its machine overloaded.
 * - `TokenMismatch`: the bridge has another token. All hosts of a bridge must share its token: use the same
 *   `TokenStore`, or end that bridge. Final.
 * - `Forbidden`: a proxy, or the bridge for a web origin, refuses this host. Name the origin in `allowedOrigins`, or
 *   let the proxy pass it. Final.
 * - `Redirected`: the sandbox's proxy wants other credentials than its endpoint gave. Look after the key of its
 *   provider.
 * - `BadGateway`: the sandbox's proxy doesn't reach the port. Look whether the sandbox runs, and whether the bridge
 *   listens on `0.0.0.0`.
 * - `UpgradeRefused`: the bridge is there, but something on the way lets no WebSocket through. Let the proxy pass
 *   WebSockets.
 * - `UnexpectedStatus`: what answers is no bridge. Look at what listens at the address.
 * - `WrongBridge`: another bridge, or another launch of it, answers at the address. Look at the address, or at the
 *   listening file. Final.
 * - `Disconnected`: the connection was lost, again and again. Look at its close code and the log of the bridge.
 * - `ProtocolError`: the bridge said what this client can't make sense of, or failed in a way of its own. Repeat it
 *   once, then report it with the log of the bridge.
 * - `ProtocolMismatch`: the bridge speaks another version of the protocol. Use the same release of both. Final.
 * - `Retired`: each bridge that was found said that it's replaced or closing. Repeat it: hosts are launching bridges
 *   against each other.
 * - `NoWebSocket`: this platform has no global `WebSocket`. Provide a `WebSocketConstructor`. Final.
 * - `LaunchFailed`: a bridge was launched and ended, or didn't answer, and so did those launched after it, `launches`
 *   in a row; with the exit code and the log's end of the last one, and how it was noticed where that one had
 *   answered. Mend what the log says; what the exit codes mean is in docs/protocol.md, "1. Launch". Final.
 * - `StateDirectoryUnusable`: the state directory can't be read or made in the sandbox. Let the bridge's user write
 *   there, or name another one. Final, unless the sandbox's error is `Transient`.
 * - `SandboxFailed`: the sandbox doesn't do what is asked of it. See its error, a `SandboxError`. Final, unless that
 *   is `Transient`.
 * - `NoToken`: the token can't be had or stored. Mend the `TokenStore`. Final.
 * - `InvalidOptions`: no bridge can be launched with these options. Correct what `problem` names. Final.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Reason = Schema.TaggedUnion({
  Refused: {},
  Unreachable: { problem: Schema.String },
  TimedOut: {},
  TokenMismatch: { launch: Schema.optional(Schema.String) },
  Forbidden: {},
  Redirected: { status: Schema.Int },
  BadGateway: { status: Schema.Int },
  UpgradeRefused: {},
  UnexpectedStatus: { status: Schema.Int },
  WrongBridge: { bridge: BridgeId, launch: Schema.String },
  Disconnected: { code: Schema.Int, problem: Schema.String },
  ProtocolError: { problem: Schema.String },
  ProtocolMismatch: { error: ProtocolMismatch },
  Retired: { error: Schema.Union([Replaced, Closing]) },
  NoWebSocket: {},
  LaunchFailed: {
    launches: Schema.Int,
    exitCode: Schema.optional(Schema.Int),
    log: Schema.String,
    problem: Schema.optional(Schema.String)
  },
  StateDirectoryUnusable: { path: Schema.String, error: SandboxError },
  SandboxFailed: { error: SandboxError },
  NoToken: { problem: Schema.String },
  InvalidOptions: { problem: Schema.String }
})

/** @category models @since 0.1.0 */
export type Reason = typeof Reason.Type

const describe = Reason.match({
  Refused: () => "nobody listens there",
  Unreachable: ({ problem }) => problem,
  TimedOut: () => "it doesn't answer Hello within 10 s",
  TokenMismatch: () => "it has another token: hosts of a bridge must share its token",
  Forbidden: () => "the connection is forbidden (403)",
  Redirected: ({ status }) => `the sandbox's proxy asks for other credentials (${status})`,
  BadGateway: ({ status }) => `the sandbox's proxy doesn't reach it (${status})`,
  UpgradeRefused: () => "it's there, but no WebSocket gets through to it",
  UnexpectedStatus: ({ status }) => `what listens there is no bridge (HTTP ${status})`,
  WrongBridge: ({ bridge, launch }) => `another one answers there (${bridge}, launch ${launch})`,
  Disconnected: ({ code, problem }) => `the connection was lost (${code}${problem === "" ? "" : `, ${problem}`})`,
  ProtocolError: ({ problem }) => problem,
  ProtocolMismatch: ({ error }) => error.message,
  Retired: ({ error }) => error.message,
  NoWebSocket: () => "this platform has no global WebSocket: provide a WebSocketConstructor",
  LaunchFailed: ({ exitCode, launches, log, problem }) =>
    [
      launches === 1 ? "it was launched" : `it was launched ${launches} times`,
      exitCode === undefined
        ? launches === 1 ? " and doesn't answer" : " and died soon each time"
        : `${launches === 1 ? " and" : ", and at last"} exited with ${exitCode}`,
      problem === undefined ? "" : `, ${problem}`,
      log === "" ? "" : `; its log ends with: ${lastLine(log)}`
    ].join(""),
  StateDirectoryUnusable: ({ error, path }) =>
    `the state directory ${path} can't be used (${error.message}): let the bridge's user write there, or name another one`,
  SandboxFailed: ({ error }) => error.message,
  NoToken: ({ problem }) => `its token can't be had: ${problem}`,
  InvalidOptions: ({ problem }) => `it can't be launched with these options: ${problem}`
})

/**
 * A reason in one line, without a full stop.
 *
 * @category formatting
 * @since 0.1.0
 */
export const describeReason = (reason: Reason): string => describe(reason).replaceAll(/\s*\n\s*/g, " ")

/**
 * The line of a log that says why its program ended: the last one, without a full stop, but for those of a stack trace.
 *
 * @category formatting
 * @since 0.1.0
 */
export const lastLine = (log: string): string => {
  const lines = log.split("\n").filter((line) => line.trim() !== "")
  return (lines.findLast((line) => !/^\s/.test(line)) ?? lines.at(-1) ?? "").trim().replace(/\.$/, "")
}

/**
 * A bridge couldn't be reached, launched or used, for as long as was tried.
 *
 * @remedy By its `reason`: see the reasons below.
 * @client It has tried already: for `reconnectFor`, 5 minutes where nothing else is said, unless the reason is final.
 *   A later call tries anew.
 * @category errors
 * @since 0.1.0
 */
export class BridgeUnavailable extends Schema.TaggedError<BridgeUnavailable>()("BridgeUnavailable", {
  bridge: BridgeId,
  reason: Reason
}) {
  override get message() {
    return `Bridge ${this.bridge}: ${describeReason(this.reason)}.`
  }
}
