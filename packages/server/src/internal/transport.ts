/**
 * The bridge's transport: the checks before a WebSocket is opened, the frames on it, and how far it's sent ahead.
 *
 * A server protocol for `RpcServer.make(WireRpcs, …)`. Requests get ids of our own on the way in, so that a host may use
 * one again as soon as it's answered. Acknowledgements stay here: `send` returns when a stream may go on.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import * as HttpServer from "effect/unstable/http/HttpServer"
import * as HttpServerRequest from "effect/unstable/http/HttpServerRequest"
import * as HttpServerResponse from "effect/unstable/http/HttpServerResponse"
import type * as RpcMessage from "effect/unstable/rpc/RpcMessage"
import * as RpcSerialization from "effect/unstable/rpc/RpcSerialization"
import * as RpcServer from "effect/unstable/rpc/RpcServer"
import type { ReadEvent } from "../TurnLog.ts"
import * as Frames from "./frames.ts"
import * as HostSocket from "./hostSocket.ts"
import * as Token from "./token.ts"
import { defaultLimits, type TransportLimits } from "./transportLimits.ts"
import * as Window from "./window.ts"
import { isCommand, WireRpcs } from "./wireRpcs.ts"

export { webSocketOptions } from "./transportLimits.ts"

/** What a transport is made of. */
export interface TransportOptions {
  /** SHA-256 of each token that's accepted; see `Token.digest`. */
  readonly tokens: ReadonlyArray<Uint8Array>
  /** The bridge's launch, which a 401 tells. */
  readonly launch: string
  /** The web origins that may connect; absent, none. */
  readonly allowedOrigins?: ReadonlyArray<string> | undefined
  /** Replaces some of `defaultLimits`. */
  readonly limits?: Partial<TransportLimits> | undefined
}

/** A transport, open until its scope closes. */
export interface Transport {
  readonly protocol: RpcServer.Protocol["Service"]
  /** Answers a request; that of a WebSocket ends when the socket is closed. */
  readonly httpEffect: Effect.Effect<
    HttpServerResponse.HttpServerResponse,
    never,
    HttpServerRequest.HttpServerRequest | Scope.Scope
  >
  /** Serves `httpEffect`, with the token's headers among those that are never shown, and `closeAll` at its end. */
  readonly serve: Effect.Effect<void, never, HttpServer.HttpServer | Scope.Scope>
  /**
   * Closes every socket with 1001, and refuses new ones with 503. The server's own end waits for sockets, so this comes
   * first; it waits for no host.
   */
  readonly closeAll: Effect.Effect<void>
  /** How many sockets are open. */
  readonly connections: Effect.Effect<number>
}

interface OpenRequest {
  readonly id: Frames.RequestId
  /** Its id towards the procedures. */
  readonly inner: number
  readonly bytes: number
  readonly stream: OpenStream | undefined
}

interface OpenStream {
  readonly start: string
  readonly overhead: number
  readonly window: Window.StreamWindow
}

interface Connection {
  readonly id: number
  readonly socket: HostSocket.HostSocket
  readonly window: Window.ConnectionWindow
  readonly requests: Map<Frames.RequestId, OpenRequest>
  readonly inner: Map<number, OpenRequest>
  nextRequest: number
  streams: number
  openBytes: number
  /** Whether a message came since the last look, and how many looks ago one did. */
  heard: boolean
  quiet: number
  /** False where the host said that it sends no pings. */
  pings: boolean
  ended: boolean
  closed: boolean
}

/** Makes a transport; closing its scope closes its sockets. */
export const make = Effect.fnUntraced(function*(options: TransportOptions): Effect.fn.Return<
  Transport,
  never,
  Scope.Scope
> {
  const limits: TransportLimits = { ...defaultLimits, ...options.limits }
  const allowedOrigins = new Set(options.allowedOrigins)
  const connections = new Map<number, Connection>()
  const runFork = Effect.runForkWith(yield* Effect.context())
  const track = Fiber.runIn(yield* Effect.scope)
  // One element a closed connection, taken at once by the server.
  const disconnects = yield* Queue.make<number>()
  let nextConnection = 0
  let closing = false
  let writeRequest!: (clientId: number, message: RpcMessage.FromClientEncoded) => Effect.Effect<void>

  const close = (connection: Connection, reason: Frames.Close) => {
    if (connection.closed) return
    connection.closed = true
    connection.socket.close(reason)
  }

  const write = (connection: Connection, text: string) => {
    if (connection.closed) return
    if (connection.socket.buffered() > limits.unreadBytes || !connection.socket.send(text)) {
      close(connection, Frames.closes.unread)
    }
  }

  // Requests

  const handleRequest = (
    connection: Connection,
    message: Extract<Frames.HostMessage, { readonly _tag: "Request" }>,
    bytes: number,
    tooLong: boolean
  ): Effect.Effect<void> => {
    const { id, payload, tag } = message
    const answer = (text: string) => {
      write(connection, text)
      return Effect.void
    }
    if (connection.requests.has(id)) return refuse(connection, Frames.closes.repeated)
    if (connection.ended) return refuse(connection, Frames.closes.afterEof)
    if (!WireRpcs.requests.has(tag)) return answer(Frames.die(id, `Unknown rpc: ${tag.slice(0, 64)}`))
    if (tooLong) {
      return answer(
        isCommand(tag)
          ? Frames.fail(id, new Bridge.TooLarge({ limit: limits.requestBytes }))
          : Frames.die(id, `${tag} is longer than ${limits.requestBytes} bytes`)
      )
    }
    // Before its schema sees it, which says in words what doesn't fit.
    if (Bridge.isTooDeep(payload)) {
      return answer(
        isCommand(tag)
          ? Frames.fail(id, new Bridge.TooDeep({ limit: Bridge.maxJsonDepth }))
          : Frames.die(id, `${tag} is nested more than ${Bridge.maxJsonDepth} deep`)
      )
    }
    const isStream = tag === "ReadTurn"
    if (isStream && connection.streams >= limits.streams) {
      return answer(Frames.fail(id, new Bridge.TooManyStreams({ limit: limits.streams })))
    }
    if (connection.requests.size >= limits.requests || connection.openBytes + bytes > limits.openBytes) {
      return answer(
        Frames.die(id, `Too many open requests: at most ${limits.requests}, and ${limits.openBytes} bytes, are`)
      )
    }
    if (tag === "Hello") setPings(connection, payload)
    const inner = connection.nextRequest++
    const start = Frames.chunkStart(id)
    const request: OpenRequest = {
      id,
      inner,
      bytes,
      stream: isStream
        ? {
          start,
          overhead: Frames.byteLength(start) + Frames.chunkEnd.length,
          window: connection.window.open()
        }
        : undefined
    }
    connection.requests.set(id, request)
    connection.inner.set(inner, request)
    connection.openBytes += bytes
    if (isStream) connection.streams++
    // The headers of the upgrade hold nothing that a procedure needs, and those of the message neither.
    return writeRequest(connection.id, { _tag: "Request", id: inner, tag, payload, headers: [] })
  }

  const setPings = (connection: Connection, payload: unknown) => {
    connection.pings = (payload as { readonly pings?: unknown } | undefined | null)?.pings !== false
    if (!connection.pings) connection.window.hold(false)
  }

  const handleMessage = (
    connection: Connection,
    value: unknown,
    bytes: number,
    tooLong: boolean
  ): Effect.Effect<void> => {
    const validated = Frames.validate(value)
    if (Result.isFailure(validated)) return refuse(connection, validated.failure)
    const message = validated.success
    switch (message._tag) {
      case "Request":
        return handleRequest(connection, message, bytes, tooLong)
      case "Ack":
        connection.requests.get(message.requestId)?.stream?.window.acknowledge()
        return Effect.void
      case "Interrupt": {
        const request = connection.requests.get(message.requestId)
        return request === undefined
          ? Effect.void
          : writeRequest(connection.id, { _tag: "Interrupt", requestId: request.inner })
      }
      case "Ping":
        write(connection, Frames.pong)
        return Effect.void
      case "Eof":
        connection.ended = true
        return writeRequest(connection.id, { _tag: "Eof" })
    }
  }

  const refuse = (connection: Connection, reason: Frames.Close) => Effect.sync(() => close(connection, reason))

  const handleFrame = (connection: Connection, frame: string | Uint8Array): Effect.Effect<void> => {
    if (typeof frame !== "string") return refuse(connection, Frames.closes.binary)
    const parsed = Frames.parse(frame)
    if (Result.isFailure(parsed)) return refuse(connection, parsed.failure)
    const messages = parsed.success
    const tooLong = Frames.isLonger(frame, limits.requestBytes)
    let next = 0
    return Effect.whileLoop({
      while: () => next < messages.length && !connection.closed,
      body: () => handleMessage(connection, messages[next++], frame.length, tooLong),
      step: () => {}
    })
  }

  // Answers

  const sendFrame = (
    connection: Connection,
    stream: OpenStream,
    elements: string,
    bytes: number
  ): Effect.Effect<void> => {
    const room = stream.window.take(bytes + stream.overhead)
    const text = stream.start + elements + Frames.chunkEnd
    if (room !== Effect.void) return Effect.map(room, () => write(connection, text))
    write(connection, text)
    return Effect.void
  }

  // As few frames as their bound allows, which is one for what a log gives at a time.
  const sendElements = (
    connection: Connection,
    stream: OpenStream,
    events: ReadonlyArray<ReadEvent>
  ): Effect.Effect<void> => {
    let next = 0
    const sendNext = () => {
      let elements = Frames.element(events[next]!)
      let bytes = Frames.elementBytes(events[next]!)
      next++
      while (next < events.length) {
        const more = Frames.elementBytes(events[next]!) + 1
        if (bytes + more > limits.streamBytes) break
        elements += `,${Frames.element(events[next]!)}`
        bytes += more
        next++
      }
      return sendFrame(connection, stream, elements, bytes)
    }
    const first = sendNext()
    return next === events.length
      ? first
      : Effect.andThen(first, Effect.whileLoop({ while: () => next < events.length, body: sendNext, step: () => {} }))
  }

  const sendExit = (connection: Connection, request: OpenRequest, exit: RpcMessage.ResponseExitEncoded["exit"]) => {
    connection.requests.delete(request.id)
    connection.inner.delete(request.inner)
    connection.openBytes -= request.bytes
    if (request.stream !== undefined) {
      connection.streams--
      request.stream.window.end()
    }
    const text = Frames.exit(request.id, exit)
    write(
      connection,
      Frames.isLonger(text, limits.unreadBytes)
        ? Frames.die(request.id, `The reply is longer than ${limits.unreadBytes} bytes`)
        : text
    )
  }

  const send = (clientId: number, response: RpcMessage.FromServerEncoded): Effect.Effect<void> => {
    const connection = connections.get(clientId)
    switch (response._tag) {
      case "Chunk": {
        const stream = connection?.inner.get(response.requestId as number)?.stream
        return connection === undefined || stream === undefined
          ? Effect.void
          : sendElements(connection, stream, response.values as ReadonlyArray<ReadEvent>)
      }
      case "Exit": {
        const request = connection?.inner.get(response.requestId as number)
        if (connection !== undefined && request !== undefined) sendExit(connection, request, response.exit)
        return Effect.void
      }
      default:
        if (connection !== undefined) write(connection, JSON.stringify(response))
        return Effect.void
    }
  }

  const protocol = yield* RpcServer.Protocol.make((write) => {
    writeRequest = write
    return Effect.succeed({
      disconnects,
      send,
      end: (clientId) =>
        Effect.sync(() => {
          const connection = connections.get(clientId)
          if (connection !== undefined) close(connection, Frames.closes.endOfInput)
        }),
      clientIds: Effect.sync(() => new Set(connections.keys())),
      initialMessage: Effect.succeedNone,
      supportsAck: false,
      supportsTransferables: false,
      supportsSpanPropagation: false,
      supportsNotifications: false,
      codecFor: RpcSerialization.json.codecFor
    })
  })

  // Connections

  const open = (socket: HostSocket.HostSocket): HostSocket.Listener => {
    const connection: Connection = {
      id: nextConnection++,
      socket,
      window: Window.make(limits, socket.buffered),
      requests: new Map(),
      inner: new Map(),
      nextRequest: 0,
      streams: 0,
      openBytes: 0,
      heard: true,
      quiet: 0,
      pings: true,
      ended: false,
      closed: false
    }
    connections.set(connection.id, connection)
    if (closing) close(connection, Frames.closes.closing)
    return {
      onMessage(frame) {
        if (connection.closed) return
        connection.heard = true
        if (connection.quiet > 0) {
          connection.quiet = 0
          connection.window.hold(false)
        }
        track(runFork(Effect.catchCause(Effect.suspend(() => handleFrame(connection, frame)), (cause) => {
          close(connection, Frames.closes.internal)
          return Effect.logError("The transport failed at a frame", cause)
        })))
      },
      onClose() {
        connection.closed = true
        connections.delete(connection.id)
        Queue.offerUnsafe(disconnects, connection.id)
      }
    }
  }

  // A third of the time of silence, so that it's overstepped by at most a third.
  yield* Effect.forkScoped(Effect.forever(Effect.delay(
    Effect.sync(() => {
      for (const connection of connections.values()) {
        connection.quiet = connection.heard ? 0 : connection.quiet + 1
        connection.heard = false
        if (!connection.pings) connection.socket.restartSilence?.()
        else if (connection.quiet >= 3) {
          // Bun closes it once no byte came either; a byte that's sent would begin its count anew. Who owes nothing may
          // be alive in ways that aren't seen here, such as pings of the WebSocket itself.
          if (connection.socket.restartSilence === undefined) close(connection, Frames.closes.silent)
          else if (connection.window.isOwed()) connection.window.hold(true)
        }
      }
    }),
    limits.silence / 3
  )))

  const httpEffect: Transport["httpEffect"] = Effect.gen(function*() {
    const request = yield* HttpServerRequest.HttpServerRequest
    const { foreign, token } = Token.takeCredentials(request)
    const { origin, upgrade } = request.headers
    if (request.url.split("?", 1)[0] !== "/") return HttpServerResponse.empty({ status: 404 })
    if (origin !== undefined && !allowedOrigins.has(origin)) return HttpServerResponse.empty({ status: 403 })
    if (foreign) return HttpServerResponse.empty({ status: 400 })
    if (token === undefined || !Token.isAccepted(yield* Token.digest(token), options.tokens)) {
      return HttpServerResponse.empty({ status: 401, headers: { "x-bridge-launch": options.launch } })
    }
    if (request.method !== "GET") return HttpServerResponse.empty({ status: 405, headers: { allow: "GET" } })
    if (upgrade?.toLowerCase() !== "websocket") {
      return HttpServerResponse.empty({ status: 426, headers: { upgrade: "websocket" } })
    }
    if (closing) return HttpServerResponse.empty({ status: 503 })
    return yield* HostSocket.run(request, open).pipe(
      Effect.as(HttpServerResponse.empty()),
      Effect.orElseSucceed(() => HttpServerResponse.empty({ status: 400 }))
    )
  })

  const closeAll = Effect.sync(() => {
    closing = true
    for (const connection of connections.values()) close(connection, Frames.closes.closing)
  })
  yield* Effect.addFinalizer(() => closeAll)

  return {
    protocol,
    httpEffect,
    // The server's own finalizer waits for its sockets; this one, being the newer, runs before it.
    serve: Effect.andThen(
      Token.withRedactedNames(HttpServer.serveEffect(httpEffect)),
      Effect.addFinalizer(() => closeAll)
    ),
    closeAll,
    connections: Effect.sync(() => connections.size)
  }
})
