/**
 * Daytona's proxy in front of one port of a sandbox: it asks for the token in every request, and leads those without to
 * a page where a person could log in. The real one tells ports apart by the host's name; here each has its own address.
 */
import * as net from "node:net"

export interface PreviewProxyOptions {
  readonly port: number
  /** Why nothing gets through, such as a stopped sandbox; `undefined` where it runs. */
  readonly refuse: () => readonly [status: number, problem: string] | undefined
  readonly isAllowed: (token: string | undefined) => boolean
  readonly onActivity: () => void
  /** A connection without a byte for as long is cut, in milliseconds. */
  readonly idleCut: () => number | undefined
}

const tokenHeader = "x-daytona-preview-token"

export class PreviewProxy {
  /** Requests that were let through, and those that weren't, by their status. */
  readonly statuses: Array<number> = []
  private readonly options: PreviewProxyOptions
  private readonly server: net.Server
  private readonly sockets = new Set<net.Socket>()

  constructor(options: PreviewProxyOptions) {
    this.options = options
    this.server = net.createServer((socket) => this.accept(socket))
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve))
    return this
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as net.AddressInfo).port}`
  }

  get connections(): number {
    return this.sockets.size
  }

  /** Cuts every connection. */
  cut() {
    for (const socket of this.sockets) socket.destroy()
  }

  stop() {
    this.cut()
    this.server.close()
  }

  private track(socket: net.Socket) {
    this.sockets.add(socket)
    socket.on("close", () => this.sockets.delete(socket))
    socket.on("error", () => socket.destroy())
  }

  private accept(host: net.Socket) {
    this.track(host)
    let head = Buffer.alloc(0)
    const onData = (bytes: Buffer) => {
      head = Buffer.concat([head, bytes])
      const end = head.indexOf("\r\n\r\n")
      if (end < 0) return
      host.off("data", onData)
      host.pause()
      this.forward(host, head.subarray(0, end).toString("latin1"), head.subarray(end))
    }
    host.on("data", onData)
  }

  private forward(host: net.Socket, head: string, rest: Buffer) {
    const [request, ...headers] = head.split("\r\n")
    const valueOf = (name: string) =>
      headers.find((line) => line.toLowerCase().startsWith(`${name}:`))?.slice(name.length + 1).trim()
    if (!this.options.isAllowed(valueOf(tokenHeader))) return this.answer(host, 307, "log in", "Location: /login\r\n")
    const refusal = this.options.refuse()
    if (refusal !== undefined) return this.answer(host, ...refusal)
    this.options.onActivity()
    const isUpgrade = valueOf("upgrade") !== undefined
    const upstream = net.connect({ host: "127.0.0.1", port: this.options.port })
    upstream.on("error", () => {
      if (upstream.bytesRead === 0 && !host.destroyed) this.answer(host, 502, "the port isn't listening")
    })
    upstream.once("connect", () => {
      this.statuses.push(isUpgrade ? 101 : 200)
      this.track(upstream)
      // One request each, so that none passes on the token of another.
      const passed = headers.filter((line) =>
        !line.toLowerCase().startsWith(`${tokenHeader}:`) &&
        (isUpgrade || !line.toLowerCase().startsWith("connection:"))
      )
      if (!isUpgrade) passed.push("Connection: close")
      upstream.write(Buffer.concat([Buffer.from([request, ...passed].join("\r\n"), "latin1"), rest]))
      host.pipe(upstream)
      upstream.pipe(host)
      const idle = this.options.idleCut()
      for (const [socket, other] of [[host, upstream], [upstream, host]] as const) {
        socket.on("close", () => other.destroy())
        if (idle !== undefined) socket.setTimeout(idle, () => socket.destroy())
      }
      const activity = setInterval(this.options.onActivity, 100)
      host.on("close", () => clearInterval(activity))
    })
  }

  private answer(host: net.Socket, status: number, problem: string, headers = "") {
    this.statuses.push(status)
    host.end(
      `HTTP/1.1 ${status} ${problem}\r\n${headers}Content-Type: text/plain\r\n` +
        `Content-Length: ${problem.length}\r\nConnection: close\r\n\r\n${problem}`
    )
  }
}
