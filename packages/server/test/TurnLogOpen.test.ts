import { BunFileSystem } from "@effect/platform-bun"
import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import { LogFile } from "@gangway/server/LogFile"
import * as TurnLog from "@gangway/server/TurnLog"
import { Effect, FileSystem, Stream } from "effect"
import { spawn } from "node:child_process"
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

const step: Bridge.KnownPart = {
  type: "step-finished",
  usage: { measured: true, inputTokens: { total: 10 }, outputTokens: { total: 3 } }
}

const headerLine = `{"format":1,"turn":"t1","prompt":"5f1e","startedAt":1700000000000}\n`
const line = (n: number, text = "x") => `{"n":${n},"part":{"type":"text-delta","id":"1","delta":"${text}"}}\n`
const endLine = (attempt: number, next: number, reason = "host") =>
  `{"end":{"type":"aborted","reason":"${reason}","usage":{"measured":true}},"attempt":${attempt},"next":${next}}\n`
const continued = (n: number, attempt: number, keep: number) =>
  `{"n":${n},"part":{"type":"turn-continued","attempt":${attempt},"keep":${keep}}}\n`

const fileOf = Effect.fnUntraced(function*(content: string | Uint8Array) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* turnFile
  yield* fs.writeFile(path, typeof content === "string" ? new TextEncoder().encode(content) : content)
  return path
})

const open = (path: string, attempt = 1) => TurnLog.open({ path, turn, known: { attempt } })

describe("TurnLog.open", () => {
  it.live("finds at every byte of a crash what was whole, ends it, and goes on from there", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* turnFile
      const emitted: Array<Bridge.Part> = [delta("ä"), step, delta("😀\n")]
      yield* Effect.scoped(Effect.gen(function*() {
        const log = yield* TurnLog.create({ path, header })
        for (const part of emitted) yield* log.append(part)
        yield* log.end(aborted)
        yield* log.beginAttempt({ attempt: 2, keep: 2 })
        yield* log.append(delta("five"))
        yield* log.end(finished)
      }))
      emitted.push({ type: "turn-continued", attempt: 2, keep: 2 }, delta("five"))
      const whole = yield* fs.readFile(path)
      const ends = Array.from(whole.entries()).filter(([, byte]) => byte === 10).map(([i]) => i + 1)
      assert.strictEqual(ends.length, 8)

      for (let size = 0; size <= whole.length; size++) {
        yield* fs.writeFile(path, whole.subarray(0, size))
        // Lines: the header, three parts, an end, two parts, an end.
        const lines = ends.filter((end) => end <= size).length
        const parts = lines < 1 ? 0 : lines <= 4 ? lines - 1 : Math.min(lines - 2, 5)
        const attempt = lines < 6 ? 1 : 2
        const end: Bridge.End = lines === 0
          ? { type: "aborted", reason: "log-damaged", usage: { measured: false } }
          : lines === 5
          ? aborted
          : lines === 8
          ? finished
          : {
            type: "aborted",
            reason: "bridge-died",
            usage: parts < 2
              ? { measured: parts === 0 }
              : { inputTokens: step.usage.inputTokens, outputTokens: step.usage.outputTokens, measured: parts === 2 }
          }
        const expected = emitted.slice(0, parts).map((part, i) => ({ n: i + 1, part }))
        yield* Effect.scoped(Effect.gen(function*() {
          const log = yield* open(path)
          const got = yield* readAll(log.read({ from: 1 }))
          assert.deepStrictEqual(got.parts.map(({ n, part }) => ({ n, part })), expected, `at byte ${size}`)
          assert.deepStrictEqual(got.end, { end, attempt, next: parts + 1 }, `at byte ${size}`)
          if (end.type === "aborted") {
            assert.strictEqual(yield* log.beginAttempt({ attempt: attempt + 1, keep: parts }), parts + 1)
            yield* log.append(delta("on"))
            yield* log.end(finished)
          }
        }))
        // What was answered is in the file, and no more is repaired.
        const before = yield* fs.readFileString(path)
        yield* Effect.scoped(Effect.gen(function*() {
          const got = yield* readAll((yield* open(path)).read({ from: 1 }))
          const added = end.type === "aborted" ? 2 : 0
          assert.deepStrictEqual(got.parts.map(({ n }) => n), Array.from({ length: parts + added }, (_, i) => i + 1))
          assert.deepStrictEqual(got.end?.end, finished)
        }))
        assert.strictEqual(yield* fs.readFileString(path), before)
      }
    }).pipe(run))

  it.live("holds all that a reader had, whenever the bridge is killed", () =>
    Effect.gen(function*() {
      for (let round = 0; round < 5; round++) {
        const path = yield* turnFile
        const child = spawn(process.execPath, [`${import.meta.dirname}/fixtures/appendingLog.ts`, path], {
          stdio: ["ignore", "pipe", "inherit"]
        })
        yield* Effect.addFinalizer(() => Effect.sync(() => child.kill("SIGKILL")))
        let printed = ""
        child.stdout.on("data", (data) => {
          printed += data
        })
        const closed = new Promise((resolve) => child.on("close", resolve))
        const killAt = Math.floor(Math.random() * 3000)
        yield* eventually("enough parts", Effect.sync(() => Number(printed.split("\n").at(-2)) > killAt))
        child.kill("SIGKILL")
        yield* Effect.promise(() => closed)

        const had = Number(printed.split("\n").at(-2))
        const got = yield* readAll((yield* open(path)).read({ from: 1 }))
        assert.isAtLeast(got.parts.length, had)
        assert.deepStrictEqual(
          got.parts.map(({ n, part }) => ({ n, part })),
          got.parts.map((_, i) => ({ n: i + 1, part: delta(`${i + 1} ${"ä".repeat((i + 1) % 300)}`) }))
        )
        assert.include(got.end?.end, { type: "aborted", reason: "bridge-died" })
      }
    }).pipe(run))

  it.live.each<readonly [string, string, number, ReadonlyArray<string>]>([
    ["a gap", line(1) + line(2), 2, [line(4), line(5)]],
    ["a repeat", line(1) + line(2), 2, [line(2), line(3)]],
    ["a line that isn't JSON", line(1) + line(2), 2, [`{"n":3,"part":{"type":"text-delta","id"}}\n`, line(4)]],
    ["a cut line in the middle", line(1), 1, [`{"n":2,"part":{"type":"te`, line(3)]],
    ["two parts in a line", line(1), 1, [line(2).trim() + line(3)]],
    ["an empty line", line(1), 1, ["\n", line(2)]],
    ["zeros", line(1), 1, ["\0".repeat(100), line(2)]],
    ["another number inside", line(1), 1, [`{"n":2,"part":{"type":"x"},"n":7}\n`]],
    ["a part without a type", line(1), 1, [`{"n":2,"part":{"typ":"x"}}\n`]],
    ["a second header", line(1), 1, [headerLine, line(2)]],
    ["a part after the end", line(1) + endLine(1, 2), 1, [line(2)]],
    ["another part that names an attempt after the end", line(1) + endLine(1, 2), 1, [
      `{"n":2,"part":{"type":"retry","attempt":2,"message":"x"}}\n`
    ]],
    ["a second end", line(1) + endLine(1, 2), 1, [endLine(1, 2)]],
    ["an end with another number", line(1), 1, [endLine(1, 3)]],
    ["an end of an unknown form", line(1), 1, [`{"end":{"type":"over"},"attempt":1,"next":2}\n`]]
  ])("keeps what's readable before the damage: %s", ([, good, readable, bad]) =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const content = headerLine + good + bad.join("")
      const path = yield* fileOf(content)
      const isEnded = good.includes("end")
      const check = Effect.fnUntraced(function*(log: TurnLog.TurnLog) {
        const got = yield* readAll(log.read({ from: 1 }))
        assert.deepStrictEqual(got.parts.map(({ n }) => n), Array.from({ length: readable }, (_, i) => i + 1))
        assert.deepStrictEqual(
          got.end,
          isEnded ? { end: aborted, attempt: 1, next: readable + 1 } : {
            end: { type: "aborted", reason: "log-damaged", usage: { measured: false } },
            attempt: 1,
            next: readable + 1
          }
        )
        const beyond = yield* Effect.flip(readAll(log.read({ from: readable + 2, attempt: 1 })))
        if (isEnded) assert.include(beyond, { _tag: "PartNotFound", next: readable + 1 })
        else assert.include(beyond, { _tag: "TurnDamaged", readable })
      })
      yield* Effect.scoped(Effect.flatMap(open(path), check))
      yield* Effect.scoped(Effect.flatMap(open(path), check))

      // Continued, it's whole again, and the damaged file is still there to be looked at.
      yield* Effect.scoped(Effect.gen(function*() {
        const log = yield* open(path)
        assert.strictEqual(yield* log.beginAttempt({ attempt: 2, keep: readable }), readable + 1)
        yield* log.append(delta("on"))
        yield* log.end(finished)
        assert.strictEqual((yield* readAll(log.read({ from: 1 }))).parts.length, readable + 2)
        assert.include(yield* Effect.flip(readAll(log.read({ from: readable + 9, attempt: 1 }))), {
          _tag: "PartNotFound",
          next: readable + 1
        })
      }))
      const again = yield* open(path, 2)
      assert.strictEqual((yield* readAll(again.read({ from: 1 }))).parts.length, readable + 2)
      const directory = path.slice(0, path.lastIndexOf("/"))
      assert.deepStrictEqual((yield* fs.readDirectory(directory)).toSorted(), ["damaged", "t1.ndjson"])
      assert.strictEqual(yield* fs.readFileString(`${directory}/damaged`), content)
      assert.strictEqual((yield* fs.stat(path)).mode & 0o777, 0o600)
    }).pipe(withLimits({ scanBytes: 64, tailParts: 1 }), run))

  it.live("never sends a byte that isn't UTF-8 as if it were fine", () =>
    Effect.gen(function*() {
      const content = new TextEncoder().encode(headerLine + line(1, "ä") + line(2) + line(3))
      content[content.indexOf(0xa4)] = 0x20
      const log = yield* open(yield* fileOf(content))
      assert.deepStrictEqual((yield* readAll(log.read({ from: 1 }))).parts, [])
      assert.include(yield* Effect.flip(readAll(log.read({ from: 3 }))), { _tag: "TurnDamaged", readable: 0 })
    }).pipe(run))

  it.live("keeps the newest of two damaged files", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const path = yield* fileOf(`${headerLine}first\n`)
      yield* Effect.scoped(open(path))
      yield* fs.writeFileString(path, `${headerLine}second\n`)
      yield* Effect.scoped(open(path))
      assert.include(yield* fs.readFileString(`${path.slice(0, path.lastIndexOf("/"))}/damaged`), "second")
    }).pipe(run))

  it.live("touches nothing of a newer format", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const content = `{"format":2,"turn":"t1"}\nwhatever\nnot even ended`
      const path = yield* fileOf(content)
      assert.include(yield* Effect.flip(open(path)), { _tag: "UnsupportedFormat", found: 2, known: 1 })
      assert.include(
        yield* Effect.flip(readAll(TurnLog.follow({ path, turn, from: 1, takeOver: Effect.undefined }))),
        { _tag: "UnsupportedFormat", found: 2, known: 1 }
      )
      assert.strictEqual(yield* fs.readFileString(path), content)
    }).pipe(run))

  it.live("opens a session whose turn's file is gone, with nothing of it readable", () =>
    Effect.gen(function*() {
      const path = yield* turnFile
      const log = yield* open(path, 4)
      assert.include(yield* log.status, { attempt: 4, from: 1, next: 1 })
      assert.include(yield* Effect.flip(readAll(log.read({ from: 2 }))), { _tag: "TurnDamaged", readable: 0 })
      assert.strictEqual(yield* log.beginAttempt({ attempt: 5, keep: 0 }), 1)
    }).pipe(run))

  it.live("keeps the attempt that the session knows", () =>
    Effect.gen(function*() {
      const reason = (log: TurnLog.TurnLog) =>
        Effect.map(
          readAll(log.read({ from: 1 })),
          ({ end }) => [end!.attempt, end!.next, end!.end.type === "aborted" && end!.end.reason]
        )
      // The bridge died between the session's file and `turn-continued`.
      const between = yield* fileOf(headerLine + line(1) + endLine(1, 2))
      yield* Effect.scoped(Effect.gen(function*() {
        const log = yield* open(between, 2)
        assert.deepStrictEqual(yield* reason(log), [2, 2, "bridge-died"])
        assert.include(yield* log.status, { attempt: 2, from: 2, next: 2 })
      }))
      yield* Effect.scoped(Effect.flatMap(open(between, 2), (log) =>
        Effect.gen(function*() {
          assert.deepStrictEqual(yield* reason(log), [2, 2, "bridge-died"])
          assert.strictEqual(yield* log.beginAttempt({ attempt: 3, keep: 1 }), 2)
        })))
      // Damage took attempt 2.
      const damaged = yield* fileOf(headerLine + line(1) + endLine(1, 2) + continued(2, 2, 1).replace("n\":2", "n\":3"))
      assert.deepStrictEqual(yield* reason(yield* open(damaged, 2)), [2, 2, "log-damaged"])
      const middle = yield* fileOf(headerLine + line(1) + "?\n")
      const log = yield* open(middle, 3)
      assert.deepStrictEqual(yield* reason(log), [3, 2, "log-damaged"])
      assert.deepStrictEqual((yield* readAll(log.read({ from: 1 }))).parts.map(({ attempt }) => attempt), [1])
      // A final end stays.
      const final = yield* fileOf(`${headerLine}${line(1)}{"end":${JSON.stringify(finished)},"attempt":1,"next":2}\n`)
      assert.strictEqual((yield* (yield* open(final, 2)).status).end?.type, "finished")
    }).pipe(run))

  it.live("answers the end it can't write, and writes it with the next attempt", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      for (const [reason, tail] of [["bridge-died", `{"n":2,"pa`], ["log-damaged", "?\n"]] as const) {
        const content = headerLine + line(1) + tail
        const path = yield* fileOf(content)
        const { disk, files } = yield* failingDisk
        disk.room = 0
        const log = yield* Effect.provideService(open(path), LogFile, files)
        const got = yield* readAll(log.read({ from: 1 }))
        assert.deepStrictEqual(got.parts.map(({ n }) => n), [1])
        assert.include(got.end?.end, { type: "aborted", reason })
        assert.strictEqual((yield* Effect.flip(log.beginAttempt({ attempt: 2, keep: 1 })))._tag, "LogUnavailable")
        assert.include((yield* log.status).end, { reason })
        assert.include(yield* fs.readFileString(path), headerLine + line(1))

        disk.room = undefined
        assert.strictEqual(yield* log.beginAttempt({ attempt: 2, keep: 1 }), 2)
        yield* log.append(delta("on"))
        yield* log.end(finished)
        assert.deepStrictEqual((yield* readAll(log.read({ from: 1 }))).parts.map(({ n }) => n), [1, 2, 3])
        const [, , died] = (yield* fs.readFileString(path)).split("\n")
        assert.include(JSON.parse(died!).end, { type: "aborted", reason })
      }
    }).pipe(run))

  it.live("opens a file longer than its slices, whatever its lines, and appends after it", () =>
    Effect.gen(function*() {
      const path = yield* turnFile
      const parts = [
        delta("ä".repeat(3000)),
        delta(""),
        delta("😀".repeat(100)),
        ...Array.from({ length: 200 }, (_, i) => delta(`${i}`))
      ]
      yield* Effect.scoped(Effect.gen(function*() {
        const log = yield* TurnLog.create({ path, header })
        for (const part of parts) yield* log.append(part)
      }))
      const log = yield* open(path)
      assert.deepStrictEqual((yield* Stream.runCollect(log.parts)).map(({ part }) => part), parts)
      yield* log.beginAttempt({ attempt: 2, keep: parts.length })
      yield* log.append(delta("on"))
      yield* log.end(finished)
      const got = yield* readAll(log.read({ from: parts.length }))
      assert.deepStrictEqual(got.parts.map(({ n }) => n - parts.length), [0, 1, 2])
    }).pipe(withLimits({ scanBytes: 100, batchBytes: 500, tailParts: 2 }), run))
})
