/**
 * The bridge's procedures as the server runs them: a turn's lines reach the transport as the text that they are.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Schema from "effect/Schema"
import * as Rpc from "effect/unstable/rpc/Rpc"
import type { ReadEvent } from "../TurnLog.ts"

// `Unknown` hands a value on as it is, and costs nothing; the transport writes what `TurnEvent` would encode it to.
const Ready = Schema.Unknown as unknown as Schema.Codec<ReadEvent, unknown>

const ReadTurn = Rpc.make("ReadTurn", {
  payload: Bridge.ReadTurn.payloadSchema,
  success: Ready,
  error: Bridge.ReadTurn.successSchema.error,
  stream: true
})

/**
 * `Bridge.Rpcs`, with `ReadTurn` answering a stream of `ReadEvent`s. Only for a server over the transport of this
 * package: another protocol would send the events as they are.
 */
export const WireRpcs = Bridge.Rpcs.omit("ReadTurn").add(ReadTurn)

/** The procedures that can fail with `TooLarge` and `TooDeep`; the other two have payloads that are never large. */
export const isCommand = (tag: string): boolean => tag !== "Hello" && tag !== "ReadTurn"
