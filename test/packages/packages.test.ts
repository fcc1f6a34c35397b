/**
 * The packages as they'd be published: built, packed, installed into an empty project, compiled there by TypeScript, and
 * run by each runtime that they're for. The commands are those of the README, line by line.
 */
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
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
import { test } from "../../apps/cli/test/fixtures/Gangway.ts"
import { codeBlocks } from "../../scripts/codeBlocks.ts"
import { installAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"

const repository = join(import.meta.dirname, "../..")
const bun = process.execPath
const runtimes = {
  Bun: { program: bun, skipped: undefined },
  "Node 22": await installAgent("node-22"),
  "Node 24": await installAgent("node-24")
}

const claude = await installAgent("claude-code")

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
const installed = join(root, "global")
const isolated: NodeJS.ProcessEnv = {
  ...process.env,
  PATH: [bin, join(installed, "bin"), process.env["PATH"]].join(delimiter),
  HOME: root,
  NODE_OPTIONS: ""
}
const run = async (program: string, args: ReadonlyArray<string>, { cwd = project, env = isolated } = {}) =>
  (await execute(program, args, { cwd, env, timeout: 200_000 }).catch((error) => {
    throw new Error(`${error.message}\n${error.stdout}`)
  })).stdout

/** The README's commands, each of which is run below. */
const commands = {
  demo: / run demo$/,
  tests: / run test$/,
  install: /^bun install$/,
  agents: /main\.ts agents$/,
  run: /main\.ts run /,
  build: /^bun run build packages$/,
  installGangway: /^npm install --global /,
  runGangway: /^gangway run /,
  installPackages: /^npm install \.\.\/gangway\//
}
const lines = codeBlocks(readFileSync(join(repository, "README.md"), "utf8"))
  .filter(({ info }) => info === "sh")
  .flatMap(({ text }) => text.trimEnd().split("\n"))

/** Runs one in a shell, with what's changed for a test, such as where it writes to. */
const runCommand = (
  name: keyof typeof commands,
  change: (line: string) => string,
  options: { readonly cwd: string; readonly env?: NodeJS.ProcessEnv }
) => {
  const line = lines.find((line) => commands[name].test(line))!
  return run("sh", ["-c", change(line.replace(/^npx --yes bun@\S+/, "bun"))], options)
}

const tarball = (name: string) => {
  const files = readdirSync(join(built, "packages")).filter((file) => file.startsWith(`gangway-${name}-`))
  assert.lengthOf(files, 1)
  return join(built, "packages", files[0]!)
}

beforeAll(async () => {
  mkdirSync(bin)
  symlinkSync(bun, join(bin, "bun"))
  mkdirSync(project)
  await runCommand("build", (line) => `${line} --outdir ${built}`, { cwd: repository })
  writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }))
  // Types and compilers are what projects have of their own; npm's cache is the user's.
  const own = ["@types/node", "@types/bun"].map((name) => `${name}@${devDependencies[name]}`)
  own.push("typescript@5.9.3", `typescript-7@npm:typescript@${devDependencies["typescript"]}`)
  await runCommand(
    "installPackages",
    (line) => `${line.replace("../gangway/dist", built)} ${own.join(" ")} --prefer-offline --no-audit --no-fund`,
    { cwd: project, env: process.env }
  )
  for (const file of ["host.ts", "plain.ts", "bridge.ts"]) {
    cpSync(join(import.meta.dirname, "fixtures", file), join(project, file))
  }
}, 400_000)

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
      const packed = readFileSync(tarball(name))
      const { messages } = await publint({ pack: { tarball: Uint8Array.from(packed).buffer }, strict: true })
      const manifest = readJson(built, name, "package.json")
      assert.deepStrictEqual(messages.map((message) => formatMessage(message, manifest, { color: false })), [])
      const result = await checkPackage(createPackageFromTarballData(packed))
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
  }, 240_000)

  it("the types hold under TypeScript 5.9", async () => {
    await compile("typescript", hosts, { ...node, skipLibCheck: true, noEmit: true })
  }, 240_000)

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
    }, 240_000)
  }
})

describe("the README's commands", () => {
  it("install gangway and its bridge", async () => {
    await runCommand(
      "installGangway",
      (line) =>
        `${line.replaceAll("dist/packages", join(built, "packages"))} --prefix ${installed} --no-audit --no-fund`,
      { cwd: repository, env: process.env }
    )
    const elsewhere = { cwd: mkdtempSync(join(root, "empty-")) }
    const { version } = readJson(repository, "apps/cli/package.json")
    for (const program of ["gangway", "gangway-bridge"]) {
      assert.include(await run(join(installed, "bin", program), ["--version"], elsewhere), version)
    }
    assert.match(await run("gangway", ["demo"], elsewhere), /parts read, 0 lost, 0 doubled/)
  }, 240_000)

  it("work in a checkout", async () => {
    const checkout = { cwd: repository }
    assert.match(await runCommand("demo", (line) => line, checkout), /parts read, 0 lost, 0 doubled/)
    const one = (line: string) => `${line} packages/protocol/test/Fragment.test.ts`
    assert.match(await runCommand("tests", one, checkout), /^\d+ passed, 0 failed$/m)
    await runCommand("install", (line) => `${line} --frozen-lockfile`, checkout)
    assert.match(await runCommand("agents", (line) => line, checkout), /claude-code/)
  }, 240_000)

  describe(
    "with Claude Code",
    claude.skipped === undefined ? {} : { skip: true, meta: { skipped: claude.skipped } },
    () => {
      test("run a turn", (user) =>
        Effect.gen(function*() {
          const { url } = yield* ModelServer.start
          const env = {
            ...user.env,
            PATH: [bin, join(installed, "bin"), dirname(claude.program!), process.env["PATH"]].join(delimiter),
            ANTHROPIC_API_KEY: "key",
            ANTHROPIC_BASE_URL: url,
            CLAUDE_CONFIG_DIR: join(user.root, "claude"),
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1"
          }
          for (const name of ["run", "runGangway"] as const) {
            const said = yield* Effect.promise(() =>
              runCommand(name, (line) => line.replace(/^bun /, `bun ${repository}/`), { cwd: user.directory, env })
            )
            assert.match(said, /✓ finished/)
          }
        }))
    }
  )

  it("are all run here", () => {
    const known = Object.values(commands)
    assert.deepStrictEqual(
      lines.map((line) => known.filter((command) => command.test(line)).length),
      lines.map(() => 1)
    )
    assert.lengthOf(lines, known.length)
  })
})
