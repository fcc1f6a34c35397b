import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import { Effect, FileSystem, Stream } from "effect"
import * as Puppet from "../../packages/server/test/fixtures/puppet.ts"
import { directories, launch, prompt, test } from "../../packages/server/test/fixtures/sessions.ts"

const fixture = new URL("../fixtures/format-1", import.meta.url).pathname

const s1 = Bridge.SessionId.make("s1")
const s2 = Bridge.SessionId.make("s2")
const t1 = Bridge.TurnId.make("t1")
const t2 = Bridge.TurnId.make("t2")

/** Today's bridge on a copy of what the first version left. */
const world = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const { stateDirectory } = yield* directories
  yield* fs.copy(fixture, stateDirectory)
  const acts = { hi: Puppet.says("Hello again."), nudge: Puppet.says("Went on.") }
  const { client } = yield* launch(Puppet.make(acts).driver, stateDirectory)
  const lines = Effect.fnUntraced(function*(session: Bridge.SessionId, turn: Bridge.TurnId) {
    const events = yield* Stream.runCollect(client.ReadTurn({ session, turn, from: 1 }))
    return events.flatMap((event): ReadonlyArray<unknown> => "parts" in event ? event.parts : [event])
  })
  return { client, lines }
})

/** The lines of a turn's file that are whole, without its header. */
const kept = (path: string) =>
  Effect.map(
    Effect.flatMap(FileSystem.FileSystem, (fs) => fs.readFileString(`${fixture}/sessions/${path}`)),
    (text) => text.split("\n").slice(1, -1).map((line) => JSON.parse(line))
  )

const session = (session: Bridge.SessionId) =>
  ({ session, directory: "/usr", permissions: "ask", settings: "none" }) as const

describe("what a bridge of the first version left", () => {
  test(
    "is read as it is, and goes on",
    Effect.gen(function*() {
      const { client, lines } = yield* world
      const before = yield* kept("s1/turns/t2.ndjson")
      // Hosts get the end of the last attempt only.
      assert.deepStrictEqual(yield* lines(s1, t2), before.filter((line) => !("end" in line) || line.attempt === 2))
      assert.isTrue((yield* client.StartSession(session(s1))).resumed)
      const superseded = yield* Effect.flip(client.StartTurn({ session: s1, turn: t1 }))
      assert.deepInclude(superseded, { _tag: "TurnSuperseded", turn: t1, latest: t2 })
      assert.deepInclude(yield* client.StartTurn({ session: s1, turn: t2, attempt: 2, prompt: prompt("call") }), {
        status: "ended",
        attempt: 2
      })
      const started = yield* client.StartTurn({ session: s1, turn: Bridge.TurnId.make("t3"), prompt: prompt("hi") })
      assert.strictEqual(started.status, "started")
      assert.deepInclude((yield* lines(s1, Bridge.TurnId.make("t3"))).at(-1), { attempt: 1, next: 5 })
    })
  )

  test(
    "in the middle of a turn is ended, and continued",
    Effect.gen(function*() {
      const { client, lines } = yield* world
      const before = yield* kept("s2/turns/t1.ndjson")
      const after = yield* lines(s2, t1)
      assert.deepStrictEqual(after.slice(0, -1), before)
      assert.deepInclude(after.at(-1), { attempt: 1, next: 9 })
      assert.deepInclude((after.at(-1) as Bridge.EndLine).end, { type: "aborted", reason: "bridge-died" })
      assert.isTrue((yield* client.StartSession(session(s2))).resumed)
      const again = yield* client.StartTurn({ session: s2, turn: t1, prompt: prompt("call") })
      assert.deepInclude(again, { attempt: 2, from: 9, status: "continued" })
      assert.deepInclude(((yield* lines(s2, t1)).at(-1) as Bridge.EndLine).end, { type: "finished" })
    })
  )
})
