/**
 * Builds the program that runs in a sandbox, under `dist/bridge`, and what is published, in the `dist` of each package.
 * With `--outdir` it's all in the directory that this names.
 *
 *   bun scripts/build.ts [bundle] [compile] [packages] [--outdir directory]
 *
 * - `bundle`: `gangway-bridge.js`, one file that Bun runs.
 * - `compile`: `gangway-bridge`, one file that runs by itself on a system like this one.
 * - `packages`: for each package and program a directory that is published as it stands (see packages.ts), and its
 *   tarball, under `dist/packages` or `packages` of the other directory.
 *
 * Without any of them, all are built. With the program go the licences of what it contains.
 */
import { writeFileSync } from "node:fs"
import { basename, join, resolve } from "node:path"
import { parseArgs } from "node:util"
import { buildPackages } from "./packages.ts"
import { thirdPartyLicences } from "./thirdParty.ts"

const root = resolve(import.meta.dirname, "..")
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { outdir: { type: "string" } }
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

const builds: Record<string, () => Promise<string>> = {
  bundle: async () => {
    writeLicences(await Bun.build({ ...common, outdir, naming: "gangway-bridge.js" }))
    return join(outdir, "gangway-bridge.js")
  },
  compile: async () => {
    const outfile = join(outdir, "gangway-bridge")
    // What is compiled ahead of time starts in half the time, and sooner still without the drivers that aren't used.
    const built = await Bun.build({
      ...common,
      bytecode: true,
      format: "esm",
      splitting: true,
      compile: {
        outfile,
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
  },
  packages: async () => {
    const own = values.outdir
    const tarballs = own === undefined ? join(root, "dist/packages") : join(outdir, "packages")
    await buildPackages((unit) => own === undefined ? join(root, unit, "dist") : join(outdir, basename(unit)), tarballs)
    return tarballs
  }
}

for (const name of positionals.length === 0 ? Object.keys(builds) : positionals) {
  const build = builds[name]
  if (build === undefined) {
    console.error(`nothing is named ${name}: there are ${Object.keys(builds).join(", ")}`)
    process.exit(2)
  }
  const started = performance.now()
  const path = await build()
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  const size = name === "packages" ? "" : `${(Bun.file(path).size / 1e6).toFixed(1)} MB, `
  console.log(`${path} (${size}${seconds} s)`)
}
