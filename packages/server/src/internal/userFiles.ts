/**
 * The files of another user, as that user: each operation is a process of theirs.
 *
 * The bridge has more rights than the agent's user, who owns the directories in which a driver reads and writes. Were it
 * to open a path there itself, a link that the agent puts in its place would lead it anywhere: to files that the agent
 * may neither read nor write.
 */
import * as ByteSize from "effect/ByteSize"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as PlatformError from "effect/PlatformError"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"

type Failure = PlatformError.PlatformError

const errorTags: ReadonlyArray<readonly [RegExp, PlatformError.SystemErrorTag]> = [
  [/no such file|nonexistent/i, "NotFound"],
  [/permission denied|operation not permitted/i, "PermissionDenied"],
  [/file exists/i, "AlreadyExists"],
  [/not a directory|is a directory|symbolic link/i, "BadResource"]
]

const failure = (method: string, path: string, said: string): Failure =>
  PlatformError.systemError({
    _tag: errorTags.find(([pattern]) => pattern.test(said))?.[1] ?? "Unknown",
    module: "FileSystem",
    method,
    pathOrDescriptor: path,
    description: said.trim().split("\n", 1)[0]
  })

const unsupported = (method: string) => (): Effect.Effect<never, Failure> =>
  Effect.fail(PlatformError.badArgument({
    module: "FileSystem",
    method,
    description: "isn't done as another user"
  }))

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)
const masked = (mode: number | undefined, all: number): string => (all & ~(mode ?? all)).toString(8)

/** Makes the file system of the user whose processes the spawner starts. */
export const make = (spawner: ChildProcessSpawner["Service"]): FileSystem.FileSystem => {
  /** The output of a script, whose arguments follow it. */
  const output = (
    method: string,
    path: string,
    script: string,
    args: ReadonlyArray<string> = [],
    input?: Uint8Array
  ): Stream.Stream<Uint8Array, Failure> =>
    Stream.unwrap(Effect.gen(function*() {
      const handle = yield* spawner.spawn(ChildProcess.make("sh", ["-c", script, "sh", path, ...args], {
        cwd: "/",
        env: { LC_ALL: "C" },
        extendEnv: true,
        stdin: input === undefined ? "ignore" : Stream.make(input)
      }))
      const said = yield* Effect.forkScoped(handle.stderr.pipe(Stream.decodeText(), Stream.mkString))
      const ended = Effect.flatMap(handle.exitCode, (code) =>
        code === 0
          ? Effect.void
          : Effect.flatMap(said.pipe(Fiber.join), (said) => Effect.fail(failure(method, path, said))))
      return Stream.concat(handle.stdout, Stream.fromEffectDrain(ended))
    }))

  const run = (...args: Parameters<typeof output>) => Stream.mkUint8Array(output(...args))
  const act = (...args: Parameters<typeof output>) => Effect.asVoid(run(...args))
  const say = (...args: Parameters<typeof output>) => Effect.map(run(...args), text)

  const stat = (path: string): Effect.Effect<FileSystem.File.Info, Failure> =>
    Effect.map(say("stat", path, `exec stat -L -c '%f %s %u %g %i %d %h %Y %X' -- "$1"`), toInfo)

  const write = (method: string, path: string, data: Uint8Array, options: {
    readonly flag?: FileSystem.OpenFlag | undefined
    readonly mode?: number | undefined
  } = {}) => {
    const { flag = "w", mode } = options
    // What exists isn't written over where the flag says so.
    const exclusive = flag.includes("x") ? "set -C; " : ""
    return act(
      method,
      path,
      `umask "$2"; ${exclusive}cat ${flag.startsWith("a") && exclusive === "" ? ">>" : ">"} "$1"`,
      [masked(mode, 0o666)],
      data
    )
  }

  const slice = (method: string, path: string, offset: bigint, bytes?: bigint) =>
    bytes === undefined
      ? output(method, path, `exec tail -c "+$2" -- "$1"`, [`${offset + 1n}`])
      : output(method, path, `: <"$1" && tail -c "+$2" -- "$1" | head -c "$3"`, [`${offset + 1n}`, `${bytes}`])

  const open: FileSystem.FileSystem["open"] = Effect.fnUntraced(function*(path, { flag = "r", mode } = {}) {
    if (flag === "r+") return yield* unsupported("open")()
    if (flag === "r") yield* act("open", path, `test -r "$1" || cat -- "$1" >/dev/null`)
    else yield* write("open", path, new Uint8Array(0), { flag, mode })
    let position = 0n
    const read = Effect.fnUntraced(function*(size: number) {
      const bytes = yield* Stream.mkUint8Array(slice("read", path, position, BigInt(size)))
      position += BigInt(bytes.length)
      return bytes
    })
    // Files are only written on at their end, as they are by all that keep a history.
    const writeAll = (data: Uint8Array) => write("write", path, data, { flag: "a" })
    const file: FileSystem.File = {
      [FileSystem.FileTypeId]: FileSystem.FileTypeId,
      stat: stat(path),
      seek: (offset, from) => Effect.sync(() => position = from === "start" ? offset : position + offset),
      sync: act("sync", path, `exec sync -- "$1"`),
      read: (buffer) =>
        Effect.map(read(buffer.length), (bytes) => {
          buffer.set(bytes)
          return bytes.length
        }),
      readAlloc: (size) => Effect.map(read(size), (bytes) => bytes.length === 0 ? Option.none() : Option.some(bytes)),
      truncate: (length = 0) => act("truncate", path, `exec truncate -s "$2" -- "$1"`, [`${length}`]),
      write: (data) => Effect.as(writeAll(data), data.length),
      writeAll
    }
    return file
  })

  const makeTempDirectory: FileSystem.FileSystem["makeTempDirectory"] = ({ directory = "/tmp", prefix = "" } = {}) =>
    Effect.map(
      say("makeTempDirectory", `${directory}/${prefix}XXXXXX`, `exec mktemp -d -- "$1"`),
      (path) => path.trimEnd()
    )

  const remove: FileSystem.FileSystem["remove"] = (path, options) => {
    const flags = `${options?.recursive === true ? " -r" : ""}${options?.force === true ? " -f" : ""}`
    return act("remove", path, `exec rm${flags} -- "$1"`)
  }

  const files = FileSystem.make({
    access: (path, options) =>
      act(
        "access",
        path,
        [
          `stat -L -- "$1" >/dev/null`,
          ...(options?.readable === true ? [`{ test -r "$1" || cat -- "$1" >/dev/null; }`] : []),
          ...(options?.writable === true ? [`{ test -w "$1" || { echo "permission denied" >&2; false; }; }`] : [])
        ].join(" && ")
      ),
    chmod: (path, mode) => act("chmod", path, `exec chmod -- "$2" "$1"`, [mode.toString(8)]),
    chown: unsupported("chown"),
    copy: (from, to) => act("copy", from, `exec cp -RT -- "$1" "$2"`, [to]),
    copyFile: (from, to) => act("copyFile", from, `exec cp -T -- "$1" "$2"`, [to]),
    glob: unsupported("glob"),
    link: (from, to) => act("link", from, `exec ln -T -- "$1" "$2"`, [to]),
    makeDirectory: (path, options) =>
      act(
        "makeDirectory",
        path,
        `umask "$2"; exec mkdir${options?.recursive === true ? " -p" : ""} -- "$1"`,
        [masked(options?.mode, 0o777)]
      ),
    makeTempDirectory,
    makeTempDirectoryScoped: (options) =>
      Effect.acquireRelease(
        makeTempDirectory(options),
        (path) => Effect.ignore(remove(path, { recursive: true, force: true }))
      ),
    makeTempFile: unsupported("makeTempFile"),
    makeTempFileScoped: unsupported("makeTempFileScoped"),
    open,
    readDirectory: (path, options) =>
      Effect.map(
        say(
          "readDirectory",
          path,
          `exec find "$1/" -mindepth 1${options?.recursive === true ? "" : " -maxdepth 1"} -print0`
        ),
        (found) => found.split("\0").filter((entry) => entry !== "").map((entry) => entry.slice(path.length + 1))
      ),
    readFile: (path) => run("readFile", path, `exec cat -- "$1"`),
    readLink: (path) => Effect.map(say("readLink", path, `exec readlink -- "$1"`), (link) => link.slice(0, -1)),
    realPath: (path) => Effect.map(say("realPath", path, `exec realpath -e -- "$1"`), (real) => real.slice(0, -1)),
    remove,
    rename: (from, to) => act("rename", from, `exec mv -fT -- "$1" "$2"`, [to]),
    stat,
    symlink: (from, to) => act("symlink", from, `exec ln -sT -- "$1" "$2"`, [to]),
    truncate: (path, length = 0) => act("truncate", path, `exec truncate -s "$2" -- "$1"`, [`${length}`]),
    utimes: unsupported("utimes"),
    watch: () => Stream.fromEffectDrain(unsupported("watch")()),
    writeFile: (path, data, options) => write("writeFile", path, data, options)
  })
  return {
    ...files,
    stream: (path, options) =>
      slice(
        "stream",
        path,
        options?.offset === undefined ? 0n : ByteSize.fromInputUnsafe(options.offset),
        options?.bytesToRead === undefined ? undefined : ByteSize.fromInputUnsafe(options.bytesToRead)
      )
  }
}

const types: Readonly<Record<number, FileSystem.File.Type>> = {
  0o10: "FIFO",
  0o20: "CharacterDevice",
  0o40: "Directory",
  0o60: "BlockDevice",
  0o100: "File",
  0o120: "SymbolicLink",
  0o140: "Socket"
}

const toInfo = (printed: string): FileSystem.File.Info => {
  const [hex = "", size = "0", ...rest] = printed.trim().split(" ")
  const mode = Number.parseInt(hex, 16)
  const [uid = 0, gid = 0, ino = 0, dev = 0, nlink = 0, mtime = 0, atime = 0] = rest.map(Number)
  return {
    type: types[mode >> 9] ?? "Unknown",
    mode,
    size: ByteSize.fromInputUnsafe(BigInt(size)),
    dev,
    uid: Option.some(uid),
    gid: Option.some(gid),
    ino: Option.some(ino),
    nlink: Option.some(nlink),
    mtime: Option.some(new Date(mtime * 1000)),
    atime: Option.some(new Date(atime * 1000)),
    birthtime: Option.none(),
    rdev: Option.none(),
    blksize: Option.none(),
    blocks: Option.none()
  }
}
