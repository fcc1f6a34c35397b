import { NodeCrypto } from "@effect/platform-node-shared"
import { assert, describe, it } from "@effect/vitest"
import { Executable, Sandbox } from "@gangway/sandbox"
import { Effect, Layer, Option, Schema } from "effect"
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"

// A sandbox that has its own `/lib` and `/lib64`, and of this machine what `tools` names.
const sandboxOf = Effect.fnUntraced(function*(files: ReadonlyArray<string>, tools?: ReadonlyArray<string>) {
  const root = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(tmpdir(), "gangway-"))),
    (root) => Effect.sync(() => fs.rmSync(root, { recursive: true }))
  )
  for (const file of files) {
    fs.mkdirSync(path.dirname(root + file), { recursive: true })
    fs.writeFileSync(root + file, "")
  }
  const bin = `${root}/bin`
  fs.mkdirSync(bin)
  for (const tool of tools ?? ["sha256sum", "wc"]) {
    fs.symlinkSync(spawnSync("sh", ["-c", `command -v ${tool}`], { encoding: "utf8" }).stdout.trim(), `${bin}/${tool}`)
  }
  const written: Array<string> = []
  const refuse = () => Effect.die("not asked for")
  const layer = Layer.succeed(Sandbox.Sandbox, {
    id: "fake",
    kind: "fake",
    hostname: "127.0.0.1",
    ports: "any",
    run: ({ command: [, flag, script, ...args] }) =>
      Effect.sync(() => {
        const placed = script!.replaceAll(/\/(lib|lib64|etc)\//g, `${root}/$1/`)
        const { status, stdout } = spawnSync("/bin/sh", [flag!, placed, ...args], {
          encoding: "utf8",
          env: { PATH: bin }
        })
        return { exitCode: status!, stdout: stdout.replaceAll(root, "") }
      }),
    writeFile: (file, content, mode) =>
      Effect.sync(() => {
        written.push(file)
        fs.mkdirSync(path.dirname(file), { recursive: true })
        fs.writeFileSync(file, content, { mode: mode! })
      }),
    start: refuse,
    readFile: refuse,
    endpoint: refuse,
    wake: Effect.die("not asked for")
  })
  return { root, written, layer: Layer.merge(layer, NodeCrypto.layer) }
})

const builds = (names: ReadonlyArray<string>) => (target: Executable.Target) =>
  Effect.succeed(
    names.includes(Executable.toName(target))
      ? Option.some(new TextEncoder().encode(`build for ${Executable.toName(target)}`))
      : Option.none()
  )

const targetsOf = (...files: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const { layer } = yield* sandboxOf(files)
    return (yield* Effect.provide(Executable.targets, layer)).map(Executable.toName)
  })

const loader = { glibc: "/lib64/ld-linux-x86-64.so.2", musl: "/lib/ld-musl-x86_64.so.1" }

describe("Executable", () => {
  it.live("knows by its loaders what a sandbox runs", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* targetsOf(loader.glibc), ["linux-x64"])
      assert.deepStrictEqual(yield* targetsOf("/lib/ld-linux-aarch64.so.1"), ["linux-arm64"])
      assert.deepStrictEqual(yield* targetsOf(loader.musl), ["linux-x64-musl"])
      assert.deepStrictEqual(yield* targetsOf("/lib/ld-musl-aarch64.so.1"), ["linux-arm64-musl"])
      assert.deepStrictEqual(yield* targetsOf(), [])
      // Debian with musl beside it, and Alpine with what imitates glibc.
      assert.deepStrictEqual(yield* targetsOf(loader.glibc, loader.musl), ["linux-x64", "linux-x64-musl"])
      assert.deepStrictEqual(
        yield* targetsOf(loader.glibc, loader.musl, "/etc/alpine-release"),
        ["linux-x64-musl", "linux-x64"]
      )
    }))

  it.live("copies the build that fits once, and again where it's damaged or another one", () =>
    Effect.gen(function*() {
      for (const tools of [["sha256sum", "wc"], ["wc"]]) {
        const { layer, root, written } = yield* sandboxOf([loader.glibc, loader.musl, "/etc/alpine-release"], tools)
        const install = (...names: ReadonlyArray<string>) =>
          Executable.install({ name: "program", directory: `${root}/a directory/new`, build: builds(names) }).pipe(
            Effect.provide(layer)
          )
        const file = yield* install("linux-x64", "linux-x64-musl")
        assert.match(file, /\/a directory\/new\/program-[0-9a-f]{16}$/)
        assert.strictEqual(fs.readFileSync(file, "utf8"), "build for linux-x64-musl")
        assert.strictEqual(fs.statSync(file).mode & 0o777, 0o755)
        assert.strictEqual(yield* install("linux-x64", "linux-x64-musl"), file)
        assert.deepStrictEqual(written, [file])

        fs.truncateSync(file, 3)
        assert.strictEqual(yield* install("linux-x64", "linux-x64-musl"), file)
        assert.deepStrictEqual(written, [file, file])
        assert.strictEqual(fs.readFileSync(file, "utf8"), "build for linux-x64-musl")

        const other = yield* install("linux-x64")
        assert.notStrictEqual(other, file)
        assert.strictEqual(fs.readFileSync(other, "utf8"), "build for linux-x64")
      }
    }))

  it.live("says which build is missing", () =>
    Effect.gen(function*() {
      const problemOf = Effect.fnUntraced(function*(files: ReadonlyArray<string>) {
        const { layer, written } = yield* sandboxOf(files)
        const error = yield* Executable.install({
          name: "program",
          directory: "/nowhere",
          build: builds(["linux-x64"])
        }).pipe(Effect.provide(layer), Effect.flip)
        assert.isTrue(Schema.is(Executable.NoBuild)(error))
        assert.deepStrictEqual(written, [])
        return error.message
      })
      assert.strictEqual(yield* problemOf([loader.musl]), "there's no build of program for linux-x64-musl")
      assert.strictEqual(
        yield* problemOf([]),
        "program can't run there: it takes Linux on x64 or arm64, with glibc or musl"
      )
    }))
})
