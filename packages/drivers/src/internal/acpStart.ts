/**
 * An agent from its process to where it can be prompted: what it's asked before there's a turn, and in what time.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { type SessionOptions, TurnFailed } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { type Connection, failed, inTime, type RpcError } from "./acpConnection.ts"
import type { Endpoint } from "./acpHostTools.ts"
import * as Launch from "./acpLaunch.ts"
import { Initialized, type SessionSettings } from "./acpMessages.ts"
import { patience } from "./jsonAgent.ts"

/** An agent that has a conversation open. */
export interface Running {
  readonly connection: Connection
  readonly initialized: Initialized
  /** What a conversation is begun and loaded with. */
  readonly place: object
  readonly settings: SessionSettings
  /** The model that it was started with. */
  readonly model: string | undefined
  current: string | undefined
}

/** How many seconds it may take to open a conversation: it may be long, and MCP servers may be installed for it. */
const openPatience = 10 * 60

type Answer<A> = Effect.Effect<A, Bridge.DriverError | RpcError>

/** Asks for something without which nothing goes on. */
export const need = <A>(
  connection: Connection,
  schema: Schema.Codec<A, unknown>,
  method: string,
  params: object
): Answer<A> =>
  Effect.flatMap(connection.request(method, params), (answer) =>
    Effect.mapError(
      Schema.decodeEffect(schema)(answer ?? {}),
      ({ message }) => failed("protocol", `${method} was answered in a form that isn't the protocol's: ${message}`)
    ))

/** Opens a conversation, a new one or one that is there, or tries whether it is. */
export const openConversation = <A>(
  connection: Connection,
  schema: Schema.Codec<A, unknown>,
  method: "session/new" | "session/load",
  params: object
): Answer<A> => inTime(method, openPatience, need(connection, schema, method, params))

const ask = (connection: Connection, method: string, params: object): Answer<Schema.Json> =>
  inTime(method, patience, connection.request(method, params))

/** Makes acquaintance with an agent that has just been started, and logs in. */
export const greet = Effect.fnUntraced(function*(
  connection: Connection,
  { options, profile }: Launch.Agent,
  session: SessionOptions,
  host: Endpoint | undefined
): Effect.fn.Return<Pick<Running, "initialized" | "place">, Bridge.DriverError | RpcError> {
  const initialized = yield* inTime(
    "initialize",
    patience,
    need(connection, Initialized, "initialize", Launch.initialize(profile))
  )
  if (initialized.protocolVersion !== 1) {
    return yield* failed("protocol", `it speaks version ${initialized.protocolVersion} of the protocol, not 1`)
  }
  const known = profile?.auth
  const isReady = known !== undefined &&
    Launch.variableOf(Launch.environment(options, session))(known.variable) !== undefined
  const methodId = options.authMethod ?? (isReady ? known.method : undefined)
  if (methodId !== undefined) yield* ask(connection, "authenticate", { methodId })
  const mcpServers = yield* Launch.mcpServers(initialized, session.mcpServers, host)
  const meta = profile?.meta === undefined ? {} : { _meta: profile.meta }
  return { initialized, place: { cwd: session.directory, mcpServers, ...meta } }
})

/** Has the agent work in a mode. */
export const setMode = ({ connection, settings }: Running, sessionId: string, mode: string | undefined) =>
  mode === undefined || settings.modes?.currentModeId === mode
    ? Effect.void
    : Effect.asVoid(ask(connection, "session/set_mode", { sessionId, modeId: mode }))

/** Has the agent use a model. */
export const setModel = Effect.fnUntraced(function*(
  running: Running,
  sessionId: string,
  wanted: string | undefined
): Effect.fn.Return<void, Bridge.DriverError | TurnFailed> {
  if (wanted === undefined || wanted === running.current) return
  const option = configOf(running.settings)
  yield* (option === undefined
    ? ask(running.connection, "session/set_model", { sessionId, modelId: wanted })
    : ask(running.connection, "session/set_config_option", { sessionId, configId: option.id, value: wanted })).pipe(
      Effect.catchTag("RpcError", ({ message }) =>
        Effect.fail(
          new TurnFailed({ kind: "invalid-request", message: `The agent has no model '${wanted}': ${message}` })
        ))
    )
  running.current = wanted
})

const configOf = ({ configOptions }: SessionSettings) =>
  configOptions?.find(({ category, id }) => category === "model" || id === "model")

/** The model that an agent says it uses. */
export const modelOf = (settings: SessionSettings): string | undefined => {
  const value = configOf(settings)?.currentValue ?? settings.models?.currentModelId
  return typeof value === "string" ? value : undefined
}
