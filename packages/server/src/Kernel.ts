/**
 * What a bridge program that runs on Bun asks of its kernel beyond the portable services: to adopt orphans, to lock
 * sessions, to write turns without a detour, and to keep its memory from other processes of its user.
 *
 * Nothing else of this package loads it, nor what it calls: it's for Bun alone, whose `bun:ffi` reaches the C library.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as kernelLock from "./internal/kernel/kernelLock.ts"
import * as kernelProcessTable from "./internal/kernel/kernelProcessTable.ts"
import * as libc from "./internal/kernel/libc.ts"
import { synchronousLogFile } from "./internal/kernel/synchronousLogFile.ts"
import { LogFile } from "./LogFile.ts"
import { ProcessTable } from "./ProcessTable.ts"
import { SessionLocks } from "./SessionLock.ts"

/**
 * Synchronous files, and the kernel's process table and locks; the portable ones of these, after a warning, where the C
 * library can't be called. Build it before the launch line is read: from then on no other process of this user can read
 * this one's memory.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<never> = Layer.effectContext(Effect.gen(function*() {
  const files = Context.make(LogFile, synchronousLogFile)
  const library = yield* libc.load
  if (library === undefined) {
    yield* Effect.logWarning("The C library can't be called: orphans of agents are found by their environment only.")
    return files
  }
  if (library.prctl(PR_SET_DUMPABLE, 0) !== 0) {
    yield* Effect.logWarning("Other processes of this user can read the bridge's memory.")
  }
  return Context.add(files, ProcessTable, yield* kernelProcessTable.make(library)).pipe(
    Context.add(SessionLocks, kernelLock.make(library))
  )
}))

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const PR_SET_DUMPABLE = 4
