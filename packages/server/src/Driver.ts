/**
 * What makes one kind of agent follow the bridge.
 *
 * A driver is a plain value. The bridge numbers and logs what it emits, keeps its answers, its approvals and its
 * conversation's id, ends its processes, and knows nothing of the agent; the driver knows nothing of hosts, logs,
 * locks and transports.
 *
 * **Example** (A driver that repeats its prompt)
 *
 * ```ts
 * import { Effect } from "effect"
 * import { Bridge } from "@gangway/server"
 *
 * export const echo: Bridge.Driver = {
 *   name: "echo",
 *   version: "1.0.0",
 *   capabilities: Bridge.noCapabilities,
 *   open: () =>
 *     Effect.succeed({
 *       conversation: "none",
 *       run: Effect.fnUntraced(function*(turn) {
 *         yield* turn.emit({ type: "text-start", id: "1" })
 *         for (const part of turn.prompt) {
 *           if (part.type === "text") yield* turn.emit({ type: "text-delta", id: "1", delta: part.text })
 *         }
 *         yield* turn.emit({ type: "text-end", id: "1" })
 *         return { finishReason: "stop" }
 *       }),
 *       interrupt: Effect.void
 *     })
 * }
 * ```
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Data from "effect/Data"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type { AgentUser } from "./AgentUser.ts"
import type { AgentProcesses } from "./Supervisor.ts"

/**
 * A driver: it opens conversations with its agent.
 *
 * @category models
 * @since 0.1.0
 */
export interface Driver {
  /** The `agent` of the launch line's agent options, such as `claude-code`. */
  readonly name: string
  /** The version of the agent it drives, or its own where the agent has none. */
  readonly version: string
  readonly capabilities: Bridge.Capabilities
  /** The user that the agent's processes run as, see `AgentUser.makeDriver`; absent, the bridge's own. */
  readonly user?: AgentUser | undefined
  /**
   * Secrets of its agent options, such as API keys, by the name that stands in their place in parts
   * (`[redacted:NAME]`).
   */
  readonly secrets?: Readonly<Record<string, Redacted.Redacted<string>>> | undefined
  /**
   * Opens a session's conversation: a new one, the one in `options.conversation`, or one carried over in
   * `options.state`. A conversation that exists is checked, `ContextLost` where it's gone or doesn't fit. The agent
   * itself is best started with the first turn. The scope closes at StopSession, at DestroySession, when another
   * bridge takes the session, and at exit; by then the bridge has interrupted what runs. It's opened anew where
   * options changed.
   */
  readonly open: (
    options: SessionOptions
  ) => Effect.Effect<AgentSession, Bridge.DriverError | Bridge.ContextLost, Scope.Scope>
  /**
   * Deletes the files that the agent keeps of a conversation; called by DestroySession with nothing running. A
   * conversation that is gone already is success.
   */
  readonly forget?:
    | ((options: {
      readonly conversation: string
      readonly directory: string
    }) => Effect.Effect<void, Bridge.DriverError>)
    | undefined
}

/**
 * What a driver is told of a session.
 *
 * @category models
 * @since 0.1.0
 */
export interface SessionOptions {
  readonly session: Bridge.SessionId
  /** The real path of the working directory, which exists. */
  readonly directory: string
  /** The agent's id of the conversation to carry on, as an earlier `open` named it; absent, a new conversation. */
  readonly conversation?: string | undefined
  /**
   * Whether the agent is known to have had `conversation`: it did something in a turn, which `raw` parts, notices and
   * the bridge's own parts don't say. Where it isn't, the first prompt may not have reached the agent, and a missing
   * conversation is new, with that id, not lost. An agent that stores its conversation later than its first answers
   * knows better itself when it has one, and may say so by another `conversation` to `saveConversation`.
   */
  readonly established: boolean
  /** What `readState` answered elsewhere: the conversation to carry on where `conversation` is absent. */
  readonly state?: Schema.Json | undefined
  readonly instructions?: string | undefined
  readonly tools: ReadonlyArray<Bridge.HostTool>
  readonly permissions: Bridge.Permissions
  readonly mcpServers: ReadonlyArray<Bridge.McpServer>
  readonly settings: Bridge.Settings
  readonly env: Readonly<Record<string, Redacted.Redacted<string>>>
  /**
   * Starts the agent's processes. Everything it starts is ended by the bridge after an abort, a failure and at the
   * session's stop, with all its descendants.
   */
  readonly processes: AgentProcesses
  /**
   * Stores the conversation's id where the agent chose it only later than `open`; on disk when it returns. Must be
   * called before the prompt reaches the agent, or as soon as the agent names it.
   */
  readonly saveConversation: (conversation: string) => Effect.Effect<void, Bridge.LogUnavailable>
}

/**
 * An open conversation. One turn, compaction or reading of the state runs at a time.
 *
 * @category models
 * @since 0.1.0
 */
export interface AgentSession {
  /**
   * The agent's id of the conversation: chosen by the driver where the agent lets it, so that it's stored before the
   * first prompt. Absent where the agent names it later, see `saveConversation`.
   */
  readonly conversation?: string | undefined
  /**
   * Before an aborted turn is continued: compares the agent's conversation with the parts that the log holds. Absent
   * where the agent can't continue (capability `continuation`).
   */
  readonly reconcile?:
    | ((previous: PreviousAttempts) => Effect.Effect<Reconciled, Bridge.DriverError | Bridge.ContextLost>)
    | undefined
  /**
   * Runs one turn until the agent is done. It's interrupted after `interrupt` had its time, or at once where the log
   * can't be written.
   */
  readonly run: (turn: Turn) => Effect.Effect<Finished, TurnFailed | Bridge.ContextLost | Bridge.DriverError>
  /**
   * Hands a host's message to the agent that works on `run`, for its next step; with the capability `steering`. The
   * driver says `delivered` when the agent has taken it. What it hasn't by the time that `run` returns it must not take
   * any more: the bridge makes it the next prompt, see `Turn.message`. So a driver that told the agent stays in `run`
   * until that has taken it. Fails, or returns, where it can't be told now.
   */
  readonly steer?:
    | ((message: {
      readonly messageId: Bridge.MessageId
      readonly prompt: Bridge.Prompt
    }) => Effect.Effect<void, TurnFailed | Bridge.DriverError>)
    | undefined
  /**
   * Asks the agent to stop the running turn; `run` then returns or fails soon, with whatever: the end is `aborted`.
   * After 2 s, or when `run` has ended, the bridge ends the session's processes, the agent included, so an agent may
   * be found gone at the next `run` and is then started again.
   */
  readonly interrupt: Effect.Effect<void>
  /** Compacts the conversation; absent where the agent can't. */
  readonly compact?:
    | ((
      instructions: string | undefined
    ) => Effect.Effect<{ readonly summary?: string | undefined }, Bridge.DriverError | Bridge.ContextLost>)
    | undefined
  /** The conversation as JSON, for another bridge's `open`; absent where the agent can't. */
  readonly readState?: Effect.Effect<Schema.Json, Bridge.DriverError | Bridge.ContextLost> | undefined
}

/**
 * What the log holds of an aborted turn.
 *
 * @category models
 * @since 0.1.0
 */
export interface PreviousAttempts {
  readonly turn: Bridge.TurnId
  /** The attempt that is about to start, at least 2. */
  readonly attempt: number
  /** The messages that hosts have sent into the turn. */
  readonly messages: ReadonlyArray<Bridge.MessageId>
  /**
   * The turn's parts so far in their order, fragments put together, those that an earlier continuation voided left
   * out.
   */
  readonly parts: Stream.Stream<Bridge.NumberedPart, Bridge.DriverError>
}

/**
 * How the agent's conversation and the log fit together.
 *
 * @category models
 * @since 0.1.0
 */
export interface Reconciled {
  /** The number of the last part that counts: later ones are of a step the conversation doesn't hold finished. */
  readonly keep: number
  /** The parts of finished steps that the conversation holds and the log lacks, without `recovered`, in order. */
  readonly recovered: ReadonlyArray<Bridge.AgentPart>
  /** Whether the conversation holds the turn's prompt: then a nudge is sent, never the prompt again. */
  readonly prompted: boolean
  /**
   * Which messages the conversation holds: the others are handed over again. Absent where the driver can't tell: those
   * count as held then that the agent was given. A driver with `steer` must tell.
   */
  readonly messages?: ReadonlySet<Bridge.MessageId> | undefined
  /** Told to readers where the agent can't say what it finished. */
  readonly notice?: string | undefined
}

/**
 * A turn that runs, as its driver sees it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Turn {
  readonly turn: Bridge.TurnId
  readonly attempt: number
  /** The prompt; absent only in a continued attempt whose conversation holds it. */
  readonly prompt: ReadonlyArray<Bridge.PromptPart>
  /**
   * Set where the prompt is a message that a host sent into the turn, and which the agent hasn't taken while it worked:
   * `run` is called with it once it has returned for what came before, in the same attempt and conversation.
   */
  readonly message?: Bridge.MessageId | undefined
  /** Set in a continued attempt: send a nudge where `prompted`, otherwise the prompt. */
  readonly continued?: Reconciled | undefined
  readonly model?: string | undefined
  readonly effort?: string | undefined
  readonly responseFormat?: Bridge.ResponseFormat | undefined
  /** Whether the agent's own events are wanted as `raw` parts. */
  readonly raw: boolean
  /**
   * Takes a part for the log; waits where the disk is slow, never for a reader. The bridge replaces secrets, joins
   * characters that deltas split, cuts what is long and counts the steps. A `tool-call` with `providerExecuted: false`
   * can be answered by hosts from then on. What hosts are asked otherwise, their answers, and what becomes of the log
   * are parts that the bridge writes.
   */
  readonly emit: (part: Bridge.AgentPart) => Effect.Effect<void>
  /**
   * Waits for a host's answer to a tool call; emits the call first where it wasn't emitted yet. The answer is in the
   * log, as `tool-result`, when this returns: don't emit it again.
   */
  readonly callHostTool: (call: {
    readonly id: string
    readonly name: string
    readonly params: Schema.Json
    readonly parent?: string | undefined
  }) => Effect.Effect<{ readonly result: Schema.Json; readonly isFailure: boolean }>
  /**
   * Asks whether a tool call may be carried out. What the session's permissions or a standing rule allow is allowed
   * without a part; otherwise an approval request is emitted, and a host or the deadline decides: request and response
   * are in the log when this returns.
   */
  readonly requestApproval: (request: {
    /** Unique in the turn over all its attempts. */
    readonly approvalId: string
    readonly toolCallId: string
    readonly name: string
    readonly params: Schema.Json
    /** Whether carrying it out only edits files inside the working directory: what `edits` allows. */
    readonly edits: boolean
    readonly reason?: string | undefined
    /**
     * What `allow-always` would allow: later requests with an equal `key` are allowed until StopSession. `title` is
     * for people. Absent where only this very call can be allowed.
     */
    readonly rule?: { readonly key: string; readonly title: string } | undefined
    readonly parent?: string | undefined
  }) => Effect.Effect<{ readonly decision: Bridge.Decision; readonly reason?: string | undefined }>
  /**
   * Emits a question and waits for its answer. Both are in the log when this returns.
   */
  readonly ask: (question: {
    /** Unique in the turn over all its attempts. */
    readonly questionId: string
    readonly toolCallId?: string | undefined
    readonly questions: (typeof Bridge.Question.Type)["questions"]
    readonly parent?: string | undefined
  }) => Effect.Effect<{ readonly answer: Schema.Json; readonly isFailure: boolean }>
  /** The agent has taken a message that `steer` handed over; to be said before what it does about it is emitted. */
  readonly delivered: (messageId: Bridge.MessageId) => Effect.Effect<void>
}

/**
 * What a driver says of a turn that the agent finished. The usage is what its `step-finished` parts add up to.
 *
 * @category models
 * @since 0.1.0
 */
export interface Finished {
  /** Why the agent stopped, such as `stop`, `length`, `content-filter`. */
  readonly finishReason: string
  /** The turn's whole cost in US dollars, where the agent only tells it at the end. */
  readonly cost?: number | undefined
  /** The answer, where the turn asked for a `responseFormat`. */
  readonly output?: Schema.Json | undefined
}

/**
 * The agent, or its model, failed the turn.
 *
 * @remedy By its `kind`: see the kinds of failed turns below. Drivers raise it, and hosts read it as a turn's end.
 * @category errors
 * @since 0.1.0
 */
export class TurnFailed extends Data.TaggedError("TurnFailed")<{
  readonly kind: Exclude<Bridge.FailureKind, "disk-full" | "log-full">
  readonly message: string
}> {}

/**
 * How a bridge program gets a driver out of the launch line's agent options.
 *
 * @category models
 * @since 0.1.0
 */
export interface DriverDefinition<Options extends Schema.Top, R> {
  /** The `agent` that selects it. */
  readonly name: string
  /** The rest of the agent options. */
  readonly options: Options
  /** Looks for the agent; fails where it's missing or of a version that doesn't fit, saying how to install it. */
  readonly make: (options: Options["Type"]) => Effect.Effect<Driver, Bridge.DriverError, R>
}

/**
 * The capabilities of an agent that can do nothing but answer in text.
 *
 * @category constants
 * @since 0.1.0
 */
export const noCapabilities: Bridge.Capabilities = {
  reasoning: false,
  toolParams: false,
  hostTools: false,
  approvals: false,
  questions: false,
  images: false,
  fileChanges: false,
  compaction: false,
  continuation: false,
  state: false,
  structuredOutput: false,
  mcpServers: false,
  effort: false,
  usage: false,
  steering: false
}
