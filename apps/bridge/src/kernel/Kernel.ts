/**
 * What the bridge program asks of its kernel beyond the portable services: to adopt orphans, to lock sessions, to write
 * turns without a detour, and to keep its memory from other processes of its user.
 *
 * @since 0.1.0
 */
import { LogFile } from "@gangway/server/LogFile"
import { ProcessTable } from "@gangway/server/ProcessTable"
import { SessionLocks } from "@gangway/server/SessionLock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as KernelLock from "./KernelLock.ts"
import * as KernelProcessTable from "./KernelProcessTable.ts"
import * as Libc from "./Libc.ts"
import { synchronousLogFile } from "./SynchronousLogFile.ts"

/**
 * Synchronous files, and the kernel's process table and locks; the portable ones of these, after a warning, where the C library can't be called. Build
 * it before the launch line is read: from then on no other process of this user can read this one's memory.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<never> = Layer.effectContext(Effect.gen(function*() {
  const files = Context.make(LogFile, synchronousLogFile)
  const libc = yield* Libc.load
  if (libc === undefined) {
    yield* Effect.logWarning("The C library can't be called: orphans of agents are found by their environment only.")
    return files
  }
  if (libc.prctl(PR_SET_DUMPABLE, 0) !== 0) {
    yield* Effect.logWarning("Other processes of this user can read the bridge's memory.")
  }
  return Context.add(files, ProcessTable, yield* KernelProcessTable.make(libc)).pipe(
    Context.add(SessionLocks, KernelLock.make(libc))
  )
}))

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const PR_SET_DUMPABLE = 4
