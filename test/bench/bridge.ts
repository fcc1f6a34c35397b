/**
 * The bridge that is measured: the program's own server, files, locks and process table, with a driver in its process
 * that plays what its prompt asks for. The scripted agent would speak through a pipe, which is slower than what is
 * measured here.
 */
import { BunHttpServer, BunRuntime, BunServices } from "@effect/platform-bun"
import { Bridge, BridgeServer } from "@gangway/server"
import type { Turn } from "@gangway/server/Driver"
import * as Kernel from "@gangway/server/Kernel"
import { heapStats } from "bun:jsc"
import { Effect, Latch, Layer, Redacted, Runtime } from "effect"
import { answer } from "./Child.ts"
import { makePace, makePart, now, type Play, toStamp } from "./parts.ts"

const play = Effect.fnUntraced(function*(turn: Turn, { parts, rate, wait = 0 }: Play) {
  yield* Effect.sleep(wait)
  if (rate === undefined) {
    const stamp = toStamp(now())
    for (let n = 1; n <= parts; n++) yield* turn.emit(makePart(n, stamp))
    return
  }
  const pace = makePace(rate)
  let n = 0
  while (n < parts) {
    for (const due = Math.min(parts, pace.due()); n < due;) yield* turn.emit(makePart(++n, toStamp(now())))
    yield* Effect.sleep(pace.wait(n))
  }
})

const puppet: Bridge.Driver = {
  name: "puppet",
  version: "1.0.0",
  capabilities: Bridge.noCapabilities,
  open: () =>
    Effect.sync(() => {
      const interrupted = Latch.makeUnsafe(false)
      return {
        conversation: "none",
        run: Effect.fnUntraced(function*(turn: Turn) {
          const [prompt] = turn.prompt
          const script: Play = JSON.parse(prompt?.type === "text" ? prompt.text : "")
          yield* play(turn, script)
          if (script.hold === true) yield* interrupted.await
          return { finishReason: "stop" }
        }),
        interrupt: Effect.asVoid(interrupted.open)
      }
    })
}

// What the first collection frees may hold on to more.
const collectGarbage = async () => {
  Bun.gc(true)
  await Bun.sleep(1000)
  Bun.gc(true)
}

const commands = {
  /** What it holds of the heap, in bytes. */
  heap: async (_: undefined) => {
    await collectGarbage()
    return heapStats().heapSize
  },
  /** Its resident memory, in bytes. */
  memory: async (_: undefined) => {
    await collectGarbage()
    return process.memoryUsage.rss()
  }
}

export type BenchBridge = typeof commands

const program = Effect.gen(function*() {
  const { token, ...line } = yield* BridgeServer.readLaunchOptions
  yield* Effect.provide(
    BridgeServer.serve(puppet, { ...line, token: Redacted.make(token) }),
    BunHttpServer.layer({ hostname: "127.0.0.1", port: 0, websocket: BridgeServer.webSocketOptions })
  )
}).pipe(Effect.scoped, Effect.provide(Layer.merge(Kernel.layer, BunServices.layer)))

answer(commands)
BunRuntime.runMain(program, { teardown: (exit) => Runtime.defaultTeardown(exit, process.exit) })
