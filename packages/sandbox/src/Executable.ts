/**
 * A program as one file, brought into a sandbox once: such as the bridge that's to run there.
 *
 * @since 0.1.0
 */
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import type * as PlatformError from "effect/PlatformError"
import * as Schema from "effect/Schema"
import { Sandbox, type SandboxError } from "./Sandbox.ts"

/**
 * A kind of Linux that one build runs on.
 *
 * @category models
 * @since 0.1.0
 */
export interface Target {
  readonly machine: "x64" | "arm64"
  readonly libc: "glibc" | "musl"
}

/**
 * What is installed, and where.
 *
 * @category options
 * @since 0.1.0
 */
export interface InstallOptions<E, R> {
  /** The file's name, after which its checksum is put. */
  readonly name: string
  /** Its directory in the sandbox, an absolute path; made where it's missing. */
  readonly directory: string
  /** The build for a target; `None` where there is none. */
  readonly build: (target: Target) => Effect.Effect<Option.Option<Uint8Array>, E, R>
}

/**
 * No build runs in the sandbox.
 *
 * @remedy Use a sandbox of Linux on x64 or arm64, or give a build for what it can run.
 * @category errors
 * @since 0.1.0
 */
export class NoBuild extends Schema.TaggedError<NoBuild>()("NoBuild", {
  name: Schema.String,
  /** What the sandbox could run, in words. */
  targets: Schema.Array(Schema.String)
}) {
  override get message() {
    return this.targets.length === 0
      ? `${this.name} can't run there: it takes Linux on x64 or arm64, with glibc or musl`
      : `there's no build of ${this.name} for ${this.targets.join(" or ")}`
  }
}

/**
 * A target in words, such as `linux-x64-musl`, as Bun names what it compiles for.
 *
 * @category converting
 * @since 0.1.0
 */
export const toName = ({ libc, machine }: Target): string => `linux-${machine}${libc === "musl" ? "-musl" : ""}`

/**
 * What the sandbox can run, the likeliest first: the loaders that it has. It's asked by `sh` alone.
 *
 * @category constructors
 * @since 0.1.0
 */
export const targets: Effect.Effect<ReadonlyArray<Target>, SandboxError, Sandbox> = Effect.gen(function*() {
  const { run } = yield* Sandbox
  const { stdout } = yield* run({ command: ["sh", "-c", findLoaders, "sh"], timeout: "30 seconds" })
  const lines = stdout.split("\n")
  const found = loaders.filter(([path]) => lines.includes(path)).map(([, target]) => target)
  // What imitates glibc on such a system runs less than what is its own.
  return lines.includes("alpine") ? found.sort((a, b) => rank(a) - rank(b)) : found
})

/**
 * Puts the build that fits the sandbox into it, unless it's there already, whole, and gives its path.
 *
 * @category constructors
 * @since 0.1.0
 */
export const install = Effect.fnUntraced(function*<E, R>(
  options: InstallOptions<E, R>
): Effect.fn.Return<
  string,
  SandboxError | NoBuild | PlatformError.PlatformError | E,
  Sandbox | Crypto.Crypto | R
> {
  const { run, writeFile } = yield* Sandbox
  const crypto = yield* Crypto.Crypto
  const fitting = yield* targets
  for (const target of fitting) {
    const build = yield* options.build(target)
    if (Option.isNone(build)) continue
    const content = build.value
    const sum = Encoding.encodeHex(yield* crypto.digest("SHA-256", content))
    const path = `${options.directory}/${options.name}-${sum.slice(0, 16)}`
    const { exitCode } = yield* run({
      command: ["sh", "-c", isThere, "sh", path, sum, String(content.length)],
      timeout: "1 minute"
    })
    if (exitCode !== 0) yield* writeFile(path, content, 0o755)
    return path
  }
  return yield* new NoBuild({ name: options.name, targets: fitting.map(toName) })
})

const rank = ({ libc }: Target) => libc === "musl" ? 0 : 1

// The paths that builds name as their loader.
const loaders: ReadonlyArray<readonly [path: string, target: Target]> = [
  ["/lib64/ld-linux-x86-64.so.2", { machine: "x64", libc: "glibc" }],
  ["/lib/ld-linux-aarch64.so.1", { machine: "arm64", libc: "glibc" }],
  ["/lib/ld-musl-x86_64.so.1", { machine: "x64", libc: "musl" }],
  ["/lib/ld-musl-aarch64.so.1", { machine: "arm64", libc: "musl" }]
]

const findLoaders = `${
  loaders.map(([path]) => `[ -e ${path} ] && echo ${path}`).join("\n")
}\n[ -e /etc/alpine-release ] && echo alpine\n:`

// Where nothing makes checksums, the name holds one already, and the size says whether all of it is there.
const isThere = `[ -x "$1" ] || exit 1
if command -v sha256sum >/dev/null 2>&1; then s=$(sha256sum <"$1") && [ "\${s%% *}" = "$2" ]
else [ "$(wc -c <"$1")" -eq "$3" ]; fi`
