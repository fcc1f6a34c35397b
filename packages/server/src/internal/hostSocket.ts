/**
 * The socket of one host.
 *
 * The WebSocket that Effect hands out tells neither how much it holds nor that it dropped a message, and its owner
 * can't restart its time of silence. So where the request is one of Bun's server, it's upgraded here, by Bun's own
 * `upgrade` and with the fields that Effect's server calls; every other server gets the portable way, in which a write
 * returns once the message has left.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Predicate from "effect/Predicate"
import * as HttpServerError from "effect/unstable/http/HttpServerError"
import type * as HttpServerRequest from "effect/unstable/http/HttpServerRequest"
import * as Socket from "effect/unstable/socket/Socket"
import type { Close } from "./frames.ts"

/** An open WebSocket. */
export interface HostSocket {
  /** Sends a text frame; false where it wasn't taken. */
  readonly send: (text: string) => boolean
  /** How many bytes the system hasn't taken yet. */
  readonly buffered: () => number
  readonly close: (close: Close) => void
  /**
   * Starts the time of silence anew, without a byte on the wire. Absent where the server measures no silence by itself.
   */
  readonly restartSilence: (() => void) | undefined
}

/** Who is told what happens on a socket. */
export interface Listener {
  readonly onMessage: (message: string | Uint8Array) => void
  /** Called once. */
  readonly onClose: () => void
}

/**
 * Upgrades a request, and returns when its socket is closed; whoever interrupts it closes the socket. `open` is called
 * before anything is told.
 */
export const run = (
  request: HttpServerRequest.HttpServerRequest,
  open: (socket: HostSocket) => Listener
): Effect.Effect<void, HttpServerError.HttpServerError> =>
  Predicate.hasProperty(request, "bunServer") && isBunServer(request.bunServer)
    ? runBun(request.bunServer, request, open)
    : Effect.scoped(runPortable(request, open))

const goingAway: Close = { code: 1001, reason: "the bridge is closing" }

// What is used of Bun's server and its sockets.
interface BunServer {
  readonly upgrade: (source: object, options: { readonly data: BunData }) => boolean
}

interface BunSocket {
  readonly sendText: (text: string) => number
  readonly getBufferedAmount: () => number
  readonly close: (code: number, reason: string) => void
  readonly pause: () => void
  readonly resume: () => void
}

// What `BunHttpServer` calls.
interface BunData {
  readonly deferred: Deferred.Deferred<BunSocket>
  readonly run: (message: string | Uint8Array) => void
  readonly onClose: () => void
}

const isBunServer = (value: unknown): value is BunServer =>
  Predicate.hasProperty(value, "upgrade") && typeof value.upgrade === "function"

const runBun = Effect.fnUntraced(function*(
  server: BunServer,
  request: HttpServerRequest.HttpServerRequest,
  open: (socket: HostSocket) => Listener
) {
  const opened = Deferred.makeUnsafe<BunSocket>()
  const closed = Deferred.makeUnsafe<void>()
  // Bun opens a socket before `upgrade` returns, so nothing is told before there's somebody to tell.
  const state: { listener: Listener | undefined; isClosed: boolean } = { listener: undefined, isClosed: false }
  const upgraded = server.upgrade(request.source, {
    data: {
      deferred: opened,
      run: (message) => state.listener?.onMessage(message),
      onClose() {
        state.isClosed = true
        Deferred.doneUnsafe(closed, Effect.void)
      }
    }
  })
  if (!upgraded) {
    return yield* new HttpServerError.HttpServerError({ reason: new HttpServerError.RequestParseError({ request }) })
  }
  const socket = yield* Deferred.await(opened)
  const close = (close: Close) => {
    if (!state.isClosed) socket.close(close.code, close.reason)
  }
  const listener = open({
    send: (text) => state.isClosed || socket.sendText(text) !== 0,
    buffered: () => socket.getBufferedAmount(),
    close,
    // Bun doesn't count the time in which a socket is paused, and begins anew.
    restartSilence() {
      if (state.isClosed) return
      socket.pause()
      socket.resume()
    }
  })
  state.listener = listener
  // A server may run its requests uninterruptibly.
  yield* Effect.ensuring(
    Effect.interruptible(Deferred.await(closed)),
    Effect.sync(() => {
      close(goingAway)
      listener.onClose()
    })
  )
})

const runPortable = Effect.fnUntraced(function*(
  request: HttpServerRequest.HttpServerRequest,
  open: (socket: HostSocket) => Listener
) {
  const scope = yield* Effect.scope
  const services = yield* Effect.context()
  const socket = yield* request.upgrade
  const writer = yield* socket.writer
  const { pull } = yield* Effect.orDie(socket.reader)
  const runFork = Effect.runForkWith(services)
  const closed = Deferred.makeUnsafe<void>()
  let pending = 0
  const listener = open({
    send(text) {
      const { length } = text
      pending += length
      const write = Effect.ensuring(Effect.ignore(writer.write(text)), Effect.sync(() => pending -= length))
      Fiber.runIn(runFork(write), scope)
      return true
    },
    buffered: () => pending,
    // A host that's stopped never answers the close, so nobody waits for it.
    close({ code, reason }) {
      Fiber.runIn(runFork(Effect.ignore(writer.write(new Socket.CloseEvent(code, reason)))), scope)
      Deferred.doneUnsafe(closed, Effect.void)
    },
    restartSilence: undefined
  })
  yield* Effect.gen(function*() {
    while (true) {
      const messages = yield* pull
      messages.forEach(listener.onMessage)
    }
  }).pipe(
    Effect.ignore,
    Effect.raceFirst(Deferred.await(closed)),
    Effect.interruptible,
    Effect.ensuring(Effect.sync(listener.onClose))
  )
})
