/**
 * The packages as they'd be published: built, packed, installed into an empty project, compiled there by TypeScript, and
 * run by each runtime that they're for.
 */
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { builtinModules } from "node:module"
import { tmpdir } from "node:os"
import { delimiter, dirname, join } from "node:path"
import { promisify } from "node:util"
import { publint } from "publint"
import { formatMessage } from "publint/utils"
import { installAgent } from "../installAgent.ts"

const repository = join(import.meta.dirname, "../..")
const bun = process.execPath
const runtimes = {
  Bun: { program: bun, skipped: undefined },
  "Node 22": await installAgent("node-22"),
  "Node 24": await installAgent("node-24")
}

const root = mkdtempSync(join(tmpdir(), "gangway-packages-"))
const project = join(root, "project")
const built = join(root, "built")
const libraries = ["protocol", "sandbox", "server", "client", "drivers"]
const programs = ["bridge", "cli"]

const readJson = (...path: ReadonlyArray<string>) => JSON.parse(readFileSync(join(...path), "utf8"))
const { devDependencies } = readJson(repository, "package.json")

const execute = promisify(execFile)

// Nothing of the repository is on the way: neither its modules nor its settings.
const bin = join(root, "bin")
const isolated = { ...process.env, PATH: [bin, process.env["PATH"]].join(delimiter), HOME: root, NODE_OPTIONS: "" }
const run = async (program: string, args: ReadonlyArray<string>, { cwd = project, env = isolated } = {}) =>
  (await execute(program, args, { cwd, env, timeout: 90_000 }).catch((error) => {
    throw new Error(`${error.message}\n${error.stdout}`)
  })).stdout

const tarball = (name: string) => {
  const files = readdirSync(join(built, "packages")).filter((file) => file.startsWith(`gangway-${name}-`))
  assert.lengthOf(files, 1)
  return join(built, "packages", files[0]!)
}

beforeAll(async () => {
  mkdirSync(bin)
  symlinkSync(bun, join(bin, "bun"))
  mkdirSync(project)
  await run(bun, [join(repository, "scripts/build.ts"), "packages", "--outdir", built], { cwd: repository })
  const names = [...libraries, ...programs]
  // Its cache is the user's.
  const npm = (args: ReadonlyArray<string>) => run("npm", args, { env: process.env as typeof isolated })
  writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }))
  await npm([
    "install",
    "--prefer-offline",
    "--no-audit",
    "--no-fund",
    ...names.map(tarball),
    // Each by its exact version, as the README says: a range of theirs would bring what doesn't fit.
    ...["effect", "platform-bun", "platform-node", "platform-node-shared"]
      .map((name) => name === "effect" ? name : `@effect/${name}`)
      .concat("@types/node", "@types/bun")
      .map((name) => `${name}@${devDependencies[name]}`),
    "typescript@5.9.3",
    `typescript-7@npm:typescript@${devDependencies["typescript"]}`
  ])
  for (const file of ["host.ts", "plain.ts", "bridge.ts"]) {
    cpSync(join(import.meta.dirname, "fixtures", file), join(project, file))
  }
}, 240_000)

afterAll(() => rmSync(root, { recursive: true, force: true }))

const compile = async (compiler: string, files: ReadonlyArray<string>, options: Readonly<Record<string, unknown>>) => {
  const settings = join(project, "tsconfig.json")
  const compilerOptions = { target: "ES2022", lib: ["ESNext", "DOM"], strict: true, outDir: "out", ...options }
  writeFileSync(settings, JSON.stringify({ compilerOptions, files }))
  await run(bun, [join(project, "node_modules", compiler, "bin/tsc"), "-p", settings])
}

const hosts = ["host.ts", "plain.ts"]
const node = { module: "NodeNext", moduleResolution: "NodeNext", types: ["node"] }

describe("what is published", () => {
  for (const name of libraries) {
    it(`is without a fault of publint and of Are The Types Wrong: ${name}`, async () => {
      const { messages } = await publint({ pkgDir: join(built, name), strict: true })
      const manifest = readJson(built, name, "package.json")
      assert.deepStrictEqual(messages.map((message) => formatMessage(message, manifest, { color: false })), [])
      const result = await checkPackage(createPackageFromTarballData(readFileSync(tarball(name))))
      assert.isObject(result.types)
      // Modules of ECMAScript alone: to `require` them takes a Node that can, and nothing resolves as Node 10 did.
      const expected = ["NoResolution", "CJSResolvesToESM"]
      const problems = "problems" in result ? result.problems : []
      assert.deepStrictEqual(
        problems.filter((problem) =>
          !(expected.includes(problem.kind) && "resolutionKind" in problem &&
            ["node10", "node16-cjs"].includes(problem.resolutionKind))
        ),
        []
      )
    })

    it(`imports nothing but what its manifest names: ${name}`, () => {
      const { dependencies = {}, peerDependencies = {} } = readJson(built, name, "package.json")
      const known = new Set([
        ...Object.keys(dependencies),
        ...Object.keys(peerDependencies),
        ...builtinModules,
        "bun:ffi"
      ])
      const imported = new Set<string>()
      for (const file of new Bun.Glob("lib/**/*.{js,d.ts}").scanSync(join(built, name))) {
        const text = readFileSync(join(built, name, file), "utf8").replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "")
        for (const [, specifier] of text.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)) {
          if (specifier!.startsWith(".")) {
            // Declarations keep the names of sources, which TypeScript takes for those of declarations.
            const target = file.endsWith(".d.ts") ? specifier!.replace(/(?<!\.d)\.ts$/, ".d.ts") : specifier!
            assert.isTrue(existsSync(join(built, name, dirname(file), target)), `${file} imports ${specifier}`)
          } else imported.add(/^(?:@[^/]+\/)?[^/]+/.exec(specifier!.replace(/^node:/, ""))![0])
        }
      }
      assert.isTrue(imported.has("effect"))
      assert.deepStrictEqual([...imported].filter((one) => !known.has(one)), [])
    })
  }

  it("depends on what is published with it, at its very version", () => {
    for (const name of [...libraries, ...programs]) {
      const manifest = readJson(project, "node_modules/@gangway", name, "package.json")
      const { version } = readJson(repository, programs.includes(name) ? "apps" : "packages", name, "package.json")
      assert.strictEqual(manifest.version, version)
      const own = Object.entries(manifest.dependencies ?? {}).filter(([dependency]) =>
        dependency.startsWith("@gangway/")
      )
      for (const [, range] of own) assert.strictEqual(range, version)
      assert.notMatch(JSON.stringify(manifest), /workspace:/)
    }
  })

  for (const name of programs) {
    it(`has the licences of what it contains, and contains no agent: ${name}`, () => {
      const directory = join(project, "node_modules/@gangway", name)
      const licences = readFileSync(join(directory, "THIRD_PARTY_LICENSES"), "utf8")
      assert.match(licences, /^- effect \d/m)
      assert.match(licences, /^- @effect\/platform-bun \d/m)
      assert.match(licences, /Permission is hereby granted, free of charge/)
      // Taken over by Effect from others, in `Random`.
      assert.match(licences, /Yves-Marie K\. Rinquin/)
      assert.notMatch(licences, /claude|codex|anthropic|openai/i)
      const { bin } = readJson(directory, "package.json")
      const files = readdirSync(directory).filter((file) => !["package.json", "CHANGELOG.md"].includes(file))
      assert.sameMembers(files, [...Object.values(bin), "THIRD_PARTY_LICENSES", "LICENSE", "README.md"])
    })
  }
})

describe("in an empty project", () => {
  it("the types hold as Node resolves them, and as bundlers do", async () => {
    // The packages' own declarations are checked too, and those of Effect.
    await compile("typescript-7", hosts, { ...node, exactOptionalPropertyTypes: true, skipLibCheck: false })
    // Bun's types don't hold beside these of Node.
    await compile("typescript-7", ["bridge.ts"], { ...node, types: ["bun"], skipLibCheck: true })
    const bundler = { ...node, module: "ESNext", moduleResolution: "Bundler", skipLibCheck: true, noEmit: true }
    await compile("typescript-7", hosts, bundler)
    assert.sameMembers(readdirSync(join(project, "out")), ["host.js", "plain.js", "bridge.js"])
  }, 90_000)

  it("the types hold under TypeScript 5.9", async () => {
    await compile("typescript", hosts, { ...node, skipLibCheck: true, noEmit: true })
  }, 90_000)

  for (const [name, { program, skipped }] of Object.entries(runtimes)) {
    const title = `hosts with and without Effect run a turn on ${name}`
    it.skipIf(program === undefined)(skipped === undefined ? title : `${title} (${skipped})`, async () => {
      const expected = { results: ["gangway!"], text: "Looked up.", end: "finished" }
      const turnOf = async (host: string, bridge: ReadonlyArray<string>) => {
        const directory = mkdtempSync(join(root, "host-"))
        return JSON.parse(await run(program!, [join(project, "out", host), directory, ...bridge]))
      }
      const { numbers, ...effect } = await turnOf("host.js", [join(project, "node_modules/.bin/gangway-bridge")])
      assert.deepStrictEqual(effect, expected)
      assert.deepStrictEqual(numbers, numbers.map((_: number, index: number) => index + 1))
      // A bridge program of one's own, from the same packages.
      const { numbers: same, ...plain } = await turnOf("plain.js", [bun, join(project, "out/bridge.js")])
      assert.deepStrictEqual(plain, { ...expected, missing: "TurnNotFound", isError: true })
      assert.deepStrictEqual(same, numbers)
    }, 90_000)
  }

  it("gangway finds the bridge that was installed with it", async () => {
    const elsewhere = { cwd: mkdtempSync(join(root, "empty-")) }
    const gangway = join(project, "node_modules/.bin/gangway")
    const { version } = readJson(repository, "apps/cli/package.json")
    assert.include(await run(gangway, ["--version"], elsewhere), version)
    assert.strictEqual(
      (await run(join(project, "node_modules/.bin/gangway-bridge"), ["--version"], elsewhere)).trim(),
      version
    )
    assert.match(await run(gangway, ["demo"], elsewhere), /parts read, 0 lost, 0 doubled/)
  }, 90_000)
})
