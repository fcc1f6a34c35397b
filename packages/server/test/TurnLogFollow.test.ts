import { BunFileSystem } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import * as TurnLog from "@gangway/server/TurnLog"
import { Effect, Exit, Fiber, FileSystem, Scope, Stream } from "effect"
import { eventually } from "./fixtures/processes.ts"
import { aborted, delta, finished, header, nothingYet, readAll, take, turn, turnFile } from "./fixtures/turnLogs.ts"

const run = Effect.provide(BunFileSystem.layer)

/** Reads in the background; `got` is what it has so far. */
const following = Effect.fnUntraced(function*(
  path: string,
  options: Partial<TurnLog.FollowOptions<never, FileSystem.FileSystem>> = {}
) {
  const got = nothingYet()
  const fiber = yield* Effect.forkChild(Stream.runForEach(
    TurnLog.follow({ path, turn, from: 1, takeOver: Effect.undefined, ...options }),
    (event) => Effect.sync(() => take(got, event))
  ))
  return {
    got,
    fiber,
    has: (count: number) => eventually(`${count} parts`, Effect.sync(() => got.parts.length >= count))
  }
})

describe("TurnLog.follow", () => {
  it.live("reads what another writes as it grows, whole lines only, to its end", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* turnFile
      const log = yield* TurnLog.create({ path, header })
      yield* log.appendSynced(delta("1"))
      const { fiber, got, has } = yield* following(path)
      yield* has(1)
      for (let i = 2; i <= 50; i++) yield* log.append(delta(`ä ${i}`))
      yield* log.end(aborted)
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(got.parts, (yield* readAll(log.read({ from: 1 }))).parts)
      assert.deepStrictEqual(got.end, { end: aborted, attempt: 1, next: 51 })

      // A line that comes byte by byte.
      const slow = yield* turnFile
      const bytes = yield* fs.readFile(path)
      const second = bytes.indexOf(10, bytes.indexOf(10) + 1) + 1
      yield* fs.writeFile(slow, bytes.subarray(0, second + 40))
      const partial = yield* following(slow)
      yield* partial.has(1)
      yield* fs.writeFile(slow, bytes.subarray(0, second + 70), { flag: "r+" })
      yield* fs.writeFile(slow, bytes, { flag: "r+" })
      yield* Fiber.join(partial.fiber)
      assert.deepStrictEqual(partial.got.parts, got.parts)
      assert.deepStrictEqual(partial.got.end, got.end)
    }).pipe(run))

  it.live("starts from any number, and tells a reader that has other parts", () =>
    Effect.gen(function*() {
      const path = yield* turnFile
      const log = yield* TurnLog.create({ path, header })
      for (let i = 1; i <= 5; i++) yield* log.append(delta(`${i}`))
      yield* log.end(aborted)
      yield* log.beginAttempt({ attempt: 2, keep: 5 })
      yield* log.end(finished)
      const follow = (from: number, attempt?: number) =>
        readAll(TurnLog.follow({ path, turn, from, attempt, takeOver: Effect.undefined }))
      assert.deepStrictEqual((yield* follow(4, 1)).parts.map(({ attempt, n }) => [n, attempt]), [[4, 1], [5, 1], [
        6,
        2
      ]])
      assert.include(yield* Effect.flip(follow(9, 1)), { _tag: "PartNotFound", next: 6 })
      assert.include(yield* Effect.flip(follow(8)), { _tag: "PartNotFound", next: 7 })
    }).pipe(run))

  it.live("reads on from the log that was opened once the lock was free", () =>
    Effect.gen(function*() {
      const path = yield* turnFile
      const died = yield* Scope.make()
      const log = yield* Scope.provide(TurnLog.create({ path, header }), died)
      for (let i = 1; i <= 3; i++) yield* log.append(delta(`${i}`))
      let isFree = false
      let tries = 0
      const scope = yield* Effect.scope
      const { fiber, got, has } = yield* following(path, {
        takeOver: Effect.suspend(() => {
          tries++
          return isFree
            ? Effect.map(TurnLog.open({ path, turn, known: { attempt: 1 } }), ({ read }) => read)
            : Effect.undefined
        }).pipe(Effect.orDie, Scope.provide(scope))
      })
      yield* has(3)
      yield* eventually("a try", Effect.sync(() => tries === 1))
      assert.include(got, { end: undefined })
      yield* log.append(delta("4"))
      yield* has(4)
      yield* Scope.close(died, Exit.void)
      isFree = true
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(got.parts.map(({ n }) => n), [1, 2, 3, 4])
      assert.deepStrictEqual(got.end?.end, { type: "aborted", reason: "bridge-died", usage: { measured: false } })
      assert.strictEqual(tries, 2)
    }).pipe(run))

  it.live("goes on in the file that took the place of a damaged one", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* turnFile
      yield* Effect.scoped(Effect.gen(function*() {
        const log = yield* TurnLog.create({ path, header })
        for (let i = 1; i <= 3; i++) yield* log.append(delta(`${i}`))
      }))
      const { fiber, got, has } = yield* following(path)
      yield* has(3)
      const repaired = `${path}.new`
      yield* fs.copyFile(path, repaired)
      const log = yield* TurnLog.open({ path: repaired, turn, known: { attempt: 1 } })
      yield* fs.rename(repaired, path)
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(got.parts.map(({ n }) => n), [1, 2, 3])
      assert.deepStrictEqual(got.end, (yield* readAll(log.read({ from: 4 }))).end)
    }).pipe(run))

  it.live("tells a reader whose parts were cut back, whose file is damaged, and whose file is gone", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const start = Effect.gen(function*() {
        const path = yield* turnFile
        const log = yield* TurnLog.create({ path, header })
        for (let i = 1; i <= 3; i++) yield* log.append(delta(`${i}`))
        const reader = yield* following(path)
        yield* reader.has(3)
        return { path, error: Effect.flip(Fiber.join(reader.fiber)) }
      })
      const cut = yield* start
      const text = yield* fs.readFileString(cut.path)
      yield* fs.truncate(cut.path, text.indexOf(`{"n":3`))
      assert.include(yield* cut.error, { _tag: "PartNotFound", next: 3 })

      const damaged = yield* start
      yield* fs.writeFileString(damaged.path, "?\n", { flag: "a" })
      assert.include(yield* damaged.error, { _tag: "TurnDamaged", readable: 3 })

      const gone = yield* start
      yield* fs.remove(gone.path)
      assert.include(yield* gone.error, { _tag: "LogUnavailable" })
      assert.include(
        yield* Effect.flip(readAll(TurnLog.follow({ path: gone.path, turn, from: 1, takeOver: Effect.undefined }))),
        { _tag: "LogUnavailable" }
      )
    }).pipe(run))
})
