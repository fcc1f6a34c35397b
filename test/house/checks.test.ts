import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, Path, Stream } from "effect"
import { ChildProcess } from "effect/unstable/process"

const root = new URL("../..", import.meta.url).pathname

const write = Effect.fnUntraced(function*(directory: string, files: Record<string, string>) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  for (const [name, text] of Object.entries(files)) {
    yield* fs.makeDirectory(path.dirname(path.join(directory, name)), { recursive: true })
    yield* fs.writeFileString(path.join(directory, name), text)
  }
})

// Through a shell, so that both outputs are one and stay in order.
const run = Effect.fnUntraced(function*(script: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) {
  const handle = yield* ChildProcess.make("sh", ["-c", `"$@" 2>&1`, "sh", process.execPath, script, ...args], {
    cwd: root,
    env: { CI: "", ...env },
    extendEnv: true
  })
  const output = yield* Stream.mkString(Stream.decodeText(handle.stdout))
  return { output: output.trimEnd().split("\n"), code: yield* handle.exitCode }
})

const check = Effect.fnUntraced(function*(script: string, files: Record<string, string>) {
  const fs = yield* FileSystem.FileSystem
  const directory = yield* fs.makeTempDirectoryScoped()
  yield* write(directory, {
    "tsconfig.json": JSON.stringify({
      compilerOptions: { types: [], noEmit: true, allowImportingTsExtensions: true },
      include: ["packages/*/src", "apps/*/src"]
    }),
    "packages/protocol/package.json": JSON.stringify({ dependencies: {} }),
    "apps/cli/package.json": JSON.stringify({ dependencies: {} }),
    ...files
  })
  return yield* run(script, [directory])
})

describe("checkImports", () => {
  it.live("finds nothing in imports along the arrows", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkImports.ts", {
        "packages/server/src/A.ts": `import { B } from "./B.ts"\nexport * from "@gangway/protocol/Bridge"\n`,
        "packages/server/src/B.ts": `// import "@gangway/client"\nexport const B = 'from "@gangway/client"'\n`,
        "packages/server/src/Kernel.ts": `import "./internal/kernel/libc.ts"\n`,
        "packages/server/src/internal/kernel/libc.ts": `import "bun:ffi"\nimport "./a.ts"\n`,
        "packages/server/test/B.test.ts": `import "@gangway/client"\n`,
        "packages/client/src/A.ts": `import "@gangway/sandbox"\nimport "@gangway/protocol"\n`,
        "packages/client/src/Promise.ts": `import "./internal/promise/platform.ts"\n`,
        "packages/client/src/internal/promise/platform.ts": `import "@effect/platform-node-shared/NodePath"\n`,
        "packages/client/package.json": JSON.stringify({ dependencies: { "@gangway/protocol": "workspace:*" } }),
        "apps/cli/src/main.ts":
          `import "@gangway/client"\nimport "../package.json"\nimport "@effect/platform-bun/BunSocket"\n`,
        "apps/bridge/src/main.ts": `import "@gangway/server/Kernel"\n`
      })
      assert.deepStrictEqual(output, [""])
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("names the place of each import against the arrows", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkImports.ts", {
        "packages/protocol/src/A.ts": `\n\nimport { x } from "@gangway/server"\nexport const y = x\n`,
        "packages/protocol/package.json": `{\n  "dependencies": {\n    "@gangway/server": "workspace:*"\n  }\n}\n`,
        "packages/server/src/A.ts": `export const a = () =>\n  import(\n    "@gangway/client/Launcher"\n  )\n`,
        "packages/server/src/B.ts": `export type T = import("../../client/src/A.ts").T\n`,
        "packages/client/src/A.ts": `import { readFileSync } from "node:fs"\nexport { readFileSync }\n`,
        "packages/client/src/B.ts": `export * from "./A"\nexport * from "@gangway/client/A"\n`,
        "packages/client/src/index.ts": `export * from "./Promise.ts"\n`,
        "packages/client/src/internal/promise/runner.ts": `import "@effect/platform-node-shared/NodePath"\n`,
        "packages/drivers/src/A.ts": `import type { X } from "@gangway/server/internal/x"\nexport type Y = X\n`,
        "packages/sandbox/src/A.ts": `export * from "@gangway/protocol"\n`,
        "packages/server/src/index.ts": `export * from "./Kernel.ts"\nimport "./internal/kernel/libc.ts"\n`,
        "packages/drivers/src/B.ts": `import "@gangway/server/Kernel"\n`,
        "apps/cli/src/main.ts": `import "@gangway/bridge"\n`
      })
      assert.deepStrictEqual(output.toSorted(), [
        "apps/cli/src/main.ts:1: cli must not know bridge",
        "packages/client/src/A.ts:1: client runs everywhere: no node:fs",
        "packages/client/src/B.ts:1: ./A must end in .ts",
        "packages/client/src/B.ts:2: @gangway/client/A is the package itself: import the file by its relative path",
        "packages/client/src/index.ts:1: ./Promise.ts is for Node and Bun: nothing else of client loads it",
        "packages/client/src/internal/promise/runner.ts:1: client runs everywhere: no @effect/platform-node-shared/NodePath",
        "packages/drivers/src/A.ts:1: @gangway/server/internal/x is private to server",
        "packages/drivers/src/B.ts:1: @gangway/server/Kernel is for programs on Bun: apps choose it",
        "packages/protocol/package.json:3: protocol must not depend on @gangway/server",
        "packages/protocol/src/A.ts:3: protocol must not know server",
        "packages/sandbox/src/A.ts:1: sandbox must not know protocol",
        "packages/server/src/A.ts:3: server must not know client",
        "packages/server/src/B.ts:1: ../../client/src/A.ts leaves packages/server/src: import the package by its name",
        "packages/server/src/index.ts:1: ./Kernel.ts is for programs on Bun: nothing else of server loads it",
        "packages/server/src/index.ts:2: ./internal/kernel/libc.ts is for programs on Bun: nothing else of server loads it"
      ])
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})

describe("checkHouse", () => {
  const header = "/**\n * What it is.\n *\n * @since 0.1.0\n */\n"
  const docs = "/**\n * One.\n *\n * @category models\n * @since 0.1.0\n */\n"

  // Put together here, so that the check doesn't find them in this file.
  const home = ["", "root", ""].join("/")
  const registry = ["registry", "example", "org"].join(".")

  it.live("finds nothing in a file that keeps the rules", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkHouse.ts", {
        "packages/protocol/src/A.ts": `${header}${docs}export const a = 1\n${docs}export type A = typeof a\n`,
        "packages/protocol/src/internal/b.ts": "/**\n * Private.\n */\nexport const b = 1\n"
      })
      assert.deepStrictEqual(output, [""])
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("names what breaks them", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkHouse.ts", {
        "packages/protocol/src/A.ts": `${header}export const a = 1\n`,
        "packages/protocol/src/B.ts": `import "./A.ts"\n`,
        "packages/protocol/src/C.ts": `${header}${docs}export const c = () => {\n  try {\n  } finally {\n  }\n}\n`,
        "packages/protocol/src/D.ts": header + "\n".repeat(800),
        "docs/guide.md": `Look into ${home}x\n`,
        "bun.lock": `\n"https://${registry}/x"\n`
      })
      assert.deepStrictEqual(output.toSorted(), [
        `bun.lock:2: ${registry}: the host of a package registry`,
        `docs/guide.md:1: ${home}: a path of one machine`,
        "packages/protocol/src/A.ts:6: an export needs @category",
        "packages/protocol/src/A.ts:6: an export needs @since",
        "packages/protocol/src/B.ts:1: the file must start with a sentence in /** */",
        "packages/protocol/src/C.ts:13: use Effect.try in place of try",
        "packages/protocol/src/D.ts:800: 805 lines: split it, 800 are the most"
      ])
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})

describe("checkDocs", () => {
  const fence = "```"
  const block = (info: string, text: string) => `${fence}${info}\n${text}${fence}\n`
  const commented = (text: string) => `/**\n${text.split("\n").map((line) => ` * ${line}\n`).join("")} */\n`

  it.live("finds nothing in examples that fit, nor in fragments of comments", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkDocs.ts", {
        "README.md": "[A guide](docs/guide.md#top)\n\n" +
          block("ts check a.ts", "export const a = 1\n") +
          block("ts check", `import { a } from "./a.ts"\nexport const b: number = a\n`) +
          block("json", `{\n  "whole": true\n}\n`) + block("json", `{ "one": 1 }\n{ "two": 2 }\n`),
        "docs/guide.md": "[Back](../README.md), [out](https://example.org), `A.test.ts › a › does\nthis`\n",
        "test/A.test.ts": `it("does this", () => {})\n`,
        "packages/protocol/src/A.ts": commented(block("ts", "a fragment\n"))
      })
      assert.deepStrictEqual(output, ["2 code blocks checked"])
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("names the place of a type that doesn't fit, of a link that leads nowhere, and of a test that there isn't", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkDocs.ts", {
        "README.md": "One\n" + block("ts check", `export const a = 1\nexport const b: string = a\n`),
        "docs/guide.md": "\n[There](there.md)\n`A.test.ts › does that`\n" + block("ts", "a fragment\n") +
          block("json", "{}\n{ a: 1 }\n"),
        "test/A.test.ts": `it("does this", () => {})\n`,
        "packages/protocol/src/A.ts": commented(
          "One.\n\n" + block("ts", `import { x } from "nowhere"\nexport const y = x\n`)
        )
      })
      assert.deepStrictEqual(output.toSorted(), [
        "2 code blocks checked",
        "README.md:4: TS2322: Type 'number' is not assignable to type 'string'.",
        "docs/guide.md:2: there.md doesn't exist",
        "docs/guide.md:3: no test 'does that' is in A.test.ts",
        "docs/guide.md:4: a block of code must be checked: write ts check",
        "docs/guide.md:9: this isn't JSON",
        "packages/protocol/src/A.ts:5: TS2307: Cannot find module 'nowhere' or its corresponding type declarations."
      ])
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})

describe("checkProtocol", () => {
  const tests = { "test/A.test.ts": `it("does this and that", () => {})\n` }

  it.live("finds nothing where each sentence with MUST names a test, behind it or behind what explains it", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkProtocol.ts", {
        ...tests,
        "docs/protocol.md": "**MUST** is meant as in RFC 2119.\n\n" +
          "- It MUST do this (test: `A.test.ts › does this and that`). It may do more.\n" +
          "- It MUST do that. Which is good: it's useful (tests: `A.test.ts › does\n  this and that`).\n" +
          "- It MUST NOT do less (same test).\n\n" +
          "| when | test in `A.test.ts` |\n|---|---|\n| always | `does this and that` |\n"
      })
      assert.deepStrictEqual(output, ["3 sentences with MUST checked"])
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("names the place of a sentence that no test shows, and of a table's test that there isn't", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkProtocol.ts", {
        ...tests,
        "docs/protocol.md": "It MUST do this.\n\n" +
          "It MUST do that, and it\nMUST do it well. It MUST do more (test: `A.test.ts › does this and that`).\n\n" +
          "- It MUST NOT do less.\n\n" +
          "| when | test in `A.test.ts` |\n|---|---|\n| always | `does this and more` |\n"
      })
      assert.deepStrictEqual(output, [
        "4 sentences with MUST checked",
        "docs/protocol.md:10: no test 'does this and more' is in A.test.ts",
        "docs/protocol.md:1: no test is named for: It MUST do this.",
        "docs/protocol.md:3: no test is named for: It MUST do that, and it MUST do it well.",
        "docs/protocol.md:6: no test is named for: - It MUST NOT do less."
      ])
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})

describe("checkReliability", () => {
  const table = "| | fault |\n|---|---|\n| [1](#1-it-breaks) | it breaks |\n| [2](#2-its-slow) | it's slow |\n\n"

  it.live("finds nothing where each row has a section with a test, or with no promise, and each file is named", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkReliability.ts", {
        "test/faults/a.test.ts": "",
        "docs/reliability.md":
          `${table}## 1. It breaks\n\n- \`a.test.ts › does this\`\n\n## 2. It's slow\n\nNo promise.\n`
      })
      assert.deepStrictEqual(output, ["2 faults checked"])
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("names rows without a section, sections without a test or a row, and files that no document names", () =>
    Effect.gen(function*() {
      const { code, output } = yield* check("scripts/checkReliability.ts", {
        "test/faults/b.test.ts": "",
        "docs/reliability.md": `${table}## 1. It breaks\n\nNothing.\n\n## 3. It's loud\n\n\`a.test.ts › does this\`\n`
      })
      assert.deepStrictEqual(output, [
        "2 faults checked",
        "docs/reliability.md:3: row 1 has no test",
        "docs/reliability.md:4: no section has the anchor #2-its-slow",
        "docs/reliability.md:10: no row of the table leads to #3-its-loud",
        "test/faults/b.test.ts:1: neither reliability.md nor security.md names a test of it"
      ])
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})

describe("the test runner", () => {
  const runTests = Effect.fnUntraced(function*(files: Record<string, string>, env: Record<string, string> = {}) {
    const fs = yield* FileSystem.FileSystem
    // Inside the project, so that the tests find vitest.
    const directory = yield* fs.makeTempDirectoryScoped({ directory: root, prefix: ".tmp-tests-" })
    yield* write(directory, files)
    return yield* run("scripts/test.ts", ["--root", directory], env)
  })
  const passing = `import { it } from "vitest"\nit("works", () => {})\n`
  const skipping = `import { describe, it } from "vitest"
describe("an agent", { skip: true, meta: { skipped: "it isn't here" } }, () => { it("a", () => {}); it("b", () => {}) })
`

  it.live("counts what passed, failed and was skipped, with the reason, and passes outside of CI", () =>
    Effect.gen(function*() {
      const { code, output } = yield* runTests({ "a.test.ts": passing, "b.test.ts": skipping })
      assert.strictEqual(output.at(-1), "1 passed, 0 failed, 2 skipped")
      assert.lengthOf(output.filter((line) => /^skipped: .*b\.test\.ts > an agent: it isn't here$/.test(line)), 1)
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("lets nothing be skipped in CI", () =>
    Effect.gen(function*() {
      const { code, output } = yield* runTests({ "a.test.ts": passing, "b.test.ts": skipping }, { CI: "true" })
      assert.strictEqual(output.at(-1), "1 passed, 0 failed, 2 skipped")
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("lets be skipped in CI what is optional, with the reason", () =>
    Effect.gen(function*() {
      const optional = skipping.replace("meta: {", "meta: { isOptional: true,")
      const { code, output } = yield* runTests({ "a.test.ts": passing, "b.test.ts": optional }, { CI: "true" })
      assert.strictEqual(output.at(-1), "1 passed, 0 failed, 2 skipped")
      assert.lengthOf(output.filter((line) => /^skipped: .*b\.test\.ts > an agent: it isn't here$/.test(line)), 1)
      assert.strictEqual(code, 0)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("counts a file that doesn't load and a hook that fails as failures", () =>
    Effect.gen(function*() {
      const { code, output } = yield* runTests({
        "a.test.ts": passing,
        "b.test.ts": `import "./missing.ts"\n`,
        "c.test.ts": `import { beforeAll, it } from "vitest"
beforeAll(() => { throw new Error("no room") })
it("never runs", () => {})
`
      })
      assert.strictEqual(output.at(-1), "1 passed, 2 failed, 1 skipped")
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))

  it.live("fails where no test ran", () =>
    Effect.gen(function*() {
      const { code, output } = yield* runTests({})
      assert.strictEqual(output.at(-1), "0 passed, 1 failed")
      assert.strictEqual(code, 1)
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
