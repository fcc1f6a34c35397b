import { BunFileSystem } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import { LogFile } from "@gangway/server/LogFile"
import * as TurnLog from "@gangway/server/TurnLog"
import { Effect, Fiber, FileSystem, Schema, Stream } from "effect"
import { existsSync } from "node:fs"
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

const usage: Bridge.Usage = { measured: false }

const setUp = Effect.fnUntraced(function*(options: Partial<TurnLog.CreateOptions> = {}) {
  const path = yield* turnFile
  const { disk, files } = yield* failingDisk
  const log = yield* Effect.provideService(TurnLog.create({ path, header, ...options }), LogFile, files)
  return { path, disk, log }
})

/** What another bridge finds: the same as this one's readers. */
const assertOnDisk = Effect.fnUntraced(function*(path: string, log: TurnLog.TurnLog) {
  const here = yield* readAll(log.read({ from: 1 }))
  const fs = yield* FileSystem.FileSystem
  const copy = yield* turnFile
  yield* fs.copyFile(path, copy)
  const there = yield* readAll((yield* TurnLog.open({ path: copy, turn, known: { attempt: 1 } })).read({ from: 1 }))
  assert.deepStrictEqual(there.parts, here.parts)
  assert.deepStrictEqual(there.end, here.end)
  return here
})

describe("TurnLog on a disk that fails", () => {
  it.live.prop(
    "writes all where the system writes and reads short",
    {
      short: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 60 })),
      texts: Schema.Array(Schema.String).check(Schema.isMaxLength(30))
    },
    ({ short, texts }) =>
      Effect.gen(function*() {
        const { disk, log, path } = yield* setUp()
        disk.short = short
        for (const text of texts) yield* log.append(delta(text))
        yield* log.end(finished)
        disk.short = undefined
        const got = yield* assertOnDisk(path, log)
        assert.deepStrictEqual(got.parts.map(({ part }) => part), texts.map((text) => delta(text.toWellFormed())))
      }).pipe(Effect.scoped, withLimits({ tailParts: 3, batchBytes: 100 }), run),
    { arbitrary: { runs: 30 } }
  )

  it.live("ends a turn that a full disk stopped, keeps every whole line, and works again once there's room", () =>
    Effect.gen(function*() {
      const { disk, log, path } = yield* setUp()
      yield* log.appendSynced(delta("kept"))
      disk.room = 250
      const reading = yield* Effect.forkChild(readAll(log.read({ from: 1 })))
      for (let i = 0; i < 10; i++) yield* log.append(delta("x".repeat(50)))
      assert.deepStrictEqual(yield* log.failure, { kind: "disk-full", problem: "write: ENOSPC" })
      // Dropped, and no number is used for it.
      assert.strictEqual(yield* log.append(delta("dropped")), 4)
      disk.room = 200
      const failed: Bridge.End = { type: "failed", error: { kind: "disk-full", message: "write: ENOSPC" }, usage }
      assert.deepStrictEqual(yield* log.end(failed), { end: failed, attempt: 1, next: 4 })
      const got = yield* Fiber.join(reading)
      assert.deepStrictEqual(got.parts.map(({ n }) => n), [1, 2, 3])
      assert.deepStrictEqual(got.end?.end, failed)
      yield* assertOnDisk(path, log)

      disk.room = undefined
      const next = yield* setUp()
      yield* next.log.append(delta("works"))
      yield* next.log.end(finished)
    }).pipe(run))

  it.live("continues an attempt that was aborted on a full disk", () =>
    Effect.gen(function*() {
      const { disk, log, path } = yield* setUp()
      yield* log.append(delta("1"))
      yield* log.appendSynced(delta("2"))
      disk.room = 10
      yield* log.append(delta("lost"))
      yield* log.failure
      disk.room = undefined
      yield* log.end(aborted)
      assert.strictEqual(yield* log.beginAttempt({ attempt: 2, keep: 2 }), 3)
      const failure = yield* Effect.forkChild(log.failure, { startImmediately: true })
      assert.strictEqual(yield* log.appendSynced(delta("4")), 4)
      assert.isUndefined(failure.pollUnsafe())
      assert.deepStrictEqual((yield* log.end(finished)).end, finished)
      const got = yield* assertOnDisk(path, log)
      assert.deepStrictEqual(got.parts.map(({ attempt, n }) => [n, attempt]), [[1, 1], [2, 1], [3, 2], [4, 2]])
    }).pipe(run))

  it.live("frees the reserve so that the end can be written", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const reserve = `${yield* fs.makeTempDirectoryScoped()}/reserve`
      const { disk, log, path } = yield* setUp({ reserve })
      assert.strictEqual(Number((yield* fs.stat(reserve)).size), 64 * 1024)
      yield* log.appendSynced(delta("1"))
      disk.room = 0
      disk.onFull = () => {
        if (!existsSync(reserve)) disk.room = 64 * 1024
      }
      yield* log.append(delta("lost"))
      yield* log.failure
      const reading = yield* Effect.forkChild(readAll(log.read({ from: 1 })))
      const end = yield* log.end(finished)
      assert.deepStrictEqual(end.end, {
        type: "failed",
        error: { kind: "disk-full", message: "write: ENOSPC" },
        usage: { measured: true }
      })
      assert.isFalse(yield* fs.exists(reserve))
      assert.deepStrictEqual((yield* Fiber.join(reading)).end, end)
      const got = yield* assertOnDisk(path, log)
      assert.deepStrictEqual(got.parts.map(({ n }) => n), [1])
      // Where there's room again it's kept again.
      yield* Effect.scoped(TurnLog.create({ path: yield* turnFile, header, reserve }))
      assert.isTrue(yield* fs.exists(reserve))
    }).pipe(run))

  it.live("tells readers that the end can't be written, and writes it at the next try", () =>
    Effect.gen(function*() {
      const { disk, log, path } = yield* setUp()
      yield* log.appendSynced(delta("1"))
      const reading = yield* Effect.forkChild(Effect.flip(readAll(log.read({ from: 1 }))))
      yield* Effect.yieldNow
      disk.room = 30
      assert.include(yield* Effect.flip(log.end(finished)), { _tag: "LogUnavailable", problem: "write: ENOSPC" })
      assert.include(yield* Fiber.join(reading), { _tag: "LogUnavailable", problem: "write: ENOSPC" })
      assert.include(yield* Effect.flip(readAll(log.read({ from: 2 }))), { _tag: "LogUnavailable" })
      assert.isUndefined((yield* log.status).end)
      disk.room = undefined
      yield* log.end(aborted)
      assert.deepStrictEqual((yield* assertOnDisk(path, log)).end, { end: aborted, attempt: 1, next: 2 })

      yield* log.beginAttempt({ attempt: 2, keep: 1 })
      const pull = yield* Stream.toPull(log.read({ from: 2 }))
      yield* pull
      const later = yield* Effect.forkChild(pull, { startImmediately: true })
      yield* log.append(delta("3"))
      assert.include((yield* Fiber.join(later))[0], { _tag: "Batch", first: 3 })
    }).pipe(run))

  it.live("writes the very end where only its first write failed", () =>
    Effect.gen(function*() {
      const { disk, log, path } = yield* setUp()
      yield* log.append(delta("1"))
      yield* log.appendSynced(delta("2"))
      disk.failing.set("write", { code: "ENOSPC", times: 1 })
      assert.deepStrictEqual((yield* log.end(finished)).end, finished)
      assert.strictEqual((yield* assertOnDisk(path, log)).parts.length, 2)
    }).pipe(run))

  it.live("fails the turn at an I/O error, and cuts back even if that fails at first", () =>
    Effect.gen(function*() {
      const { disk, log, path } = yield* setUp()
      yield* log.appendSynced(delta("1"))
      disk.room = 20
      disk.failing.set("truncate", { code: "EIO", times: 1 })
      yield* log.append(delta("lost"))
      yield* log.failure
      disk.room = undefined
      assert.include(yield* Effect.flip(log.appendSynced(delta("lost"))), { _tag: "LogUnavailable" })
      yield* log.end(aborted)
      const got = yield* assertOnDisk(path, log)
      assert.deepStrictEqual([got.parts.length, got.end?.end], [1, aborted])

      const other = yield* setUp()
      other.disk.failing.set("write", { code: "EIO", times: 1 })
      yield* other.log.append(delta("lost"))
      assert.deepStrictEqual(yield* other.log.failure, { kind: "unknown", problem: "write: EIO" })
      yield* other.log.end({ type: "failed", error: { kind: "unknown", message: "write: EIO" }, usage })
      assert.strictEqual((yield* assertOnDisk(other.path, other.log)).parts.length, 0)
    }).pipe(run))

  it.live("never tries a failed sync again: what it was for is gone, and the turn fails", () =>
    Effect.gen(function*() {
      // Of a batch.
      const batch = yield* setUp({ sync: true })
      yield* batch.log.appendSynced(delta("1"))
      batch.disk.failing.set("sync", { code: "EIO", times: 1 })
      yield* batch.log.append(delta("lost"))
      assert.deepStrictEqual(yield* batch.log.failure, { kind: "unknown", problem: "sync: EIO" })
      const failed: Bridge.End = {
        type: "failed",
        error: { kind: "unknown", message: "sync: EIO" },
        usage: { measured: true }
      }
      assert.deepStrictEqual((yield* batch.log.end(finished)).end, failed)
      assert.deepStrictEqual((yield* assertOnDisk(batch.path, batch.log)).parts.map(({ n }) => n), [1])

      // Of an answer.
      const answer = yield* setUp()
      answer.disk.failing.set("sync", { code: "EIO", times: 1 })
      assert.include(yield* Effect.flip(answer.log.appendSynced(delta("lost"))), { problem: "sync: EIO" })
      assert.deepStrictEqual((yield* answer.log.end(finished)).end, failed)
      assert.strictEqual((yield* assertOnDisk(answer.path, answer.log)).parts.length, 0)

      // Of the end itself.
      const end = yield* setUp()
      yield* end.log.append(delta("1"))
      end.disk.failing.set("sync", { code: "ENOSPC", times: 1 })
      assert.deepStrictEqual((yield* end.log.end(finished)).end, {
        ...failed,
        error: { kind: "disk-full", message: "sync: ENOSPC" }
      })
      assert.strictEqual((yield* assertOnDisk(end.path, end.log)).parts.length, 1)

      // Of the end, twice.
      const never = yield* setUp()
      never.disk.failing.set("sync", { code: "EIO", times: 2 })
      assert.include(yield* Effect.flip(never.log.end(finished)), { _tag: "LogUnavailable" })
      const fs = yield* FileSystem.FileSystem
      assert.match(yield* fs.readFileString(never.path), /^{"format".*\n$/)
      assert.deepStrictEqual((yield* never.log.end(finished)).end, failed)
      yield* assertOnDisk(never.path, never.log)
    }).pipe(run))

  it.live("syncs headers, answers, attempts and ends, and batches of parts only where asked", () =>
    Effect.gen(function*() {
      for (const sync of [false, true]) {
        const { disk, log } = yield* setUp({ sync })
        const syncs = (expected: number, what: string) => {
          assert.strictEqual(disk.syncs, expected, what)
          disk.syncs = 0
        }
        syncs(1, "header")
        yield* log.append(delta("1"))
        // What a reader has was synced if it was to be.
        yield* Stream.runHead(log.read({ from: 1 }))
        syncs(sync ? 1 : 0, "parts")
        yield* log.end(aborted)
        syncs(1, "end")
        yield* log.beginAttempt({ attempt: 2, keep: 1 })
        syncs(1, "attempt")
        yield* log.appendSynced(delta("answer"))
        syncs(1, "answer")
        yield* log.end(finished)
        syncs(1, "end")
      }
    }).pipe(run))

  it.live("ends a turn that reached its size, with room for the end", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const maxTurnBytes = 200_000
      const { log, path } = yield* setUp({ maxTurnBytes })
      for (let i = 0; i < 4000; i++) yield* log.append(delta(`${i} ä`))
      assert.include(yield* log.failure, { kind: "log-full" })
      assert.deepStrictEqual((yield* log.end(finished)).end.type, "failed")
      const size = Number((yield* fs.stat(path)).size)
      assert.isAtMost(size, maxTurnBytes)
      assert.isAtLeast(size, maxTurnBytes - 64 * 1024 - 100)
      const got = yield* assertOnDisk(path, log)
      assert.deepStrictEqual(got.parts.map(({ part }) => part), got.parts.map((_, i) => delta(`${i} ä`)))
      assert.include(got.end?.end, { type: "failed" })
    }).pipe(run))

  it.live("tells readers that the file can't be read, and goes on writing", () =>
    Effect.gen(function*() {
      const { disk, log } = yield* setUp()
      for (let i = 0; i < 100; i++) yield* log.append(delta(`${i}`))
      yield* log.end(aborted)
      disk.failing.set("read", { code: "EIO", times: 1 })
      assert.include(yield* Effect.flip(readAll(log.read({ from: 1 }))), {
        _tag: "LogUnavailable",
        problem: "read: EIO"
      })
      assert.strictEqual((yield* readAll(log.read({ from: 1 }))).parts.length, 100)
      yield* log.beginAttempt({ attempt: 2, keep: 100 })
    }).pipe(withLimits({ tailParts: 10 }), run))

  it.live("creates nothing where it can't write a header", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* turnFile
      const { disk, files } = yield* failingDisk
      const create = Effect.provideService(TurnLog.create({ path, header }), LogFile, files)
      for (const operation of ["create", "write", "sync"] as const) {
        disk.failing.set(operation, { code: "ENOSPC", times: 1 })
        assert.include(yield* Effect.flip(create), { _tag: "LogUnavailable", problem: `${operation}: ENOSPC` })
        assert.isFalse(yield* fs.exists(path))
      }
      yield* create
    }).pipe(run))

  it.live("says a full disk, a missing file and anything else as what they are", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const files = yield* LogFile
      assert.include(yield* Effect.flip(files.openReader("/nowhere/at/all")), { kind: "not-found" })
      const directory = yield* fs.makeTempDirectoryScoped()
      assert.include(yield* Effect.flip(files.openWriter(directory)), { kind: "unknown" })
      // The one device that's always full.
      const full = yield* files.openWriter("/dev/full")
      const error = yield* Effect.flip(full.write(new Uint8Array(10)))
      assert.include(error, { kind: "disk-full", problem: "write: ENOSPC" })
    }).pipe(run))
})
