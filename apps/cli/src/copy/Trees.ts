/**
 * The states of a copied directory, in a Git repository of the command line's own, that has no work tree: what was
 * copied, what is in the sandbox, what is here. Files are in it byte for byte, whatever the user's Git is set to.
 */
import * as Effect from "effect/Effect"
import { existsSync, lstatSync } from "node:fs"
import { join } from "node:path"
import { UsageError } from "../Failure.ts"
import { CopyFailed } from "./CopyFailed.ts"
import type { Entry } from "./Tar.ts"

/** How a file of one state is in another. */
export interface Change {
  readonly path: string
  /** The blob that it was; absent where there was none before. */
  readonly from?: string | undefined
  /** Absent where the file is deleted. */
  readonly to?: { readonly mode: Entry["mode"]; readonly blob: string } | undefined
  /** Whether there was none before. */
  readonly isNew: boolean
}

export interface Trees {
  /** Keeps files as a state, and names it; what they came of is the state they are merged from. */
  readonly keep: (
    name: string,
    entries: ReadonlyArray<Entry>,
    from?: string
  ) => Effect.Effect<void, CopyFailed | UsageError>
  readonly has: (name: string) => Effect.Effect<boolean, CopyFailed | UsageError>
  /** Names a state anew. */
  readonly rename: (from: string, to: string) => Effect.Effect<void, CopyFailed | UsageError>
  readonly drop: (name: string) => Effect.Effect<void>
  /** How one becomes the other, as a patch that `git apply` takes. */
  readonly patch: (from: string, to: string) => Effect.Effect<Uint8Array, CopyFailed | UsageError>
  readonly changes: (from: string, to: string) => Effect.Effect<ReadonlyArray<Change>, CopyFailed | UsageError>
  /** What both have made of the state that both came of, or the files where they don't agree. */
  readonly merge: (
    one: string,
    other: string
  ) => Effect.Effect<
    { readonly tree: string } | { readonly conflicts: ReadonlyArray<string> },
    CopyFailed | UsageError
  >
  readonly content: (blob: string) => Effect.Effect<Uint8Array, CopyFailed | UsageError>
  /** Those of the paths that the state's own files `.gitignore`, or the given ones, say to leave out. */
  readonly ignored: (
    name: string,
    paths: ReadonlyArray<string>,
    workTree: string
  ) => Effect.Effect<ReadonlySet<string>, CopyFailed | UsageError>
}

/** The repository in a directory, which is made where it's missing. */
export const open = Effect.fnUntraced(function*(directory: string) {
  const git = (args: ReadonlyArray<string>, options: Omit<RunOptions, "env"> = {}) =>
    run(["--git-dir", directory, ...settings, ...args], { ...options, env: isolated })
  yield* run(["init", "--quiet", "--bare", directory], { env: isolated })

  const trees: Trees = {
    keep: (name, entries, from) =>
      Effect.asVoid(git(["fast-import", "--quiet", "--force", "--date-format=raw"], {
        stdin: importStream(ref(name), entries, from === undefined ? undefined : ref(from))
      })),
    has: (name) =>
      Effect.map(
        git(["rev-parse", "--verify", "--quiet", ref(name)], { codes: [0, 1] }),
        ({ exitCode }) => exitCode === 0
      ),
    rename: (from, to) => Effect.asVoid(git(["update-ref", ref(to), ref(from)])),
    drop: (name) => Effect.ignore(git(["update-ref", "-d", ref(name)])),
    patch: (from, to) =>
      Effect.map(
        git(["diff", "--binary", "--full-index", "--find-renames", "--no-color", ref(from), ref(to)]),
        ({ stdout }) => stdout
      ),
    changes: (from, to) =>
      Effect.map(
        git(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", treeish(from), treeish(to)]),
        ({ stdout }) => {
          const words = split(stdout)
          const changes: Array<Change> = []
          for (let i = 0; i + 1 < words.length; i += 2) {
            const [, mode, from, blob, status] = words[i]!.split(" ")
            const to = { mode: mode as Entry["mode"], blob: blob! }
            changes.push({
              path: words[i + 1]!,
              isNew: status === "A",
              ...(status === "A" ? {} : { from: from! }),
              ...(status === "D" ? {} : { to })
            })
          }
          return changes
        }
      ),
    merge: Effect.fnUntraced(function*(one, other) {
      const { exitCode, stdout } = yield* git(
        ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ref(one), ref(other)],
        { codes: [0, 1] }
      )
      const [tree, ...conflicts] = split(stdout)
      return exitCode === 0 ? { tree: tree! } : { conflicts }
    }),
    content: (blob) => Effect.map(git(["cat-file", "blob", blob]), ({ stdout }) => stdout),
    ignored: Effect.fnUntraced(function*(name, paths, workTree) {
      if (paths.length === 0) return new Set<string>()
      const at = ["--work-tree", workTree]
      // What's in the index, which is of that work tree, isn't left out.
      const env = { GIT_INDEX_FILE: `${workTree}.index` }
      yield* git([...at, "read-tree", ref(name)], { cwd: workTree, more: env })
      const { stdout } = yield* git([...at, "check-ignore", "-z", "--stdin"], {
        cwd: workTree,
        more: env,
        stdin: [Buffer.from(paths.map((path) => `${path}\0`).join(""))],
        codes: [0, 1]
      })
      return new Set(split(stdout))
    })
  }
  return trees
})

/**
 * The files that Git has in a directory, tracked or not ignored, with those of the repositories in it, as submodules are;
 * `undefined` where there's no repository.
 */
export const listFiles: (
  directory: string
) => Effect.Effect<ReadonlyArray<string> | undefined, CopyFailed | UsageError> = Effect.fnUntraced(function*(
  directory: string
) {
  const inside = yield* run(["-C", directory, "rev-parse", "--is-inside-work-tree"], { codes: [0, 128] })
  if (inside.stderr.includes("dubious ownership")) {
    return yield* new UsageError({ problem: `${directory} is another user's repository, as Git says` })
  }
  if (inside.stdout.toString().trim() !== "true") return undefined
  const listed = yield* run(["-C", directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], {})
  const paths = yield* Effect.forEach(new Set(split(listed.stdout)), (listed) => {
    // One that nobody has added has a slash behind it.
    const path = listed.replace(/\/$/, "")
    const inner = join(directory, path)
    const isDirectory = lstatSync(inner, { throwIfNoEntry: false })?.isDirectory() === true
    return isDirectory && existsSync(join(inner, ".git"))
      ? Effect.map(listFiles(inner), (files = []) => files.map((file) => `${path}/${file}`))
      : Effect.succeed([path])
  })
  return paths.flat()
})

// Nothing of the user's or the system's settings counts for the states.
const isolated = { GIT_CONFIG_NOSYSTEM: "1", GIT_CONFIG_GLOBAL: "/dev/null", GIT_ATTR_NOSYSTEM: "1" }
const settings = [
  ["core.quotePath", "false"],
  ["core.excludesFile", ""],
  ["core.attributesFile", ""],
  ["merge.directoryRenames", "false"],
  ["diff.renameLimit", "1000"],
  ["gc.auto", "0"]
].flatMap(([name, value]) => ["-c", `${name}=${value}`])

interface RunOptions {
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  readonly more?: Readonly<Record<string, string>>
  readonly stdin?: ReadonlyArray<Uint8Array>
  /** The exit codes that are no failure; 0. */
  readonly codes?: ReadonlyArray<number>
}

// A hook or an outer `git` may have set these for another repository.
const foreign = /^GIT_(DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|NAMESPACE)$/

const run = (args: ReadonlyArray<string>, { codes = [0], cwd, env, more, stdin = [] }: RunOptions) =>
  Effect.tryPromise({
    try: async (signal) => {
      const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !foreign.test(name)))
      const child = Bun.spawn(["git", ...args], {
        ...(cwd === undefined ? {} : { cwd }),
        env: { ...own, LC_ALL: "C", ...env, ...more },
        stdin: new Blob(stdin as Array<Uint8Array<ArrayBuffer>>),
        stdout: "pipe",
        stderr: "pipe",
        signal
      })
      const [stdout, stderr, exitCode] = await Promise.all([
        new Response(child.stdout).bytes(),
        new Response(child.stderr).text(),
        child.exited
      ])
      return { stdout: Buffer.from(stdout.buffer, stdout.byteOffset, stdout.byteLength), stderr, exitCode }
    },
    catch: () => new UsageError({ problem: "a copy takes git on this machine, which isn't on the PATH" })
  }).pipe(
    Effect.filterOrFail(
      ({ exitCode }) => codes.includes(exitCode),
      ({ stderr }) =>
        /usage: git merge-tree/.test(stderr)
          ? new UsageError({ problem: "pull takes git 2.38 or newer on this machine" })
          : new CopyFailed({ problem: `git can't do it: ${stderr.trim().split("\n").at(-1) ?? ""}` })
    )
  )

const ref = (name: string) => `refs/gangway/${name}`

// A tree that was merged is known by its number.
const treeish = (name: string) => /^[0-9a-f]{40,64}$/.test(name) ? name : ref(name)

const split = (bytes: Uint8Array): Array<string> =>
  new TextDecoder().decode(bytes).split("\0").filter((word) => word !== "")

function importStream(ref: string, entries: ReadonlyArray<Entry>, from: string | undefined): Array<Uint8Array> {
  const stream: Array<Uint8Array> = []
  const line = (text: string) => stream.push(Buffer.from(`${text}\n`))
  line(`commit ${ref}`)
  line("committer gangway <gangway@localhost> 0 +0000")
  line("data 0")
  if (from !== undefined) line(`from ${from}`)
  line("deleteall")
  for (const { content, mode, path } of entries) {
    line(`M ${mode} inline "${path.replaceAll(/["\\]/g, "\\$&").replaceAll("\n", "\\n")}"`)
    line(`data ${content.length}`)
    stream.push(content)
    line("")
  }
  return stream
}
