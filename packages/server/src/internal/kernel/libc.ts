/**
 * The few calls of the C library that no service offers.
 */
import { dlopen, FFIType, read } from "bun:ffi"
import * as Effect from "effect/Effect"
import * as Fs from "node:fs"

/** What the bridge calls. */
export interface Libc {
  /** Sets an option of this process; 0 is success. */
  readonly prctl: (option: number, value: number) => number
  /** Takes the exit status of a child that has ended, without waiting; its pid is success. */
  readonly reap: (pid: number) => number
  /** Locks an open file; 0 is success, otherwise `errno` says why not. */
  readonly flock: (descriptor: number, operation: number) => number
  readonly errno: () => number
}

/**
 * The C library of this process; `undefined` where it can't be called: another system, or a sandbox that forbids what
 * it takes.
 */
export const load: Effect.Effect<Libc | undefined> = Effect.sync(() => {
  if (process.platform !== "linux") return undefined
  for (const name of names()) {
    try {
      const { symbols } = dlopen(name, {
        prctl: { args: [FFIType.i32, FFIType.u64, FFIType.u64, FFIType.u64, FFIType.u64], returns: FFIType.i32 },
        waitpid: { args: [FFIType.i32, FFIType.ptr, FFIType.i32], returns: FFIType.i32 },
        flock: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 },
        __errno_location: { args: [], returns: FFIType.ptr }
      })
      return {
        prctl: (option, value) => symbols.prctl(option, value, 0, 0, 0),
        reap: (pid) => symbols.waitpid(pid, null, WNOHANG),
        flock: (descriptor, operation) => symbols.flock(descriptor, operation),
        errno: () => read.i32(symbols.__errno_location()!, 0)
      }
    } catch {
      // The next name.
    }
  }
  return undefined
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const WNOHANG = 1

/** The library that this process runs on comes first: a second C library beside it would have a state of its own. */
const names = (): ReadonlyArray<string> => {
  const known = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"]
  try {
    const loaded = /(\/\S*\/(?:libc\.so\.6|libc-2\.\d+\.so|ld-musl-\w+\.so\.1))$/m.exec(
      Fs.readFileSync("/proc/self/maps", "utf8")
    )
    return loaded === null ? known : [loaded[1]!]
  } catch {
    return known
  }
}
