/**
 * Builds the program that runs in a sandbox, under `dist/bridge`, and what is published, in the `dist` of each package.
 * With `--outdir` it's all in the directory that this names.
 *
 *   bun scripts/build.ts [bundle] [compile] [packages] [targets] [--target name]... [--outdir directory]
 *
 * - `bundle`: `gangway-bridge.js`, one file that Bun runs.
 * - `compile`: `gangway-bridge`, one file that runs by itself on a system like this one.
 * - `packages`: for each package and program a directory that is published as it stands (see packages.ts), and its
 *   tarball, under `dist/packages` or `packages` of the other directory.
 *
 * - `targets`: `gangway-bridge-<target>`, one file that runs by itself, for each system that a sandbox may be, or for those
 *   that `--target` names, and their checksums in `SHA256SUMS`. Bun fetches its own program for the others from the npm
 *   registry, once. The same sources give the same bytes.
 *
 * Without any of them, all but the targets are built. With the program go the licences of what it contains.
 */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { basename, join, resolve } from "node:path"
import { parseArgs } from "node:util"
import { buildPackages } from "./packages.ts"
import { runnable } from "./runnable.ts"
import { thirdPartyLicences } from "./thirdParty.ts"

const root = resolve(import.meta.dirname, "..")
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { outdir: { type: "string" }, target: { type: "string", multiple: true } }
})
const outdir = resolve(values.outdir ?? join(root, "dist/bridge"))

const common = {
  entrypoints: [join(root, "apps/bridge/src/main.ts")],
  target: "bun" as const,
  minify: true,
  metafile: true
}

const writeLicences = ({ metafile }: Bun.BuildOutput): void =>
  writeFileSync(join(outdir, "THIRD_PARTY_LICENSES"), thirdPartyLicences(Object.keys(metafile!.inputs)))

// As `Executable.toName` names them.
const targets = ["linux-x64", "linux-x64-musl", "linux-arm64", "linux-arm64-musl"] as const

/** One file that runs by itself: on a system like this one, or on the target that's given. */
const compile = async (name: string, target?: (typeof targets)[number]): Promise<string> => {
  const outfile = join(outdir, name)
  // What is compiled ahead of time starts in half the time, and sooner still without the drivers that aren't used.
  const built = await Bun.build({
    ...common,
    bytecode: true,
    format: "esm",
    splitting: true,
    compile: {
      outfile,
      ...(target === undefined ? {} : { target: `bun-${target}` }),
      // What only a start runs isn't worth machine code, nor the threads and the memory that make it; `main.ts` goes
      // back to the usual policy.
      jitPolicy: 100,
      // The directory that it's started in is the agent's: nothing in it says how the bridge runs.
      autoloadDotenv: false,
      autoloadBunfig: false
    }
  })
  writeLicences(built)
  return outfile
}

const builds: Record<string, () => Promise<string>> = {
  bundle: async () => {
    const built = await Bun.build(common)
    const outfile = join(outdir, "gangway-bridge.js")
    mkdirSync(outdir, { recursive: true })
    writeFileSync(outfile, runnable(await built.outputs[0]!.text()))
    chmodSync(outfile, 0o755)
    writeLicences(built)
    return outfile
  },
  compile: () => compile("gangway-bridge"),
  targets: async () => {
    const wanted = targets.filter((target) => values.target?.includes(target) ?? true)
    const unknown = values.target?.find((name) => !wanted.some((target) => target === name))
    if (unknown !== undefined) throw new Error(`no target is named ${unknown}: there are ${targets.join(", ")}`)
    const sums: Array<string> = []
    for (const target of wanted) {
      const path = await compile(`gangway-bridge-${target}`, target)
      sums.push(`${new Bun.CryptoHasher("sha256").update(readFileSync(path)).digest("hex")}  ${basename(path)}`)
    }
    const path = join(outdir, "SHA256SUMS")
    writeFileSync(path, sums.join("\n") + "\n")
    return path
  },
  packages: async () => {
    const own = values.outdir
    const tarballs = own === undefined ? join(root, "dist/packages") : join(outdir, "packages")
    await buildPackages((unit) => own === undefined ? join(root, unit, "dist") : join(outdir, basename(unit)), tarballs)
    return tarballs
  }
}

const usual = Object.keys(builds).filter((name) => name !== "targets")

for (const name of positionals.length === 0 ? usual : positionals) {
  const build = builds[name]
  if (build === undefined) {
    console.error(`nothing is named ${name}: there are ${Object.keys(builds).join(", ")}`)
    process.exit(2)
  }
  const started = performance.now()
  const path = await build()
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  const size = name === "packages" || name === "targets" ? "" : `${(Bun.file(path).size / 1e6).toFixed(1)} MB, `
  console.log(`${path} (${size}${seconds} s)`)
}
