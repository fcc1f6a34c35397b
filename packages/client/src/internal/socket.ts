/**
 * One WebSocket to a bridge, as the transport of an `RpcClient` and of reads.
 *
 * It takes each message off the socket at once, so that a consumer that stalls holds up neither other calls nor other
 * reads. What a read's consumer hasn't taken waits in a buffer of the read's own. Over `ackBelow` characters in it the
 * bridge is no longer told that its batches came, so it sends no more than its window. Those windows add up over the
 * reads of a connection and are bounded there, so at most `maxHolding` reads are held back that way: one more, or a
 * buffer of `maxBuffered` characters, ends the read, and its reader reads again from the next number when it gets there.
 *
 * Reads don't go through `RpcClient`: it would decode each part by its schema, which costs five times what parsing it
 * costs, and stop reading the socket while a consumer's queue is full.
 */
import { isTooDeep, maxJsonDepth, maxRequestBytes, type ReadTurn, type TurnEvent } from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import type * as Rpc from "effect/unstable/rpc/Rpc"
import * as RpcClient from "effect/unstable/rpc/RpcClient"
import { RpcClientDefect, RpcClientError } from "effect/unstable/rpc/RpcClientError"
import type { FromServerEncoded } from "effect/unstable/rpc/RpcMessage"
import { RequestId } from "effect/unstable/rpc/RpcMessage"
import * as RpcSerialization from "effect/unstable/rpc/RpcSerialization"
import type { WebSocketEvent, WebSocketLike } from "effect/unstable/socket/Socket"
import type { Reason } from "../BridgeUnavailable.ts"
import { WebSocketConstructor } from "../WebSocketConstructor.ts"
import { type BufferedRead, make as makeBufferedRead, type Read } from "./bufferedRead.ts"

// In characters of messages.
const ackBelow = 1024 * 1024

// With a bridge's window of 256 KiB a read, these hold a quarter of its 8 MiB a connection.
const maxHolding = 8

// A bridge that has such a window never comes to it.
const maxBuffered = 8 * 1024 * 1024

const pingInterval = "15 seconds"

// A connection is suspect when this many pings, and so 30 s, have brought no message.
const unansweredPings = 2

/** An open WebSocket. */
export interface Socket {
  readonly protocol: RpcClient.Protocol["Service"]
  readonly makeRequestId: () => RequestId
  readonly read: (payload: Rpc.Payload<typeof ReadTurn>) => Read
  /** Waits until the connection is lost. */
  readonly lost: Effect.Effect<Reason>
  readonly isLost: () => boolean
  /** Waits until nothing arrived for 30 s after a ping. */
  readonly suspected: Effect.Effect<void>
  readonly isSuspect: () => boolean
  /** Waits until nothing is in flight. */
  readonly idle: Effect.Effect<void>
}

/** Opens a WebSocket, closed with the scope. It fails with nothing where the other side can be asked what's wrong. */
export const open: (options: {
  readonly url: string
  readonly protocols: Array<string>
  readonly headers: Readonly<Record<string, string>>
  readonly pings: boolean
}) => Effect.Effect<Socket, Reason | undefined, Scope.Scope> = Effect.fnUntraced(function*(options) {
  const construct = yield* WebSocketConstructor
  if (construct === undefined) return yield* Effect.fail<Reason>({ _tag: "NoWebSocket" })
  const webSocket = yield* Effect.acquireRelease(
    Effect.try({
      try: () => construct(options),
      catch: (cause): Reason => ({ _tag: "Unreachable", problem: String(cause) })
    }),
    (webSocket) => Effect.sync(() => webSocket.close(1000))
  )
  if ("binaryType" in webSocket) webSocket.binaryType = "arraybuffer"
  yield* opened(webSocket)

  const context = yield* Effect.context<never>()
  const lost = Deferred.makeUnsafe<Reason>()
  const suspicion = Latch.makeUnsafe(false)
  const idle = Latch.makeUnsafe(true)
  const reads = new Map<unknown, BufferedRead>()
  // In the order in which they began to be held back.
  const holding = new Set<unknown>()
  const requests = new Map<unknown, { readonly clientId: number; readonly size: number }>()
  let lostReason: Reason | undefined
  let unanswered = 0
  let lastId = 0

  const makeRequestId = () => RequestId(lastId++)
  const isSuspect = () => suspicion.isOpen()
  const busy = () => idle.closeUnsafe()
  const settle = () => {
    if (reads.size === 0 && requests.size === 0) idle.openUnsafe()
  }
  const send = (message: unknown) => webSocket.send(JSON.stringify(message))
  const acknowledge = (id: unknown) => send({ _tag: "Ack", requestId: id })
  const forget = (id: unknown) => {
    reads.delete(id)
    holding.delete(id)
    settle()
  }
  const endRead = (id: unknown) => {
    reads.get(id)?.end({ _tag: "Overflown" })
    forget(id)
    send({ _tag: "Interrupt", requestId: id })
  }

  const protocol = yield* RpcClient.Protocol.make((writeResponse, clientIds) => {
    // What the client does with a response ends at once, so these fibers have nobody to outlive.
    const respond = (clientId: number, response: FromServerEncoded) => {
      Effect.runForkWith(context)(writeResponse(clientId, response))
    }
    const refuse = (
      clientId: number,
      requestId: string | number,
      error: { readonly _tag: "TooLarge" | "TooDeep"; readonly limit: number }
    ) =>
      respond(clientId, {
        _tag: "Exit",
        requestId,
        exit: { _tag: "Failure", cause: [{ _tag: "Fail", error }] }
      })

    const lose = (reason: Reason) => {
      if (lostReason !== undefined) return
      lostReason = reason
      for (const read of reads.values()) read.end({ _tag: "Lost", reason })
      reads.clear()
      holding.clear()
      if (reason._tag === "Disconnected" && reason.code === 1009) refuseLargest()
      requests.clear()
      settle()
      for (const clientId of clientIds) respond(clientId, { _tag: "ClientProtocolError", error: lostError(reason) })
      Deferred.doneUnsafe(lost, Effect.succeed(reason))
      webSocket.close(1000)
    }

    // The largest request is what the other side found too large; the others are repeated.
    const refuseLargest = () => {
      let largest: readonly [unknown, { readonly clientId: number; readonly size: number }] | undefined
      for (const request of requests) {
        if (largest === undefined || request[1].size > largest[1].size) largest = request
      }
      if (largest !== undefined) refuse(largest[1].clientId, largest[0] as string | number, tooLarge)
    }

    const receive = (message: FromServerEncoded | null, size: number) => {
      switch (message?._tag) {
        case "Pong":
          return
        case "Chunk": {
          const read = reads.get(message.requestId)
          if (read === undefined) return
          const id = message.requestId
          const buffered = read.push(message.values as ReadonlyArray<TurnEvent>, size)
          if (buffered < ackBelow) return acknowledge(id)
          if (buffered > maxBuffered) return endRead(id)
          read.hold()
          holding.add(id)
          if (holding.size > maxHolding) endRead(holding.values().next().value)
          return
        }
        case "Exit": {
          const read = reads.get(message.requestId)
          const request = requests.get(message.requestId)
          requests.delete(message.requestId)
          forget(message.requestId)
          if (read !== undefined) read.end({ _tag: "Ended", exit: message.exit })
          else if (request !== undefined) respond(request.clientId, message)
          return
        }
        case "Defect":
          return lose({ _tag: "ProtocolError", problem: defectText(message.defect) })
        default:
          return lose({ _tag: "ProtocolError", problem: "it sent a message of an unknown form" })
      }
    }

    webSocket.addEventListener("message", ({ data }) => {
      unanswered = 0
      if (isSuspect()) suspicion.closeUnsafe()
      const text = typeof data === "string" ? data : new TextDecoder().decode(data as ArrayBuffer)
      const parsed = Result.try(() => JSON.parse(text) as FromServerEncoded | null | Array<FromServerEncoded>)
      if (Result.isFailure(parsed)) return lose({ _tag: "ProtocolError", problem: "it sent a message that isn't JSON" })
      if (!Array.isArray(parsed.success)) return receive(parsed.success, text.length)
      for (const message of parsed.success) receive(message, text.length)
    })
    webSocket.addEventListener("close", (event) => lose(disconnected(event)), { once: true })
    webSocket.addEventListener("error", () => lose(disconnected({ code: 1006 })), { once: true })
    if (webSocket.readyState > 1) lose(disconnected({ code: 1006 }))

    return Effect.as(
      Effect.addFinalizer(() => Effect.sync(() => lose(disconnected({ code: 1000, reason: "closed by this host" })))),
      {
        send: (clientId, message) =>
          Effect.suspend(() => {
            if (lostReason !== undefined) return Effect.fail(lostError(lostReason))
            if (message._tag === "Request" && isTooDeep(message.payload)) {
              return Effect.sync(() => refuse(clientId, message.id, { _tag: "TooDeep", limit: maxJsonDepth }))
            }
            const text = JSON.stringify(message)
            if (message._tag === "Request") {
              if (isLongerThan(text, maxRequestBytes)) return Effect.sync(() => refuse(clientId, message.id, tooLarge))
              requests.set(message.id, { clientId, size: text.length })
              busy()
            } else if (message._tag === "Interrupt") {
              requests.delete(message.requestId)
              settle()
            }
            return Effect.sync(() => webSocket.send(text))
          }),
        // Only reads are acknowledged.
        supportsAck: false,
        supportsTransferables: false,
        codecFor: RpcSerialization.json.codecFor
      }
    )
  })

  if (options.pings) {
    yield* Effect.sync(() => {
      if (lostReason !== undefined) return
      if (unanswered === unansweredPings) {
        suspicion.openUnsafe()
        for (const read of reads.values()) read.wake()
      } else {
        unanswered++
      }
      send({ _tag: "Ping" })
    }).pipe(
      Effect.delay(pingInterval),
      Effect.forever,
      Effect.forkScoped
    )
  }

  return {
    protocol,
    makeRequestId,
    read: (payload) => {
      const id = makeRequestId()
      const read = makeBufferedRead({
        isSuspect,
        onTaken: (held) => {
          if (!holding.delete(id)) return
          for (let i = 0; i < held; i++) acknowledge(id)
        },
        onClose: () => {
          if (!reads.has(id)) return
          forget(id)
          send({ _tag: "Interrupt", requestId: id })
        }
      })
      if (lostReason === undefined) {
        reads.set(id, read)
        busy()
        send({ _tag: "Request", id, tag: "ReadTurn", payload, headers: [] })
      } else {
        read.end({ _tag: "Lost", reason: lostReason })
      }
      return read
    },
    lost: Deferred.await(lost),
    isLost: () => lostReason !== undefined,
    suspected: suspicion.await,
    isSuspect,
    idle: idle.await
  }
})

const tooLarge = { _tag: "TooLarge", limit: maxRequestBytes } as const

/** What a lost connection's `RpcClientError` carries. */
export const reasonOf = (error: RpcClientError): Reason => {
  const cause = error.reason._tag === "RpcClientDefect" ? error.reason.cause : undefined
  return cause instanceof LostCause ? cause.reason : { _tag: "ProtocolError", problem: error.message }
}

/** The text of a defect that the bridge sent. */
export const defectText = (defect: unknown): string =>
  typeof defect === "string"
    ? defect
    : typeof defect === "object" && defect !== null && "message" in defect
    ? String(defect.message)
    : JSON.stringify(defect)

class LostCause extends Error {
  readonly reason: Reason
  constructor(reason: Reason) {
    super(reason._tag)
    this.reason = reason
  }
}

const lostError = (reason: Reason) =>
  new RpcClientError({ reason: new RpcClientDefect({ message: "Connection lost", cause: new LostCause(reason) }) })

const disconnected = (event: WebSocketEvent): Reason => ({
  _tag: "Disconnected",
  code: event.code ?? 1006,
  problem: event.reason ?? ""
})

// Node 22 tells a refused upgrade by an error without a close.
const opened = (webSocket: WebSocketLike) =>
  Effect.callback<void, undefined>((resume) => {
    const onOpen = () => resume(Effect.void)
    const onFailure = () => resume(Effect.fail(undefined))
    webSocket.addEventListener("open", onOpen)
    webSocket.addEventListener("error", onFailure)
    webSocket.addEventListener("close", onFailure)
    const remove = () => {
      webSocket.removeEventListener("open", onOpen)
      webSocket.removeEventListener("error", onFailure)
      webSocket.removeEventListener("close", onFailure)
    }
    return Effect.sync(remove)
  })

// A character has at most three bytes.
const isLongerThan = (text: string, bytes: number) =>
  text.length > bytes || (text.length * 3 > bytes && new TextEncoder().encode(text).length > bytes)
