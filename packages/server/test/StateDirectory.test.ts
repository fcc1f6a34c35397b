import * as BunFileSystem from "@effect/platform-bun/BunFileSystem"
import { assert, describe, it } from "@effect/vitest"
import * as Bridge from "@gangway/protocol/Bridge"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Effect, FileSystem, PlatformError, type Scope } from "effect"
import * as Fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const b1 = Bridge.BridgeId.make("b1")
const b2 = Bridge.BridgeId.make("b2")
const s1 = Bridge.SessionId.make("s1")
const t1 = Bridge.TurnId.make("t1")

const temporary = Effect.acquireRelease(
  Effect.sync(() => Fs.realpathSync(Fs.mkdtempSync(join(tmpdir(), "gangway-state-")))),
  (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
)

const live = (name: string, effect: Effect.Effect<void, unknown, Scope.Scope | FileSystem.FileSystem>) =>
  it.live(name, () => effect.pipe(Effect.provide(BunFileSystem.layer)))

const modeOf = (path: string) => (Fs.statSync(path).mode & 0o777).toString(8)

const withUmask = (mask: number) =>
  Effect.acquireRelease(Effect.sync(() => process.umask(mask)), (before) => Effect.sync(() => process.umask(before)))

/** The real file system, with some of it replaced. */
const patched = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  patch: (fs: FileSystem.FileSystem) => Partial<FileSystem.FileSystem>
) =>
  Effect.flatMap(
    FileSystem.FileSystem,
    (fs) => Effect.provideService(effect, FileSystem.FileSystem, { ...fs, ...patch(fs) })
  )

const noSpace = PlatformError.systemError({
  _tag: "Unknown",
  module: "FileSystem",
  method: "writeAll",
  pathOrDescriptor: 7,
  cause: Object.assign(new Error(), { code: "ENOSPC" })
})

describe("open", () => {
  for (const mask of [0, 0o777]) {
    live(
      `directories have mode 0700 and files 0600 with umask ${mask.toString(8)}`,
      Effect.gen(function*() {
        const directory = yield* temporary
        yield* withUmask(mask)
        const path = join(directory, "made", "state")
        // A directory between would be unusable for anybody but root with the second umask.
        Fs.mkdirSync(join(directory, "made"))
        Fs.chmodSync(join(directory, "made"), 0o755)
        const state = yield* StateDirectory.open({ path, bridge: b1 })
        yield* StateDirectory.makeSessionDirectory(state.sessionDirectory(s1))
        yield* state.writeAtomic(state.sessionFile(s1), "{}\n", { sync: true })
        assert.strictEqual(state.path, path)
        for (const part of ["", "sessions", "sessions/s1", "sessions/s1/turns"]) {
          assert.strictEqual(modeOf(join(path, part)), "700", part)
        }
        for (const part of ["owner.json", "sessions/s1/session.json"]) {
          assert.strictEqual(modeOf(join(path, part)), "600", part)
        }
        assert.deepStrictEqual(JSON.parse(Fs.readFileSync(join(path, "owner.json"), "utf8")), { bridge: "b1" })
      })
    )
  }

  live(
    "a directory with something in it keeps its mode, an empty one is made private",
    Effect.gen(function*() {
      const directory = yield* temporary
      for (const [name, expected] of [["empty", "700"], ["full", "755"]] as const) {
        const path = join(directory, name)
        Fs.mkdirSync(path)
        Fs.chmodSync(path, 0o755)
        if (name === "full") Fs.writeFileSync(join(path, "something"), "")
        yield* StateDirectory.open({ path, bridge: b1 })
        assert.strictEqual(modeOf(path), expected)
      }
    })
  )

  live(
    "the directory belongs to the first bridge id, however many come at once",
    Effect.gen(function*() {
      const path = join(yield* temporary, "state")
      const outcomes = yield* Effect.forEach(
        Array.from({ length: 40 }, (_, n) => n % 2 === 0 ? b1 : b2),
        (bridge) =>
          Effect.match(StateDirectory.open({ path, bridge }), {
            onSuccess: () => bridge,
            onFailure: (error) => error
          }),
        { concurrency: "unbounded" }
      )
      const owners = new Set(outcomes.filter((outcome) => typeof outcome === "string"))
      assert.strictEqual(owners.size, 1)
      const refused = outcomes.filter((outcome) => typeof outcome !== "string")
      assert.strictEqual(refused.length, 20)
      for (const error of refused) {
        assert.strictEqual(error._tag, "OwnerMismatch")
        assert.strictEqual(error.exitCode, 2)
        assert.include(error.message, "stateDirectory")
      }
      assert.deepStrictEqual(Fs.readdirSync(path).sort(), ["destroyed", "owner.json", "sessions"])
    })
  )

  live(
    "what can't be used is refused with exit code 4, and nothing is written elsewhere",
    Effect.gen(function*() {
      const directory = yield* temporary
      const outside = join(directory, "outside")
      Fs.mkdirSync(outside)
      const make = (name: string, prepare: (path: string) => void) => {
        const path = join(directory, name)
        prepare(path)
        return path
      }
      const paths = [
        make("file", (path) => Fs.writeFileSync(path, "")),
        join(make("file-above", (path) => Fs.writeFileSync(path, "")), "state"),
        make("dangling", (path) => Fs.symlinkSync(join(directory, "nowhere"), path)),
        make("sessions-link", (path) => {
          Fs.mkdirSync(path)
          Fs.symlinkSync(outside, join(path, "sessions"))
        }),
        make("sessions-file", (path) => {
          Fs.mkdirSync(path)
          Fs.writeFileSync(join(path, "sessions"), "")
        }),
        make("listening-link", (path) => {
          Fs.mkdirSync(path)
          Fs.symlinkSync(join(outside, "listening.json"), join(path, "listening.json"))
        }),
        make("owner-link", (path) => {
          Fs.mkdirSync(path)
          Fs.symlinkSync(join(outside, "owner.json"), join(path, "owner.json"))
        }),
        make("owner-damaged", (path) => {
          Fs.mkdirSync(path)
          Fs.writeFileSync(join(path, "owner.json"), "{")
        }),
        "/proc/gangway"
      ]
      for (const path of paths) {
        const error = yield* Effect.flip(StateDirectory.open({ path, bridge: b1 }))
        assert.strictEqual(error._tag, "NotWritable", path)
        assert.strictEqual(error.exitCode, 4)
        assert.isTrue(error.message.startsWith(`stateDirectory: ${path} can't be used: `), error.message)
        assert.match(error.message, /^[^\n]+\. Let the bridge's user write there, or name another one\.$/)
      }
      assert.deepStrictEqual(Fs.readdirSync(outside), [])

      const full = yield* Effect.flip(patched(
        StateDirectory.open({ path: join(directory, "full"), bridge: b1 }),
        (fs) => ({
          open: (path, options) =>
            Effect.map(
              fs.open(path, options),
              (file) => Object.create(file, { writeAll: { value: () => Effect.fail(noSpace) } })
            )
        })
      ))
      assert.strictEqual(full._tag, "NotWritable")
      assert.include(full.message, "ENOSPC (no space is left)")
    })
  )

  for (const [name, before] of [["a new", undefined], ["what another bridge made of a", b1]] as const) {
    live(
      `${name} directory is on the disk once it's open: its owner's text, and then all its names and its own`,
      Effect.gen(function*() {
        const path = join(yield* temporary, "deep", "state")
        if (before !== undefined) yield* StateDirectory.open({ path, bridge: before })
        const synced: Array<string> = []
        const recording = patched(StateDirectory.open({ path, bridge: b1 }), (fs) => ({
          open: (opened, options) =>
            Effect.map(fs.open(opened, options), (file) =>
              Object.create(file, {
                sync: {
                  value: Effect.tap(file.sync, () =>
                    Effect.sync(() => {
                      synced.push(
                        Fs.statSync(opened).isDirectory()
                          ? Fs.readdirSync(opened).sort().join()
                          : Fs.readFileSync(opened, "utf8")
                      )
                    }))
                }
              }))
        }))
        yield* recording
        const names = "destroyed,owner.json,sessions"
        assert.sameMembers(synced, before === undefined ? [`{"bridge":"b1"}\n`, names, "state", "deep"] : [names])
      })
    )
  }

  live(
    "the directory itself may be reached by a link",
    Effect.gen(function*() {
      const directory = yield* temporary
      Fs.mkdirSync(join(directory, "real"))
      Fs.symlinkSync(join(directory, "real"), join(directory, "link"))
      const state = yield* StateDirectory.open({ path: join(directory, "link"), bridge: b1 })
      assert.strictEqual(state.path, join(directory, "real"))
    })
  )

  live(
    "temporary files of dead bridges are removed, those of live ones are not",
    Effect.gen(function*() {
      const path = yield* temporary
      const old = join(path, "listening.json.abc.tmp")
      const young = join(path, "listening.json.def.tmp")
      for (const file of [old, young]) Fs.writeFileSync(file, "")
      const past = new Date(Date.now() - 61 * 60 * 1000)
      Fs.utimesSync(old, past, past)
      yield* StateDirectory.open({ path, bridge: b1 })
      assert.isFalse(Fs.existsSync(old))
      assert.isTrue(Fs.existsSync(young))
    })
  )

  live(
    "sessions are those with a file of their own, turns those with a log",
    Effect.gen(function*() {
      const state = yield* StateDirectory.open({ path: yield* temporary, bridge: b1 })
      assert.deepStrictEqual(yield* state.sessions, [])
      assert.deepStrictEqual(yield* state.turnFiles(s1), [])
      for (const name of ["s1", "s2", "unfinished"]) {
        yield* StateDirectory.makeSessionDirectory(state.sessionDirectory(Bridge.SessionId.make(name)))
      }
      for (const name of ["s1", "s2"]) {
        yield* state.writeAtomic(state.sessionFile(Bridge.SessionId.make(name)), "{}\n", { sync: false })
      }
      Fs.mkdirSync(join(state.path, "sessions", "Not An Id"))
      Fs.writeFileSync(join(state.path, "sessions", "Not An Id", "session.json"), "{}")
      assert.deepStrictEqual<ReadonlyArray<string>>(yield* state.sessions, ["s1", "s2"])
      assert.isTrue(yield* state.hasSession(s1))
      assert.isFalse(yield* state.hasSession(Bridge.SessionId.make("unfinished")))
      Fs.writeFileSync(state.turnFile(s1, t1), "")
      Fs.writeFileSync(`${state.turnFile(s1, t1)}.aside`, "")
      assert.deepStrictEqual(yield* state.turnFiles(s1), [join(state.path, "sessions/s1/turns/t1.ndjson")])
    })
  )
})

describe("writeAtomic", () => {
  live(
    "readers see one whole text or another",
    Effect.gen(function*() {
      const path = join(yield* temporary, "file")
      const texts = Array.from({ length: 50 }, (_, n) => `${n}`.repeat(100_000))
      yield* StateDirectory.writeAtomic(path, texts[0]!, { sync: false })
      let done = false
      const [seen] = yield* Effect.all([
        Effect.gen(function*() {
          const seen = new Set<string>()
          while (!done) {
            const text = Fs.readFileSync(path, "utf8")
            assert.include(texts, text)
            seen.add(text)
            yield* Effect.sleep(0)
          }
          return seen
        }),
        Effect.ensuring(
          Effect.forEach(texts, (text) => StateDirectory.writeAtomic(path, text, { sync: false })),
          Effect.sync(() => {
            done = true
          })
        )
      ], { concurrency: 2 })
      assert.isAbove(seen.size, 1)
      assert.deepStrictEqual(Fs.readdirSync(join(path, "..")), ["file"])
    })
  )

  live(
    "with no space left the old text stays, and nothing else",
    Effect.gen(function*() {
      const directory = yield* temporary
      const path = join(directory, "file")
      yield* StateDirectory.writeAtomic(path, "old", { sync: true })
      const error = yield* Effect.flip(patched(
        StateDirectory.writeAtomic(path, "new", { sync: true }),
        (fs) => ({
          open: (path, options) =>
            Effect.map(
              fs.open(path, options),
              (file) => Object.create(file, { writeAll: { value: () => Effect.fail(noSpace) } })
            )
        })
      ))
      assert.instanceOf(error, Bridge.LogUnavailable)
      assert.include(error.problem, "ENOSPC")
      assert.strictEqual(Fs.readFileSync(path, "utf8"), "old")
      assert.deepStrictEqual(Fs.readdirSync(directory), ["file"])
    })
  )

  live(
    "syncs the file before it's named, and its directory after",
    Effect.gen(function*() {
      const directory = yield* temporary
      const path = join(directory, "file")
      const write = (options: { readonly sync: boolean }) =>
        Effect.gen(function*() {
          const events: Array<string> = []
          yield* patched(StateDirectory.writeAtomic(path, "text", options), (fs) => ({
            open: (path, options) =>
              Effect.map(fs.open(path, options), (file) =>
                Object.create(file, {
                  sync: {
                    value: Effect.andThen(
                      file.sync,
                      Effect.sync(() => events.push(path === directory ? "directory" : "file"))
                    )
                  }
                })),
            rename: (from, to) => Effect.andThen(fs.rename(from, to), Effect.sync(() => void events.push("rename")))
          }))
          return events
        })
      assert.deepStrictEqual(yield* write({ sync: true }), ["file", "rename", "directory"])
      assert.deepStrictEqual(yield* write({ sync: false }), ["rename"])
    })
  )

  live(
    "a directory that's gone is a typed failure",
    Effect.gen(function*() {
      const path = join(yield* temporary, "gone", "file")
      assert.instanceOf(
        yield* Effect.flip(StateDirectory.writeAtomic(path, "text", { sync: false })),
        Bridge.LogUnavailable
      )
    })
  )
})

describe("createExclusive", () => {
  live(
    "creates a file once, whole",
    Effect.gen(function*() {
      const path = join(yield* temporary, "file")
      const created = yield* Effect.forEach(
        Array.from({ length: 30 }, (_, n) => `${n}`.repeat(10_000)),
        (text) => Effect.map(StateDirectory.createExclusive(path, text, { sync: false }), (made) => made && text),
        { concurrency: "unbounded" }
      )
      const winners = created.filter((text) => text !== false)
      assert.strictEqual(winners.length, 1)
      assert.strictEqual(Fs.readFileSync(path, "utf8"), winners[0])
      assert.deepStrictEqual(Fs.readdirSync(join(path, "..")), ["file"])
    })
  )
})
