import * as BunFileSystem from "@effect/platform-bun/BunFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Effect, FileSystem, type Scope } from "effect"
import * as Fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SynchronousFiles from "../src/SynchronousFiles.ts"

const b1 = Bridge.BridgeId.make("b1")
const b2 = Bridge.BridgeId.make("b2")
const s1 = Bridge.SessionId.make("s1")

const temporary = Effect.acquireRelease(
  Effect.sync(() => Fs.realpathSync(Fs.mkdtempSync(join(tmpdir(), "gangway-files-")))),
  (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
)

const live = (name: string, effect: Effect.Effect<void, unknown, Scope.Scope | FileSystem.FileSystem>) =>
  it.live.each([false, true])(`${name} (serving: %s)`, (serving) =>
    effect.pipe(
      Effect.updateService(
        FileSystem.FileSystem,
        (files) => SynchronousFiles.make(files, { isServing: () => serving })
      ),
      Effect.provide(BunFileSystem.layer)
    ))

const modeOf = (path: string) => (Fs.statSync(path).mode & 0o777).toString(8)

describe("SynchronousFiles", () => {
  live(
    "a state directory is made, found again, and refused to another bridge",
    Effect.gen(function*() {
      const path = join(yield* temporary, "made", "state")
      const state = yield* StateDirectory.open({ path, bridge: b1 })
      yield* StateDirectory.makeSessionDirectory(state.sessionDirectory(s1))
      yield* state.writeAtomic(state.sessionFile(s1), "{}\n", { sync: true })
      assert.deepStrictEqual(yield* (yield* StateDirectory.open({ path, bridge: b1 })).sessions, [s1])
      assert.strictEqual((yield* Effect.flip(StateDirectory.open({ path, bridge: b2 })))._tag, "OwnerMismatch")
      assert.deepStrictEqual(Fs.readdirSync(path).sort(), ["destroyed", "owner.json", "sessions"])
      assert.strictEqual(modeOf(path), "700")
      assert.strictEqual(modeOf(join(path, "owner.json")), "600")
      assert.isFalse(yield* state.hasSession(Bridge.SessionId.make("s2")))
    })
  )

  live(
    "a file is written whole, once or in the place of another, and closed",
    Effect.gen(function*() {
      const path = join(yield* temporary, "file")
      const open = Fs.readdirSync("/proc/self/fd").length
      const texts = ["a".repeat(3_000_000), "b".repeat(100), ""]
      for (const text of texts) {
        yield* StateDirectory.writeAtomic(path, text, { sync: text !== "" })
        assert.strictEqual(Fs.readFileSync(path, "utf8"), text)
      }
      assert.isFalse(yield* StateDirectory.createExclusive(path, "other", { sync: true }))
      assert.strictEqual(Fs.readFileSync(path, "utf8"), "")
      assert.deepStrictEqual(Fs.readdirSync(join(path, "..")), ["file"])
      assert.strictEqual(Fs.readdirSync("/proc/self/fd").length, open)
    })
  )

  live(
    "what fails is told as the other file system tells it",
    Effect.gen(function*() {
      const directory = yield* temporary
      const fs = yield* FileSystem.FileSystem
      const gone = join(directory, "gone")
      const reasons = yield* Effect.forEach([
        fs.access(gone),
        fs.chmod(gone, 0o600),
        fs.link(gone, join(directory, "linked")),
        fs.open(gone),
        fs.readDirectory(gone),
        fs.readFileString(gone),
        fs.readLink(gone),
        fs.realPath(gone),
        fs.remove(gone),
        fs.rename(gone, join(directory, "renamed"))
      ], (failing: Effect.Effect<unknown, unknown, Scope.Scope>) => Effect.flip(failing))
      for (const reason of reasons) {
        assert.propertyVal((reason as { readonly reason: object }).reason, "_tag", "NotFound")
      }
      assert.strictEqual((yield* Effect.flip(fs.makeDirectory(directory))).reason._tag, "AlreadyExists")
      assert.isFalse(yield* fs.exists(gone))
      yield* fs.remove(gone, { force: true })

      const problem = yield* Effect.flip(StateDirectory.open({ path: "/proc/gangway", bridge: b1 }))
      assert.include(problem.message, "ENOENT")
    })
  )
})
