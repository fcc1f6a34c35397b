/**
 * What is kept of a session on disk besides its latest turn's parts: `session.json`.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as EarlierTurns from "./earlierTurns.ts"

/** The format that this version writes. */
export const format = 1

/** How many turns a session can have. */
export const maxTurns = 10_000

/** The latest turn. `end` is absent while it runs, and after a bridge died: then the turn's file knows. */
export const LatestTurn = Schema.Struct({
  turn: Bridge.TurnId,
  /** Never decreases, also where the turn's file lost its end. */
  attempt: Schema.Int,
  /** The form of its answer, for a host that continues it and no longer has it. */
  responseFormat: Schema.optional(Bridge.ResponseFormat),
  end: Schema.optional(Bridge.End)
})

/** How a turn before the latest one ended: without what it answered, which isn't kept either. */
export const toEarlier = (end: Bridge.End): Bridge.End => {
  if (end.type !== "finished") return end
  const { background: _, output: __, ...rest } = end
  return rest
}

/** A rule that `allow-always` made. */
export const Rule = Schema.Struct({ key: Schema.String, title: Schema.String })

/** SHA-256 of each option that must not change, in hexadecimal. */
export const OptionDigests = Schema.Struct({
  directory: Schema.String,
  instructions: Schema.String,
  tools: Schema.String,
  permissions: Schema.String,
  mcpServers: Schema.String
})

export const SessionFile = Schema.Struct({
  format: Schema.Literal(format),
  session: Bridge.SessionId,
  /** The real path of the working directory. */
  directory: Schema.String,
  digests: OptionDigests,
  driver: Schema.Struct({ name: Schema.String, version: Schema.String }),
  /** The agent's id of the conversation. */
  conversation: Schema.optional(Schema.String),
  /** Whether the agent did anything in a turn that has ended. */
  established: Schema.Boolean,
  /** Random: marks the environment of the agent's processes, so that a later bridge finds them. */
  marker: Schema.String,
  /** Whether processes of the agent may be running. */
  active: Schema.Boolean,
  latest: Schema.optional(LatestTurn),
  /** The turns before the latest, as far as their file counts. */
  earlier: EarlierTurns.Extent,
  rules: Schema.Array(Rule)
})

export type SessionFile = typeof SessionFile.Type

/** What a damaged file still says, as far as it's needed to destroy the session. */
export interface Remains {
  readonly conversation?: string | undefined
  readonly directory?: string | undefined
  readonly driver?: SessionFile["driver"] | undefined
  readonly marker?: string | undefined
}

/** What can be made out in a file, whatever it holds. */
export const toRemains = (json: unknown): Remains => {
  const { conversation, directory, driver, marker } = SessionFile.fields
  const field = <A>(name: string, schema: Schema.Codec<A, unknown>) =>
    Predicate.hasProperty(json, name)
      ? Option.getOrUndefined(Schema.decodeUnknownOption(schema)(json[name]))
      : undefined
  return {
    conversation: field("conversation", conversation),
    directory: field("directory", directory),
    driver: field("driver", driver),
    marker: field("marker", marker)
  }
}
