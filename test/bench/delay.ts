/**
 * A TCP proxy in a process of its own, which hands each byte on so many milliseconds after it came.
 */
import type { Socket } from "bun"
import { answer } from "./Child.ts"

/** One direction of a connection. */
class Pipe {
  /** What came, and when it's due. */
  private readonly queue: Array<{ readonly due: number; bytes: Uint8Array }> = []
  private target: Socket<Pipe> | undefined
  private isWaiting = false
  private readonly delay: number

  constructor(delay: number) {
    this.delay = delay
  }

  to(target: Socket<Pipe>): void {
    this.target = target
    this.pump()
  }

  take(bytes: Uint8Array): void {
    this.queue.push({ due: performance.now() + this.delay, bytes: Uint8Array.from(bytes) })
    this.pump()
  }

  pump(): void {
    if (this.isWaiting || this.target === undefined) return
    for (let first = this.queue[0]; first !== undefined; first = this.queue[0]) {
      const wait = first.due - performance.now()
      if (wait > 0) {
        this.isWaiting = true
        setTimeout(() => {
          this.isWaiting = false
          this.pump()
        }, wait)
        return
      }
      const written = Math.max(0, this.target.write(first.bytes))
      // The rest goes when the target has room again.
      if (written < first.bytes.length) {
        first.bytes = first.bytes.subarray(written)
        return
      }
      this.queue.shift()
    }
  }

  end(): void {
    this.target?.end()
  }
}

const commands = {
  /** Listens for connections to a port; answers its own. */
  listen: async ({ delay, port }: { readonly delay: number; readonly port: number }) => {
    const back = new WeakMap<Socket<Pipe>, Pipe>()
    const upstream = (host: Socket<Pipe>, toUpstream: Pipe, toHost: Pipe) =>
      Bun.connect<Pipe>({
        hostname: "127.0.0.1",
        port,
        data: toHost,
        socket: {
          open: (socket) => {
            socket.setNoDelay(true)
            back.set(socket, toUpstream)
            toUpstream.to(socket)
            toHost.to(host)
          },
          data: (socket, bytes) => socket.data.take(bytes),
          drain: (socket) => back.get(socket)?.pump(),
          close: () => {
            host.end()
          }
        }
      })
    const listener = Bun.listen<Pipe>({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        open: (host) => {
          host.setNoDelay(true)
          const toHost = new Pipe(delay)
          host.data = new Pipe(delay)
          back.set(host, toHost)
          void upstream(host, host.data, toHost)
        },
        data: (host, bytes) => host.data.take(bytes),
        drain: (host) => back.get(host)?.pump(),
        close: (host) => host.data.end()
      }
    })
    return listener.port
  }
}

export type Delay = typeof commands

answer(commands)
