/**
 * The services of the bridge program. `BunServices` has more of them at once, which makes each start longer.
 *
 * @since 0.1.0
 */
import * as BunPath from "@effect/platform-bun/BunPath"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import type * as Path from "effect/Path"
import * as PlatformError from "effect/PlatformError"
import * as Sink from "effect/Sink"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import * as ChildProcessSpawner from "effect/unstable/process/ChildProcessSpawner"

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

// Making Node's stream of standard input takes longer than all that's read from this one.
const stdio = Layer.succeed(
  Stdio.Stdio,
  Stdio.make({
    args: Effect.succeed([]),
    stdin: Stream.fromReadableStream({
      evaluate: () => Bun.stdin.stream(),
      onError: (cause) => PlatformError.systemError({ _tag: "Unknown", module: "Stdio", method: "stdin", cause }),
      // What comes after the launch line is left where it is.
      releaseLockOnEnd: true
    }),
    stdout: () => Sink.drain,
    stderr: () => Sink.drain
  })
)

// Web Crypto is a global; loading Node's takes longer than a bridge does to listen.
const crypto = Layer.succeed(
  Crypto.Crypto,
  Crypto.make({
    randomBytes: (size) => globalThis.crypto.getRandomValues(new Uint8Array(size)),
    digest: (algorithm, data) =>
      Effect.tryPromise({
        try: async () => new Uint8Array(await globalThis.crypto.subtle.digest(algorithm, new Uint8Array(data))),
        catch: (cause) => PlatformError.systemError({ _tag: "Unknown", module: "Crypto", method: "digest", cause })
      })
  })
)

// Loaded, with Node's crypto, by whoever asks it something first: `SynchronousFiles` has what a start takes.
const files = Layer.effect(
  FileSystem.FileSystem,
  Effect.map(
    Effect.cached(
      Effect.promise(() => import("@effect/platform-bun/BunFileSystem")).pipe(
        Effect.flatMap(({ layer }) => Effect.provide(FileSystem.FileSystem, layer))
      )
    ),
    (loaded) => {
      const use = <A, E, R>(call: (fs: FileSystem.FileSystem) => Effect.Effect<A, E, R>) => Effect.flatMap(loaded, call)
      return FileSystem.make({
        access: (...args) => use((fs) => fs.access(...args)),
        chmod: (...args) => use((fs) => fs.chmod(...args)),
        chown: (...args) => use((fs) => fs.chown(...args)),
        copy: (...args) => use((fs) => fs.copy(...args)),
        copyFile: (...args) => use((fs) => fs.copyFile(...args)),
        glob: (...args) => use((fs) => fs.glob(...args)),
        link: (...args) => use((fs) => fs.link(...args)),
        makeDirectory: (...args) => use((fs) => fs.makeDirectory(...args)),
        makeTempDirectory: (...args) => use((fs) => fs.makeTempDirectory(...args)),
        makeTempDirectoryScoped: (...args) => use((fs) => fs.makeTempDirectoryScoped(...args)),
        makeTempFile: (...args) => use((fs) => fs.makeTempFile(...args)),
        makeTempFileScoped: (...args) => use((fs) => fs.makeTempFileScoped(...args)),
        open: (...args) => use((fs) => fs.open(...args)),
        readDirectory: (...args) => use((fs) => fs.readDirectory(...args)),
        readFile: (...args) => use((fs) => fs.readFile(...args)),
        readLink: (...args) => use((fs) => fs.readLink(...args)),
        realPath: (...args) => use((fs) => fs.realPath(...args)),
        remove: (...args) => use((fs) => fs.remove(...args)),
        rename: (...args) => use((fs) => fs.rename(...args)),
        stat: (...args) => use((fs) => fs.stat(...args)),
        symlink: (...args) => use((fs) => fs.symlink(...args)),
        truncate: (...args) => use((fs) => fs.truncate(...args)),
        utimes: (...args) => use((fs) => fs.utimes(...args)),
        watch: (...args) => Stream.unwrap(Effect.map(loaded, (fs) => fs.watch(...args))),
        writeFile: (...args) => use((fs) => fs.writeFile(...args))
      })
    }
  )
)

// Loaded with the first agent.
const spawner = Layer.effect(
  ChildProcessSpawner.ChildProcessSpawner,
  Effect.gen(function*() {
    const context = yield* Effect.context<FileSystem.FileSystem | Path.Path>()
    const loaded = yield* Effect.cached(
      Effect.promise(() => import("@effect/platform-bun/BunChildProcessSpawner")).pipe(
        Effect.flatMap(({ layer }) => Effect.provide(ChildProcessSpawner.ChildProcessSpawner, layer)),
        Effect.provideContext(context)
      )
    )
    return ChildProcessSpawner.make((command) => Effect.flatMap(loaded, ({ spawn }) => spawn(command)))
  })
)

/**
 * The files, the paths, the randomness, the standard input and the processes of the system. Nothing is written to
 * standard output.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<
  ChildProcessSpawner.ChildProcessSpawner | Crypto.Crypto | FileSystem.FileSystem | Path.Path | Stdio.Stdio
> = Layer.merge(stdio, Layer.provideMerge(spawner, Layer.mergeAll(crypto, files, BunPath.layer)))
