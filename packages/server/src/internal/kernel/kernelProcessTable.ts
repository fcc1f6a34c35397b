/**
 * The process table of a bridge that adopts its descendants' orphans. It looks into `/proc` in one step with the reaping
 * that rests on it, as the runtime may take an exit status in between.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Fs from "node:fs"
import * as ProcessTable from "../../ProcessTable.ts"
import type { Libc } from "./libc.ts"

/** Makes the table. While the scope is open, children that nobody else waits for are reaped when they end. */
export const make = Effect.fnUntraced(function*(
  libc: Libc
): Effect.fn.Return<ProcessTable.ProcessTable, never, Scope.Scope> {
  let sightings = new Map<string, number>()
  const reap = Effect.sync(() => {
    const seen = new Map<string, number>()
    for (const { key, pid } of endedChildren()) {
      const count = (sightings.get(key) ?? 0) + 1
      // The runtime takes the exit status of the children it started as soon as its event loop turns, and must find
      // it. One that's still there after two whole turns is nobody's.
      if (count < 3) seen.set(key, count)
      else libc.reap(pid)
    }
    sightings = seen
  })
  yield* reap.pipe(Effect.delay("1 second"), Effect.forever, Effect.forkScoped)

  let adopts: boolean | undefined
  return {
    ...ProcessTable.portable,
    adoptOrphans: (variable) =>
      Effect.sync(() => {
        adopts ??= libc.prctl(PR_SET_CHILD_SUBREAPER, 1) === 0
        if (adopts) process.env[variable] = "bridge"
        return adopts
      })
  }
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const PR_SET_CHILD_SUBREAPER = 36

/** This process's children that have ended and weren't waited for. */
const endedChildren = (): ReadonlyArray<{ readonly pid: number; readonly key: string }> =>
  children().flatMap((pid) => {
    const stat = readText(`/proc/${pid}/stat`)
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    return fields[0] === "Z" && Number(fields[1]) === process.pid ? [{ pid, key: `${pid}:${fields[19]}` }] : []
  })

const children = (): ReadonlyArray<number> => {
  const threads = readNames("/proc/self/task")
  // Each thread has those that it started, and one of them those that came from elsewhere.
  return Fs.existsSync(`/proc/self/task/${process.pid}/children`)
    ? threads.flatMap((thread) =>
      readText(`/proc/self/task/${thread}/children`).split(" ").filter((pid) => pid !== "").map(Number)
    )
    : readNames("/proc").filter((name) => /^\d+$/.test(name)).map(Number)
}

const readText = (path: string): string => {
  try {
    return Fs.readFileSync(path, "latin1")
  } catch {
    // It has ended meanwhile.
    return ""
  }
}

const readNames = (path: string): ReadonlyArray<string> => {
  try {
    return Fs.readdirSync(path)
  } catch {
    return []
  }
}
