/**
 * The client without Effect: promises, async iterators, `AbortSignal`. The same client, and the same guarantees.
 *
 * On Node from 22 on, and on Bun. Each method that waits takes a `signal`: when it aborts, the promise rejects with the
 * signal's reason, and what was asked of the bridge may have happened all the same. A promise rejects with one of the
 * errors below, which are told apart by `_tag` or `instanceof`; what was closed rejects with `ClientClosed`.
 *
 * @since 0.1.0
 */
import * as Protocol from "@gangway/protocol/Bridge"
import * as DaytonaSandbox from "@gangway/sandbox/DaytonaSandbox"
import * as DockerSandbox from "@gangway/sandbox/DockerSandbox"
import * as LocalSandbox from "@gangway/sandbox/LocalSandbox"
import type * as SandboxService from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { StandardJSONSchemaV1, StandardSchemaV1 } from "effect/StandardSchema"
import * as BridgeClient from "./BridgeClient.ts"
import { BridgeUnavailable } from "./BridgeUnavailable.ts"
import * as Handles from "./internal/promise/handles.ts"
import * as Platform from "./internal/promise/platform.ts"
import * as Runner from "./internal/promise/runner.ts"
import * as Tools from "./internal/promise/tools.ts"
import * as Launcher from "./Launcher.ts"
import type * as SessionModule from "./Session.ts"
import type * as StatusModule from "./Status.ts"
import * as TokenStore from "./TokenStore.ts"
import type * as TurnModule from "./Turn.ts"

/**
 * Milliseconds, or a text such as `"30 seconds"`.
 *
 * @category models
 * @since 0.1.0
 */
export type Duration =
  | number
  | `${number} ${"millis" | "second" | "seconds" | "minute" | "minutes" | "hour" | "hours" | "day" | "days"}`

/**
 * JSON, as `JSON.parse` gives it.
 *
 * @category models
 * @since 0.1.0
 */
export type Json = Schema.Json

/**
 * A JSON Schema.
 *
 * @category models
 * @since 0.1.0
 */
export type JsonSchema = Schema.JsonObject

/**
 * A text that's never stored or printed, see `secret`.
 *
 * @category models
 * @since 0.1.0
 */
export type Secret = Redacted.Redacted<string>

/**
 * Stops waiting.
 *
 * @category options
 * @since 0.1.0
 */
export interface WaitOptions {
  readonly signal?: AbortSignal | undefined
}

/**
 * What the client does about its connection, in `message` for people; `retryIn` is in milliseconds. See `onStatus`.
 *
 * @category models
 * @since 0.1.0
 */
export type Status = PlainStatus<StatusModule.Status>

type PlainStatus<S> = S extends { readonly retryIn: unknown }
  ? Omit<S, "retryIn"> & { readonly retryIn: number; readonly message: string }
  : S & { readonly message: string }

/**
 * How a host connects.
 *
 * @category options
 * @since 0.1.0
 */
export interface ClientOptions extends WaitOptions {
  /** An id, as all ids are: 1 to 64 of `a-z`, `0-9` and `-`. */
  readonly bridge: string
  /** How long a bridge that can't be reached is sought before `BridgeUnavailable`; 5 minutes. */
  readonly reconnectFor?: Duration | undefined
  /**
   * Whether pings are sent, by which a connection that died without a word is noticed; true. Where an open socket costs
   * money, such as on a provider that stops idle sandboxes, `false` lets it be silent.
   */
  readonly pings?: boolean | undefined
  /** What the host says of itself. */
  readonly host?: { readonly name: string; readonly version: string } | undefined
  /**
   * Told of each status, in order, and of the next one once what it returned is done. It holds up nothing, and may use the
   * client. Of more than 64 statuses that wait for it, the oldest are left out.
   */
  readonly onStatus?: ((status: Status) => void | PromiseLike<void>) | undefined
}

/**
 * Where the token of the bridge is: `<bridge>.token` in a directory, which is made with the file where they're missing,
 * and which hosts share; a token that the host was given; or the memory of this client, whose bridge nobody finds later.
 *
 * @category options
 * @since 0.1.0
 */
export type Tokens = { readonly directory: string } | { readonly token: string } | "memory"

/**
 * Where a bridge runs: `local()`, `docker(…)` or `daytona(…)`. Another one is an Effect layer.
 *
 * @category models
 * @since 0.1.0
 */
export interface Sandbox {
  readonly layer: Layer.Layer<SandboxService.Sandbox, SandboxService.SandboxError, Platform.Platform>
}

/**
 * What a bridge is found and launched by.
 *
 * @category options
 * @since 0.1.0
 */
export interface ConnectOptions
  extends ClientOptions, Omit<Launcher.LaunchOptions, keyof BridgeClient.ConnectOptions | "idleTimeout">
{
  readonly sandbox: Sandbox
  /** The bridge program in the sandbox, and its arguments, such as `["gangway-bridge"]`. */
  readonly command: readonly [string, ...Array<string>]
  /** Added to the environment that programs in the sandbox have. Secrets don't belong here. */
  readonly env?: Readonly<Record<string, string>> | undefined
  readonly cwd?: string | undefined
  readonly tokens: Tokens
  /** How long the bridge stays without work; 10 minutes. */
  readonly idleTimeout?: Duration | undefined
}

/**
 * Where a bridge is, and what opens it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Address {
  /** An `http:` or `https:` URL. */
  readonly url: string | URL
  readonly token: string
  /** What a proxy in between asks for. */
  readonly headers?: Readonly<Record<string, string>> | undefined
}

/**
 * A connection to one bridge, which comes back by itself. Closing it leaves the bridge and its turns at work.
 *
 * @category models
 * @since 0.1.0
 */
export interface Bridge extends AsyncDisposable {
  readonly bridge: string
  /** Asks the bridge what it is, what its agent can do, and which sessions it has. */
  readonly hello: (options?: WaitOptions) => Promise<Protocol.HelloReply>
  /** Starts a session, or resumes the one of that id. It's started again where another bridge follows this one. */
  readonly startSession: (options: SessionOptions) => Promise<Session>
  /** A session that this host doesn't start: to read its turns and answer them by hand, to stop or destroy it. */
  readonly session: (session: string) => Session
  /**
   * Ends the connection with its reads and handlers, and a sandbox that was made for it and isn't kept. What still
   * waits rejects with `ClientClosed`.
   */
  readonly close: () => Promise<void>
}

/**
 * What a handler has beside what is asked: the turn, and a signal that aborts when another host decides, the turn ends
 * or the client is closed.
 *
 * @category models
 * @since 0.1.0
 */
export interface HandlerContext {
  readonly turn: Turn
  readonly signal: AbortSignal
}

/**
 * What a session is started with. A session that exists keeps its directory, instructions, tools, permissions and MCP
 * servers: others are a `SessionConflict`. The rest is replaced, from the next turn on.
 *
 * @category options
 * @since 0.1.0
 */
export interface SessionOptions extends
  WaitOptions,
  Omit<
    SessionModule.SessionOptions,
    "session" | "tools" | "env" | "approvalTimeout" | "limits" | "onApproval" | "onQuestion"
  >
{
  readonly session: string
  /** The tools that this host runs, by name, see `tool`. They run in each host that starts a turn. */
  readonly tools?: Readonly<Record<string, Tool>> | undefined
  /** Secret variables for the agent's environment, from its next start on; never stored. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** After this an approval or a question that nobody answered is denied; absent, it waits for ever. */
  readonly approvalTimeout?: Duration | undefined
  /** Bounds of each turn; the one that reaches one is aborted with the reason `limit`. `cost` is in US dollars. */
  readonly limits?:
    | Omit<NonNullable<SessionModule.SessionOptions["limits"]>, "time"> & { readonly time?: Duration | undefined }
    | undefined
  /**
   * Decides on the approval requests of turns that this host started; `undefined` leaves one to others. What it throws
   * denies it.
   */
  readonly onApproval?:
    | ((request: ApprovalRequest, context: HandlerContext) => Answer<TurnModule.Approval>)
    | undefined
  /**
   * Answers the questions of turns that this host started: an object from each question's text to the chosen labels or
   * free text; `undefined` leaves them to others. What it throws is told to the agent.
   */
  readonly onQuestion?: ((question: Question, context: HandlerContext) => Answer<Json>) | undefined
}

type Answer<A> = A | undefined | void | PromiseLike<A | undefined | void>

/** @category models @since 0.1.0 */
export type ApprovalRequest = typeof Protocol.ToolApprovalRequest.Type

/** @category models @since 0.1.0 */
export type Question = typeof Protocol.Question.Type

/**
 * What a turn is started with.
 *
 * @category options
 * @since 0.1.0
 */
export interface StartTurnOptions extends WaitOptions, Omit<SessionModule.StartTurnOptions, "turn" | "timeout"> {
  readonly turn: string
  /** After this the turn is aborted with the reason `timeout`; absent, never. */
  readonly timeout?: Duration | undefined
}

/**
 * A session of a bridge.
 *
 * @category models
 * @since 0.1.0
 */
export interface Session {
  readonly session: string
  /** Whether it existed; absent in a session that this host didn't start. */
  readonly resumed: boolean | undefined
  /**
   * Starts a turn; the one that runs, of another id, is aborted. The same id again joins that turn, so a host that died
   * calls it again. The host's tools and handlers then run for the turn until it ends or the client is closed.
   */
  readonly startTurn: (options: StartTurnOptions) => Promise<Turn>
  /** A turn that this host reads and answers by hand. */
  readonly turn: (turn: string, policy?: TurnModule.Policy) => Turn
  /** Shortens the conversation. */
  readonly compact: (
    options?: WaitOptions & { readonly instructions?: string | undefined }
  ) => Promise<Success<SessionModule.Session["compact"]>>
  /** The conversation as JSON, with which a session of another bridge carries it on. */
  readonly readState: (options?: WaitOptions) => Promise<Json>
  /** Stops the agent and all it left running; files and conversation stay. */
  readonly stop: (options?: WaitOptions) => Promise<Success<SessionModule.Session["stop"]>>
  /** Stops the session, and deletes its files and its conversation. */
  readonly destroy: (options?: WaitOptions) => Promise<Success<SessionModule.Session["destroy"]>>
}

/**
 * A turn of a session.
 *
 * @category models
 * @since 0.1.0
 */
export interface Turn {
  readonly session: string
  readonly turn: string
  /** What the bridge answered to its start; absent in a turn that this host only reads. */
  readonly started: TurnModule.StartedTurn | undefined
  /**
   * The parts, live, to the turn's end, each exactly once and in order, over connections that are lost and bridges that
   * die; where that can't be, `PartsLost`. Nothing is read ahead beyond a bounded buffer, and `break` ends the read. May
   * be iterated any number of times. A `turn-continued` part says which earlier parts are void, see `counted`.
   */
  readonly parts: (options?: WaitOptions & TurnModule.ReadOptions) => AsyncIterable<TurnPart>
  /** Waits for the turn's end: reads what no other read of this turn has read. */
  readonly end: (options?: WaitOptions) => Promise<End>
  /** As `end`, with the number of the attempt that ended so, and in `next` the one a further part would have had. */
  readonly endLine: (options?: WaitOptions) => Promise<Protocol.EndLine>
  /** Waits for the turn's end, whatever it is, and gives the agent's text, its blocks separated by empty lines. */
  readonly text: (options?: WaitOptions) => Promise<string>
  /** Ends the turn. It isn't continued by this host then. */
  readonly abort: (
    options?: WaitOptions & NonNullable<Parameters<TurnModule.Turn["abort"]>[0]>
  ) => Promise<Success<TurnModule.Turn["abort"]>>
  /**
   * Sends a message into the running turn, and says how it's delivered: `steer` by default where the agent can be
   * steered, otherwise `queue`. A host that may send it again after it died gives it a `messageId`: a repeat is answered
   * as the first call was.
   */
  readonly send: (
    prompt: string | Protocol.Prompt,
    options?: WaitOptions & {
      readonly messageId?: string | undefined
      readonly delivery?: Protocol.Delivery | undefined
    }
  ) => Promise<Protocol.Delivery>
  /** Decides on a `tool-approval-request`. */
  readonly approve: (approval: WaitOptions & Parameters<TurnModule.Turn["approve"]>[0]) => Promise<void>
  /** Answers a `question` by its `questionId`, or a tool call by its `id`. */
  readonly answer: (answer: WaitOptions & Parameters<TurnModule.Turn["answer"]>[0]) => Promise<void>
}

type Success<A> = A extends Effect.Effect<infer B, infer _E> ? B
  : A extends (...args: ReadonlyArray<never>) => Effect.Effect<infer B, infer _E> ? B
  : never

/** @category models @since 0.1.0 */
export type TurnPart = TurnModule.TurnPart

/** @category models @since 0.1.0 */
export type Part = Protocol.Part

/** @category models @since 0.1.0 */
export type End = Protocol.End

/**
 * What a tool's function has beside its input: the call's id, which is the same where it's run again, and a signal that
 * aborts when nobody waits for the result any more.
 *
 * @category models
 * @since 0.1.0
 */
export interface ToolContext {
  readonly id: string
  readonly signal: AbortSignal
}

/**
 * A tool that this host runs, see `tool`.
 *
 * @category models
 * @since 0.1.0
 */
export interface Tool {
  readonly description: string
  readonly parameters: JsonSchema
  readonly run: (params: Json, context: ToolContext) => unknown
}

/**
 * Makes a tool of a function. `parameters` says what its input is:
 *
 * - A Standard Schema, as those of zod, valibot and arktype are: the input is checked, and the function gets what the
 *   schema makes of it. The agent is shown the schema's own JSON Schema. A library that gives none needs one beside, as
 *   `jsonSchema`; one that can't express this schema in it throws here.
 * - A JSON Schema of an object, which the agent is shown; the input isn't checked against it.
 *
 * The result is JSON, or a promise of that; `undefined` is `null`. What the function throws is a failed result, in which
 * the agent reads the error's message. A call has one result, but may be run more than once: by each host that started
 * its turn, and again after a host died before it answered.
 *
 * @category constructors
 * @since 0.1.0
 */
export function tool<S extends StandardSchemaV1 & StandardJSONSchemaV1>(definition: {
  readonly description: string
  readonly parameters: S
  readonly jsonSchema?: JsonSchema | undefined
  readonly run: (params: StandardSchemaV1.InferOutput<S>, context: ToolContext) => unknown
}): Tool
export function tool<S extends StandardSchemaV1>(definition: {
  readonly description: string
  readonly parameters: S
  readonly jsonSchema: JsonSchema
  readonly run: (params: StandardSchemaV1.InferOutput<S>, context: ToolContext) => unknown
}): Tool
export function tool(definition: {
  readonly description: string
  readonly parameters: JsonSchema
  readonly run: (params: Readonly<Record<string, Json | undefined>>, context: ToolContext) => unknown
}): Tool
export function tool(definition: Tools.Definition): Tool {
  return Tools.make(definition)
}

/**
 * Marks a text of the agent's options, or of an MCP server's headers or environment, as secret.
 *
 * @category constructors
 * @since 0.1.0
 */
export const secret = (text: string): Secret => Redacted.make(text)

/**
 * This machine: the bridge is a process of this user.
 *
 * @category sandboxes
 * @since 0.1.0
 */
export const local = (): Sandbox => ({ layer: LocalSandbox.layer })

/**
 * A Docker container: one of its own, which is removed when the client is closed unless it's to be kept, or with
 * `container` one that exists.
 *
 * @category sandboxes
 * @since 0.1.0
 */
export const docker = (options: DockerSandbox.CreateOptions | DockerSandbox.AttachOptions): Sandbox => ({
  layer: "container" in options ? DockerSandbox.layerAttach(options) : DockerSandbox.layer(options)
})

/**
 * A sandbox of Daytona, for which `@daytona/sdk` is installed: one of its own, which is deleted when the client is
 * closed unless it's to be kept, or with `sandbox` one that exists.
 *
 * @category sandboxes
 * @since 0.1.0
 */
export const daytona = (
  options:
    & { readonly apiKey: string }
    & (
      | Omit<DaytonaSandbox.CreateOptions, "apiKey" | "autoStop"> & { readonly autoStop?: Duration | undefined }
      | Omit<DaytonaSandbox.AttachOptions, "apiKey">
    )
): Sandbox => {
  const apiKey = Redacted.make(options.apiKey)
  return {
    layer: "sandbox" in options
      ? DaytonaSandbox.layerAttach({ ...options, apiKey })
      : DaytonaSandbox.layer({ ...options, apiKey })
  }
}

/**
 * Connects to a bridge in a sandbox, and launches one where there's none, and again where it died.
 *
 * @category constructors
 * @since 0.1.0
 */
export const connect = (options: ConnectOptions): Promise<Bridge> => {
  const { command, cwd, env, onStatus, sandbox, signal, tokens, ...launch } = options
  const client = Effect.gen(function*() {
    const launcher = yield* Launcher.Launcher
    const bridge = yield* Schema.decodeEffect(Protocol.BridgeId)(launch.bridge)
    return yield* launcher.connect({ ...launch, bridge, onStatus: Handles.toOnStatus(onStatus) })
  })
  return open(
    Layer.effect(BridgeClient.BridgeClient, client).pipe(
      Layer.provide(Launcher.layer({ command, cwd, env })),
      Layer.provide([sandbox.layer, tokenStore(tokens)]),
      Layer.provide(Platform.layer)
    ),
    signal
  )
}

/**
 * Connects to a bridge at an address, which is asked for anew for each connection: ports and preview tokens change.
 * What `address` throws ends that with `BridgeUnavailable`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const connectTo = (
  options: ClientOptions & {
    readonly address: (options: { readonly signal: AbortSignal }) => Address | PromiseLike<Address>
  }
): Promise<Bridge> => {
  const { address, onStatus, signal, ...rest } = options
  const client = Effect.gen(function*() {
    const bridge = yield* Schema.decodeEffect(Protocol.BridgeId)(rest.bridge)
    return yield* BridgeClient.make({
      ...rest,
      bridge,
      onStatus: Handles.toOnStatus(onStatus),
      address: Runner.call((signal) => Promise.resolve(address({ signal })).then(toAddress)).pipe(
        Effect.mapError((problem) => new BridgeUnavailable({ bridge, reason: { _tag: "Unreachable", problem } }))
      )
    })
  })
  return open(Layer.effect(BridgeClient.BridgeClient, client), signal)
}

const toAddress = ({ headers = {}, token, url }: Address): BridgeClient.Address => ({
  url: new URL(url),
  token: Redacted.make(token),
  headers: Handles.toSecrets(headers)
})

const open = <E>(layer: Layer.Layer<BridgeClient.BridgeClient, E>, signal: AbortSignal | undefined) => {
  const runner = Runner.make(ManagedRuntime.make(Layer.provideMerge(layer, warnings)))
  return runner.run(Effect.service(BridgeClient.BridgeClient), signal).then(
    (client) => Handles.toBridge(runner, client),
    (error) => {
      const rejected = () => Promise.reject(error)
      const closed = runner.close().then(rejected, rejected)
      if (signal?.aborted !== true) return closed
      // Whoever gave up doesn't wait for what was begun to be undone.
      closed.catch(() => {})
      return rejected()
    }
  )
}

// Standard output is the host's own.
const warnings = Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)])

const tokenStore = (tokens: Tokens) =>
  tokens === "memory"
    ? TokenStore.layerMemory
    : "token" in tokens
    ? TokenStore.layerToken(Redacted.make(tokens.token))
    : TokenStore.layerFile(tokens.directory)

/**
 * What a promise rejects with. `BridgeUnavailable` has a `reason`, which has a `_tag` too.
 *
 * @category errors
 * @since 0.1.0
 */
export {
  AlreadyAnswered,
  ApprovalNotFound,
  ContextLost,
  DirectoryInvalid,
  DriverError,
  LogUnavailable,
  MessageConflict,
  SessionBusy,
  SessionConflict,
  SessionDestroyed,
  SessionFull,
  SessionNotFound,
  SessionNotStarted,
  StateTooLarge,
  TooDeep,
  TooLarge,
  ToolCallNotFound,
  TooManyMessages,
  TooManyStreams,
  TurnConflict,
  TurnDamaged,
  TurnEnded,
  TurnNotFound,
  TurnRunning,
  TurnSuperseded,
  Unsupported,
  UnsupportedFormat
} from "@gangway/protocol/Bridge"

export { SandboxError } from "@gangway/sandbox/Sandbox"

/** An id or another option that doesn't fit. */
export { SchemaError } from "effect/Schema"

export { BridgeUnavailable } from "./BridgeUnavailable.ts"

export { ClientClosed } from "./internal/promise/closed.ts"

export { ContinueFailed, counted, nextNumber, PartsLost, toText } from "./Turn.ts"
