/**
 * Locks that the kernel frees when their holder ends. A descriptor that is locked is what Effect's files don't show.
 */
import { LogUnavailable } from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as Fs from "node:fs"
import type { KernelLock } from "../../SessionLock.ts"
import type { Libc } from "./libc.ts"

/** Makes locks of `flock`. */
export const make = (libc: Libc): KernelLock => ({
  tryLock: (path) =>
    Effect.acquireRelease(
      Effect.try({ try: () => lock(libc, path), catch: (error) => new LogUnavailable({ problem: problemOf(error) }) }),
      (descriptor) => descriptor === undefined ? Effect.void : Effect.sync(() => Fs.closeSync(descriptor))
    ).pipe(Effect.map((descriptor) => descriptor !== undefined))
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const LOCK_EX = 2
const LOCK_NB = 4
const EAGAIN = 11

/** The locked descriptor, which is closed on exec; `undefined` where another has the lock. */
const lock = (libc: Libc, path: string): number | undefined => {
  while (true) {
    const descriptor = Fs.openSync(path, Fs.constants.O_RDWR | Fs.constants.O_CREAT | Fs.constants.O_NOFOLLOW, 0o600)
    let locked = false
    try {
      if (libc.flock(descriptor, LOCK_EX | LOCK_NB) !== 0) {
        const errno = libc.errno()
        if (errno === EAGAIN) return undefined
        throw Object.assign(new Error(), { code: `flock: errno ${errno}` })
      }
      // The file may have been removed, and made anew, between its opening and its locking.
      const ours = Fs.fstatSync(descriptor, { bigint: true })
      const named = Fs.statSync(path, { bigint: true, throwIfNoEntry: false })
      locked = named !== undefined && named.ino === ours.ino && named.dev === ours.dev
      if (locked) return descriptor
    } finally {
      if (!locked) Fs.closeSync(descriptor)
    }
  }
}

const problemOf = (error: unknown): string =>
  `lock: ${typeof error === "object" && error !== null && "code" in error ? String(error.code) : "unknown"}`
