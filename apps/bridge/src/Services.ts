/**
 * The services of the bridge program. `BunServices` has more of them at once, which makes each start longer.
 *
 * @since 0.1.0
 */
import * as BunCrypto from "@effect/platform-bun/BunCrypto"
import * as BunFileSystem from "@effect/platform-bun/BunFileSystem"
import * as BunPath from "@effect/platform-bun/BunPath"
import type * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
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
> = Layer.merge(stdio, Layer.provideMerge(spawner, Layer.mergeAll(BunCrypto.layer, BunFileSystem.layer, BunPath.layer)))
