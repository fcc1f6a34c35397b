/**
 * Another user's processes by what's in their environment, asked as that user: root may not read it in a container,
 * which by default lacks the capability for that.
 */
import * as Effect from "effect/Effect"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"

/** The pids of the processes that have the variable with that value, where they're those of the spawner's user. */
export const marked = (
  spawner: ChildProcessSpawner["Service"],
  variable: string,
  value: string
): Effect.Effect<ReadonlySet<number>> =>
  spawner.string(
    ChildProcess.make(
      "sh",
      ["-c", `exec grep -lzFx -e "$1" /proc/[0-9]*/environ 2>/dev/null`, "sh", `${variable}=${value}`],
      { cwd: "/", extendEnv: true, stdin: "ignore" }
    )
  ).pipe(
    Effect.map((paths) => new Set(Array.from(paths.matchAll(/\d+/g), ([pid]) => Number(pid)))),
    Effect.orElseSucceed(() => new Set<number>())
  )
