import { assert, describe, it } from "@effect/vitest"
import { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import { Effect, Fiber, Stream } from "effect"
import { eventually, serve, session, startSession, turn } from "./fixtures/connected.ts"
import { type Options, text } from "./fixtures/TestBridge.ts"

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

const numbers = (parts: ReadonlyArray<Turn.TurnPart>) => parts.map(({ n }) => n)

/** A turn that has ended, or is to be written by the test, and its handle. */
const started = Effect.fnUntraced(function*(options: Partial<Options>, parts: ReadonlyArray<object> = []) {
  const bridge = yield* serve(options)
  const handle = yield* Effect.flatMap(startSession(bridge), (session) => session.startTurn({ turn, prompt: "go" }))
  const log = bridge.options.state.turn(session, turn)
  if (parts.length > 0) {
    log.emit(...parts)
    log.finish()
  }
  return { bridge, handle, log }
})

// Cuts the connection before each of these parts, once.
const cutsAt = (at: Iterable<number>): Partial<Options> => {
  const left = new Set(at)
  return { onPart: (n) => left.delete(n) ? "cut" : undefined }
}

describe("Turn", () => {
  it.live("reads each part once and in order, wherever the connection is cut", () =>
    Effect.forEach(range(1, 31), (cut) =>
      Effect.scoped(Effect.gen(function*() {
        const { bridge, handle } = yield* started({ batch: 7, ...cutsAt([cut]) }, range(1, 30).map(text))
        const parts = yield* Stream.runCollect(handle.parts())
        assert.deepStrictEqual(numbers(parts), range(1, 30))
        assert.deepStrictEqual(parts.map(({ part }) => part), range(1, 30).map(text) as never)
        assert.strictEqual((yield* handle.end).type, "finished")
        // The last one is no part, so nothing was cut.
        assert.strictEqual(bridge.upgrades.length, cut === 31 ? 1 : 2)
        if (cut < 31) {
          assert.deepStrictEqual(bridge.payloads("ReadTurn")[1], {
            session,
            turn,
            from: cut,
            ...(cut === 1 ? {} : { attempt: 1 })
          })
        }
      })), { discard: true }))

  it.live(
    "reads each part once and in order over many cuts, live and with batches of any size",
    () =>
      Effect.forEach(range(1, 10), (seed) =>
        Effect.scoped(Effect.gen(function*() {
          const random = (n: number) => (Math.imul(n + seed * 7919, 2654435761) >>> 0) / 2 ** 32
          const cuts = range(1, 200).filter((n) => random(n) < 0.04)
          const { handle, log } = yield* started({ batch: 1 + seed, ...cutsAt(cuts) })
          const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
          for (let n = 1; n <= 200;) {
            const more = 1 + Math.floor(random(n * 31) * 12)
            log.emit(...range(n, Math.min(200, n + more - 1)).map(text))
            n += more
            yield* Effect.sleep(1)
          }
          log.finish()
          assert.deepStrictEqual(numbers(yield* Fiber.join(reader)), range(1, 200))
        })), { discard: true, concurrency: 4 }),
    60_000
  )

  it.live("is joined as it stands, also where it's continued again and again meanwhile", () =>
    Effect.gen(function*() {
      let attempt = 3
      const { bridge, handle } = yield* started({
        onRequest: (tag, payload) =>
          tag !== "StartTurn"
            ? undefined
            : payload.attempt === 6
            ? { success: { attempt: 6, from: 1, next: 1, status: "running" } }
            : { fail: { _tag: "TurnConflict", turn, field: "attempt", attempt: attempt++, state: "running" } }
      })
      assert.deepInclude(handle.started, { attempt: 6, status: "running" })
      assert.deepStrictEqual(bridge.payloads("StartTurn").map(({ attempt }) => attempt), [1, 3, 4, 5, 6])
    }))

  it.live("goes on after an attempt that ended before its first part", () =>
    Effect.gen(function*() {
      const { bridge, handle, log } = yield* started({})
      log.emit(...range(1, 5).map(text))
      log.begin(2)
      log.finish({ type: "aborted", reason: "bridge-died", usage: { measured: true } })
      const reader = yield* Effect.forkScoped(Stream.runCollect(handle.parts()))
      yield* eventually(() => log.attempt === 3)
      log.emit(text(7))
      log.finish()
      assert.deepStrictEqual(numbers(yield* Fiber.join(reader)), range(1, 7))
      // The part before number 6 is of the first attempt: the second has none.
      assert.deepStrictEqual(bridge.payloads("ReadTurn").at(-1), { session, turn, from: 6, attempt: 1 })
    }))

  it.live("reads from a number on, and again any number of times", () =>
    Effect.gen(function*() {
      const { handle } = yield* started({}, range(1, 20).map(text))
      const [all, tail, last] = yield* Effect.all([
        Stream.runCollect(handle.parts()),
        Stream.runCollect(handle.parts({ from: 15, attempt: 1 })),
        Stream.runCollect(handle.parts({ from: 21 }))
      ], { concurrency: "unbounded" })
      assert.deepStrictEqual([numbers(all), numbers(tail), numbers(last)], [range(1, 20), range(15, 20), []])
    }))

  it.live("fails with PartsLost where a number is missing, comes again, or the end comes too early", () =>
    Effect.gen(function*() {
      const lost = Effect.fnUntraced(function*(options: Partial<Options>, parts = range(1, 20).map(text)) {
        const { handle, log } = yield* started(options, parts)
        const seen: Array<number> = []
        const error = yield* handle.parts().pipe(
          Stream.runForEach((part) => Effect.sync(() => seen.push(part.n))),
          Effect.flip
        )
        assert.strictEqual(error._tag, "PartsLost")
        return { error: error as Turn.PartsLost, seen, log }
      })
      const gap = yield* lost({ batch: 4, onPart: (n, line) => n === 11 ? { n: 12, part: line.part } : undefined })
      assert.deepStrictEqual([gap.seen, gap.error.expected], [range(1, 8), 11])
      const twice = yield* lost({ batch: 5, onPart: (n, line) => n === 11 ? { n: 10, part: line.part } : undefined })
      assert.deepStrictEqual([twice.seen, twice.error.expected], [range(1, 10), 11])
      // The read goes on behind a hole.
      let cut = false
      const hole = yield* lost({
        onPart: (n, _, bridge) => {
          if (n !== 8 || cut) return undefined
          cut = true
          bridge.options.state.turn(session, turn).lines.splice(7, 13)
          return "cut"
        }
      })
      assert.deepStrictEqual([hole.seen.length, hole.error.expected], [7, 8])
      assert.include(hole.error.message, "from number 8 on are lost")
    }))

  it.live("fails with PartsLost where the turn's parts are gone while it's read, and with TurnNotFound before", () =>
    Effect.gen(function*() {
      const end = { type: "aborted", reason: "replaced", usage: { measured: true } } as const
      const { handle } = yield* started({
        onPart: (n, _, bridge) => {
          if (n !== 5) return undefined
          bridge.options.state.turns.clear()
          return "cut"
        },
        onRequest: (tag, payload, bridge) =>
          tag === "ReadTurn" && bridge.options.state.turns.size === 0
            ? { fail: { _tag: "TurnNotFound", session: payload.session, turn: payload.turn, end } }
            : undefined
      }, range(1, 9).map(text))
      const error = yield* Effect.flip(Stream.runDrain(handle.parts()))
      assert.strictEqual(error._tag, "PartsLost")
      assert.deepStrictEqual((error as Turn.PartsLost).end, end)
      assert.strictEqual((yield* Effect.flip(Stream.runDrain(handle.parts())))._tag, "TurnNotFound")
    }))

  it.live("fails with PartsLost and the next number where the log has gone back", () =>
    Effect.gen(function*() {
      const { handle } = yield* started({
        onRequest: (tag, { from }) =>
          tag === "ReadTurn" && from > 1 ? { fail: { _tag: "PartNotFound", turn, next: 3 } } : undefined,
        ...cutsAt([6])
      }, range(1, 9).map(text))
      const error = yield* Effect.flip(Stream.runDrain(handle.parts()))
      assert.deepInclude(error, { _tag: "PartsLost", expected: 6, next: 3 })
    }))

  it.live("fails where a bridge refuses with an error that this client doesn't know", () =>
    Effect.gen(function*() {
      const { handle } = yield* started({
        onRequest: (tag) => tag === "ReadTurn" ? { fail: { _tag: "OfALaterVersion", turn } } : undefined
      }, range(1, 9).map(text))
      const error = yield* Effect.flip(Stream.runDrain(handle.parts()))
      assert.strictEqual(error._tag, "BridgeUnavailable")
      assert.include(error.message, "this client doesn't know")
    }))

  it.live("takes a stream that ends without an end as a lost connection", () =>
    Effect.gen(function*() {
      let reads = 0
      const { bridge, handle } = yield* started({
        onRequest: (tag) => tag === "ReadTurn" && reads++ < 3 ? { success: null } : undefined
      }, range(1, 9).map(text))
      assert.deepStrictEqual(numbers(yield* Stream.runCollect(handle.parts())), range(1, 9))
      assert.strictEqual(bridge.count("ReadTurn"), 4)
      reads = -1000
      assert.strictEqual((yield* Effect.flip(Stream.runDrain(handle.parts())))._tag, "BridgeUnavailable")
    }), 60_000)

  const pieces = (of: number, part: object, count: number) => {
    const json = JSON.stringify(part)
    return range(0, count - 1).map((index) => ({
      type: "part-fragment",
      of,
      index,
      last: index === count - 1,
      text: json.slice((json.length * index) / count | 0, (json.length * (index + 1)) / count | 0)
    }))
  }

  it.live("puts a part together that came in pieces, wherever the connection is cut", () =>
    Effect.gen(function*() {
      const long = { type: "tool-result", id: "c", name: "cat", isFailure: false, result: "é🙂\n".repeat(200) }
      const lines = [text(1), text(2), ...pieces(3, long, 5), text(8), ...pieces(9, long, 2)]
      for (const cut of range(1, 10)) {
        for (const batch of [1, 3, 2048]) {
          yield* Effect.scoped(Effect.gen(function*() {
            const { handle } = yield* started({ batch, ...cutsAt([cut]) }, lines)
            assert.deepStrictEqual(yield* Stream.runCollect(handle.parts()), [
              { n: 1, part: text(1) },
              { n: 2, part: text(2) },
              { n: 3, part: long, last: 7 },
              { n: 8, part: text(8) },
              { n: 9, part: long, last: 10 }
            ] as never)
          }))
        }
      }
      assert.strictEqual(Turn.nextNumber({ n: 3, part: long as never, last: 7 }), 8)
    }))

  it.live("begins with the whole part where it's read from inside of one", () =>
    Effect.gen(function*() {
      const long = { type: "raw", event: "x".repeat(1000) }
      const { bridge, handle } = yield* started({ batch: 2 }, [text(1), ...pieces(2, long, 4), text(6)])
      for (const from of [3, 4, 5]) {
        assert.deepStrictEqual(numbers(yield* Stream.runCollect(handle.parts({ from }))), [2, 6])
      }
      assert.deepStrictEqual(bridge.payloads("ReadTurn").map(({ from }) => from), [3, 2, 4, 2, 5, 2])
      assert.deepStrictEqual(numbers(yield* Stream.runCollect(handle.parts({ from: 6 }))), [6])
    }))

  it.live("leaves out pieces of a part that never became whole", () =>
    Effect.gen(function*() {
      const { handle, log } = yield* started({})
      log.emit(text(1), ...pieces(2, { type: "raw", event: 1 }, 3).slice(0, 2))
      log.finish({ type: "aborted", reason: "host", usage: { measured: false } })
      assert.deepStrictEqual(numbers(yield* Stream.runCollect(handle.parts())), [1])
      log.begin(2, 1)
      log.emit(text(5))
      log.finish()
      assert.deepStrictEqual(numbers(yield* Stream.runCollect(handle.parts())), [1, 4, 5])
    }))

  it.live("passes on parts of unknown types", () =>
    Effect.gen(function*() {
      const { handle } = yield* started({}, [{ type: "hologram", depth: [1, null] }])
      assert.deepStrictEqual((yield* Stream.runCollect(handle.parts()))[0]!.part, {
        type: "hologram",
        depth: [1, null]
      } as never)
    }))

  it.live("gives a turn's text, its end with the attempt and the next number, and what counts of it", () =>
    Effect.gen(function*() {
      const { bridge, handle, log } = yield* started({})
      const block = (id: string, ...deltas: ReadonlyArray<string>) => [
        { type: "text-start", id },
        ...deltas.map((delta) => ({ type: "text-delta", id, delta })),
        { type: "text-end", id }
      ]
      log.emit(...block("a", "Hel", "lo."), { type: "text-delta", id: "s", delta: "sub", parent: "call" })
      log.emit(...block("b", "lost"))
      log.finish({ type: "aborted", reason: "host", usage: { measured: false } })
      log.begin(2, 5)
      log.emit(...block("c", "Bye."))
      const reader = yield* Effect.forkScoped(handle.text)
      const end = yield* Effect.forkScoped(handle.end)
      log.finish()
      assert.strictEqual(yield* Fiber.join(reader), "Hello.\n\nBye.")
      assert.strictEqual((yield* Fiber.join(end)).type, "finished")
      const endLine = yield* handle.endLine
      assert.deepStrictEqual(endLine, { end: yield* handle.end, attempt: 2, next: log.lines.length + 1 })
      // A handle that has read nothing reads it.
      const other = yield* Effect.flatMap(startSession(bridge), (session) => session.startTurn({ turn, prompt: "go" }))
      assert.deepStrictEqual(yield* other.endLine, endLine)
      assert.deepStrictEqual(numbers(yield* Turn.collect(handle.parts())), [...range(1, 5), 10, 11, 12])
    }))

  it.live("aborts, approves and answers", () =>
    Effect.gen(function*() {
      const { bridge, handle } = yield* started({})
      yield* handle.approve({ approvalId: "a1", decision: "deny", reason: "no" })
      yield* handle.answer({ id: "q1", result: { sure: true } })
      const other = yield* Effect.flip(handle.answer({ id: "q1", result: { sure: false } }))
      assert.strictEqual(other._tag, "AlreadyAnswered")
      const { end } = yield* handle.abort({ reason: "enough" })
      assert.strictEqual(end.type, "aborted")
      assert.strictEqual((yield* handle.end).type, "aborted")
      assert.strictEqual(
        (yield* Effect.flip(handle.approve({ approvalId: "a2", decision: "allow" })))._tag,
        "TurnEnded"
      )
      assert.deepStrictEqual(bridge.payloads("Approve")[0], {
        session,
        turn,
        approvalId: "a1",
        decision: "deny",
        reason: "no"
      })
      assert.deepStrictEqual(bridge.payloads("AbortTurn")[0], { session, turn, reason: "enough" })
    }))

  it.live("sends messages, each with an id of its own, that stays the same where a reply is lost", () =>
    Effect.gen(function*() {
      let cuts = 1
      const { bridge, handle } = yield* started({
        onRequest: (tag, payload, bridge) => {
          if (tag !== "SendMessage" || cuts-- <= 0) return undefined
          bridge.answer(tag, payload)
          bridge.cut()
          return "silence"
        }
      })
      assert.strictEqual(yield* handle.send("faster"), "steer")
      assert.strictEqual(yield* handle.send([{ type: "text", text: "later" }], { delivery: "queue" }), "queue")
      const messageId = "m1" as Bridge.MessageId
      yield* handle.send("third", { messageId })
      const sent = bridge.payloads("SendMessage")
      assert.deepStrictEqual(sent.map(({ delivery, prompt }) => [prompt[0].text, delivery]), [
        ["faster", undefined],
        ["faster", undefined],
        ["later", "queue"],
        ["third", undefined]
      ])
      assert.strictEqual(sent[0].messageId, sent[1].messageId)
      assert.match(sent[0].messageId, /^[a-z0-9][a-z0-9-]{0,63}$/)
      assert.strictEqual(new Set(sent.map(({ messageId }) => messageId)).size, 3)
      assert.strictEqual(sent[3].messageId, messageId)
      yield* handle.abort()
      assert.strictEqual((yield* Effect.flip(handle.send("late")))._tag, "TurnEnded")
    }))

  it.live("joins a turn that exists, at the attempt it has", () =>
    Effect.gen(function*() {
      const { bridge, handle, log } = yield* started({})
      log.emit(text(1))
      log.finish({ type: "aborted", reason: "host", usage: { measured: true } })
      log.begin(2, 1)
      const again = yield* Effect.flatMap(
        startSession(bridge),
        (session) => session.startTurn({ turn, prompt: "go" })
      )
      assert.deepStrictEqual(again.started, { attempt: 2, from: 2, next: 3, status: "running" })
      assert.deepStrictEqual(bridge.payloads("StartTurn").map(({ attempt }) => attempt), [1, 1, 2])
      log.finish()
      assert.strictEqual((yield* again.end).type, "finished")
      assert.strictEqual((yield* handle.end).type, "finished")
    }))

  it.live("stops reading when its consumer does", () =>
    Effect.gen(function*() {
      const { bridge, handle, log } = yield* started({})
      log.emit(...range(1, 5).map(text))
      assert.deepStrictEqual(numbers(yield* Stream.runCollect(Stream.take(handle.parts(), 2))), [1, 2])
      yield* eventually(() => log.readers.size === 0)
      assert.strictEqual(bridge.sockets.size, 1)
    }))
})

describe("counted", () => {
  it("leaves out what a continuation voids", () => {
    const part = (n: number) => ({ n, part: text(n) as Bridge.Part })
    const continued = (n: number, keep: number) => ({ n, part: { type: "turn-continued" as const, attempt: 2, keep } })
    const parts = [part(1), part(2), part(3), continued(4, 2), part(5), part(6), continued(7, 5), part(8)]
    assert.deepStrictEqual(numbers(Turn.counted(parts)), [1, 2, 5, 8])
    assert.deepStrictEqual(numbers(Turn.counted([part(3), continued(4, 0), part(5)])), [5])
  })
})
