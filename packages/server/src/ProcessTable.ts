/**
 * The processes of the sandbox: who runs, whose child it is, whether it's still the same one, and how to end it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as procfs from "./internal/procfs.ts"

/**
 * A running process. Zombies are not listed.
 *
 * @category models
 * @since 0.1.0
 */
export interface RunningProcess {
  readonly pid: number
  readonly parent: number
  /** Its process group. */
  readonly group: number
  /** Its start time in clock ticks since boot. */
  readonly start: string
  /**
   * Program and arguments, separated by spaces; only the beginning where that's long. Where they can't be told, as while
   * a process becomes another program, its name, or its parent's command.
   */
  readonly command: string
  /** Whether it's on its way out, so that it's soon gone by itself. */
  readonly ending: boolean
  /** What the variable asked for has in its initial environment; absent where it's not set or can't be read. */
  readonly mark: string | undefined
}

/**
 * The signals that the bridge sends.
 *
 * @category models
 * @since 0.1.0
 */
export type Signal = "SIGTERM" | "SIGKILL" | "SIGCONT"

/**
 * What the bridge asks of the system's process table.
 *
 * @category models
 * @since 0.1.0
 */
export interface ProcessTable {
  /** The bridge's own identity. */
  readonly self: Effect.Effect<ProcessIdentity>
  /** The time in clock ticks since boot, as a process's `start` is told; `undefined` where the system doesn't tell. */
  readonly now: Effect.Effect<number | undefined>
  /** The identity that a pid has now; `undefined` where there's no such process (a zombie counts as none). */
  readonly identify: (pid: number) => Effect.Effect<ProcessIdentity | undefined>
  /**
   * All processes that the bridge may see, each with the value of one variable of its initial environment. Empty
   * where the system has no `/proc`. Reads several files a process: for when something ends, not for a loop.
   */
  readonly list: (variable?: string) => Effect.Effect<ReadonlyArray<RunningProcess>>
  /** Sends a signal to a process if it's still the same one; `false` where it isn't, or isn't ours. */
  readonly signal: (process: Pick<RunningProcess, "pid" | "start">, signal: Signal) => Effect.Effect<boolean>
  /** Sends a signal to all of a process group at once, so that none escapes by forking; `false` where there's none. */
  readonly signalGroup: (group: number, signal: Signal) => Effect.Effect<boolean>
  /**
   * Makes the bridge the parent of its descendants' orphans, so that a walk by parent finds them, and reaps those
   * that end. What the bridge starts for itself from then on has `variable` in its environment, with the value
   * `bridge`: that tells it from an orphan that cleared its environment. `false` where the system can't; repeating it
   * changes nothing.
   */
  readonly adoptOrphans: (variable: string) => Effect.Effect<boolean>
}

/**
 * Identifies a process beyond the reuse of its pid: `start` is its start time in clock ticks since boot, `boot` the
 * kernel's boot id, `pidNamespace` the id of its pid namespace. Fields are empty where the system doesn't tell.
 *
 * @category schemas
 * @since 0.1.0
 */
export const ProcessIdentity = Schema.Struct({
  pid: Schema.Int,
  start: Schema.String,
  boot: Schema.String,
  pidNamespace: Schema.String
})

/** @category models @since 0.1.0 */
export type ProcessIdentity = typeof ProcessIdentity.Type

/**
 * Whether a process that was identified once still runs: `unknown` where it's of another pid namespace, which can't
 * be seen from here.
 *
 * @category models
 * @since 0.1.0
 */
export type Liveness = "alive" | "gone" | "unknown"

/**
 * The process table that works on every system, by `/proc` where there is one, and otherwise by signals alone. It
 * can't adopt orphans.
 *
 * @category services
 * @since 0.1.0
 */
export const portable: ProcessTable = makePortable()

/**
 * The process table that the bridge uses: the portable one, unless the program provides one that knows its kernel.
 *
 * @category services
 * @since 0.1.0
 */
export const ProcessTable: Context.Reference<ProcessTable> = Context.Reference<ProcessTable>(
  "@gangway/server/ProcessTable",
  { defaultValue: () => portable }
)

/**
 * Says whether a process that was identified once, perhaps by another bridge, still runs.
 *
 * @category combinators
 * @since 0.1.0
 */
export const liveness = Effect.fnUntraced(function*(identity: ProcessIdentity): Effect.fn.Return<Liveness> {
  const table = yield* ProcessTable
  const self = yield* table.self
  if (identity.boot !== self.boot) return "gone"
  if (identity.pidNamespace !== self.pidNamespace) return "unknown"
  const current = yield* table.identify(identity.pid)
  return current !== undefined && current.start === identity.start ? "alive" : "gone"
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const listRounds = 10

function makePortable(): ProcessTable {
  // Neither changes in the life of a process, and looking them up costs two reads each time.
  let system: Pick<ProcessIdentity, "boot" | "pidNamespace"> | undefined

  const identifyUnsafe = (pid: number): ProcessIdentity | undefined => {
    system ??= { boot: procfs.bootId(), pidNamespace: procfs.pidNamespace() }
    if (!procfs.isAvailable()) return procfs.exists(pid) ? { pid, start: "", ...system } : undefined
    const status = procfs.status(pid)
    return status === undefined ? undefined : { pid, start: status.start, ...system }
  }

  return {
    self: Effect.sync(() => identifyUnsafe(procfs.ownPid())!),
    now: Effect.sync(procfs.uptime),
    identify: (pid) => Effect.sync(() => identifyUnsafe(pid)),
    list: (variable) =>
      Effect.sync(() => {
        const processes: Array<RunningProcess> = []
        const seen = new Set<number>()
        // Reading about many takes longer than a process that forks and ends lives: those that came meanwhile count too.
        for (let round = 0; round < listRounds; round++) {
          const fresh = procfs.pids().filter((pid) => !seen.has(pid))
          if (fresh.length === 0) break
          for (const pid of fresh) {
            seen.add(pid)
            const status = procfs.status(pid)
            if (status === undefined) continue
            const { name, ...rest } = status
            processes.push({
              pid,
              ...rest,
              command: procfs.command(pid) || name,
              mark: variable === undefined ? undefined : procfs.variable(pid, variable)
            })
          }
        }
        return processes.map((process) =>
          process.command === ""
            ? { ...process, command: processes.find(({ pid }) => pid === process.parent)?.command ?? "" }
            : process
        )
      }),
    signal: (process, signal) =>
      Effect.sync(() => identifyUnsafe(process.pid)?.start === process.start && procfs.kill(process.pid, signal)),
    signalGroup: (group, signal) => Effect.sync(() => group > 1 && procfs.kill(-group, signal)),
    adoptOrphans: () => Effect.succeed(false)
  }
}
