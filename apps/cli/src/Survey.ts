/**
 * What there is: the bridges that are known, how each one is, and its sessions.
 */
import { describeReason } from "@gangway/client/BridgeUnavailable"
import { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Peek from "./Peek.ts"
import { type BridgeRecord, Registry } from "./Registry.ts"
import { isNotFound } from "./sandboxes/Kind.ts"

/** A session, as its bridge or its files tell of it. */
export interface SurveyedSession {
  readonly session: Bridge.SessionId
  readonly directory: string
  /** Whether it's started anew before its next turn. */
  readonly dormant: boolean
  readonly latest?: {
    readonly turn: Bridge.TurnId
    readonly attempt: number
    /** `interrupted` where its bridge died in the middle of it. */
    readonly state: Bridge.TurnState | "interrupted"
    readonly next?: number | undefined
    readonly waiting?: ReadonlyArray<Bridge.Waiting> | undefined
  } | undefined
}

/**
 * How a bridge is.
 *
 * - `running`: it answers.
 * - `gone`: there's none any more; whatever needs it launches it again.
 * - `stopped`: its sandbox is; whatever needs it starts that again.
 * - `no-sandbox`: its sandbox was removed, and its sessions with it.
 * - `unknown`: that can't be said, for the `problem`.
 */
export type Condition = "running" | "gone" | "stopped" | "no-sandbox" | "unknown"

export interface SurveyedBridge {
  readonly bridge: Bridge.BridgeId
  /** What's known of it here, where that can be read. */
  readonly record: BridgeRecord | undefined
  readonly condition: Condition
  readonly problem?: string | undefined
  readonly pid?: number | undefined
  readonly driver?: Bridge.HelloReply["driver"] | undefined
  readonly sessions: ReadonlyArray<SurveyedSession>
}

/** Looks at bridges side by side: at all that are known, where none is named. */
export const survey = Effect.fnUntraced(function*(named?: ReadonlyArray<Bridge.BridgeId>) {
  const registry = yield* Registry
  return yield* Effect.forEach(named ?? (yield* registry.bridges), look, { concurrency: 8 })
})

const look = Effect.fnUntraced(function*(bridge: Bridge.BridgeId) {
  const registry = yield* Registry
  const known = yield* Effect.result(registry.bridge(bridge))
  const record = Result.isSuccess(known) ? Option.getOrUndefined(known.success) : undefined
  const as = (condition: Condition, rest: Partial<SurveyedBridge> = {}): SurveyedBridge => ({
    bridge,
    record,
    condition,
    sessions: [],
    ...rest
  })
  if (Result.isFailure(known)) return as("unknown", { problem: known.failure.problem })
  // One whose first launch was cut short.
  if (record === undefined) return as("gone")
  return yield* Effect.gen(function*() {
    const place = yield* Peek.placeOf(bridge, record)
    if (place === undefined) return as("no-sandbox")
    const running = yield* Peek.open(bridge, place)
    if (running !== undefined) {
      const { hello: { driver, sessions }, pid } = running
      return as("running", { pid, driver, sessions })
    }
    const sessions = yield* Effect.forEach(
      yield* registry.sessions(bridge),
      (session) => readSession(place, session),
      { concurrency: 16 }
    )
    return as("gone", { sessions: sessions.filter((session) => session !== undefined) })
  }).pipe(
    Effect.scoped,
    Effect.catch(Effect.fnUntraced(function*(error) {
      if (error._tag === "SandboxError" && isNotFound(error)) return as("no-sandbox")
      const sessions = yield* Effect.orElseSucceed(recorded(bridge), () => [])
      return error._tag === "SandboxError" && error.reason._tag === "NotRunning"
        ? as("stopped", { sessions })
        : as("unknown", {
          problem: error._tag === "BridgeUnavailable" ? describeReason(error.reason) : error.message,
          sessions
        })
    }))
  )
})

// What was started from here, where there's nothing to ask.
const recorded = Effect.fnUntraced(function*(bridge: Bridge.BridgeId) {
  const registry = yield* Registry
  return yield* Effect.forEach(
    yield* registry.sessions(bridge),
    (session) =>
      Effect.map(registry.session(bridge, session), (record): SurveyedSession => ({
        session,
        directory: Option.match(record, { onNone: () => "", onSome: ({ directory }) => directory }),
        dormant: true
      }))
  )
})

// What matters here of docs/schema/session-file.json.
const SessionFile = Schema.Struct({
  directory: Schema.String,
  latest: Schema.optional(Schema.Struct({
    turn: Bridge.TurnId,
    attempt: Schema.Int,
    end: Schema.optional(Schema.Struct({ type: Schema.Literals(["finished", "failed", "aborted"]) }))
  }))
})

const decodeSessionFile = Schema.decodeOption(Schema.fromJsonString(SessionFile))

// Without a bridge its file tells of a session; it's none, or no more, where there's no such file.
const readSession = Effect.fnUntraced(function*(
  { sandbox, stateDirectory }: Peek.Place,
  session: Bridge.SessionId
) {
  const bytes = yield* sandbox.readFile(`${stateDirectory}/sessions/${session}/session.json`)
  const file = Option.flatMap(bytes, (bytes) => decodeSessionFile(new TextDecoder().decode(bytes)))
  if (Option.isNone(file)) return undefined
  const { directory, latest } = file.value
  const surveyed: SurveyedSession = {
    session,
    directory,
    dormant: true,
    ...(latest === undefined
      ? {}
      : { latest: { turn: latest.turn, attempt: latest.attempt, state: latest.end?.type ?? "interrupted" } })
  }
  return surveyed
})
