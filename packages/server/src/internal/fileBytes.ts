/**
 * Reading and writing all of some bytes, where the system may do less at once.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { LogFileError, type LogReader, type LogWriter } from "../LogFile.ts"

/** Reads until the buffer is full or the file ends, and returns the number of bytes. */
export const readFully = (
  reader: LogReader,
  buffer: Uint8Array,
  offset: number,
  done: number = 0
): Effect.Effect<number, LogFileError> =>
  Effect.flatMap(reader.read(done === 0 ? buffer : buffer.subarray(done), offset + done), (count) => {
    const total = done + count
    return count === 0 || total === buffer.length
      ? Effect.succeed(total)
      : readFully(reader, buffer, offset, total)
  })

/** Writes all of the bytes; where that fails, `written` says how many of them are in the file. */
export const writeFully = Effect.fnUntraced(function*(writer: LogWriter, bytes: Uint8Array) {
  let written = 0
  while (written < bytes.length) {
    const count = yield* Effect.result(writer.write(written === 0 ? bytes : bytes.subarray(written)))
    if (Result.isFailure(count)) return { written, error: count.failure }
    if (count.success === 0) {
      return { written, error: new LogFileError({ kind: "unknown", problem: "write: nothing was written" }) }
    }
    written += count.success
  }
  return { written, error: undefined }
})

/** Writes all of the bytes, or fails. */
export const writeWhole = Effect.fnUntraced(function*(writer: LogWriter, bytes: Uint8Array) {
  const { error } = yield* writeFully(writer, bytes)
  if (error !== undefined) return yield* error
})
