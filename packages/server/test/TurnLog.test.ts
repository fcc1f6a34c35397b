import { BunFileSystem } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { LogFile } from "@gangway/server/LogFile"
import * as TurnLog from "@gangway/server/TurnLog"
import { Effect, Exit, Fiber, FileSystem, Schema, Scope, Stream } from "effect"
import { closeSync, openSync, writeSync } from "node:fs"
import { eventually } from "./fixtures/processes.ts"
import {
  aborted,
  delta,
  failingDisk,
  finished,
  header,
  readAll,
  turn,
  turnFile,
  withLimits
} from "./fixtures/turnLogs.ts"

const run = Effect.provide(BunFileSystem.layer)

// Limits that a few parts exceed, so that reads cross the tail, slices and batches.
const small = withLimits({ batchParts: 7, batchBytes: 400, tailParts: 10, tailBytes: 900, write: 300 })

const texts = ["a", "äö€", "😀", "\n\"\\", "\u0000", "x".repeat(150), "😀".repeat(120)]
const text = (i: number) => `${i} ${texts[i % texts.length]}`

describe("TurnLog", () => {
  it.live("writes a header, numbered lines and an end, readable by their owner only", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* turnFile
      const log = yield* TurnLog.create({ path, header })
      assert.strictEqual(yield* log.append({ type: "text-start", id: "1" }), 1)
      assert.strictEqual(yield* log.append(delta("hi")), 2)
      assert.deepStrictEqual(yield* log.end(finished), { end: finished, attempt: 1, next: 3 })
      assert.strictEqual(
        yield* fs.readFileString(path),
        [
          `{"format":1,"turn":"t1","prompt":"5f1e","startedAt":1700000000000}`,
          `{"n":1,"part":{"type":"text-start","id":"1"}}`,
          `{"n":2,"part":{"type":"text-delta","id":"1","delta":"hi"}}`,
          `{"end":{"type":"finished","finishReason":"stop","usage":{"measured":true}},"attempt":1,"next":3}`,
          ""
        ].join("\n")
      )
      assert.strictEqual((yield* fs.stat(path)).mode & 0o777, 0o600)
    }).pipe(run))

  it.live.prop(
    "gives every reader, from whatever number, the parts from there on and one end",
    {
      counts: Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 30 })))
        .check(Schema.isMinLength(1), Schema.isMaxLength(4)),
      batchParts: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 20 })),
      batchBytes: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2000 })),
      tailParts: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })),
      tailBytes: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 4000 })),
      write: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2000 })),
      reopened: Schema.Boolean
    },
    ({ counts, reopened, ...limits }) =>
      Effect.gen(function*() {
        const path = yield* turnFile
        const all: Array<Bridge.NumberedPart & { attempt: number }> = []
        const write = Effect.fnUntraced(function*(log: TurnLog.TurnLog) {
          for (const [i, count] of counts.entries()) {
            if (i > 0) {
              const n = yield* log.beginAttempt({ attempt: i + 1, keep: all.length })
              all.push({ n, part: { type: "turn-continued", attempt: i + 1, keep: all.length }, attempt: i + 1 })
            }
            for (let j = 0; j < count; j++) {
              const part = delta(text(all.length))
              all.push({ n: yield* log.append(part), part, attempt: i + 1 })
            }
            yield* log.end(i === counts.length - 1 ? finished : aborted)
          }
        })
        const check = Effect.fnUntraced(function*(log: TurnLog.TurnLog) {
          for (let from = 1; from <= all.length + 1; from++) {
            const got = yield* readAll(log.read({ from, attempt: all[from - 2]?.attempt }))
            assert.deepStrictEqual(got.parts, all.slice(from - 1))
            assert.deepStrictEqual(got.end, { end: finished, attempt: counts.length, next: all.length + 1 })
            for (const { bytes, count } of got.batches) {
              assert.isAtMost(count, limits.batchParts)
              if (count > 1) assert.isAtMost(bytes, limits.batchBytes)
            }
          }
        })
        yield* Effect.scoped(Effect.gen(function*() {
          const log = yield* TurnLog.create({ path, header })
          yield* write(log)
          if (!reopened) yield* check(log)
        }))
        if (reopened) yield* check(yield* TurnLog.open({ path, turn, known: { attempt: counts.length } }))
      }).pipe(withLimits(limits), Effect.scoped, run),
    { arbitrary: { runs: 60 } }
  )

  it.live("fills each batch as far as its limits allow, and sends a longer line alone", () =>
    Effect.gen(function*() {
      const sizes = (batchBytes: number, texts: ReadonlyArray<string>) =>
        Effect.gen(function*() {
          const log = yield* TurnLog.create({ path: yield* turnFile, header })
          for (const text of texts) yield* log.append(delta(text))
          yield* log.end(finished)
          return (yield* readAll(log.read({ from: 1 }))).batches.map(({ count }) => count)
        }).pipe(withLimits({ batchBytes, batchParts: 4 }))
      const line = Buffer.byteLength(JSON.stringify({ n: 1, part: delta("ä") }))
      const three = 3 * line + 2
      assert.deepStrictEqual(yield* sizes(three, ["ä", "ä", "ä", "ä", "ä", "ä", "ä"]), [3, 3, 1])
      assert.deepStrictEqual(yield* sizes(three - 1, ["ä", "ä", "ä", "ä", "ä"]), [2, 2, 1])
      assert.deepStrictEqual(yield* sizes(three * 10, ["ä", "ä", "ä", "ä", "ä", "ä"]), [4, 2])
      assert.deepStrictEqual(yield* sizes(three, ["ä", "x".repeat(500), "ä", "ä"]), [1, 1, 2])
    }).pipe(run))

  it.live("keeps the newest lines in memory, and no more of them than its limits allow", () =>
    Effect.gen(function*() {
      const { disk, files } = yield* failingDisk
      const line = JSON.stringify({ n: 100, part: delta("x") }).length
      const inMemory = (tail: { tailParts: number; tailBytes: number }) =>
        Effect.gen(function*() {
          const log = yield* TurnLog.create({ path: yield* turnFile, header })
          for (let i = 0; i < 150; i++) yield* log.append(delta("x"))
          yield* log.end(finished)
          for (let from = 150; from > 100; from--) {
            disk.reads = 0
            yield* readAll(log.read({ from }))
            if (disk.reads > 0) return 150 - from
          }
          return undefined
        }).pipe(withLimits(tail), Effect.provideService(LogFile, files))
      assert.strictEqual(yield* inMemory({ tailParts: 20, tailBytes: 10_000 }), 20)
      assert.strictEqual(yield* inMemory({ tailParts: 100, tailBytes: 10 * line }), 10)
      assert.strictEqual(yield* inMemory({ tailParts: 100, tailBytes: 10 * line - 1 }), 9)
      assert.strictEqual(yield* inMemory({ tailParts: 100, tailBytes: 10_000 }), undefined)
    }).pipe(run))

  it.live("takes a bounded number of bytes for each part that is in the file", () =>
    Effect.gen(function*() {
      const heap = () => {
        Bun.gc(true)
        return process.memoryUsage().heapUsed
      }
      const append = Effect.fnUntraced(function*(count: number) {
        const log = yield* TurnLog.create({ path: yield* turnFile, header })
        for (let i = 0; i < count; i++) yield* log.append(delta("lorem ipsum dolor sit amet consectetur adipiscing"))
        yield* log.end(finished)
        return log
      })
      yield* append(20_000)
      const before = heap()
      const log = yield* append(200_000)
      const perPart = (heap() - before) / 200_000
      assert.strictEqual((yield* log.status).next, 200_001)
      // An index of 8 bytes and the tail; a line would be 120.
      assert.isAtLeast(perPart, 8)
      assert.isAtMost(perPart, 25)
    }).pipe(run))

  it.live("gives readers that came before, during and after the same parts", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      const before = yield* Effect.forkChild(readAll(log.read({ from: 1 })))
      for (let i = 1; i <= 500; i++) {
        yield* log.append(delta(text(i)))
        if (i % 50 === 0) yield* Effect.yieldNow
      }
      const during = yield* Effect.forkChild(readAll(log.read({ from: 1 })))
      for (let i = 501; i <= 1000; i++) yield* log.append(delta(text(i)))
      yield* log.end(finished)
      const readers = [
        yield* Fiber.join(before),
        yield* Fiber.join(during),
        yield* readAll(log.read({ from: 1 })),
        yield* readAll(log.read({ from: 1 }))
      ]
      for (const { end, parts } of readers) {
        assert.deepStrictEqual(parts.map(({ n }) => n), Array.from({ length: 1000 }, (_, i) => i + 1))
        assert.deepStrictEqual(
          parts.map(({ part }) => part),
          Array.from({ length: 1000 }, (_, i) => delta(text(i + 1)))
        )
        assert.strictEqual(end?.next, 1001)
      }
    }).pipe(small, run))

  it.live("shows a part only once it's written, and many that wait as one write", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const { disk, files } = yield* failingDisk
      const path = yield* turnFile
      const log = yield* Effect.provideService(TurnLog.create({ path, header }), LogFile, files)
      const seen: Array<number> = []
      yield* Effect.forkChild(Stream.runForEach(log.read({ from: 1 }), (event) =>
        Effect.gen(function*() {
          if (event._tag === "End") return
          // What a reader has is in the file.
          assert.include(yield* fs.readFileString(path), `{"n":${event.first + event.count - 1},`)
          seen.push(event.count)
        })))
      const writes = disk.writes.length
      disk.gate.closeUnsafe()
      disk.waiting = 0
      yield* log.append(delta("first"))
      yield* eventually("a write", Effect.sync(() => disk.waiting === 1))
      for (let i = 0; i < 999; i++) yield* log.append(delta("more"))
      assert.deepStrictEqual(seen, [])
      assert.strictEqual((yield* log.status).next, 1001)
      disk.gate.openUnsafe()
      yield* eventually("all parts", Effect.sync(() => seen.reduce((a, b) => a + b, 0) === 1000))
      assert.strictEqual(disk.writes.length - writes, 2)
      assert.deepStrictEqual(seen, [1, 999])
    }).pipe(run))

  it.live("writes what comes in one tick at once, also where a write returns at once", () =>
    Effect.gen(function*() {
      const inner = yield* LogFile
      let writes = 0
      const create: LogFile["create"] = (path) =>
        Effect.map(
          Effect.acquireRelease(Effect.sync(() => openSync(path, "ax")), (fd) => Effect.sync(() => closeSync(fd))),
          (fd) => ({
            write: (bytes) =>
              Effect.sync(() => {
                writes++
                return writeSync(fd, bytes)
              }),
            sync: Effect.void,
            truncate: () => Effect.void
          })
        )
      const log = yield* Effect.provideService(TurnLog.create({ path: yield* turnFile, header }), LogFile, {
        ...inner,
        create
      })
      // Its writer waits for work from here on.
      yield* log.appendSynced(delta("first"))
      yield* Effect.yieldNow
      writes = 0
      for (let i = 0; i < 100; i++) yield* log.append(delta(text(i)))
      yield* log.end(finished)
      assert.strictEqual((yield* readAll(log.read({ from: 1 }))).parts.length, 101)
      // The parts, and the end.
      assert.isAtMost(writes, 3)
    }).pipe(run))

  it.live("has the writer of parts wait for the disk while 4 MiB are pending, and for nothing else", () =>
    Effect.gen(function*() {
      const { disk, files } = yield* failingDisk
      const log = yield* Effect.provideService(TurnLog.create({ path: yield* turnFile, header }), LogFile, files)
      disk.gate.closeUnsafe()
      const part = delta("x".repeat(64 * 1024 - 60))
      let appended = 0
      const writer = yield* Effect.forkChild(Effect.gen(function*() {
        for (; appended < 100; appended++) yield* log.append(part)
      }))
      yield* eventually("a writer that waits", Effect.sync(() => appended >= 64))
      for (let i = 0; i < 100; i++) yield* Effect.yieldNow
      assert.isAtMost(appended, 65)
      disk.gate.openUnsafe()
      yield* Fiber.join(writer)
      yield* log.end(finished)
      assert.strictEqual((yield* readAll(log.read({ from: 1 }))).parts.length, 100)
    }).pipe(run))

  it.live("lets a stalled reader hold up nothing, and gives it the rest later", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      const pull = yield* Stream.toPull(log.read({ from: 1 }))
      for (let i = 1; i <= 20_000; i++) yield* log.append(delta(text(i)))
      yield* log.end(finished)
      let next = 1
      let ended = false
      while (!ended) {
        for (const event of yield* pull) {
          if (event._tag === "End") ended = true
          else next = event.first === next ? next + event.count : NaN
        }
      }
      assert.strictEqual(next, 20_001)
    }).pipe(run))

  it.live("cuts a part that's too long for a line into fragments with numbers of their own", () =>
    Effect.gen(function*() {
      const path = yield* turnFile
      const log = yield* TurnLog.create({ path, header })
      // Emoji at odd and even places, so that every cut meets some; quotes, which take two bytes in a string.
      const long = `x${"😀\"".repeat(700_000)}`
      const parts = [
        delta("before"),
        { type: "tool-result", id: "c", name: "f", result: long, isFailure: false },
        delta("after")
      ]
      const numbers: Array<number> = []
      for (const part of parts) numbers.push(yield* log.append(part as Bridge.Part))
      yield* log.end(finished)

      const got = yield* readAll(log.read({ from: 1 }))
      const fragments = got.parts.slice(1, -1)
      assert.deepStrictEqual(numbers, [1, 2, 2 + fragments.length])
      assert.isAbove(fragments.length, 2)
      for (const [i, { n, part }] of fragments.entries()) {
        assert.strictEqual(n, 2 + i)
        assert.include(part, { type: "part-fragment", of: 2, index: i, last: i === fragments.length - 1 })
        assert.isAtMost(Buffer.byteLength(JSON.stringify({ n, part })), Bridge.maxLineBytes)
      }
      const joined = yield* Stream.runCollect(log.parts)
      assert.deepStrictEqual(joined, parts.map((part, i) => ({ n: numbers[i]!, part })) as never)
    }).pipe(run))

  it.live("replaces lone surrogates by U+FFFD, in keys too, and nothing else", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      yield* log.append({ type: "raw", event: { "k\ud800": ["\udc00 \\ud800 😀 \\\ud83d", "\u0000\u2028"] } })
      yield* log.end(finished)
      const [only] = (yield* readAll(log.read({ from: 1 }))).parts
      assert.deepStrictEqual(only!.part as unknown, {
        type: "raw",
        event: { "k\ufffd": ["\ufffd \\ud800 😀 \\\ufffd", "\u0000\u2028"] }
      })
    }).pipe(run))

  it.live("tells a reader that has parts of another attempt, or too many, where to read on", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      for (let i = 1; i <= 5; i++) yield* log.append(delta(text(i)))
      yield* log.end(aborted)
      yield* log.beginAttempt({ attempt: 3, keep: 4 })
      yield* log.append(delta("7"))
      yield* log.end(finished)
      const next = (from: number, attempt?: number) =>
        Effect.map(
          Effect.flip(readAll(log.read({ from, attempt }))),
          (error) => error._tag === "PartNotFound" ? error.next : error._tag
        )
      assert.strictEqual(yield* next(9), 8)
      assert.strictEqual(yield* next(9, 3), 8)
      // A reader whose attempt 1 had more parts than the log kept of it.
      assert.strictEqual(yield* next(8, 1), 6)
      assert.strictEqual(yield* next(90, 1), 6)
      // One of an attempt that the log doesn't hold.
      assert.strictEqual(yield* next(8, 2), 6)
      assert.strictEqual(yield* next(4, 2), 6)
      for (const [from, attempt] of [[8, 3], [7, 3], [6, 1], [1, 7], [3, undefined]] as const) {
        assert.strictEqual((yield* readAll(log.read({ from, attempt }))).parts.length, 8 - from)
      }
    }).pipe(run))

  it.live("leaves void parts and half fragments out of what it tells a driver", () =>
    Effect.gen(function*() {
      const path = yield* turnFile
      const log = yield* TurnLog.create({ path, header })
      const long = delta("€".repeat(600))
      yield* log.append(delta("1"))
      assert.strictEqual(yield* log.append(long), 2)
      const three = yield* log.append(delta("3"))
      yield* log.end(aborted)
      // The fragmented part counts as a whole, by its first number.
      const continued = yield* log.beginAttempt({ attempt: 2, keep: 2 })
      const five = yield* log.append(delta("5"))
      yield* log.end(finished)
      assert.isAbove(three, 3)
      assert.deepStrictEqual((yield* Stream.runCollect(log.parts)).map(({ n }) => n), [1, 2, continued, five])
      assert.deepStrictEqual((yield* Stream.runCollect(log.parts))[1]!.part, long)
    }).pipe(withLimits({ lineBytes: 1000 }), run))

  it.live("ends an attempt once, drops what comes after it, and goes on in the next", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      yield* log.append(delta("1"))
      yield* log.end(aborted)
      assert.deepStrictEqual(yield* log.end(finished), { end: aborted, attempt: 1, next: 2 })
      yield* log.append(delta("late"))
      assert.strictEqual((yield* Effect.flip(log.appendSynced(delta("late"))))._tag, "LogUnavailable")
      assert.include(yield* log.status, { attempt: 1, from: 1, next: 2, end: aborted })

      assert.strictEqual(yield* log.beginAttempt({ attempt: 2, keep: 1 }), 2)
      assert.include(yield* log.status, { attempt: 2, from: 2, next: 3, end: undefined })
      assert.strictEqual(yield* log.appendSynced(delta("3")), 3)
      yield* log.end(finished)
      assert.deepStrictEqual((yield* readAll(log.read({ from: 1 }))).parts.map(({ attempt, n }) => [attempt, n]), [
        [1, 1],
        [2, 2],
        [2, 3]
      ])
    }).pipe(run))

  it.live("adds up the usage of all attempts, unmeasured where a step was cut and not recovered", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      const step = (total: number, recovered = false): Bridge.KnownPart => ({
        type: "step-finished",
        usage: { measured: true, outputTokens: { total } },
        ...(recovered ? { recovered } : {})
      })
      const usage = Effect.map(log.status, ({ usage }) => [usage.measured, usage.outputTokens?.total])
      yield* log.append(delta("1"))
      assert.deepStrictEqual(yield* usage, [false, undefined])
      yield* log.append(step(5))
      assert.deepStrictEqual(yield* usage, [true, 5])
      yield* log.append(delta("cut"))
      yield* log.end(aborted)
      yield* log.beginAttempt({ attempt: 2, keep: 2 })
      assert.deepStrictEqual(yield* usage, [false, 5])
      yield* log.append({ ...delta("cut, whole"), recovered: true } as Bridge.Part)
      yield* log.append(step(2, true))
      assert.deepStrictEqual(yield* usage, [true, 7])
      yield* log.append(delta("cut again"))
      yield* log.end(aborted)
      yield* log.beginAttempt({ attempt: 3, keep: 6 })
      yield* log.append(step(1))
      assert.deepStrictEqual(yield* usage, [false, 8])
    }).pipe(run))

  it.live("counts no step for what isn't the agent's doing, its own events included", () =>
    Effect.gen(function*() {
      const log = yield* TurnLog.create({ path: yield* turnFile, header })
      const status = Effect.map(log.status, ({ begun, usage }) => [begun, usage.measured])
      const idle: ReadonlyArray<Bridge.KnownPart> = [
        { type: "raw", event: { type: "started" } },
        { type: "notice", level: "info", message: "started" }
      ]
      for (const part of idle) yield* log.append(part)
      assert.deepStrictEqual(yield* status, [false, true])
      yield* log.append({ type: "step-finished", usage: { measured: true } })
      for (const part of idle) yield* log.append(part)
      assert.deepStrictEqual(yield* status, [true, true])
      yield* log.append(delta("cut"))
      assert.deepStrictEqual(yield* status, [true, false])
    }).pipe(run))

  it.live("keeps an unlinked file readable to its end, and tells readers when it closes without one", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* turnFile
      const scope = yield* Scope.make()
      const log = yield* Scope.provide(TurnLog.create({ path, header }), scope)
      for (let i = 1; i <= 100; i++) yield* log.append(delta(text(i)))
      yield* fs.remove(path)
      const got = yield* Effect.forkChild(Effect.exit(readAll(log.read({ from: 1 }))))
      const first = yield* Stream.runHead(log.read({ from: 1 }))
      assert.isTrue(first._tag === "Some")
      yield* Scope.close(scope, Exit.void)
      const exit = yield* Fiber.join(got)
      assert.isTrue(Exit.isFailure(exit))
      assert.include(String(exit), "LogUnavailable")
      assert.include(String(yield* Effect.exit(readAll(log.read({ from: 1 })))), "LogUnavailable")
    }).pipe(small, run))
})
