/**
 * The bare side's server: Bun's WebSocket and `JSON.stringify`, nothing else.
 *
 *   bun test/bench/bareServer.ts <file>     writes its port to the file once it listens
 */
import type { ServerWebSocket } from "bun"
import { renameSync, writeFileSync } from "node:fs"
import { makePace, makePart, now, type Play, toStamp } from "./parts.ts"

/** What its client asks. */
export type BareRequest =
  | { readonly type: "replay"; readonly parts: number; readonly batch: number }
  | ({ readonly type: "live" } & Play)

/** The messages of a replay, encoded before anybody asks. */
const replays = new Map<number, ReadonlyArray<string>>()
const encode = (parts: number, batch: number): ReadonlyArray<string> => {
  const stamp = toStamp(now())
  const messages: Array<string> = []
  for (let n = 1; n <= parts; n += batch) {
    const lines = Array.from(
      { length: Math.min(batch, parts - n + 1) },
      (_, i) => JSON.stringify({ n: n + i, part: makePart(n + i, stamp) })
    )
    messages.push(`[${lines.join(",")}]`)
  }
  return messages
}

let drained: (() => void) | undefined

// A message that the socket didn't take whole is queued by Bun: the next one waits.
const sendAll = async (socket: ServerWebSocket<unknown>, messages: ReadonlyArray<string>) => {
  for (const message of messages) {
    if (socket.send(message) !== -1) continue
    await new Promise<void>((resolve) => drained = resolve)
  }
}

const playLive = async (socket: ServerWebSocket<unknown>, { parts, rate, wait = 0 }: Play) => {
  let n = 0
  const send = (stamp: string) => socket.send(JSON.stringify({ n: ++n, part: makePart(n, stamp) }))
  await Bun.sleep(wait)
  if (rate === undefined) {
    const stamp = toStamp(now())
    while (n < parts) if (send(stamp) === -1) await new Promise<void>((resolve) => drained = resolve)
    return
  }
  const pace = makePace(rate)
  while (n < parts) {
    for (const due = Math.min(parts, pace.due()); n < due;) send(toStamp(now()))
    await Bun.sleep(pace.wait(n))
  }
}

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: (request, server) => server.upgrade(request) ? undefined : new Response(null, { status: 426 }),
  websocket: {
    backpressureLimit: 64 * 1024 * 1024,
    perMessageDeflate: false,
    drain: () => {
      drained?.()
      drained = undefined
    },
    message: (socket, message) => {
      const request = JSON.parse(String(message)) as BareRequest
      switch (request.type) {
        case "replay": {
          const key = request.parts * 1000 + request.batch
          const messages = replays.get(key)
          if (messages !== undefined) return void sendAll(socket, messages)
          replays.set(key, encode(request.parts, request.batch))
          return void socket.send("[]")
        }
        case "live":
          return void playLive(socket, request)
      }
    }
  }
})

process.on("disconnect", () => process.exit())
const file = process.argv.at(-1)!
writeFileSync(`${file}.new`, JSON.stringify({ port: server.port, pid: process.pid }))
renameSync(`${file}.new`, file)
