/**
 * Builds what is published: for each package a directory with JavaScript, types, sources and a manifest of its own, and
 * for each program one with its bundle and the licences of what that contains. Each is packed as it stands.
 */
import { spawnSync } from "node:child_process"
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { runnable } from "./runnable.ts"
import { thirdPartyLicences } from "./thirdParty.ts"

type Manifest = {
  readonly name: string
  readonly version: string
  readonly bin?: Readonly<Record<string, string>>
} & Readonly<Record<string, unknown>>

const root = resolve(import.meta.dirname, "..")

/** Each after those that it knows. */
const packages = ["protocol", "sandbox", "server", "client", "drivers"] as const

/** The programs, and what each leaves to be installed beside it. */
const programs = { bridge: [], cli: ["@daytona/sdk"] } as const

const readManifest = (unit: string): Manifest => JSON.parse(readFileSync(join(root, unit, "package.json"), "utf8"))

const versions = (): Readonly<Record<string, string>> =>
  Object.fromEntries(
    [...packages.map((name) => `packages/${name}`), ...Object.keys(programs).map((name) => `apps/${name}`)]
      .map(readManifest)
      .map(({ name, version }) => [name, version])
  )

// A workspace's own are published together and fit one another alone.
const withVersions = (dependencies: unknown): Record<string, string> => {
  const known = versions()
  return Object.fromEntries(
    Object.entries(dependencies as Record<string, string> ?? {}).map(([name, range]) => {
      if (!range.startsWith("workspace:")) return [name, range]
      const version = known[name]
      if (version === undefined) throw new Error(`${name} isn't published`)
      return [name, version]
    })
  )
}

const unlessEmpty = (name: string, dependencies: Record<string, string>): object =>
  Object.keys(dependencies).length === 0 ? {} : { [name]: dependencies }

const writeManifest = (directory: string, manifest: object): void =>
  writeFileSync(join(directory, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`)

// Links into the repository lead nowhere from a registry's page. A changelog is there from the first release on.
const copyTexts = (unit: string, directory: string): void => {
  cpSync(join(root, "LICENSE"), join(directory, "LICENSE"))
  const changelog = join(root, unit, "CHANGELOG.md")
  if (existsSync(changelog)) cpSync(changelog, join(directory, "CHANGELOG.md"))
  const readme = readFileSync(join(root, unit, "README.md"), "utf8")
  writeFileSync(join(directory, "README.md"), readme.replace(/\[([^\]]+)\]\((?![a-z]+:)[^)]+\)/g, "$1"))
}

const fresh = (directory: string): void => {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
}

/** The modules of a package that its users import: a subpath, and the file's name without its ending. */
const modulesOf = (unit: string): ReadonlyArray<readonly [subpath: string, module: string]> => {
  const { exports } = readManifest(unit) as unknown as { readonly exports: Readonly<Record<string, string | null>> }
  const named = Object.entries(exports).flatMap(([subpath, file]) =>
    file === null || subpath.includes("*") ? [] : [[subpath, /([^/]+)\.ts$/.exec(file)![1]!] as const]
  )
  const rest = [...new Bun.Glob("*.ts").scanSync(join(root, unit, "src"))]
    .map((file) => file.slice(0, -".ts".length))
    .filter((module) => !named.some(([, file]) => file === module))
    .map((module) => [`./${module}`, module] as const)
  return [...named, ...rest.sort(([one], [other]) => (one < other ? -1 : 1))]
}

/** Builds a package of TypeScript sources, with the types of those built before it, whose directories are given. */
const buildPackage = (name: string, directory: string, built: ReadonlyMap<string, string>): void => {
  const unit = `packages/${name}`
  fresh(directory)
  // Compiled from the copy, so that the maps name the sources as they lie beside it.
  cpSync(join(root, unit, "src"), join(directory, "src"), { recursive: true })
  const { dependencies, devDependencies: _, exports: __, publishConfig: ___, ...manifest } = readManifest(unit)
  copyTexts(unit, directory)
  writeManifest(directory, {
    ...manifest,
    files: ["lib", "src", "CHANGELOG.md"],
    exports: {
      ...Object.fromEntries(
        modulesOf(unit).map(([subpath, module]) => [
          subpath,
          { types: `./lib/${module}.d.ts`, default: `./lib/${module}.js` }
        ])
      ),
      "./package.json": "./package.json"
    },
    ...unlessEmpty("dependencies", withVersions(dependencies))
  })
  // What it imports is found wherever it's built, until all are.
  symlinkSync(join(root, "node_modules"), join(directory, "node_modules"))
  const project = join(directory, "tsconfig.json")
  writeFileSync(
    project,
    JSON.stringify({
      extends: join(root, "tsconfig.json"),
      compilerOptions: {
        noEmit: false,
        target: "ES2022",
        rewriteRelativeImportExtensions: true,
        declaration: true,
        declarationMap: true,
        sourceMap: true,
        rootDir: "src",
        outDir: "lib",
        typeRoots: ["node_modules/@types"],
        paths: Object.fromEntries([...built].flatMap(([name, directory]) => [
          [`@gangway/${name}`, [join(directory, "lib/index.d.ts")]],
          [`@gangway/${name}/*`, [join(directory, "lib/*.d.ts")]]
        ]))
      },
      include: ["src"],
      exclude: []
    })
  )
  const tsc = join(root, "node_modules/typescript/bin/tsc")
  const { status, stderr, stdout } = spawnSync(process.execPath, [tsc, "-p", project], { encoding: "utf8" })
  if (status !== 0) throw new Error(`${unit} can't be built:\n${stdout}${stderr}`)
  rmSync(project)
}

/** Builds a program that Bun runs: one file without dependencies, but for what's left to be installed beside it. */
const buildProgram = async (name: keyof typeof programs, directory: string): Promise<void> => {
  const unit = `apps/${name}`
  fresh(directory)
  const { bin, dependencies: _, devDependencies: __, publishConfig: ___, ...manifest } = readManifest(unit)
  const [command] = Object.keys(bin ?? {})
  if (command === undefined) throw new Error(`${unit} has no bin`)
  const file = `${command}.js`
  const { metafile, outputs: [output] } = await Bun.build({
    entrypoints: [join(root, unit, "src/main.ts")],
    target: "bun",
    minify: true,
    root,
    external: [...programs[name]],
    metafile: true
  })
  writeFileSync(join(directory, file), runnable(await output!.text()))
  chmodSync(join(directory, file), 0o755)
  writeFileSync(
    join(directory, "THIRD_PARTY_LICENSES"),
    thirdPartyLicences(Object.keys(metafile!.inputs))
  )
  copyTexts(unit, directory)
  // The command line launches the bridge of its own version.
  const own = name === "cli" ? { [readManifest("apps/bridge").name]: readManifest("apps/bridge").version } : {}
  writeManifest(directory, {
    ...manifest,
    bin: { [command]: file },
    files: [file, "THIRD_PARTY_LICENSES", "CHANGELOG.md"],
    exports: { [`./${file}`]: `./${file}`, "./package.json": "./package.json" },
    ...unlessEmpty("dependencies", own)
  })
}

/**
 * Builds them all, each in the directory that's given for its place in the repository, such as `packages/client`, and
 * packs them into another.
 */
export const buildPackages = async (directoryOf: (unit: string) => string, tarballs: string): Promise<void> => {
  const built = new Map<string, string>()
  for (const name of packages) {
    const directory = directoryOf(`packages/${name}`)
    buildPackage(name, directory, built)
    built.set(name, directory)
  }
  for (const directory of built.values()) rmSync(join(directory, "node_modules"))
  for (const name of Object.keys(programs) as Array<keyof typeof programs>) {
    const directory = directoryOf(`apps/${name}`)
    await buildProgram(name, directory)
    built.set(name, directory)
  }
  fresh(tarballs)
  for (const directory of built.values()) {
    const args = ["pm", "pack", "--quiet", "--destination", tarballs]
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: directory, encoding: "utf8" })
    if (status !== 0) throw new Error(`${directory} can't be packed:\n${stderr}`)
  }
}
