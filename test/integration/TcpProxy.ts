/**
 * A TCP proxy for faults: it cuts, falls silent and slows down what passes through it.
 */
import type { Socket, TCPSocketListener } from "bun"

interface Pipe {
  readonly host: Socket<Pipe>
  upstream: Socket<Pipe> | undefined
  readonly toUpstream: Array<Uint8Array>
  readonly toHost: Array<Uint8Array>
  isSilent: boolean
}

export class TcpProxy {
  /** Connections that were opened. */
  opened = 0
  /** Bytes that reached hosts. */
  forwarded = 0
  /** Called with the bytes that are about to reach a host; `cut` cuts that connection. */
  onBytes: ((bytes: number) => "cut" | undefined) | undefined
  /** Bytes a second towards a host, for each connection; `undefined`, all. */
  rate: number | undefined
  /** The most bytes that are handed on to a bridge at once, so that frames are split; `undefined`, any number. */
  pieces: number | undefined
  /** Whether new connections are closed at once. */
  isRefusing = false
  private readonly pipes = new Set<Pipe>()
  private readonly listener: TCPSocketListener<Pipe>

  constructor(target: () => number) {
    this.listener = Bun.listen<Pipe>({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        open: (host) => {
          this.opened++
          if (this.isRefusing) return host.terminate()
          const pipe: Pipe = { host, upstream: undefined, toUpstream: [], toHost: [], isSilent: false }
          host.data = pipe
          this.pipes.add(pipe)
          Bun.connect<Pipe>({
            hostname: "127.0.0.1",
            port: target(),
            data: pipe,
            socket: {
              open: (upstream) => {
                pipe.upstream = upstream
                this.flush(upstream, pipe.toUpstream)
              },
              data: (_, data) => {
                if (pipe.isSilent) return
                if (this.onBytes?.(data.length) === "cut") return this.end(pipe)
                pipe.toHost.push(Uint8Array.from(data))
                this.pump(pipe)
              },
              drain: (upstream) => this.flush(upstream, pipe.toUpstream),
              close: () => this.end(pipe),
              error: () => this.end(pipe)
            }
          }).catch(() => this.end(pipe))
        },
        data: ({ data: pipe }, data) => {
          if (pipe.isSilent) return
          const size = this.pieces ?? data.length
          for (let at = 0; at < data.length; at += size) {
            pipe.toUpstream.push(Uint8Array.from(data.subarray(at, at + size)))
          }
          if (pipe.upstream !== undefined) this.flush(pipe.upstream, pipe.toUpstream)
        },
        // One that was refused has none.
        drain: ({ data: pipe }) => pipe && this.pump(pipe),
        close: ({ data: pipe }) => pipe && this.end(pipe)
      }
    })
  }

  get port(): number {
    return this.listener.port
  }

  /** Cuts every connection. */
  cut() {
    for (const pipe of this.pipes) this.end(pipe)
  }

  /** Every connection there is falls silent, both ways; new ones don't. */
  silence() {
    for (const pipe of this.pipes) pipe.isSilent = true
  }

  stop() {
    this.cut()
    this.listener.stop(true)
  }

  private end(pipe: Pipe) {
    this.pipes.delete(pipe)
    pipe.host.terminate()
    pipe.upstream?.terminate()
  }

  private pump(pipe: Pipe) {
    if (this.rate === undefined) return this.flush(pipe.host, pipe.toHost)
    if (timers.has(pipe)) return
    const interval = 50
    timers.set(
      pipe,
      setInterval(() => {
        const first = pipe.toHost.shift()
        if (first === undefined || this.rate === undefined || !this.pipes.has(pipe)) {
          if (first !== undefined) pipe.toHost.unshift(first)
          clearInterval(timers.get(pipe))
          timers.delete(pipe)
          if (this.rate === undefined && this.pipes.has(pipe)) this.flush(pipe.host, pipe.toHost)
          return
        }
        const bytes = Math.max(1, Math.floor(this.rate * interval / 1000))
        const written = pipe.host.write(first.subarray(0, bytes))
        this.forwarded += Math.max(0, written)
        if (written < first.length) pipe.toHost.unshift(first.subarray(Math.max(0, written)))
      }, interval)
    )
  }

  private flush(socket: Socket<Pipe>, chunks: Array<Uint8Array>) {
    while (chunks.length > 0) {
      const written = socket.write(chunks[0]!)
      if (socket === socket.data.host) this.forwarded += Math.max(0, written)
      if (written < chunks[0]!.length) {
        chunks[0] = chunks[0]!.subarray(Math.max(0, written))
        return
      }
      chunks.shift()
    }
  }
}

const timers = new WeakMap<Pipe, ReturnType<typeof setInterval>>()
