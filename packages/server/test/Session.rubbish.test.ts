import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Effect, Fiber, FileSystem, Stream } from "effect"
import { eventually } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"
import { serve } from "./fixtures/served.ts"
import { act, bridge, connect, directories, endOf, host, launch, session, test, turn } from "./fixtures/sessions.ts"

const acts = { hi: Puppet.says("hello") }

// Puts something of another kind in the place of what's there: a directory that isn't empty, or a file.
const spoil = Effect.fnUntraced(function*(path: string, kind: "directory" | "file") {
  const fs = yield* FileSystem.FileSystem
  yield* fs.remove(path, { recursive: true, force: true })
  if (kind === "file") return yield* fs.writeFileString(path, "rubbish")
  yield* fs.makeDirectory(`${path}/more`, { recursive: true })
  yield* fs.writeFileString(`${path}/more/rubbish`, "rubbish")
})

// Fails where the bridge breaks.
const outcome = <A, E extends { readonly _tag: string }>(command: Effect.Effect<A, E>) =>
  Effect.match(command, { onFailure: (error) => error, onSuccess: () => ({ _tag: "Success", message: "" }) })

describe("in a state directory", () => {
  for (
    const [path, kind] of [
      ["session.json", "directory"],
      ["turns", "file"],
      ["turns/t2.ndjson", "directory"],
      ["turns/t2.ndjson.repair", "directory"],
      ["turns/damaged", "directory"],
      ["turns/t9.ndjson", "directory"],
      ["earlier.ndjson", "directory"],
      ["request.json", "directory"],
      ["reserve", "directory"],
      ["lock-1", "directory"],
      ["lock-7", "directory"],
      ["lock-7", "file"]
    ] as const
  ) {
    test(
      `a session with a ${kind} in the place of ${path} answers all commands, and is destroyed, or says why not`,
      Effect.gen(function*() {
        const fs = yield* FileSystem.FileSystem
        const { directory, stateDirectory } = yield* directories
        const first = yield* launch(Puppet.make(acts).driver, stateDirectory)
        const start = { session, directory, permissions: "ask", settings: "none" } as const
        yield* first.client.StartSession(start)
        for (const n of [1, 2]) {
          yield* first.client.StartTurn(act(n, "hi"))
          yield* endOf(first.client, turn(n))
        }
        yield* first.end
        const sessionDirectory = `${stateDirectory}/sessions/${session}`
        if (path === "turns/damaged") yield* spoil(`${sessionDirectory}/turns/t2.ndjson`, "file")
        yield* spoil(`${sessionDirectory}/${path}`, kind)
        yield* spoil(`${stateDirectory}/destroyed/${session}`, "directory")
        yield* spoil(`${stateDirectory}/destroyed/other`, "directory")

        const client = yield* connect(Puppet.make(acts).driver, stateDirectory)
        yield* client.Hello(host)
        const key = { session, turn: turn(2) }
        const told: Record<string, { readonly _tag: string; readonly message: string }> = {
          read: yield* outcome(Stream.runDrain(client.ReadTurn({ ...key, from: 1 }))),
          abort: yield* outcome(client.AbortTurn(key)),
          answer: yield* outcome(client.Approve({ ...key, approvalId: "a", decision: "allow" })),
          state: yield* outcome(client.ReadState({ session })),
          start: yield* outcome(client.StartSession(start)),
          turn: yield* outcome(client.StartTurn(act(3, "hi"))),
          compact: yield* outcome(client.Compact({ session })),
          stop: yield* outcome(client.StopSession({ session }))
        }
        for (const [command, { _tag, message }] of Object.entries(told)) {
          if (_tag === "LogUnavailable") assert.match(message, /remove/, command)
        }
        // What may be a lock is nobody's to remove.
        const isLock = path.startsWith("lock-") && kind === "directory"
        if (isLock) {
          const { _tag, message } = yield* outcome(client.DestroySession({ session }))
          assert.strictEqual(_tag, "LogUnavailable")
          assert.include(message, path)
          assert.match(message, /remove it/)
          yield* fs.remove(`${sessionDirectory}/${path}`, { recursive: true })
        }
        assert.deepStrictEqual(yield* client.DestroySession({ session }), { ended: [], left: [] })
        assert.isFalse(yield* fs.exists(sessionDirectory))
        assert.strictEqual((yield* outcome(client.StartSession(start)))._tag, "SessionDestroyed")
        assert.deepStrictEqual(yield* fs.readDirectory(`${stateDirectory}/destroyed`), [session])
      })
    )
  }

  test(
    "what a bridge left of a session as it died while it removed it is removed by the next one, and by a repeat",
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const { stateDirectory } = yield* directories
      yield* StateDirectory.open({ path: stateDirectory, bridge })
      const left = (name: string) => `${stateDirectory}/sessions/.removed-${name}`
      yield* spoil(left("1"), "directory")
      const client = yield* connect(Puppet.make(acts).driver, stateDirectory)
      yield* eventually("its removal", Effect.map(fs.exists(left("1")), (exists) => !exists))
      yield* spoil(left("2"), "directory")
      assert.deepStrictEqual((yield* client.Hello(host)).sessions, [])
      yield* client.DestroySession({ session })
      assert.isFalse(yield* fs.exists(left("2")))
    })
  )

  test(
    "a file in the place of a session's directory is said to be in the way",
    Effect.gen(function*() {
      const { directory, stateDirectory } = yield* directories
      const client = yield* connect(Puppet.make(acts).driver, stateDirectory)
      yield* spoil(`${stateDirectory}/sessions/${session}`, "file")
      const error = yield* outcome(
        client.StartSession({ session, directory, permissions: "ask", settings: "none" })
      )
      assert.strictEqual(error._tag, "LogUnavailable")
      assert.match(error.message, /s1\/.*remove it/)
    })
  )

  for (const name of ["owner.json", "listening.json", "process.json", "destroyed", "sessions"]) {
    test(
      `something else in the place of ${name} keeps a bridge from being served, with exit code 4`,
      Effect.gen(function*() {
        const { stateDirectory } = yield* directories
        yield* StateDirectory.open({ path: stateDirectory, bridge })
        yield* spoil(`${stateDirectory}/${name}`, name.includes(".") ? "directory" : "file")
        const { fiber } = yield* serve(Puppet.make(acts), { stateDirectory, launch: "launch-0001" })
        const error = yield* Effect.flip(Fiber.join(fiber))
        assert.instanceOf(error, StateDirectory.NotWritable)
        assert.include(error.message, name)
        assert.match(error.message, /remove it/)
        assert.strictEqual(error.exitCode, Bridge.ExitCode.notWritable)
      })
    )
  }
})
