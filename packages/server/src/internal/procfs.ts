/**
 * The one place in this package that touches the platform: Linux's `/proc`, and signals. Plain and synchronous, so
 * that a check and the act that rests on it happen in one step; everything else goes through the `ProcessTable`.
 *
 * A process can end between any two calls, so what can't be read counts as gone.
 */
import * as Fs from "node:fs"

/** @internal */
export interface ProcessStatus {
  readonly parent: number
  readonly group: number
  /** In clock ticks since boot. */
  readonly start: string
  /** Its program's name, or what it calls itself, cut at 15 bytes. */
  readonly name: string
  /** Whether it has let go of its memory, as it does on its way out. */
  readonly ending: boolean
}

/** How long the system has been up, in the clock ticks in which processes' starts are told: there are 100 in a second. */
export const uptime = (): number | undefined => {
  const seconds = Number(attempt(() => Fs.readFileSync("/proc/uptime", "latin1"))?.split(" ", 1)[0])
  return Number.isFinite(seconds) ? Math.round(seconds * 100) : undefined
}

/** More than what is shown of a command; arguments can be megabytes long. */
const commandBytes = 4096

const attempt = <A>(f: () => A): A | undefined => {
  try {
    return f()
  } catch {
    return undefined
  }
}

/** @internal */
export const bootId = (): string =>
  attempt(() => Fs.readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim()) ?? ""

/** @internal */
export const pidNamespace = (): string => attempt(() => Fs.readlinkSync("/proc/self/ns/pid")) ?? ""

/** @internal */
export const isAvailable = (): boolean => attempt(() => Fs.existsSync("/proc/self/stat")) ?? false

/** @internal */
export const pids = (): ReadonlyArray<number> =>
  attempt(() => Fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number)) ?? []

/** The status of a process that runs; `undefined` where there is none, or only a zombie. */
export const status = (pid: number): ProcessStatus | undefined => {
  const stat = attempt(() => Fs.readFileSync(`/proc/${pid}/stat`, "latin1"))
  if (stat === undefined) return undefined
  // The second field is the program's name in parentheses, which may hold spaces and parentheses itself.
  const nameEnd = stat.lastIndexOf(")")
  const fields = stat.slice(nameEnd + 2).split(" ")
  // A process whose first thread has ended looks like a zombie while its other threads run on.
  const ended = fields[0] === "X" || (fields[0] === "Z" && Number(fields[17]) <= 1)
  if (ended) return undefined
  const name = Buffer.from(stat.slice(stat.indexOf("(") + 1, nameEnd), "latin1").toString("utf8")
  return {
    parent: Number(fields[1]),
    group: Number(fields[2]),
    start: fields[19] ?? "",
    name,
    ending: fields[20] === "0"
  }
}

/** The beginning of a process's command line, its arguments separated by spaces. */
export const command = (pid: number): string =>
  attempt(() => {
    const descriptor = Fs.openSync(`/proc/${pid}/cmdline`, "r")
    try {
      const buffer = Buffer.alloc(commandBytes)
      const length = Fs.readSync(descriptor, buffer, 0, commandBytes, null)
      return buffer.toString("utf8", 0, length).replace(/\0+$/, "").replaceAll("\0", " ")
    } finally {
      Fs.closeSync(descriptor)
    }
  }) ?? ""

/** The value that a variable has in the environment that a process was started with. */
export const variable = (pid: number, name: string): string | undefined => {
  const environment = attempt(() => Fs.readFileSync(`/proc/${pid}/environ`))
  if (environment === undefined) return undefined
  const wanted = `${name}=`
  let at = environment.indexOf(wanted)
  while (at > 0 && environment[at - 1] !== 0) at = environment.indexOf(wanted, at + 1)
  if (at < 0) return undefined
  const end = environment.indexOf(0, at)
  return environment.toString("utf8", at + wanted.length, end < 0 ? environment.length : end)
}

/** The pid of this process. */
export const ownPid = (): number => globalThis.process.pid

/** Sends a signal; a negative pid is a process group. `false` where there's nobody, or nobody of ours. */
export const kill = (pid: number, signal: "SIGTERM" | "SIGKILL" | "SIGCONT"): boolean =>
  attempt(() => globalThis.process.kill(pid, signal)) ?? false

/** Whether a pid is in use, by whomever. */
export const exists = (pid: number): boolean => {
  try {
    return globalThis.process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"
  }
}
