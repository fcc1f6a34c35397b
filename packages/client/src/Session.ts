/**
 * A session, as a host holds it: one conversation with the agent, in one working directory.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import type { BridgeUnavailable } from "./BridgeUnavailable.ts"
import type { HostTools } from "./HostTools.ts"
import type { Approval, Policy, StartTurnError, Turn } from "./Turn.ts"

/**
 * What a session is started with. A session that exists keeps its directory, instructions, tools, permissions and MCP
 * servers: others are a `SessionConflict`. The rest is replaced, from the next turn on.
 *
 * @category options
 * @since 0.1.0
 */
export interface SessionOptions {
  readonly session: Bridge.SessionId
  /** Absolute path of the working directory in the sandbox. */
  readonly directory: string
  /** Added to the agent's system prompt. */
  readonly instructions?: string | undefined
  /** The tools that this host runs, see `HostTools.fromToolkit`. They run in each host that starts a turn. */
  readonly tools?: HostTools | undefined
  /** What the agent may do without asking: `ask` lets it ask for all, which is the default. */
  readonly permissions?: Bridge.Permissions | undefined
  readonly mcpServers?: ReadonlyArray<Bridge.McpServer> | undefined
  /** Which of the agent's own files count: `project`, those of the directory, by default. */
  readonly settings?: Bridge.Settings | undefined
  readonly model?: string | undefined
  readonly effort?: string | undefined
  /** Secret variables for the agent's environment, from its next start on; never stored. */
  readonly env?: Readonly<Record<string, Redacted.Redacted<string>>> | undefined
  /** After this an approval or a question that nobody answered is denied; absent, it waits for ever. */
  readonly approvalTimeout?: Duration.Input | undefined
  /** Bounds of each turn; the one that reaches one is aborted with the reason `limit`. `cost` is in US dollars. */
  readonly limits?: {
    readonly steps?: number | undefined
    readonly tokens?: number | undefined
    readonly cost?: number | undefined
    readonly time?: Duration.Input | undefined
  } | undefined
  /** Whether processes that the agent leaves running are kept until `stop`, by default, or end with their turn. */
  readonly background?: "keep" | "end" | undefined
  /** What `readState` answered elsewhere: that conversation is carried on, if the session has none yet. */
  readonly state?: Schema.Json | undefined
  /**
   * Decides on the approval requests of turns that this host started; `Effect.never` leaves one to others. It's
   * interrupted when another host decides, or the turn ends. One that dies denies it.
   */
  readonly onApproval?:
    | ((request: typeof Bridge.ToolApprovalRequest.Type, turn: Turn) => Effect.Effect<Approval>)
    | undefined
  /**
   * Answers the questions of turns that this host started: an object from each question's text to the chosen labels or
   * free text. One that dies is told to the agent.
   */
  readonly onQuestion?:
    | ((question: typeof Bridge.Question.Type, turn: Turn) => Effect.Effect<Schema.Json>)
    | undefined
}

/**
 * What a turn is started with.
 *
 * @category options
 * @since 0.1.0
 */
export interface StartTurnOptions extends Policy {
  readonly turn: Bridge.TurnId
  /** Text, or text and files. May be left out where the turn exists. */
  readonly prompt?: string | Bridge.Prompt | undefined
  /**
   * One more than the turn's own continues it after it was aborted, whatever for. By default the call starts a new turn,
   * or joins the one of that id as it stands.
   */
  readonly attempt?: number | undefined
  readonly model?: string | undefined
  readonly effort?: string | undefined
  /** Asks for an answer that fits a JSON Schema; it's in the end's `output`. */
  readonly responseFormat?: Bridge.ResponseFormat | undefined
  /** After this the turn is aborted with the reason `timeout`; absent, never. */
  readonly timeout?: Duration.Input | undefined
  /** Whether the agent's own events come as `raw` parts, for all readers; false. */
  readonly raw?: boolean | undefined
}

/**
 * A session of a bridge.
 *
 * @category models
 * @since 0.1.0
 */
export interface Session {
  readonly session: Bridge.SessionId
  /** Whether it existed; absent in a session that this host didn't start. */
  readonly resumed: boolean | undefined
  /**
   * Starts a turn; the one that runs, of another id, is aborted. The same id again joins that turn, so a host that died
   * calls it again. The host's tools, and its handlers of approvals and questions, then run for the turn until it ends
   * or the client is closed.
   */
  readonly startTurn: (options: StartTurnOptions) => Effect.Effect<Turn, StartTurnError>
  /** A turn that this host reads and answers by hand. */
  readonly turn: (turn: Bridge.TurnId, policy?: Policy) => Turn
  /** Shortens the conversation. */
  readonly compact: (
    options?: { readonly instructions?: string | undefined }
  ) => Effect.Effect<Rpc.Success<typeof Bridge.Compact>, CompactError>
  /** The conversation as JSON, with which a session of another bridge carries it on. */
  readonly readState: Effect.Effect<Schema.Json, ReadStateError>
  /** Stops the agent and all it left running; files and conversation stay. */
  readonly stop: Effect.Effect<Rpc.Success<typeof Bridge.StopSession>, StopError>
  /** Stops the session, and deletes its files and its conversation. */
  readonly destroy: Effect.Effect<Rpc.Success<typeof Bridge.DestroySession>, DestroyError>
}

type CommandError<R> = Exclude<Rpc.Error<R>, Bridge.Replaced | Bridge.Closing> | BridgeUnavailable

/** @category errors @since 0.1.0 */
export type CompactError = CommandError<typeof Bridge.Compact>

/** @category errors @since 0.1.0 */
export type ReadStateError = CommandError<typeof Bridge.ReadState>

/** @category errors @since 0.1.0 */
export type StopError = CommandError<typeof Bridge.StopSession>

/** @category errors @since 0.1.0 */
export type DestroyError = CommandError<typeof Bridge.DestroySession>
