/**
 * A host that knows nothing but `WebSocket` and JSON, and keeps what it's sent as it came.
 */

/** The reply to a request. */
export type Reply =
  | { readonly _tag: "Success"; readonly value: any }
  | { readonly _tag: "Failure"; readonly error: any }

/** The connection is lost, or never came to be. */
export class Disconnected extends Error {
  override readonly name = "Disconnected"
}

interface Request {
  readonly tag: string
  readonly onChunk: ((frame: string, values: ReadonlyArray<any>) => void) | undefined
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: Error) => void
}

/** An open WebSocket. */
export class RawHost {
  private nextId = 1
  private readonly requests = new Map<number, Request>()
  private readonly socket: WebSocket
  isClosed = false
  /** Resolves when the connection is lost. */
  readonly closed: Promise<void>

  private constructor(socket: WebSocket) {
    this.socket = socket
    const { promise, resolve } = Promise.withResolvers<void>()
    this.closed = promise
    socket.addEventListener("message", ({ data }) => this.take(String(data)))
    socket.addEventListener("close", ({ code, reason }) => {
      this.isClosed = true
      for (const { reject, tag } of this.requests.values()) reject(new Disconnected(`${tag}: ${code} ${reason}`))
      this.requests.clear()
      resolve()
    })
  }

  static connect(port: number, token: string): Promise<RawHost> {
    // Bun's constructor takes headers, which the types of the DOM don't know.
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { "X-Bridge-Token": token } } as never)
    const host = new RawHost(socket)
    return new Promise((resolve, reject) => {
      socket.addEventListener("open", () => resolve(host))
      socket.addEventListener("close", ({ code }) => reject(new Disconnected(`not opened: ${code}`)))
    })
  }

  /** Calls a procedure. */
  call(tag: string, payload: object): Promise<Reply> {
    return this.request(tag, payload, undefined)
  }

  /** Reads a turn, acknowledging each chunk; the frames are given as they came. */
  read(payload: object, onChunk: (frame: string, values: ReadonlyArray<any>) => void): Promise<Reply> {
    return this.request("ReadTurn", payload, onChunk)
  }

  close(): void {
    this.socket.close()
  }

  private request(tag: string, payload: object, onChunk: Request["onChunk"]): Promise<Reply> {
    if (this.isClosed) return Promise.reject(new Disconnected(tag))
    const id = this.nextId++
    const { promise, reject, resolve } = Promise.withResolvers<Reply>()
    this.requests.set(id, { tag, onChunk, resolve, reject })
    this.socket.send(JSON.stringify({ _tag: "Request", id, tag, payload }))
    return promise
  }

  private take(frame: string) {
    const message = JSON.parse(frame)
    if (message._tag === "Pong") return
    const request = this.requests.get(message.requestId)
    if (message._tag === "Chunk") {
      request?.onChunk?.(frame, message.values)
      this.socket.send(JSON.stringify({ _tag: "Ack", requestId: message.requestId }))
      return
    }
    if (request === undefined) return
    this.requests.delete(message.requestId)
    const { exit } = message
    if (exit._tag === "Success") return request.resolve({ _tag: "Success", value: exit.value })
    const [reason] = exit.cause
    if (reason._tag === "Fail") return request.resolve({ _tag: "Failure", error: reason.error })
    // A bridge that closes interrupts what runs.
    request.reject(
      reason._tag === "Interrupt"
        ? new Disconnected(`${request.tag}: interrupted`)
        : new Error(`${request.tag}: ${JSON.stringify(exit)}`)
    )
  }
}
