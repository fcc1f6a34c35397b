/**
 * The frames of the wire as text: what a host sends, checked, and what it's answered.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Result from "effect/Result"
import type * as RpcMessage from "effect/unstable/rpc/RpcMessage"
import type { ReadEvent } from "../TurnLog.ts"

/** The id of a request, chosen by the host. */
export type RequestId = string | number

/** A message of a host. */
export type HostMessage =
  | { readonly _tag: "Request"; readonly id: RequestId; readonly tag: string; readonly payload: unknown }
  | { readonly _tag: "Ack" | "Interrupt"; readonly requestId: RequestId }
  | { readonly _tag: "Ping" | "Eof" }

/** Why a connection is closed: the WebSocket close code, and a reason of at most 123 bytes that holds no input. */
export interface Close {
  readonly code: number
  readonly reason: string
}

/** The reasons for which the bridge closes a connection. */
export const closes = {
  endOfInput: { code: 1000, reason: "the requests before Eof are answered" },
  closing: { code: 1001, reason: "the bridge is closing" },
  notAMessage: { code: 1002, reason: "a message is an object with a known _tag" },
  request: { code: 1002, reason: "a Request needs an id (a number, or at most 128 characters) and a tag" },
  requestId: { code: 1002, reason: "an Ack and an Interrupt need a requestId" },
  repeated: { code: 1002, reason: "a Request has the id of one that is still open" },
  afterEof: { code: 1002, reason: "a Request came after Eof" },
  binary: { code: 1003, reason: "frames are text" },
  notJson: { code: 1007, reason: "a frame is JSON" },
  silent: { code: 1008, reason: "nothing came for too long" },
  internal: { code: 1011, reason: "the bridge failed at this frame" },
  unread: { code: 1013, reason: "the replies aren't read" }
} as const satisfies Record<string, Close>

const maxIdLength = 128

const encoder = new TextEncoder()

/** The UTF-8 bytes of text. */
export const byteLength = (text: string): number => encoder.encode(text).length

/** Whether text has more UTF-8 bytes than the limit; counts them only where its length doesn't tell. */
export const isLonger = (text: string, limit: number): boolean =>
  text.length > limit || (text.length * 3 > limit && byteLength(text) > limit)

/** The values in a frame: one, or those of an array. */
export const parse = (frame: string): Result.Result<ReadonlyArray<unknown>, Close> =>
  Result.mapError(
    Result.try((): ReadonlyArray<unknown> => {
      const value: unknown = JSON.parse(frame)
      return Array.isArray(value) ? value : [value]
    }),
    () => closes.notJson
  )

const isRequestId = (id: unknown): id is RequestId =>
  typeof id === "number" ? Number.isFinite(id) : typeof id === "string" && id.length <= maxIdLength

/** Checks the envelope of a message; its payload is checked by the schema of its procedure. */
export const validate = (value: unknown): Result.Result<HostMessage, Close> => {
  if (value === null || typeof value !== "object") return Result.fail(closes.notAMessage)
  const message = value as { readonly [key: string]: unknown }
  switch (message._tag) {
    case "Request":
      return isRequestId(message.id) && typeof message.tag === "string"
        ? Result.succeed({ _tag: "Request", id: message.id, tag: message.tag, payload: message.payload })
        : Result.fail(closes.request)
    case "Ack":
    case "Interrupt":
      return isRequestId(message.requestId)
        ? Result.succeed({ _tag: message._tag, requestId: message.requestId })
        : Result.fail(closes.requestId)
    case "Ping":
    case "Eof":
      return Result.succeed({ _tag: message._tag })
    default:
      return Result.fail(closes.notAMessage)
  }
}

/** The answer to a Ping. */
export const pong = `{"_tag":"Pong"}`

/** The answer that ends a request. */
export const exit = (requestId: RequestId, exit: RpcMessage.ResponseExitEncoded["exit"]): string =>
  JSON.stringify({ _tag: "Exit", requestId, exit })

/** The answer to a request that can't be carried out, in words. */
export const die = (requestId: RequestId, defect: string): string =>
  exit(requestId, { _tag: "Failure", cause: [{ _tag: "Die", defect }] })

/** The answer to a request that fails in the transport already. */
export const fail = (requestId: RequestId, error: Bridge.TooLarge | Bridge.TooDeep | Bridge.TooManyStreams): string =>
  exit(requestId, { _tag: "Failure", cause: [{ _tag: "Fail", error: { _tag: error._tag, limit: error.limit } }] })

/** The beginning of each chunk of a stream; the elements follow, and `chunkEnd`. */
export const chunkStart = (requestId: RequestId): string =>
  `{"_tag":"Chunk","requestId":${JSON.stringify(requestId)},"values":[`

/** The end of each chunk. */
export const chunkEnd = "]}"

/** An element of a stream as the text that its schema would encode it to: the lines are it already. */
export const element = (event: ReadEvent): string =>
  event._tag === "Batch" ? `{"attempt":${event.attempt},"parts":[${event.lines}]}` : event.line

/** The UTF-8 bytes of an element. */
export const elementBytes = (event: ReadEvent): number =>
  event._tag === "Batch" ? 23 + String(event.attempt).length + event.bytes : byteLength(event.line)
