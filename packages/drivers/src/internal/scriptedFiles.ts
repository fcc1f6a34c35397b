/**
 * Files of lines that are only appended to, and are whole again after a crash: what stands after the last newline was
 * never written.
 */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"

export interface LineFile {
  /** Appends text that ends with a newline; `sync` waits until the disk has it. */
  readonly append: (text: string, options: { readonly sync: boolean }) => Effect.Effect<void, PlatformError>
}

const encoder = new TextEncoder()
const newline = 10
const sliceBytes = 64 * 1024

// The bytes up to the last newline.
const wholeBytes = Effect.fnUntraced(function*(file: FileSystem.File) {
  let end: bigint = (yield* file.stat).size
  while (end > 0n) {
    const start = end > BigInt(sliceBytes) ? end - BigInt(sliceBytes) : 0n
    const slice = new Uint8Array(Number(end - start))
    yield* file.seek(start, "start")
    const read = yield* file.read(slice)
    const at = slice.subarray(0, read).lastIndexOf(newline)
    if (at >= 0) return start + BigInt(at) + 1n
    end = start
  }
  return 0n
})

/** Opens the file for appending, made where it's missing, and cuts what a crash left of a line. */
export const open = Effect.fnUntraced(function*(
  path: string
): Effect.fn.Return<LineFile, PlatformError, FileSystem.FileSystem | Path.Path | Scope.Scope> {
  const fs = yield* FileSystem.FileSystem
  const directory = (yield* Path.Path).dirname(path)
  yield* fs.makeDirectory(directory, { recursive: true, mode: 0o700 })
  const existed = yield* fs.exists(path)
  const file = yield* fs.open(path, { flag: "a+", mode: 0o600 })
  const whole = yield* wholeBytes(file)
  if ((yield* file.stat).size > whole) yield* file.truncate(Number(whole))
  // The name is on disk too.
  if (!existed) yield* Effect.scoped(Effect.flatMap(fs.open(directory), (handle) => handle.sync))
  // A line that takes more than one write is not parted.
  const oneAtATime = yield* Semaphore.make(1)
  return {
    append: Effect.fnUntraced(function*(text, { sync }) {
      yield* file.writeAll(encoder.encode(text))
      if (sync) yield* file.sync
    }, (effect) => oneAtATime.withPermit(Effect.uninterruptible(effect)))
  }
})

/** The whole lines of a file. */
export const lines = (path: string): Stream.Stream<string, PlatformError, FileSystem.FileSystem> =>
  Stream.unwrap(Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const whole = yield* Effect.scoped(Effect.flatMap(fs.open(path), wholeBytes))
    return fs.stream(path, { bytesToRead: whole, chunkSize: 1024 * 1024 }).pipe(Stream.decodeText(), Stream.splitLines)
  }))
