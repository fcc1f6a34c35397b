/**
 * How a session's turns before the latest one ended: a file that's appended to, so that starting a turn costs the
 * same after thousands of them. The session's file says how much of it counts; what's behind was about to.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { appendAt } from "../StateDirectory.ts"
import { unavailable } from "./unavailable.ts"

/** How many turns there are in how many bytes. */
export const Extent = Schema.Struct({ turns: Schema.Int, bytes: Schema.Int })

export type Extent = typeof Extent.Type

export const empty: Extent = { turns: 0, bytes: 0 }

export type EarlierTurns = ReadonlyMap<Bridge.TurnId, Bridge.End>

const EarlierTurn = Schema.Struct({ turn: Bridge.TurnId, end: Bridge.End })

export type EarlierTurn = typeof EarlierTurn.Type

const encodeLine = Schema.encodeSync(Schema.fromJsonString(EarlierTurn))
const decodeLines = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Array(Schema.Unknown)))

// Whether a line is one of ours. The whole schema would hold up the bridge for ten thousand of them.
const isEarlierTurn = (line: unknown): line is EarlierTurn =>
  Predicate.hasProperty(line, "turn") && Predicate.isString(line.turn) &&
  Predicate.hasProperty(line, "end") && Predicate.hasProperty(line.end, "type")

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** Reads what counts. */
export const read = Effect.fnUntraced(function*(
  path: string,
  extent: Extent
): Effect.fn.Return<EarlierTurns, Bridge.LogUnavailable, FileSystem.FileSystem> {
  if (extent.turns === 0) return new Map()
  const fs = yield* FileSystem.FileSystem
  const bytes = yield* Effect.mapError(fs.readFile(path), unavailable)
  const lines = decoder.decode(bytes.subarray(0, extent.bytes)).trimEnd().replaceAll("\n", ",")
  const found: ReadonlyArray<unknown> = Option.getOrElse(decodeLines(`[${lines}]`), () => [])
  const turns = found.filter(isEarlierTurn)
  if (bytes.length < extent.bytes || turns.length !== extent.turns) {
    const problem = "the file of a session's earlier turns is damaged: DestroySession removes the session"
    return yield* new Bridge.LogUnavailable({ problem })
  }
  return new Map(turns.map(({ end, turn }) => [turn, end]))
})

/** Adds a turn, synced; answers what counts once the session's file says so. */
export const append = Effect.fnUntraced(function*(
  path: string,
  { bytes, turns }: Extent,
  turn: EarlierTurn
): Effect.fn.Return<Extent, Bridge.LogUnavailable, FileSystem.FileSystem> {
  const line = encoder.encode(`${encodeLine(turn)}\n`)
  yield* appendAt(path, bytes, line)
  return { turns: turns + 1, bytes: bytes + line.length }
})
