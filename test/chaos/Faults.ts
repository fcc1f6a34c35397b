/**
 * Where a bridge kills itself: at a chosen byte of a write of a turn's file, around its sync, or at a step of a rename.
 *
 * The faults of a place are files in a directory, `fault-<n>.json`; each bridge that's launched takes the next one, and
 * leaves `hit-<n>.json` right before it dies.
 */
import { LogFile, type LogWriter } from "@gangway/server/LogFile"
import { Context, Effect, FileSystem, Layer } from "effect"
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { basename, join } from "node:path"

/** A kind of line, or a step around files. */
export type FaultKind = "write" | "end" | "continued" | "header" | "rename" | "link" | "remove"

export interface Fault {
  readonly kind: FaultKind
  /** So many of the kind pass before. */
  readonly skip: number
  /**
   * Of a line: in the middle of the write, before its sync, after it. Of a rename: in the middle of the temporary file,
   * before the rename, after it. Of a link or a removal: before or after it.
   */
  readonly stage: "middle" | "before" | "after"
  /** How much of what's written in the middle is in the file, from 0 to 1. */
  readonly fraction: number
  /** Of a rename, the file that's replaced; any where it's absent. */
  readonly file?: string | undefined
}

/** What a bridge did last. */
export interface Hit extends Fault {
  readonly pid: number
  /** The file, without its directory. */
  readonly target: string
  /** How many bytes of how many were written, in the middle of a write. */
  readonly written?: number | undefined
  readonly of?: number | undefined
}

/** The variable that names the directory of faults. */
export const variable = "GANGWAY_CHAOS"

/** The variable that makes a bridge do without its kernel, as a bridge program of a few lines does. */
export const portableVariable = "GANGWAY_CHAOS_PORTABLE"

/** Plans a fault for a bridge that's launched later. */
export const plan = (directory: string, index: number, fault: Fault | undefined): void =>
  writeFileSync(join(directory, name("fault", index)), JSON.stringify(fault ?? null))

/** The index of the plan that a bridge took. */
export const takenBy = (directory: string, pid: number): number | undefined => {
  const taken = readdirSync(directory).find((file) => file.startsWith("taken-") && file.endsWith(`-${pid}.json`))
  return taken === undefined ? undefined : Number(taken.split("-")[1])
}

/** What was hit, by the index of its plan. */
export const hit = (directory: string, index: number): Hit | undefined => {
  try {
    return JSON.parse(readFileSync(join(directory, name("hit", index)), "utf8"))
  } catch {
    return undefined
  }
}

const name = (what: "fault" | "hit", index: number) => `${what}-${String(index).padStart(4, "0")}.json`

// Two bridges that are launched at once take two.
const take = (directory: string): { readonly index: number; readonly fault: Fault } | undefined => {
  for (const file of readdirSync(directory).sort()) {
    if (!file.startsWith("fault-")) continue
    const index = Number(file.slice("fault-".length, -".json".length))
    const taken = join(directory, `taken-${index}-${process.pid}.json`)
    try {
      renameSync(join(directory, file), taken)
    } catch {
      continue
    }
    const fault = JSON.parse(readFileSync(taken, "utf8")) as Fault | null
    return fault === null ? undefined : { index, fault }
  }
  return undefined
}

const kindOf = (line: Uint8Array): FaultKind => {
  const beginning = new TextDecoder().decode(line.subarray(0, 80))
  if (beginning.startsWith("{\"end\":")) return "end"
  if (beginning.startsWith("{\"format\":")) return "header"
  return beginning.includes("\"part\":{\"type\":\"turn-continued\"") ? "continued" : "write"
}

const make = (fs: FileSystem.FileSystem, files: typeof LogFile.Service) => {
  const directory = process.env[variable]
  const taken = directory === undefined ? undefined : take(directory)
  if (directory === undefined || taken === undefined) return { fs, files }
  const { fault, index } = taken
  let left = fault.skip

  const die = (target: string, written?: number, of?: number) =>
    Effect.sync(() => {
      const hit: Hit = { ...fault, pid: process.pid, target: basename(target), written, of }
      writeFileSync(join(directory, name("hit", index)), JSON.stringify(hit))
      process.kill(process.pid, "SIGKILL")
    }).pipe(Effect.andThen(Effect.never))

  const isNow = (kind: FaultKind, target: string) =>
    fault.kind === kind && (fault.file === undefined || fault.file === basename(target)) && left-- === 0

  const step = <A, E>(kind: FaultKind, target: string, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.suspend(() => {
      if (fault.stage === "middle" || !isNow(kind, target)) return effect
      return fault.stage === "before" ? die(target) : Effect.andThen(effect, die(target))
    })

  // Writes a beginning of the bytes, and dies.
  const tear = <E>(target: string, bytes: Uint8Array, write: (bytes: Uint8Array) => Effect.Effect<unknown, E>) => {
    const count = Math.round(fault.fraction * bytes.length)
    const dies = die(target, count, bytes.length)
    return count === 0 ? dies : Effect.andThen(write(bytes.subarray(0, count)), dies)
  }

  const faultyWriter = (path: string) => (writer: LogWriter): LogWriter => {
    if (!path.endsWith(".ndjson")) return writer
    let dying = false
    return {
      truncate: writer.truncate,
      write: (bytes) =>
        Effect.suspend(() => {
          if (!isNow(kindOf(bytes), path)) return writer.write(bytes)
          if (fault.stage === "middle") return tear(path, bytes, writer.write)
          dying = true
          return writer.write(bytes)
        }),
      sync: Effect.suspend(() => {
        if (!dying) return writer.sync
        return fault.stage === "before" ? die(path) : Effect.andThen(writer.sync, die(path))
      })
    }
  }

  const faultyFs: FileSystem.FileSystem = {
    ...fs,
    rename: (from, to) => step("rename", to, fs.rename(from, to)),
    link: (from, to) => step("link", to, fs.link(from, to)),
    remove: (path, options) => step("remove", path, fs.remove(path, options)),
    open: (path, options) =>
      Effect.map(fs.open(path, options), (file) => {
        // A file that takes another's place is written beside it first, as `<file>.<random>.tmp`.
        const [, target] = /\/((?:session|listening|process)\.json)\.[^./]*\.tmp$/.exec(path) ?? []
        if (target === undefined || fault.stage !== "middle" || !isNow("rename", target)) return file
        return Object.assign(Object.create(file) as FileSystem.File, {
          writeAll: (bytes: Uint8Array) => tear(target, bytes, (some) => file.writeAll(some))
        })
      })
  }

  return {
    fs: faultyFs,
    files: {
      ...files,
      openWriter: (path: string) => Effect.map(files.openWriter(path), faultyWriter(path)),
      create: (path: string) => Effect.map(files.create(path), faultyWriter(path))
    }
  }
}

/** Replaces the files of turns and the file system by those that have the next fault in them. */
export const layer: Layer.Layer<FileSystem.FileSystem, never, FileSystem.FileSystem> = Layer.effectContext(
  Effect.gen(function*() {
    const { files, fs } = make(yield* FileSystem.FileSystem, yield* LogFile)
    return Context.make(FileSystem.FileSystem, fs).pipe(Context.add(LogFile, files))
  })
)
