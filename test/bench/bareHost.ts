/**
 * The bare side's client: parses each message and checks each part's number.
 */
import type { BareRequest } from "./bareServer.ts"
import { answer } from "./Child.ts"
import { Arrivals, now, type NumberedBenchPart, type Play } from "./parts.ts"

let socket: WebSocket

const ask = (request: BareRequest, arrivals: Arrivals, parts: number): Promise<void> =>
  new Promise((resolve, reject) => {
    socket.onclose = () => reject(new Error("the connection was closed"))
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data as string) as NumberedBenchPart | ReadonlyArray<NumberedBenchPart>
      arrivals.take(
        Array.isArray(message) ? message as ReadonlyArray<NumberedBenchPart> : [message as NumberedBenchPart]
      )
      if (arrivals.count >= parts) resolve()
    }
    socket.send(JSON.stringify(request))
  })

const commands = {
  connect: (port: number) =>
    new Promise<void>((resolve, reject) => {
      socket = new WebSocket(`ws://127.0.0.1:${port}/`)
      socket.onopen = () => resolve()
      socket.onerror = () => reject(new Error("no connection"))
    }),

  /** Has the server encode the messages that `replay` will ask for. */
  prepare: (request: { readonly parts: number; readonly batch: number }) =>
    ask({ type: "replay", ...request }, new Arrivals({ timed: false }), 0),

  replay: async (request: { readonly parts: number; readonly batch: number }) => {
    const arrivals = new Arrivals({ timed: false })
    const start = now()
    await ask({ type: "replay", ...request }, arrivals, request.parts)
    return { elapsed: now() - start }
  },

  live: async (play: Play) => {
    const arrivals = new Arrivals({ timed: play.rate !== undefined })
    await ask({ type: "live", ...play }, arrivals, play.parts)
    return { elapsed: arrivals.elapsed, ...arrivals.percentiles() }
  }
}

export type BareHost = typeof commands

answer(commands)
