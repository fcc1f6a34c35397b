/**
 * The processes of a loopback sandbox: real ones of this machine, known by a variable in their environment.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { setTimeout as delay } from "node:timers/promises"

const marker = "GANGWAY_TEST_SANDBOX"

/** Why there can be no loopback sandbox on this machine. */
export const unavailable = existsSync("/proc/self/environ")
  ? undefined
  : "a loopback sandbox knows its processes by /proc, which isn't here"

/** The options of a suite that needs loopback sandboxes. */
export const needed = { skip: unavailable !== undefined, meta: { skipped: unavailable } }

/** Marks the environment of a sandbox's processes. */
export const marked = (sandbox: string, env: Record<string, string>): Record<string, string> => ({
  ...env,
  [marker]: sandbox
})

/** Kills all of a sandbox's processes, also those that left their session or cleared their environment. */
export const killAll = async (sandbox: string): Promise<void> => {
  for (let clean = 0; clean < 2;) {
    const found = processesOf(sandbox)
    kill(found)
    clean = found.length === 0 ? clean + 1 : 0
    await delay(20)
  }
}

/** The processes of a sandbox, and what descends from them. */
export const processesOf = (sandbox: string): ReadonlyArray<number> =>
  withDescendants((pid) => readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(`${marker}=${sandbox}`))

/** A process, and what descends from it. */
export const treeOf = (root: number): ReadonlyArray<number> => withDescendants((pid) => pid === root)

const withDescendants = (isRoot: (pid: number) => boolean): ReadonlyArray<number> => {
  const parents = new Map<number, number>()
  const found = new Set<number>()
  for (const name of readdirSync("/proc")) {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid === process.pid) continue
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "latin1")
      const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
      if (state === "Z") continue
      parents.set(pid, Number(parent))
      if (isRoot(pid)) found.add(pid)
    } catch {
      // It ended in between.
    }
  }
  for (let grown = true; grown;) {
    grown = false
    for (const [pid, parent] of parents) {
      if (found.has(pid) || !found.has(parent)) continue
      found.add(pid)
      grown = true
    }
  }
  return [...found]
}

/** Kills processes; those that are gone already are passed over. */
export const kill = (pids: Iterable<number>): void => {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL")
    } catch {
      // It ended by itself.
    }
  }
}
