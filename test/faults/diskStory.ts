/**
 * A host and a session's life on a disk that fails: turns that finish, wait for an answer, are aborted and continued,
 * and bridges that die with it, or with the power.
 */
import { assert } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import { portable, ProcessTable } from "@gangway/server/ProcessTable"
import { Deferred, Effect, Exit, FileSystem, Scope, Stream } from "effect"
import * as Puppet from "../../packages/server/test/fixtures/puppet.ts"
import { type Client, connect, session } from "../../packages/server/test/fixtures/sessions.ts"
import type * as Random from "../chaos/Random.ts"
import { type Fault, SimulatedDisk, type Step } from "./SimulatedDisk.ts"

/** How a bridge goes: it dies, or its machine loses power; `none`, the disk only fails. */
export type Ending = "death" | "power cut" | "none"

export interface Options {
  readonly random: Random.Random
  readonly ending: Ending
  /** Whether batches of parts are synced. */
  readonly sync: boolean
  /** Asked for each step of the first bridge; later ones have a disk that works. */
  readonly fault: (index: number, step: Step) => Fault | undefined
}

export interface Told {
  /** The steps of the first bridge. */
  readonly steps: ReadonlyArray<Step>
  /** Whether it died. */
  readonly died: boolean
  /** The parts that were read and lost with the power, as hosts were told. */
  readonly lost: number
}

const texts = ["first ", "second 🙂 ", "third ä", ""]

const say: Puppet.Act = (turn) =>
  Effect.gen(function*() {
    yield* turn.emit({ type: "text-start", id: "t" })
    for (const delta of texts) {
      yield* turn.emit({ type: "text-delta", id: "t", delta })
      // Each has a write of its own.
      yield* Effect.yieldNow
      yield* Effect.yieldNow
    }
    yield* turn.emit({ type: "text-end", id: "t" })
    yield* turn.emit({ type: "step-finished", usage: { measured: true, outputTokens: { total: 5 } } })
    return { finishReason: "stop" }
  })

const acts: Record<string, Puppet.Act> = {
  say,
  ask: (turn) =>
    Effect.gen(function*() {
      yield* turn.emit({ type: "text-start", id: "before" })
      yield* turn.emit({ type: "text-end", id: "before" })
      const { result } = yield* turn.callHostTool({ id: `call-${turn.attempt}`, name: "x", params: { of: "it" } })
      assert.deepStrictEqual(result, { answer: `call-${turn.attempt}` })
      return yield* say(turn)
    }),
  hang: (turn) => Effect.andThen(turn.emit({ type: "text-start", id: "t" }), Effect.never),
  nudge: say
}

const scripted = new Set([
  "text-start",
  "text-delta",
  "text-end",
  "step-finished",
  "tool-call",
  "tool-result",
  "turn-continued"
])

interface Known {
  attempt: number
  readonly parts: Array<{ readonly n: number; readonly part: Bridge.Part; readonly attempt: number }>
  end: Bridge.End | undefined
  /** The calls whose answers were accepted. */
  readonly accepted: Set<string>
}

type Refusal = { readonly _tag: string; readonly [field: string]: unknown }

/** Plays it, and fails where something isn't as it's promised. */
export const play = Effect.fnUntraced(function*(options: Options) {
  const { ending, random } = options
  const known = new Map<string, Known>()
  const knownOf = (turn: string): Known => {
    const found = known.get(turn) ?? { attempt: 1, parts: [], end: undefined, accepted: new Set() }
    known.set(turn, found)
    return found
  }
  let lost = 0
  let disk = SimulatedDisk.make()
  disk.fault = options.fault
  const first = disk
  yield* disk.fileSystem.makeDirectory("/work", { recursive: true }).pipe(
    Effect.tap(() => disk.fileSystem.open("/").pipe(Effect.flatMap((file) => file.sync), Effect.scoped)),
    (made) => withoutFault(disk, made)
  )
  // The host repeats what it wasn't answered, and nothing else.
  let done = 0
  let isOver = false
  let boots = 0

  // What a host does until it has the answer. A disk that fails once lets the next try through.
  const ask = <A>(call: () => Effect.Effect<A, unknown>): Effect.Effect<A, Refusal> =>
    Effect.suspend(call).pipe(
      Effect.mapError((error) => error as Refusal),
      Effect.retry({ times: 20, while: (error) => ending === "none" && error._tag === "LogUnavailable" })
    )

  const host = (client: Client) => {
    const start = Effect.fnUntraced(function*(id: string, prompt: string) {
      const turn = Bridge.TurnId.make(id)
      const mine = knownOf(id)
      while (true) {
        const answer = yield* Effect.result(
          ask(() =>
            client.StartTurn({ session, turn, attempt: mine.attempt, prompt: [{ type: "text", text: prompt }] })
          )
        )
        if (answer._tag === "Success") {
          assert.strictEqual(answer.success.attempt, mine.attempt)
          return
        }
        const error = answer.failure
        // An attempt that couldn't begin may count.
        const counts = error._tag === "TurnConflict" && error.field === "attempt" && error.state === "aborted"
        if (!counts || (error.attempt as number) < 1) return yield* Effect.die(new Error(JSON.stringify(error)))
        mine.attempt = (error.attempt as number) + 1
      }
    })

    /** Reads on to the end of the last attempt, and answers what's asked. */
    const readOn = Effect.fnUntraced(function*(id: string, until?: (part: Bridge.Part) => boolean) {
      const turn = Bridge.TurnId.make(id)
      const mine = knownOf(id)
      const current = disk
      while (true) {
        const last = mine.parts.at(-1)
        const reading = client.ReadTurn({
          session,
          turn,
          from: (last?.n ?? 0) + 1,
          ...(last === undefined ? {} : { attempt: last.attempt })
        }).pipe(
          Stream.takeUntil((event) => {
            // What comes after its bridge's death, no host gets.
            if (current.isDead) return true
            if (!("parts" in event)) {
              mine.end = event.end
              mine.attempt = event.attempt
              assert.strictEqual(event.next, mine.parts.length + 1, "an end knows the next number")
              return true
            }
            for (const { n, part } of event.parts) {
              assert.strictEqual(n, mine.parts.length + 1, "each part comes once and in order")
              assert.isTrue(scripted.has(part.type), `nobody said ${JSON.stringify(part)}`)
              mine.parts.push({ n, part, attempt: event.attempt })
            }
            return until !== undefined && event.parts.some(({ part }) => until(part))
          }),
          Stream.runForEach((event) =>
            "parts" in event
              ? Effect.forEach(event.parts, ({ part }) =>
                part.type === "tool-call" && until === undefined ? answerTo(turn, part as { id: string }) : Effect.void)
              : Effect.void
          )
        )
        const outcome = yield* Effect.result(ask(() => reading))
        if (outcome._tag === "Success") return
        const error = outcome.failure
        if (ending !== "power cut" || error._tag !== "PartNotFound") {
          return yield* Effect.die(new Error(JSON.stringify(error)))
        }
        // Only what wasn't synced may be gone, and it's told.
        const next = error.next as number
        assert.isFalse(options.sync, "nothing is gone that was synced")
        const gone = mine.parts.splice(next - 1)
        for (const { part } of gone) assert.notStrictEqual(part.type, "tool-result", "an answer is never gone")
        lost += gone.length
      }
    })

    const answerTo = (turn: Bridge.TurnId, { id }: { readonly id: string }) =>
      ask(() => client.SubmitToolResult({ session, turn, toolCallId: id, result: { answer: id }, isFailure: false }))
        .pipe(
          Effect.map(() => {
            if (!disk.isDead) knownOf(turn).accepted.add(id)
          }),
          // The attempt that asked is over.
          Effect.catchIf(({ _tag }) => _tag === "TurnEnded" || _tag === "ToolCallNotFound", () => Effect.void)
        )

    /** Reads to an end that stays. */
    const follow = Effect.fnUntraced(function*(id: string, prompt: string) {
      const mine = knownOf(id)
      while (true) {
        yield* readOn(id)
        if (disk.isDead) return yield* Effect.never
        const end = mine.end!
        if (end.type !== "aborted") {
          assert.isTrue(end.type === "finished" || ending === "none", JSON.stringify(end))
          return
        }
        if (ending === "none") return yield* Effect.die(new Error(JSON.stringify(end)))
        const reasons = ending === "death" ? ["bridge-died"] : ["bridge-died", "log-damaged"]
        assert.include(reasons, end.reason)
        mine.attempt++
        yield* start(id, prompt)
      }
    })

    const commands: ReadonlyArray<Effect.Effect<unknown, Refusal>> = [
      Effect.void,
      start("t1", "ask"),
      follow("t1", "ask"),
      checkWhole("t1"),
      start("t2", "hang"),
      Effect.gen(function*() {
        yield* readOn("t2", () => true)
        const { end } = yield* ask(() => client.AbortTurn({ session, turn: Bridge.TurnId.make("t2") }))
        if (!disk.isDead) assert.isTrue(end.type === "aborted" || ending === "none")
      }),
      Effect.gen(function*() {
        yield* readOn("t2")
        if (knownOf("t2").end?.type !== "aborted") return
        knownOf("t2").attempt++
        yield* start("t2", "hang")
        yield* follow("t2", "hang")
      }),
      checkWhole("t2"),
      start("t3", "say"),
      follow("t3", "say"),
      checkWhole("t3"),
      checkEnds("t1"),
      checkEnds("t2"),
      ask(() => client.StopSession({ session }))
    ]

    /** What was read is what's there, and each answer that was accepted. */
    function checkWhole(id: string) {
      return Effect.suspend(() => {
        const mine = knownOf(id)
        return Effect.map(
          ask(() => Stream.runCollect(client.ReadTurn({ session, turn: Bridge.TurnId.make(id), from: 1 }))),
          (events) => {
            if (disk.isDead) return
            const parts = events.flatMap((event) =>
              "parts" in event ? event.parts.map((line) => ({ ...line, attempt: event.attempt })) : []
            )
            assert.deepStrictEqual(parts, mine.parts)
            const ends = events.flatMap((event) => "parts" in event ? [] : [event.end])
            assert.deepStrictEqual(ends, [mine.end])
            for (const call of mine.accepted) {
              const isThere = parts.some(({ part }) =>
                part.type === "tool-result" && (part as { readonly id: string }).id === call
              )
              assert.isTrue(isThere, `the accepted answer to ${call} is there`)
            }
            checkSaid(parts)
          }
        )
      })
    }

    /** Turns before the latest ended as they were read. */
    function checkEnds(id: string) {
      return Effect.result(
        Effect.suspend(() =>
          ask(() => client.StartTurn({ session, turn: Bridge.TurnId.make(id), attempt: knownOf(id).attempt }))
        )
      ).pipe(
        Effect.map((answer) => {
          if (disk.isDead) return
          const error = answer._tag === "Failure" ? answer.failure : undefined
          assert.deepInclude(error, { _tag: "TurnSuperseded", end: knownOf(id).end })
        })
      )
    }

    return Effect.gen(function*() {
      yield* ask(() => client.StartSession({ session, directory: "/work", permissions: "ask", settings: "none" }))
      while (done < commands.length) {
        yield* commands[done]!
        if (disk.isDead) return yield* Effect.never
        done++
      }
      isOver = true
    })
  }

  while (!isOver) {
    boots++
    assert.isAtMost(boots, 3)
    const current = disk
    const died = Deferred.makeUnsafe<void>()
    current.onDeath = () => Deferred.doneUnsafe(died, Exit.void)
    const scope = yield* Scope.make()
    const bridge = connect(Puppet.make(acts).driver, "/state", { sync: options.sync }).pipe(
      Scope.provide(scope),
      Effect.retry({ times: 20, while: () => ending === "none" }),
      Effect.flatMap(host),
      Effect.provideService(FileSystem.FileSystem, current.fileSystem),
      Effect.provideService(ProcessTable, tableOf(boots)),
      // What becomes of it after its death, nobody sees.
      Effect.catchCause((cause) => current.isDead ? Effect.never : Effect.failCause(cause))
    )
    yield* Effect.raceFirst(bridge, Deferred.await(died))
    // It's dead: that its fibers end is for this process's sake.
    current.die()
    yield* Effect.forkDetach(Effect.exit(Scope.close(scope, Exit.void)))
    if (!isOver) disk = ending === "power cut" ? current.afterPowerCut(random) : current.afterDeath()
  }
  return { steps: first.steps, died: boots > 1, lost } satisfies Told
})

// Each attempt says what its act says, in order, as far as it came.
const checkSaid = (parts: ReadonlyArray<{ readonly part: Bridge.Part; readonly attempt: number }>) => {
  for (const attempt of new Set(parts.map(({ attempt }) => attempt))) {
    const deltas = parts.filter((entry) => entry.attempt === attempt && entry.part.type === "text-delta")
    const said = deltas.map(({ part }) => (part as { readonly delta: string }).delta)
    assert.deepStrictEqual(said, texts.slice(0, said.length), `attempt ${attempt} says what the agent said`)
  }
}

const withoutFault = <A, E>(disk: SimulatedDisk, effect: Effect.Effect<A, E>) =>
  Effect.suspend(() => {
    const { fault } = disk
    disk.fault = undefined
    return Effect.ensuring(
      effect,
      Effect.sync(() => {
        disk.fault = fault
        disk.steps.length = 0
      })
    )
  })

// Each bridge is a process of its own, of which no other is left.
const tableOf = (boot: number): typeof ProcessTable.Service => {
  const self = { pid: 1, start: "1", boot: `boot-${boot}`, pidNamespace: "" }
  return {
    ...portable,
    self: Effect.succeed(self),
    identify: () => Effect.succeed(self),
    list: () => Effect.succeed([])
  }
}
