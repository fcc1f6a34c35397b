import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, Option, type PlatformError, Stream } from "effect"
import { ChildProcessSpawner } from "effect/unstable/process"
import * as userFiles from "../src/internal/userFiles.ts"

// What is asked of both, in order: each operation by name, with what it answers or the tag of its failure.
const operations = (fs: FileSystem.FileSystem, root: string) => {
  const at = (name: string) => `${root}/${name}`
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)
  const bytes = (text: string) => new TextEncoder().encode(text)
  const mode = (name: string) => Effect.map(fs.stat(at(name)), (info) => [info.type, info.mode & 0o777, `${info.size}`])
  const all: ReadonlyArray<readonly [string, Effect.Effect<unknown, PlatformError.PlatformError>]> = [
    ["exists, not", fs.exists(at("a"))],
    ["read, not there", fs.readFileString(at("a"))],
    ["list, not there", fs.readDirectory(at("a"))],
    ["stat, not there", fs.stat(at("a"))],
    ["stream, not there", Stream.runDrain(fs.stream(at("a")))],
    ["a slice of what's not there", Stream.runDrain(fs.stream(at("a"), { offset: 1, bytesToRead: 1 }))],
    ["open, not there", Effect.scoped(fs.open(at("a")))],
    ["remove, not there", fs.remove(at("a"))],
    ["remove, not there, by force", fs.remove(at("a"), { force: true })],
    ["make directories", Effect.asVoid(fs.makeDirectory(at("a/b"), { recursive: true, mode: 0o700 }))],
    ["again", fs.makeDirectory(at("a/b"))],
    ["again, recursively", fs.makeDirectory(at("a/b"), { recursive: true })],
    [
      "their modes",
      Effect.forEach(["a", "a/b"], (name) => Effect.map(mode(name), ([type, mode]) => [type, mode]))
    ],
    ["write", fs.writeFileString(at("a/b/c"), "0123456789\n", { mode: 0o600 })],
    ["its mode and size", mode("a/b/c")],
    ["write on", fs.writeFileString(at("a/b/c"), "é😀", { flag: "a" })],
    ["write, exclusively", fs.writeFileString(at("a/b/c"), "no", { flag: "wx" })],
    ["read", fs.readFileString(at("a/b/c"))],
    ["read a directory as a file", fs.readFileString(at("a/b"))],
    ["read below a file", fs.readFileString(at("a/b/c/d"))],
    ["a slice", Effect.map(Stream.mkUint8Array(fs.stream(at("a/b/c"), { offset: 2, bytesToRead: 5 })), text)],
    ["from there on", Effect.map(Stream.mkUint8Array(fs.stream(at("a/b/c"), { offset: 8 })), text)],
    ["rename", fs.rename(at("a/b/c"), at("a/b/-with 'odd' $name"))],
    ["list", Effect.map(fs.readDirectory(at("a/b")), (names) => names.sort())],
    ["list, recursively", Effect.map(fs.readDirectory(root, { recursive: true }), (names) => names.sort())],
    [
      "a link, its target and what's read through it",
      Effect.all([
        fs.symlink(at("a/b/-with 'odd' $name"), at("link")),
        Effect.map(fs.readLink(at("link")), (target) => target.slice(root.length)),
        Effect.map(fs.realPath(at("link")), (target) => target.slice(root.length)),
        fs.readFileString(at("link"))
      ])
    ],
    ["copy", fs.copyFile(at("link"), at("copy"))],
    ["truncate", Effect.andThen(fs.truncate(at("copy"), 3), fs.readFileString(at("copy")))],
    ["change the mode", Effect.andThen(fs.chmod(at("copy"), 0o640), mode("copy"))],
    [
      "write at the end and read anywhere",
      Effect.scoped(Effect.gen(function*() {
        const file = yield* fs.open(at("copy"), { flag: "a+", mode: 0o600 })
        yield* file.writeAll(bytes("3456"))
        yield* file.sync
        yield* file.seek(1n, "start")
        const buffer = new Uint8Array(4)
        const read = yield* file.read(buffer)
        const rest = yield* file.readAlloc(100)
        const none = yield* file.readAlloc(100)
        return [read, text(buffer), Option.map(rest, text), Option.isNone(none), `${(yield* file.stat).size}`]
      }))
    ],
    ["sync a directory", Effect.scoped(Effect.flatMap(fs.open(root), ({ sync }) => sync))],
    ["remove a directory", fs.remove(at("a"), { recursive: true })],
    ["what's left", Effect.map(fs.readDirectory(root), (names) => names.sort())]
  ]
  return Effect.forEach(all, ([name, operation]) =>
    Effect.map(
      Effect.result(operation),
      (result) => [name, result._tag === "Success" ? result.success : result.failure.reason._tag]
    ))
}

describe("the files of another user", () => {
  it.live("answer and fail as the bridge's own do", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const theirs = userFiles.make(yield* ChildProcessSpawner.ChildProcessSpawner)
      const plain = yield* operations(fs, yield* fs.makeTempDirectoryScoped())
      const processes = yield* operations(theirs, yield* theirs.makeTempDirectoryScoped({ prefix: "gangway-" }))
      assert.deepStrictEqual(processes, plain)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("hold more than a pipe does, and are read as they come", () =>
    Effect.gen(function*() {
      const fs = userFiles.make(yield* ChildProcessSpawner.ChildProcessSpawner)
      const path = `${yield* fs.makeTempDirectoryScoped()}/big`
      yield* fs.writeFileString(path, "x".repeat(5_000_000))
      assert.strictEqual((yield* fs.readFile(path)).length, 5_000_000)
      const first = yield* fs.stream(path).pipe(Stream.take(1), Stream.runCollect)
      assert.isBelow(first[0]!.length, 1_000_000)
      yield* fs.remove(path)
      assert.isFalse(yield* fs.exists(path))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
