/**
 * The state directory's small files by plain system calls: each is done sooner than a thread is asked to, and a bridge
 * makes some thirty before it listens. Syncing waits for a disk, so that's left to a thread once hosts may wait too.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as PlatformError from "effect/PlatformError"
import * as Fs from "node:fs"

/**
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /** Whether somebody may be waiting: until then, nothing is done while the disk is waited for, and no thread is made. */
  readonly isServing: () => boolean
}

/**
 * A file system that a program waits for: only for small files on a local disk, as those of a state directory are.
 * What `StateDirectory` doesn't use is asked of the other one, and its open files are only written and synced.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (other: FileSystem.FileSystem, { isServing }: Options): FileSystem.FileSystem =>
  FileSystem.make({
    ...other,
    access: (path, options) =>
      call("access", path, () =>
        Fs.accessSync(
          path,
          (options?.readable === true ? Fs.constants.R_OK : 0) | (options?.writable === true ? Fs.constants.W_OK : 0)
        )),
    chmod: (path, mode) => call("chmod", path, () => Fs.chmodSync(path, mode)),
    link: (from, to) => call("link", from, () => Fs.linkSync(from, to)),
    makeDirectory: (path, options) => call("makeDirectory", path, () => void Fs.mkdirSync(path, options)),
    open: (path, options) =>
      Effect.map(
        Effect.acquireRelease(
          call("open", path, () => Fs.openSync(path, options?.flag ?? "r", options?.mode)),
          (descriptor) => Effect.sync(() => Fs.closeSync(descriptor))
        ),
        (descriptor) => toFile(descriptor, isServing)
      ),
    readDirectory: (path, options) =>
      options?.recursive === true
        ? other.readDirectory(path, options)
        : call("readDirectory", path, () => Fs.readdirSync(path)),
    readFile: (path) => call("readFile", path, () => new Uint8Array(Fs.readFileSync(path))),
    readLink: (path) => call("readLink", path, () => Fs.readlinkSync(path)),
    realPath: (path) => call("realPath", path, () => Fs.realpathSync(path)),
    remove: (path, options) => call("remove", path, () => Fs.rmSync(path, options)),
    rename: (from, to) => call("rename", from, () => Fs.renameSync(from, to))
  })

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

const tags: Record<string, PlatformError.SystemErrorTag> = {
  EACCES: "PermissionDenied",
  EEXIST: "AlreadyExists",
  ENOENT: "NotFound",
  EPERM: "PermissionDenied"
}

const failure = (method: string, path: string | number, cause: unknown) =>
  PlatformError.systemError({
    _tag: tags[(cause as { readonly code?: string }).code ?? ""] ?? "Unknown",
    module: "FileSystem",
    method,
    pathOrDescriptor: path,
    cause
  })

const call = <A>(method: string, path: string | number, run: () => A): Effect.Effect<A, PlatformError.PlatformError> =>
  Effect.try({ try: run, catch: (cause) => failure(method, path, cause) })

// Not interrupted: the descriptor is in use until it's done.
const syncInThread = (descriptor: number) =>
  Effect.uninterruptible(
    Effect.callback<void, PlatformError.PlatformError>((resume) =>
      Fs.fsync(
        descriptor,
        (error) => resume(error === null ? Effect.void : Effect.fail(failure("sync", descriptor, error)))
      )
    )
  )

const toFile = (descriptor: number, isServing: Options["isServing"]): FileSystem.File => {
  const write = (bytes: Uint8Array) => call("write", descriptor, () => Fs.writeSync(descriptor, bytes))
  const unsupported = (method: string) =>
    Effect.fail(PlatformError.badArgument({ module: "FileSystem", method, description: "the file is only written" }))
  return {
    [FileSystem.FileTypeId]: FileSystem.FileTypeId,
    write,
    writeAll: (bytes) =>
      Effect.suspend(() => {
        let rest = bytes
        return Effect.whileLoop({
          while: () => rest.length > 0,
          body: () => write(rest),
          step: (written) => {
            rest = rest.subarray(written)
          }
        })
      }),
    sync: Effect.suspend(() =>
      isServing() ? syncInThread(descriptor) : call("sync", descriptor, () => Fs.fsyncSync(descriptor))
    ),
    stat: unsupported("stat"),
    seek: () => unsupported("seek"),
    read: () => unsupported("read"),
    readAlloc: () => unsupported("readAlloc"),
    truncate: () => unsupported("truncate")
  }
}
