import { assert, describe } from "@effect/vitest"
import { LogFile } from "@gangway/server/LogFile"
import { Effect, FileSystem, Stream } from "effect"
import { existsSync } from "node:fs"
import * as Puppet from "./fixtures/puppet.ts"
import { onRecordedDisk } from "./fixtures/recordedDisk.ts"
import {
  act,
  editSessionFile,
  endOf,
  firstPart,
  launch,
  read,
  session,
  sessionFile,
  started,
  test,
  turn,
  until
} from "./fixtures/sessions.ts"
import { failingDisk } from "./fixtures/turnLogs.ts"

const acts = { hi: Puppet.says("hello"), hang: Puppet.saysAndHangs("one"), nudge: Puppet.says("two") }
const again = { session, turn: turn(1), attempt: 2 }

describe("before a prompt reaches the agent", () => {
  test(
    "the turn's header and the session's file are on disk, and so are their names",
    onRecordedDisk((disk) =>
      Effect.gen(function*() {
        let before: ReadonlyArray<string> = []
        const notes: Puppet.Act = () => Effect.suspend(() => (before = [...disk.steps], Effect.never))
        const puppet = Puppet.make({ notes, nudge: notes })
        const { client } = yield* started(puppet)
        disk.steps.length = 0
        yield* client.StartTurn(act(1, "notes"))
        const answered = [...disk.steps]
        yield* until("the prompt", () => before.length > 0)
        const begun = [
          "open t1.ndjson",
          "write t1.ndjson",
          "sync t1.ndjson",
          "open turns",
          "sync turns",
          "open t1.ndjson",
          "open session.json",
          "write session.json",
          "sync session.json",
          "rename session.json",
          "open s1",
          "sync s1"
        ]
        const durable = (steps: ReadonlyArray<string>) => steps.filter((step) => !/reserve/.test(step))
        assert.deepStrictEqual(durable(answered).slice(0, begun.length), begun)
        assert.deepStrictEqual(durable(before).slice(0, begun.length), begun)
        // The same before a nudge: the session's file, then the attempt's beginning.
        yield* client.AbortTurn({ session, turn: turn(1) })
        disk.steps.length = 0
        before = []
        yield* client.StartTurn(again)
        yield* until("the nudge", () => before.length > 0)
        assert.deepStrictEqual(durable(before).slice(0, 8), [
          "open session.json",
          "write session.json",
          "sync session.json",
          "rename session.json",
          "open s1",
          "sync s1",
          "write t1.ndjson",
          "sync t1.ndjson"
        ])
      })
    )
  )

  test(
    "each of that may fail: the prompt never reaches it then, what was before stays, and the next start works",
    onRecordedDisk((disk) =>
      Effect.gen(function*() {
        let failures = 0
        for (let at = 0;; at++) {
          const puppet = Puppet.make(acts)
          const { client, end } = yield* started(puppet)
          yield* client.StartTurn(act(0, "hi"))
          const earlier = yield* read(client, turn(0))
          yield* until("the end of that", () => puppet.heard.length === 1)
          disk.failAt = at
          const outcome = yield* Effect.result(client.StartTurn(act(1, "hi")))
          const isOver = disk.failAt !== undefined
          disk.failAt = undefined
          if (outcome._tag === "Failure") {
            failures++
            assert.strictEqual(outcome.failure._tag, "LogUnavailable")
            assert.deepStrictEqual(puppet.heard, ["hi"])
            assert.deepStrictEqual(yield* read(client, turn(0)), earlier)
            assert.strictEqual((yield* client.StartTurn(act(1, "hi"))).status, "started")
          }
          assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
          assert.deepStrictEqual(puppet.heard, ["hi", "hi"])
          yield* end
          if (isOver) break
        }
        // Creating, writing and syncing the header, and opening, writing, syncing and naming the session's file.
        assert.isAtLeast(failures, 7)
      })
    )
  )

  test(
    "of an attempt that continues, too",
    onRecordedDisk((disk) =>
      Effect.gen(function*() {
        let failures = 0
        for (let at = 0;; at++) {
          const puppet = Puppet.make(acts)
          const { client, end } = yield* started(puppet)
          yield* client.StartTurn(act(1, "hang"))
          yield* firstPart(client, turn(1), "step-finished")
          yield* client.AbortTurn({ session, turn: turn(1) })
          disk.failAt = at
          const outcome = yield* Effect.result(client.StartTurn(again))
          const isOver = disk.failAt !== undefined
          disk.failAt = undefined
          if (outcome._tag === "Failure") {
            failures++
            assert.strictEqual(outcome.failure._tag, "LogUnavailable")
            assert.deepStrictEqual(puppet.heard, ["hang"])
            // The attempt that couldn't begin may count, and it's the host's to name the next.
            const now = yield* client.StartTurn({ session, turn: turn(1) })
            assert.strictEqual(now.status, "continued")
          }
          const { end: line, parts } = yield* read(client, turn(1))
          assert.strictEqual(line.end.type, "finished")
          assert.deepStrictEqual(parts.map(({ n }) => n), parts.map((_, i) => i + 1))
          assert.deepStrictEqual(puppet.heard, ["hang", "nudge"])
          yield* end
          if (isOver) break
        }
        assert.isAtLeast(failures, 5)
      })
    )
  )

  test(
    "a bridge that dies leaves a file that no session names, and the next one removes it",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.client.StartTurn(act(1, "hi"))
      yield* read(first.client, turn(1))
      yield* first.end
      const fs = yield* FileSystem.FileSystem
      const turns = `${first.sessionDirectory}/turns`
      const header = (yield* fs.readFileString(`${turns}/t1.ndjson`)).split("\n")[0]!.replace("t1", "t2")
      yield* fs.writeFileString(`${turns}/t2.ndjson`, `${header}\n`)
      yield* fs.writeFileString(`${turns}/t0.ndjson.repair`, "half")
      const { client } = yield* launch(Puppet.make(acts).driver, first.stateDirectory)
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
      assert.deepStrictEqual((yield* fs.readDirectory(turns)).filter((name) => name !== "damaged"), ["t1.ndjson"])
      assert.deepInclude(yield* Effect.flip(read(client, turn(2))), { _tag: "TurnNotFound", latest: turn(1) })
      // It's as if it never was.
      yield* client.StartSession(first.start)
      assert.strictEqual((yield* client.StartTurn(act(2, "hi"))).status, "started")
    })
  )
})

describe("on a disk that fails", () => {
  const talks: Puppet.Act = (turn) =>
    Effect.forever(
      Effect.andThen(turn.emit({ type: "text-delta", id: "t", delta: "x".repeat(1000) }), Effect.sleep(1))
    )
  const failing = Effect.fnUntraced(function*(more: Record<string, Puppet.Act> = {}, maxTurnBytes?: number) {
    const { disk, files } = yield* failingDisk
    const puppet = Puppet.make({ ...acts, talk: talks, ...more })
    const world = yield* Effect.provideService(started(puppet, {}, { maxTurnBytes }), LogFile, files)
    return { ...world, disk, puppet }
  })

  test(
    "a turn fails as it runs out of space, with all that was written, and the next one works once there's room",
    Effect.gen(function*() {
      const { client, disk, sessionDirectory } = yield* failing()
      yield* client.StartTurn(act(1, "talk"))
      yield* firstPart(client, turn(1), "text-delta")
      disk.room = 5_000
      disk.onFull = () => {
        // What was kept for the end is free once its file is gone.
        if (!existsSync(`${sessionDirectory}/reserve`)) disk.room = 65_536
      }
      const { end, parts } = yield* read(client, turn(1))
      assert.deepInclude(end.end.type === "failed" && end.end.error, { kind: "disk-full" })
      assert.isAbove(parts.length, 4)
      assert.strictEqual(end.next, parts.length + 1)
      disk.room = undefined
      yield* client.StartTurn(act(2, "hi"))
      assert.strictEqual((yield* endOf(client, turn(2))).type, "finished")
    })
  )

  test(
    "an end that can't be written is told as LogUnavailable, and is there once there's room",
    Effect.gen(function*() {
      const { client, disk } = yield* failing()
      yield* client.StartTurn(act(1, "talk"))
      yield* firstPart(client, turn(1), "text-delta")
      disk.room = 0
      assert.strictEqual((yield* Effect.flip(read(client, turn(1))))._tag, "LogUnavailable")
      // Whoever waits for the turn is told how it ended.
      const { end } = yield* client.AbortTurn({ session, turn: turn(1) }).pipe(
        Effect.catchTag("LogUnavailable", () => Effect.succeed({ end: undefined }))
      )
      assert.isTrue(end === undefined || end.type === "failed")
      assert.strictEqual((yield* Effect.flip(read(client, turn(1))))._tag, "LogUnavailable")
      disk.room = undefined
      const whole = yield* read(client, turn(1))
      assert.deepInclude(whole.end.end.type === "failed" && whole.end.end.error, { kind: "disk-full" })
      assert.strictEqual(whole.end.next, whole.parts.length + 1)
    })
  )

  test(
    "an end that couldn't be written is the same after a restart",
    Effect.gen(function*() {
      const { client, disk, end, stateDirectory } = yield* failing()
      yield* client.StartTurn(act(1, "talk"))
      yield* firstPart(client, turn(1), "text-delta")
      disk.room = 0
      assert.strictEqual((yield* Effect.flip(read(client, turn(1))))._tag, "LogUnavailable")
      yield* end
      const { client: later } = yield* launch(Puppet.make(acts).driver, stateDirectory)
      const last = yield* endOf(later, turn(1))
      // `failed` is final.
      assert.deepInclude(last.type === "failed" && last.error, { kind: "disk-full" })
    })
  )

  test(
    "an answer that can't be written isn't heard, and its host is told how the turn ended",
    Effect.gen(function*() {
      const heard: Array<unknown> = []
      const { client, disk } = yield* failing({
        call: (turn) =>
          Effect.gen(function*() {
            heard.push(yield* turn.callHostTool({ id: "c1", name: "x", params: {} }))
            return { finishReason: "stop" }
          })
      })
      yield* client.StartTurn(act(1, "call"))
      yield* firstPart(client, turn(1), "tool-call")
      disk.failing.set("write", { code: "ENOSPC", times: 1 })
      const answer = { session, turn: turn(1), toolCallId: "c1", result: 1, isFailure: false }
      const error = yield* Effect.flip(client.SubmitToolResult(answer))
      assert.strictEqual(error._tag, "TurnEnded")
      assert.deepInclude(error._tag === "TurnEnded" && error.end, { type: "failed" })
      assert.deepStrictEqual(heard, [])
    })
  )

  test(
    "a turn fails at its size, and the next one works",
    Effect.gen(function*() {
      const { client } = yield* failing({}, 200_000)
      yield* client.StartTurn(act(1, "talk"))
      const end = yield* endOf(client, turn(1))
      assert.deepInclude(end.type === "failed" && end.error, { kind: "log-full" })
      yield* client.StartTurn(act(2, "hi"))
      assert.strictEqual((yield* endOf(client, turn(2))).type, "finished")
    })
  )
})

describe("a file that", () => {
  test(
    "was written by a newer version is left alone",
    Effect.gen(function*() {
      for (const which of ["session", "turn"]) {
        const first = yield* started(Puppet.make(acts))
        yield* first.client.StartTurn(act(1, "hi"))
        yield* read(first.client, turn(1))
        yield* first.end
        const fs = yield* FileSystem.FileSystem
        const path = `${first.sessionDirectory}/${which === "turn" ? "turns/t1.ndjson" : "session.json"}`
        const text = (yield* fs.readFileString(path)).replace("\"format\":1", "\"format\":2")
        yield* fs.writeFileString(path, text)
        const { client } = yield* launch(Puppet.make(acts).driver, first.stateDirectory)
        const unsupported = { _tag: "UnsupportedFormat", found: 2, known: 1 } as const
        assert.deepInclude(yield* Effect.flip(read(client, turn(1))), unsupported)
        assert.deepInclude(yield* Effect.flip(client.StartSession(first.start)), unsupported)
        const aborting = yield* Effect.flip(client.AbortTurn({ session, turn: turn(1) }))
        assert.strictEqual(aborting._tag, "LogUnavailable")
        assert.strictEqual((yield* Effect.flip(client.DestroySession({ session })))._tag, "LogUnavailable")
        assert.strictEqual(yield* fs.readFileString(path), text)
      }
    })
  )

  test(
    "is damaged is read up to there, and its turn can be continued",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.client.StartTurn(act(1, "hi"))
      yield* read(first.client, turn(1))
      yield* first.end
      const fs = yield* FileSystem.FileSystem
      const path = `${first.sessionDirectory}/turns/t1.ndjson`
      const lines = (yield* fs.readFileString(path)).split("\n")
      yield* fs.writeFileString(path, [...lines.slice(0, 3), "rubbish", ...lines.slice(4)].join("\n"))
      const { client } = yield* launch(Puppet.make(acts).driver, first.stateDirectory)
      const { end, parts } = yield* read(client, turn(1))
      assert.strictEqual(parts.length, 2)
      assert.deepInclude(end.end, { type: "aborted", reason: "log-damaged" })
      const beyond = yield* Effect.flip(Stream.runDrain(client.ReadTurn({ session, turn: turn(1), from: 4 })))
      assert.deepInclude(beyond, { _tag: "TurnDamaged", readable: 2 })
      yield* client.StartSession(first.start)
      assert.deepInclude(yield* client.StartTurn(again), { attempt: 2, from: 3, status: "continued" })
      assert.strictEqual((yield* endOf(client, turn(1))).type, "finished")
      assert.deepInclude((yield* sessionFile(first.sessionDirectory)).latest, { attempt: 2 })
    })
  )

  test(
    "is a session's and makes no sense is told so, and the other sessions work",
    Effect.gen(function*() {
      const first = yield* started(Puppet.make(acts))
      yield* first.end
      yield* editSessionFile(first.sessionDirectory, () => "no session")
      const { client } = yield* launch(Puppet.make(acts).driver, first.stateDirectory)
      assert.strictEqual((yield* Effect.flip(client.StartSession(first.start)))._tag, "LogUnavailable")
      assert.strictEqual((yield* Effect.flip(read(client, turn(1))))._tag, "LogUnavailable")
      const { ReadTurn: _, ...other } = client
      const start = { ...first.start, session: "s2" as typeof session }
      assert.deepStrictEqual(yield* other.StartSession(start), { resumed: false })
    })
  )
})
