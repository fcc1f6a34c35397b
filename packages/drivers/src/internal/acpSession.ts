/**
 * A session with an agent of the Agent Client Protocol: its process, and the turn that it works on.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import {
  type AgentSession,
  type Finished,
  type PreviousAttempts,
  type Reconciled,
  type SessionOptions,
  type Turn,
  TurnFailed
} from "@gangway/server/Driver"
import type * as Crypto from "effect/Crypto"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import type { LoopbackServer } from "../LoopbackServer.ts"
import * as Client from "./acpClient.ts"
import { type Connection, failed, RpcCode, RpcError, start } from "./acpConnection.ts"
import * as Conversation from "./acpConversation.ts"
import { turnFailed } from "./acpFailure.ts"
import * as HostTools from "./acpHostTools.ts"
import * as Launch from "./acpLaunch.ts"
import {
  type Initialized,
  NewSession,
  PermissionRequest,
  Prompted,
  SessionSettings,
  SessionUpdate
} from "./acpMessages.ts"
import { makeParts } from "./acpParts.ts"
import * as Permission from "./acpPermission.ts"
import * as Prompt from "./acpPrompt.ts"
import { makeReplay, reconcile, type Replay } from "./acpReconcile.ts"
import * as Requests from "./acpRequests.ts"
import type { Work } from "./acpRequests.ts"
import * as Start from "./acpStart.ts"
import { finishReason } from "./acpUsage.ts"
import { nudge } from "./prompts.ts"

type Services = FileSystem.FileSystem | Path.Path | Crypto.Crypto | LoopbackServer

const nowhere = { empty: "", instructions: undefined }

const interrupted = new TurnFailed({ kind: "unknown", message: "The turn was interrupted." })

/** An agent, and whether it carries on turns that were cut. */
export interface Agent extends Launch.Agent {
  readonly continues: boolean
}

export const open = Effect.fnUntraced(function*(agent: Agent, options: SessionOptions): Effect.fn.Return<
  AgentSession,
  Bridge.DriverError | Bridge.ContextLost,
  Services | Scope.Scope
> {
  const scope = yield* Effect.scope
  const { profile } = agent
  const { directory } = options
  const tools = new Set(options.tools.map(({ name }) => name))
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const requests = yield* Requests.make(directory)
  const client = yield* Client.make({ directory, processes: options.processes })
  const partsOptions = { profile, tools, outputOf: client.outputOf }

  const lost = (problem: string) => new Bridge.ContextLost({ session: options.session, problem })

  const fingerprint = Conversation.fingerprint(directory)
  let conversation = options.conversation === undefined ? undefined : Conversation.fromString(options.conversation)
  // Some agents load a conversation wherever they are.
  if (conversation !== undefined && conversation.directory !== fingerprint) {
    return yield* lost(`the agent's conversation ${conversation.id} is another directory's`)
  }
  /** Whether anything came out of the conversation: one that is missing is lost then, and new otherwise. */
  let begun = options.established
  /** How many messages of the user's the conversation holds. */
  let prompts = 0
  let replay: Replay | undefined
  let running: Start.Running | undefined
  /** The one that was started last, running or about to. */
  let latest: Connection | undefined
  let work: Work | undefined

  // ---------------------------------------------------------------------------
  // What the agent says
  // ---------------------------------------------------------------------------

  const onNotification = Effect.fnUntraced(function*(connection: Connection, method: string, params: Schema.Json) {
    if (connection !== latest) return
    if (work?.sent === true && work.turn.raw) yield* work.turn.emit({ type: "raw", event: { method, params } })
    if (method !== "session/update") return
    const told = Option.getOrUndefined(decodeUpdate(params))
    if (told === undefined || told.sessionId !== conversation?.id) return
    if (work?.sent === true) {
      begun = true
      const { parts } = work
      return yield* requests.emit(work, () => parts.take(told.update))
    }
    replay?.take(told.update)
  })

  const onRequest = Effect.fnUntraced(
    function*(connection: Connection, method: string, params: Schema.Json): Effect.fn.Return<
      Schema.Json,
      RpcError
    > {
      if (method === "session/request_permission") {
        const request = yield* Effect.fromOption(decodePermission(params)).pipe(
          Effect.mapError(() => new RpcError({ code: RpcCode.invalidParams, message: "no request for permission" }))
        )
        // One of a prompt that has ended, or of another conversation, is nobody's to allow.
        return yield* work?.sent !== true || connection !== latest || request.sessionId !== conversation?.id
          ? Effect.succeed(Permission.cancelled)
          : requests.permit(work, request)
      }
      // Only what the agent was told that it may ask.
      const answer = profile === undefined ? client.answer(method) : undefined
      if (answer !== undefined) return yield* answer(params)
      return yield* new RpcError({ code: RpcCode.methodNotFound, message: `${method} is not supported` })
    }
  )

  const onExit = Effect.fnUntraced(function*(connection: Connection, problem: string) {
    if (connection !== latest) return
    running = undefined
    if (work === undefined) return
    const isStopped = yield* Deferred.isDone(work.stopped)
    yield* Deferred.fail(
      work.done,
      isStopped ? interrupted : new TurnFailed({ kind: "agent-exit", message: `${agent.title}: ${problem}` })
    )
  })

  // ---------------------------------------------------------------------------
  // The process
  // ---------------------------------------------------------------------------

  const surroundings = profile?.env === undefined ? nowhere : yield* files(Effect.gen(function*() {
    const own = yield* fs.makeTempDirectoryScoped({ prefix: "gangway-acp-" })
    const empty = path.join(own, "empty")
    yield* fs.makeDirectory(empty)
    if (profile.instructionsFile !== true || options.instructions === undefined) {
      return { empty, instructions: undefined }
    }
    const instructions = path.join(own, "instructions.md")
    yield* fs.writeFileString(instructions, options.instructions)
    return { empty, instructions }
  }))
  const hostTools = tools.size === 0 ?
    undefined :
    yield* HostTools.serve(options.tools, (name, params) =>
      work === undefined
        ? Effect.succeed({ result: "No turn is running.", isFailure: true })
        : requests.callHost(work, name, params))

  const save = (next: Conversation.Conversation) => {
    conversation = next
    return Effect.mapError(
      options.saveConversation(Conversation.toString(next)),
      ({ message }) => failed("unknown", message)
    )
  }

  const launch = Effect.gen(function*() {
    replay = undefined
    const connection = yield* start(
      options.processes,
      Launch.command(agent, options, surroundings),
      { onNotification, onRequest, onExit }
    ).pipe(Scope.provide(scope))
    latest = connection
    return yield* Effect.tapError(prepare(connection), (error) => {
      if (error._tag === "DriverError" && error.kind === "exit") return Effect.void
      // One that can't be used is ended, and how that ends says nothing.
      latest = undefined
      return connection.process.end
    })
  }).pipe(
    Effect.catchTag("RpcError", ({ code, message }) =>
      Effect.fail(failed(
        "start",
        code === RpcCode.authRequired ? `it isn't logged in: ${message}` : message
      )))
  )

  const prepare = Effect.fnUntraced(function*(connection: Connection) {
    const { initialized, place } = yield* Start.greet(connection, agent, options, hostTools)
    const settings = yield* begin(connection, initialized, place)
    const model = Start.modelOf(settings)
    const started: Start.Running = { connection, initialized, place, settings, model, current: model }
    yield* Start.setMode(started, conversation!.id, agent.options.mode ?? profile?.mode)
    running = started
    return started
  })

  const begin = Effect.fnUntraced(function*(connection: Connection, initialized: Initialized, place: object) {
    if (conversation !== undefined) {
      if (initialized.agentCapabilities?.loadSession !== true) {
        return yield* lost("the agent can't load a conversation")
      }
      const { id } = conversation
      const telling = makeReplay(partsOptions, conversation.turn)
      replay = telling
      const loaded = yield* Effect.result(
        Start.openConversation(connection, SessionSettings, "session/load", { sessionId: id, ...place })
      )
      if (loaded._tag === "Success") {
        prompts = telling.count()
        return loaded.success
      }
      if (loaded.failure._tag === "DriverError") return yield* loaded.failure
      if (begun) {
        return yield* lost(`the agent can't load its conversation ${id}: ${loaded.failure.message}`)
      }
    }
    replay = undefined
    const { sessionId, ...settings } = yield* Start.openConversation(connection, NewSession, "session/new", place)
    prompts = 0
    yield* save({ id: sessionId, directory: fingerprint, turn: undefined })
    return settings
  })

  const ready = Effect.suspend(() =>
    running === undefined || running.connection.gone() ? launch : Effect.succeed(running)
  )

  // ---------------------------------------------------------------------------
  // A turn
  // ---------------------------------------------------------------------------

  const send = Effect.fnUntraced(function*(current: Work) {
    const { turn } = current
    const started = yield* ready
    yield* Start.setModel(started, conversation!.id, turn.model ?? agent.options.model ?? started.model)
    const isNudge = turn.continued?.prompted === true
    const { promptCapabilities } = started.initialized.agentCapabilities ?? {}
    const prompt = isNudge
      ? [{ type: "text", text: nudge }]
      : yield* Prompt.content(turn.prompt, {
        images: promptCapabilities?.image === true,
        resources: promptCapabilities?.embeddedContext === true
      }, surroundings.instructions === undefined && prompts === 0 ? options.instructions : undefined)
    const { id } = conversation!
    // What a host sends into the turn later doesn't move its beginning.
    if (!isNudge && (turn.continued !== undefined || conversation!.turn?.id !== turn.turn)) {
      const text = turn.prompt.find((part) => part.type === "text")?.text ?? ""
      const place = { id: turn.turn, before: prompts, text: Conversation.fingerprint(text) }
      yield* save({ id, directory: fingerprint, turn: place })
    }
    if (yield* Deferred.isDone(current.stopped)) return yield* interrupted
    current.parts = makeParts({ ...partsOptions, prompt: ++prompts })
    current.sent = true
    replay = undefined
    const answer = yield* Start.need(started.connection, Prompted, "session/prompt", { sessionId: id, prompt }).pipe(
      Effect.catchTag("RpcError", (error) => explain(current, started, error))
    )
    yield* Deferred.succeed(current.done, answer)
  })

  // An agent whose conversation is gone may only say that something went wrong. It's of no more use after an error.
  const explain = Effect.fnUntraced(function*(
    current: Work,
    { connection, place }: Start.Running,
    error: RpcError
  ): Effect.fn.Return<never, TurnFailed | Bridge.ContextLost | Bridge.DriverError> {
    const failure = turnFailed(error)
    if (failure.kind !== "unknown" || (yield* Deferred.isDone(current.stopped))) return yield* failure
    current.sent = false
    const loaded = yield* Effect.result(
      Start.openConversation(connection, SessionSettings, "session/load", { sessionId: conversation!.id, ...place })
    )
    if (loaded._tag === "Success" || loaded.failure._tag === "DriverError") return yield* failure
    return yield* loaded.failure.code === RpcCode.methodNotFound
      ? failure
      : lost(`the agent can't load its conversation ${conversation!.id}: ${loaded.failure.message}`)
  })

  const run = Effect.fnUntraced(function*(turn: Turn): Effect.fn.Return<
    Finished,
    TurnFailed | Bridge.DriverError | Bridge.ContextLost,
    Scope.Scope
  > {
    // Nothing may wait before this is there: an interrupt that came earlier would be missed.
    const current: Work = {
      turn,
      parts: makeParts({ ...partsOptions, prompt: prompts }),
      done: Deferred.makeUnsafe(),
      stopped: Deferred.makeUnsafe(),
      sent: false
    }
    work = current
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (work === current) work = undefined
      })
    )
    // An agent that ended meanwhile says more about it than the request that failed.
    const prompted = yield* Effect.raceFirst(
      Deferred.await(current.done),
      Effect.andThen(
        Effect.catchIf(
          send(current),
          (error) => error._tag === "DriverError" && error.kind === "exit",
          (error) => Effect.delay(Effect.fail(error), "5 seconds")
        ),
        Effect.never
      )
    ).pipe(
      Effect.tapError(() => requests.emit(current, () => current.parts.close(undefined)))
    )
    const isStopped = yield* Deferred.isDone(current.stopped)
    yield* requests.emit(current, () => current.parts.close(isStopped ? undefined : prompted))
    if (isStopped) return yield* interrupted
    return { finishReason: finishReason(prompted.stopReason) }
  })

  if (conversation !== undefined) yield* launch

  const compare = Effect.fnUntraced(function*(previous: PreviousAttempts): Effect.fn.Return<
    Reconciled,
    Bridge.DriverError | Bridge.ContextLost
  > {
    if (conversation === undefined) return { keep: 0, recovered: [], prompted: false }
    if (replay === undefined || running === undefined || running.connection.gone()) {
      running = undefined
      yield* launch
    }
    const reconciled = yield* reconcile(replay ?? makeReplay(partsOptions, undefined), conversation.turn, previous)
    return "lost" in reconciled ? yield* lost(reconciled.lost) : reconciled
  })

  return {
    conversation: options.conversation,

    ...(agent.continues ? { reconcile: compare } : {}),

    run: (turn) =>
      Effect.scoped(run(turn)).pipe(
        // Where something doesn't end well, the bridge ends its processes.
        Effect.onError(() => Effect.sync(() => void (running = undefined)))
      ),

    interrupt: Effect.suspend(() => {
      const current = work
      if (current === undefined) return Effect.void
      const connection = running?.connection
      return Effect.andThen(
        Deferred.succeed(current.stopped, undefined),
        !current.sent || connection === undefined || conversation === undefined
          ? Deferred.fail(current.done, interrupted)
          // An agent that is just taking the prompt up doesn't stop for what came too early.
          : connection.notify("session/cancel", { sessionId: conversation.id }).pipe(
            Effect.repeat({ schedule: Schedule.spaced("250 millis"), until: () => Deferred.isDone(current.done) })
          )
      ).pipe(Effect.asVoid)
    })
  }

  function files<A, E extends { readonly message: string }, R>(effect: Effect.Effect<A, E, R>) {
    return Effect.mapError(effect, ({ message }) => failed("unknown", message))
  }
})

const decodeUpdate = Schema.decodeUnknownOption(SessionUpdate)
const decodePermission = Schema.decodeUnknownOption(PermissionRequest)
