/**
 * What a turn's log costs: `bun test/bench/turnLog.ts [parts]`. Appending until visible, replaying from the file,
 * opening, and heap a part, with the portable files and with `writeSync`.
 */
import { BunFileSystem } from "@effect/platform-bun"
import { Bridge } from "@gangway/protocol"
import { LogFile } from "@gangway/server/LogFile"
import * as TurnLog from "@gangway/server/TurnLog"
import { heapStats } from "bun:jsc"
import { Effect, Fiber, FileSystem, Stream } from "effect"
import { synchronousLogFile } from "../../packages/server/src/internal/kernel/synchronousLogFile.ts"

const count = Number(process.argv[2] ?? 400_000)
const turn = Bridge.TurnId.make("bench")
const header: TurnLog.TurnHeader = { format: 1, turn, prompt: "", startedAt: 0 }
// 120 bytes a line.
const part: Bridge.KnownPart = { type: "text-delta", id: "msg_01", delta: "lorem ipsum dolor sit amet consectetur ad" }

const heap = () => {
  Bun.gc(true)
  return heapStats().heapSize
}

const report = (what: string, value: number, unit: string) =>
  console.log(`${what.padEnd(46)} ${value.toFixed(value < 10 ? 3 : 0).padStart(12)} ${unit}`)

const drain = (log: TurnLog.TurnLog, from: number) =>
  Effect.gen(function*() {
    let parts = 0
    yield* Stream.runForEach(log.read({ from }), (event) =>
      Effect.sync(() => {
        if (event._tag === "Batch") parts += event.count
      }))
    return parts
  })

const bench = Effect.fnUntraced(function*(name: string, sync: boolean) {
  const fs = yield* FileSystem.FileSystem
  const path = `${yield* fs.makeTempDirectoryScoped({ prefix: "bench-" })}/bench.ndjson`
  const before = heap()
  const log = yield* TurnLog.create({ path, header, sync })
  let start = performance.now()
  const reader = yield* Effect.forkChild(drain(log, 1))
  for (let i = 0; i < count; i++) yield* log.append(part)
  const appended = performance.now() - start
  yield* log.end({ type: "finished", finishReason: "stop", usage: { measured: true } })
  const read = yield* Fiber.join(reader)
  const visible = performance.now() - start
  if (read !== count) throw new Error(`read ${read}`)
  report(`${name}: append`, appended * 1000 / count, "µs/part")
  report(`${name}: append, written, read live`, visible * 1000 / count, "µs/part")
  report(`${name}: heap`, (heap() - before) / count, "bytes/part")

  start = performance.now()
  yield* drain(log, 1)
  report(`${name}: replay`, count / (performance.now() - start) * 1000, "parts/s")
  start = performance.now()
  yield* drain(log, count - 9)
  report(`${name}: last ten parts`, performance.now() - start, "ms")
  start = performance.now()
  yield* TurnLog.open({ path, turn, known: { attempt: 1 } })
  report(`${name}: open`, (performance.now() - start) * 1000 / count, "µs/part")

  // One part at a time: until its reader has it.
  const live = yield* TurnLog.create({ path: `${path}.live`, header, sync })
  const pull = yield* Stream.toPull(live.read({ from: 1 }))
  const times: Array<number> = []
  for (let i = 0; i < 2000; i++) {
    start = performance.now()
    const waiting = yield* Effect.forkChild(pull, { startImmediately: true })
    yield* live.append(part)
    yield* Fiber.join(waiting)
    times.push(performance.now() - start)
  }
  times.sort((a, b) => a - b)
  report(`${name}: one part until read, p50`, times[1000]! * 1000, "µs")
  report(`${name}: one part until read, p99`, times[1980]! * 1000, "µs")
}, Effect.scoped)

const main = Effect.gen(function*() {
  // The first round warms up.
  for (let round = 0; round < 2; round++) {
    console.log(`\n${count} parts, round ${round + 1}`)
    yield* bench("portable", false)
    yield* Effect.provideService(bench("writeSync", false), LogFile, synchronousLogFile)
    yield* Effect.provideService(bench("writeSync, fdatasync", true), LogFile, synchronousLogFile)
  }
})

await Effect.runPromise(Effect.provide(main, BunFileSystem.layer))
