/**
 * Reads a turn to its end, over as many connections as it takes.
 *
 * Nothing here is done for each part but the comparison of its number: a batch's parts become the stream's next chunk
 * as they were parsed. They are the lines that the bridge encoded by the parts' schema, so beyond their numbers only
 * what this client itself relies on is checked.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type * as Arr from "effect/Array"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Rpc from "effect/unstable/rpc/Rpc"
import type { ResponseExitEncoded } from "effect/unstable/rpc/RpcMessage"
import { BridgeUnavailable, type Reason } from "../BridgeUnavailable.ts"
import { PartsLost, type ReadError, type ReadOptions, type TurnPart } from "../Turn.ts"
import type { Read } from "./bufferedRead.ts"
import type { Connection } from "./connection.ts"
import * as Monotonic from "./monotonic.ts"
import { defectText } from "./socket.ts"

export interface Options extends ReadOptions {
  readonly bridge: Bridge.BridgeId
  readonly session: Bridge.SessionId
  readonly turn: Bridge.TurnId
  readonly connection: Effect.Effect<Connection, BridgeUnavailable>
  /** Told of each connection that is read on; in a fiber that ends with the stream. */
  readonly onConnection: (connection: Connection) => Effect.Effect<void>
  /** How long reads may end within a second of their start, with nothing read. */
  readonly reconnectFor: Duration.Duration
  /** Told of the number that comes next and of the attempt of the part before it. */
  readonly onProgress: (next: number, attempt: number) => void
  /** Whether another attempt follows an end. */
  readonly onEnd: (line: Bridge.EndLine) => Effect.Effect<boolean, ReadError>
}

/** The parts of a turn from a number on. */
export const read = (options: Options): Stream.Stream<TurnPart, ReadError> =>
  Stream.unwrap(Effect.gen(function*() {
    const { bridge, session, turn } = options
    const scope = yield* Effect.scope
    const connection = Effect.tap(
      options.connection,
      (connection) => Effect.forkIn(options.onConnection(connection), scope)
    )
    const parts = makeParts(turn, options.from ?? 1, options.attempt)
    let current: { readonly read: Read; readonly startedAt: number } | undefined
    let events: ReadonlyArray<Bridge.TurnEvent> = []
    let taken = 0
    let hasProgressed = parts.next > 1
    let fruitless: { readonly count: number; readonly since: number } | undefined

    const close = () => {
      current?.read.close()
      current = undefined
    }
    yield* Scope.addFinalizer(scope, Effect.sync(close))

    const payload = () => ({
      session,
      turn,
      from: parts.next,
      ...(parts.next === 1 || parts.attempt === undefined ? {} : { attempt: parts.attempt })
    })
    const open = Effect.gen(function*() {
      const { socket } = yield* connection
      current = { read: socket.read(payload()), startedAt: yield* Monotonic.now }
    })

    // The old connection may bring its message yet, and a new one may bring it sooner.
    const hedge = Effect.fnUntraced(function*(old: Read) {
      let opened: Read | undefined
      const second = Effect.gen(function*() {
        while (true) {
          const { socket } = yield* connection
          opened = socket.read(payload())
          yield* opened.wait(true)
          if (!socket.isLost()) return opened
          yield* Effect.sleep("1 second")
        }
      })
      const first = yield* Effect.raceFirst(Effect.as(old.wait(true), old), second).pipe(
        Effect.onExit((exit) =>
          Effect.sync(() => {
            if (opened !== undefined && !(Exit.isSuccess(exit) && exit.value === opened)) opened.close()
          })
        )
      )
      if (first !== old) old.close()
      current = { read: first, startedAt: yield* Monotonic.now }
    })

    const failUnavailable = (reason: Reason) => Effect.fail(new BridgeUnavailable({ bridge, reason }))

    // A read that ended without an end is a lost connection.
    const retry = Effect.fnUntraced(function*(reason: Reason) {
      const now = yield* Monotonic.now
      const lasted = now - (current?.startedAt ?? now)
      current = undefined
      fruitless = fruitless === undefined || lasted >= 1000
        ? { count: 1, since: now }
        : { count: fruitless.count + 1, since: fruitless.since }
      const { count, since } = fruitless
      if (now - since > Duration.toMillis(options.reconnectFor)) return yield* failUnavailable(reason)
      if (count > 1) yield* Effect.sleep(Duration.millis(Math.min(5000, 25 * 2 ** count)))
    })

    const onExit = Effect.fnUntraced(function*(encoded: ResponseExitEncoded["exit"]) {
      const decoded = yield* Effect.result(decodeExit(encoded))
      if (Result.isFailure(decoded)) {
        const problem = "the bridge ended a read with an error that this client doesn't know"
        return yield* failUnavailable({ _tag: "ProtocolError", problem })
      }
      const exit = decoded.success
      if (Exit.isSuccess(exit)) return yield* retry({ _tag: "ProtocolError", problem: "a read ended without an end" })
      const error = Cause.findErrorOption(exit.cause)
      if (error._tag === "None") {
        // A bridge that closes interrupts its reads before its sockets.
        return Cause.hasInterruptsOnly(exit.cause)
          ? yield* retry({ _tag: "Disconnected", code: 1006, problem: "the bridge interrupted the read" })
          : yield* failUnavailable({ _tag: "ProtocolError", problem: defectText(Cause.squash(exit.cause)) })
      }
      const expected = parts.next
      switch (error.value._tag) {
        case "PartNotFound":
          return yield* new PartsLost({
            turn,
            expected,
            next: error.value.next,
            problem: error.value.message
          })
        case "TurnNotFound":
          if (!hasProgressed) return yield* error.value
          return yield* new PartsLost({ turn, expected, end: error.value.end, problem: error.value.message })
        default:
          return yield* error.value
      }
    })

    const onEnd = Effect.fnUntraced(function*(event: typeof Bridge.EndLine.Encoded) {
      const decoded = yield* Effect.result(decodeEnd(event))
      if (Result.isFailure(decoded)) {
        return yield* failUnavailable({ _tag: "ProtocolError", problem: decoded.failure.message })
      }
      const line = decoded.success
      yield* Effect.fromResult(parts.end(line))
      options.onProgress(parts.next, line.attempt)
      close()
      if (!(yield* options.onEnd(line))) return yield* Cause.done()
    })

    const pull = Effect.gen(function*() {
      while (true) {
        while (taken < events.length) {
          const event = events[taken]!
          if (!("parts" in event)) {
            taken = events.length
            yield* onEnd(event)
            break
          }
          const chunk: Array<TurnPart> = []
          let only: ReadonlyArray<TurnPart> | undefined
          while (taken < events.length && chunk.length < maxChunk) {
            const batch = events[taken]!
            if (!("parts" in batch)) break
            taken++
            const accepted = yield* Effect.fromResult(parts.accept(batch))
            if (accepted === readAgain) {
              close()
              events = []
              break
            }
            if (only === undefined && chunk.length === 0) only = accepted
            else {
              if (only !== undefined) chunk.push(...only)
              only = undefined
              chunk.push(...accepted)
            }
          }
          options.onProgress(parts.next, parts.attempt!)
          const out = only ?? chunk
          if (out.length > 0) return out as Arr.NonEmptyReadonlyArray<TurnPart>
        }
        if (current === undefined) yield* open
        const { read } = current!
        const signal = read.poll()
        switch (signal?._tag) {
          case undefined:
            yield* read.wait(false)
            break
          case "Events":
            events = signal.events
            taken = 0
            fruitless = undefined
            hasProgressed = true
            break
          case "Suspect":
            yield* hedge(read)
            break
          case "Overflown":
            current = undefined
            break
          case "Lost":
            yield* retry(signal.reason)
            break
          case "Ended":
            yield* onExit(signal.exit)
            break
        }
      }
    })
    return Stream.fromPull(Effect.succeed(pull))
  }))

// Batches that waited are handed on together, up to about as many parts as the bridge puts in one.
const maxChunk = 2048

const decodeEnd = Schema.decodeUnknownEffect(Schema.toCodecJson(Bridge.EndLine))

// The stream's events don't come in its exit.
const decodeExit = Schema.decodeUnknownEffect(Schema.toCodecJson(Rpc.exitSchema(Bridge.ReadTurn)))

const readAgain: ReadonlyArray<never> = []

interface Fragments {
  readonly of: number
  readonly texts: Array<string>
}

// Checks the numbers and puts pieces together.
const makeParts = (turn: Bridge.TurnId, from: number, attempt: number | undefined) => {
  let fragments: Fragments | undefined
  let hasReadAgain = false

  const lost = (expected: number, problem: string) => Result.fail(new PartsLost({ turn, expected, problem }))

  const self = {
    next: from,
    attempt,
    /** The parts of a batch, without the pieces of parts that aren't whole yet; or `readAgain`, from `next`. */
    accept: (batch: Bridge.Batch): Result.Result<ReadonlyArray<TurnPart>, PartsLost> => {
      if (self.attempt !== undefined && batch.attempt < self.attempt) {
        return lost(self.next, `attempt ${batch.attempt} came after attempt ${self.attempt}`)
      }
      const { parts } = batch
      let pieces = false
      for (let i = 0; i < parts.length; i++) {
        const { n, part } = parts[i]!
        if (n !== self.next + i) return lost(self.next + i, `number ${n} came in its place`)
        if (part.type === "part-fragment") pieces = true
      }
      if (pieces || fragments !== undefined) return joined(batch)
      self.next += parts.length
      self.attempt = batch.attempt
      return Result.succeed(parts)
    },
    end: (line: Bridge.EndLine): Result.Result<void, PartsLost> => {
      fragments = undefined
      if (line.next !== self.next) {
        return lost(self.next, `the attempt ended before number ${line.next}`)
      }
      // The attempt stays that of the last part: one that ended before its first part has none.
      return Result.void
    }
  }

  const joined = (batch: Bridge.Batch): Result.Result<ReadonlyArray<TurnPart>, PartsLost> => {
    const out: Array<TurnPart> = []
    for (const numbered of batch.parts) {
      if (numbered.part.type !== "part-fragment") {
        // An attempt that ended in the middle of a part leaves pieces that nothing follows.
        fragments = undefined
        out.push(numbered)
      } else {
        const { index, last, of, text } = numbered.part
        if (index === 0) fragments = { of, texts: [] }
        if (fragments === undefined || fragments.of !== of || fragments.texts.length !== index) {
          // What was read begins inside a part: it's read from its first piece on.
          if (hasReadAgain || out.length > 0 || of >= numbered.n) {
            return lost(numbered.n, `pieces of part ${of} are missing`)
          }
          hasReadAgain = true
          self.next = of
          self.attempt = batch.attempt
          return Result.succeed(readAgain)
        }
        fragments.texts.push(text)
        if (last) {
          const part = Result.try(() => JSON.parse(fragments!.texts.join("")) as Bridge.Part)
          if (Result.isFailure(part)) return lost(of, `the pieces of part ${of} don't fit together`)
          out.push({ n: of, part: part.success, last: numbered.n })
          fragments = undefined
        }
      }
      self.next = numbered.n + 1
      self.attempt = batch.attempt
    }
    return Result.succeed(out)
  }

  return self
}
