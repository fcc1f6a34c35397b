/**
 * Installs the real agents that tests run, pinned, from `test/agents/<name>/package.json`: outside the workspace, and
 * only when a test asks for one.
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"

/** The program of an installed agent, or why there is none. */
export type InstalledAgent =
  | { readonly program: string; readonly skipped?: undefined }
  | { readonly program?: undefined; readonly skipped: string }

/**
 * Installs an agent, unless it's there already. Test files that run at the same time wait for each other. With CI=true
 * an agent that can't be installed is an error, otherwise a reason to skip its suite.
 */
export const installAgent = async (name: string): Promise<InstalledAgent> => {
  const directory = join(import.meta.dirname, "agents", name)
  const manifest = JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as {
    readonly dependencies: Readonly<Record<string, string>>
    readonly gangway: { readonly program: string }
  }
  const program = join(directory, "node_modules", ".bin", manifest.gangway.program)
  const installed = () =>
    existsSync(program) && Object.entries(manifest.dependencies).every(([dependency, version]) => {
      const found = join(directory, "node_modules", dependency, "package.json")
      return existsSync(found) && JSON.parse(readFileSync(found, "utf8")).version === version
    })
  if (installed()) return { program }
  mkdirSync(join(directory, "node_modules"), { recursive: true })
  return await locked(join(directory, "node_modules", ".install.lock"), () => {
    if (installed()) return { program }
    // The versions are exact, and a lockfile would name where they came from.
    const bun = process.versions["bun"] === undefined ? "bun" : process.execPath
    const result = spawnSync(bun, ["install", "--no-save"], { cwd: directory, encoding: "utf8", timeout: 300_000 })
    if (installed()) return { program }
    const reason = `${name} can't be installed: ${(result.error?.message ?? result.stderr).trim().slice(-500)}`
    if (process.env["CI"] === "true") throw new Error(reason)
    return { skipped: reason }
  })
}

const locked = async <A>(lock: string, body: () => A): Promise<A> => {
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" })
      break
    } catch {
      if (holderIsGone(lock)) rmSync(lock, { force: true })
      else await delay(100)
    }
  }
  try {
    return body()
  } finally {
    rmSync(lock, { force: true })
  }
}

const holderIsGone = (lock: string): boolean => {
  try {
    process.kill(Number(readFileSync(lock, "utf8")), 0)
    return false
  } catch (error) {
    // A holder that is just writing its number isn't gone.
    return (error as NodeJS.ErrnoException).code === "ESRCH"
  }
}
