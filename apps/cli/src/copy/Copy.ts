/**
 * A directory's copy in a sandbox: brought in once, and read again to see what has become of it.
 *
 * The image needs `sh`, `tar`, `find` and `xargs`, and no Git. In the sandbox, under the bridge's own directory:
 *
 *   copy                  which copy it is, written once there is one
 *   copies/<copy>/<name>  the files
 */
import type { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { mkdtempSync, rmSync } from "node:fs"
import * as fs from "node:fs/promises"
import { tmpdir } from "node:os"
import { basename, dirname, join } from "node:path"
import { UsageError } from "../Failure.ts"
import { CopyFailed } from "./CopyFailed.ts"
import * as Files from "./Files.ts"
import * as Tar from "./Tar.ts"
import type { Trees } from "./Trees.ts"

type Live = Sandbox["Service"]

/** A copy that's there. */
export interface Copy {
  readonly id: string
  /** Where it is in the sandbox. */
  readonly directory: string
}

/** The state that was copied, or brought back last. */
export const baseOf = ({ id }: Copy): string => `copies/${id}`

const at = (root: string, id: string, directory: string): Copy => ({
  id,
  directory: `${root}/copies/${id}/${basename(directory) || "files"}`
})

/** The copy of a directory that a sandbox has. */
export const find = Effect.fnUntraced(function*(sandbox: Live, root: string, directory: string) {
  const marker = yield* sandbox.readFile(`${root}/copy`)
  return Option.flatMap(marker, (bytes) => {
    const id = new TextDecoder().decode(bytes).trim()
    return /^[0-9a-f]{12}$/.test(id) ? Option.some(at(root, id, directory)) : Option.none()
  })
})

/** Copies a directory into a sandbox that has no copy yet. Where two do so at once, both get the first one's. */
export const bringIn = Effect.fnUntraced(function*(
  sandbox: Live,
  root: string,
  directory: string,
  trees: Trees
) {
  const there = yield* find(sandbox, root, directory)
  if (Option.isSome(there)) return there.value
  const missing = yield* sandbox.run({ command: ["sh", "-c", lacking, "sh"], timeout: "30 seconds" })
  if (missing.stdout.trim() !== "") {
    return yield* new UsageError({
      problem: `the sandbox has no ${missing.stdout.trim().split("\n").join(" and no ")}, which a copy takes: ` +
        "use an image that has it"
    })
  }
  const entries = yield* Files.read(directory)
  const copy = at(root, crypto.randomUUID().replaceAll("-", "").slice(0, 12), directory)
  yield* trees.keep(baseOf(copy), entries)
  const place = `${root}/copies/${copy.id}`
  yield* sandbox.writeFile(`${place}/copy`, new TextEncoder().encode(`${copy.id}\n`))
  const time = Math.floor((yield* Clock.currentTimeMillis) / 1000)
  yield* sandbox.writeFile(`${place}/files.tar`, Tar.pack(entries, time))
  const { exitCode, stdout } = yield* sandbox.run({
    command: ["sh", "-c", placeScript, "sh", root, place, copy.directory, entries.length === 0 ? "" : "files"],
    timeout: "5 minutes"
  })
  if (exitCode !== 0) {
    return yield* new CopyFailed({
      problem: `the files of ${directory} can't be put into the sandbox: ${stdout.trim()}`
    })
  }
  return Option.getOrElse(yield* find(sandbox, root, directory), () => copy)
})

/** Reads the files of a copy as they are now, without what its files `.gitignore` say, unless it was copied. */
export const readBack = Effect.fnUntraced(function*(sandbox: Live, root: string, copy: Copy, trees: Trees) {
  const place = `${root}/reads/${crypto.randomUUID()}`
  const script = (script: string, ...args: ReadonlyArray<string>) =>
    sandbox.run({ command: ["sh", "-c", script, "sh", copy.directory, place, ...args], timeout: "5 minutes" }).pipe(
      Effect.filterOrFail(({ exitCode }) => exitCode === 0, failed)
    )
  const fetch = Effect.fnUntraced(function*(paths: ReadonlyArray<string>) {
    if (paths.length === 0) return []
    const list = paths.map((path) => `./${path}\0`).join("")
    yield* sandbox.writeFile(`${place}/list`, new TextEncoder().encode(list))
    const { stdout } = yield* script(packScript)
    // An archive has a kilobyte or so besides each file.
    if (Number(stdout.trim()) > Files.limits.bytes + paths.length * 2048) return yield* tooMuch
    const archive = yield* sandbox.readFile(`${place}/archive`)
    if (Option.isNone(archive)) return yield* failed()
    const unpacked = yield* Effect.try({ try: () => Tar.unpack(archive.value), catch: failed })
    const entries = yield* Effect.forEach(paths, (path) => {
      const entry = unpacked.get(`./${path}`)
      return entry === undefined ? failed() : Effect.succeed({ ...entry, path })
    })
    return entries
  })
  const scratch = Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "gangway-"))),
    (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
  )
  return yield* Effect.gen(function*() {
    yield* sandbox.run({ command: ["mkdir", "-p", place], timeout: "30 seconds" })
    yield* script(listScript)
    const listed = yield* sandbox.readFile(`${place}/files`)
    if (Option.isNone(listed)) return yield* failed()
    const paths = yield* Effect.try({
      try: () =>
        new TextDecoder("utf-8", { fatal: true }).decode(listed.value).split("\0").filter((path) => path !== "")
          .map((path) => path.slice("./".length)),
      catch: () => new CopyFailed({ problem: "the sandbox has a file whose name isn't UTF-8" })
    })
    const odd = paths.find((path) => !isPlain(path))
    if (odd !== undefined) return yield* new CopyFailed({ problem: `the sandbox has a file ${JSON.stringify(odd)}` })
    const base = baseOf(copy)
    const workTree = join(yield* scratch, "files")
    yield* attempt(() => fs.mkdir(workTree))
    // First by what was copied: not everything that says what to leave out is itself left in.
    for (const entry of yield* fetch(paths.filter((path) => path === ".gitignore" || path.endsWith("/.gitignore")))) {
      if (entry.mode === "120000") continue
      const file = join(workTree, entry.path)
      yield* attempt(() => fs.mkdir(dirname(file), { recursive: true }))
      yield* attempt(() => fs.writeFile(file, entry.content))
    }
    const ignored = yield* trees.ignored(base, paths, workTree)
    const kept = paths.filter((path) => !ignored.has(path))
    if (kept.length > Files.limits.files) return yield* tooMuch
    return yield* fetch(kept)
  }).pipe(
    Effect.ensuring(Effect.ignore(sandbox.run({ command: ["rm", "-rf", place], timeout: "30 seconds" }))),
    Effect.scoped
  )
})

const attempt = <A>(run: () => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (error) => new CopyFailed({ problem: (error as Error).message }) })

const failed = () =>
  new CopyFailed({
    problem: "the sandbox's files can't be read as they are: its agent may be changing them, so try when it's done"
  })

const tooMuch = new CopyFailed({
  problem: `the sandbox has more than ${Files.limits.files} files or 256 MiB that no .gitignore of its leaves out`
})

// What no agent made by chance, and what must not be written here.
const isPlain = (path: string) =>
  path.split("/").every((name) => !["", ".", "..", ".git", "git~1"].includes(name.toLowerCase()))

const lacking = `for program in tar find xargs; do command -v "$program" >/dev/null 2>&1 || echo "$program"; done`

// Files are their user's, whoever that is. A repository is for the agent: it tells what it changes. The name is taken
// by a link, which fails where it's taken already.
const placeScript = `exec 2>&1
umask 022
root=$1 place=$2 files=$3
mkdir -p "$files" || exit 1
if [ -n "$4" ]; then tar -xof "$place/files.tar" -C "$files" || exit 1; fi
rm -f "$place/files.tar"
if command -v git >/dev/null; then (
  cd "$files" && git init -q && git add -A -f &&
    git -c user.name=gangway -c user.email=gangway@localhost -c commit.gpgSign=false \\
      commit -q --allow-empty -m "As it was copied" || rm -rf "$files/.git"
) >/dev/null; fi
ln "$place/copy" "$root/copy" || { [ -e "$root/copy" ] && rm -rf "$place"; }`

const listScript = `cd "$1" && find . -name .git -prune -o \\( -type f -o -type l \\) -print0 >"$2/files"`

// A long list is several archives, one after the other. GNU's takes what follows a backslash for something else.
const packScript = `cd "$1" && rm -f "$2/archive" && : >"$2/archive" || exit 1
tar --no-unquote --version >/dev/null 2>&1 && unquote=--no-unquote || unquote=
export unquote
xargs -0 sh -c 'to=$0
tar $unquote -cf "$to/part" "$@" && cat "$to/part" >>"$to/archive" && rm -f "$to/part"' "$2" <"$2/list" >/dev/null 2>&1 || exit 1
wc -c <"$2/archive"`
