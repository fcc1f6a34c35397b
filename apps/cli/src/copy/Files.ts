/**
 * The files of a directory on this machine: read to be copied, and changed by what comes back.
 */
import * as Effect from "effect/Effect"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { UsageError } from "../Failure.ts"
import { CopyFailed } from "./CopyFailed.ts"
import type { Entry } from "./Tar.ts"
import { type Change, listFiles } from "./Trees.ts"

/** The most that's copied, either way: it's held in memory. */
export const limits = { files: 50_000, bytes: 256 * 1024 * 1024 }

/**
 * Reads a directory: what Git tracks or doesn't ignore, where it's in a repository, otherwise all of it. Directories of
 * Git's own and what is neither a file nor a link are left out.
 */
export const read = Effect.fnUntraced(function*(directory: string) {
  const listed = yield* listFiles(directory)
  return yield* Effect.tryPromise({
    try: async () => {
      const paths = listed ?? await walk(directory, "")
      const entries: Array<Entry> = []
      let bytes = 0
      for (const path of paths) {
        if (path.includes("\ufffd")) throw tooMuch(`the name ${path} in ${directory} isn't UTF-8`)
        const file = join(directory, path)
        const found = await statOf(file)
        // Deleted, and Git wasn't told yet; or a submodule that isn't there.
        if (found === undefined || !(found.isFile() || found.isSymbolicLink())) continue
        bytes += found.size
        if (bytes > limits.bytes) throw tooMuch(`${directory} has more than 256 MiB`)
        if (entries.length === limits.files) throw tooMuch(`${directory} has more than ${limits.files} files`)
        entries.push({
          path,
          mode: found.isSymbolicLink() ? "120000" : (found.mode & 0o100) === 0 ? "100644" : "100755",
          content: found.isSymbolicLink() ? await fs.readlink(file, { encoding: "buffer" }) : await fs.readFile(file)
        })
      }
      return entries
    },
    catch: (error) => error instanceof UsageError ? error : new CopyFailed({ problem: (error as Error).message })
  })
})

const tooMuch = (what: string) =>
  new UsageError({ problem: `${what}: copy a directory in it with --directory, or have Git ignore what isn't needed` })

const walk = async (directory: string, under: string): Promise<Array<string>> => {
  const paths: Array<string> = []
  for (const entry of await fs.readdir(join(directory, under), { withFileTypes: true })) {
    const path = under === "" ? entry.name : `${under}/${entry.name}`
    if (!entry.isDirectory()) paths.push(path)
    else if (entry.name !== ".git") { for (const inner of await walk(directory, path)) paths.push(inner) }
    if (paths.length > limits.files) throw tooMuch(`${directory} has more than ${limits.files} files`)
  }
  return paths
}

const statOf = async (file: string) => {
  try {
    return await fs.lstat(file)
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined
    throw error
  }
}

/**
 * Whether a change may be made in a directory: why not, if not. A new file takes the place of none that Git ignores,
 * and nothing is written through a link to elsewhere.
 */
export const objection = (directory: string, { isNew, path, to }: Change, others: ReadonlySet<string>) =>
  Effect.tryPromise({
    try: async () => {
      const names = path.split("/")
      // A deleted file makes room for a directory of its name.
      for (let i = 1; i < names.length; i++) {
        const parent = names.slice(0, i).join("/")
        const found = await statOf(join(directory, parent))
        if (found !== undefined && !found.isDirectory() && !others.has(parent)) return `${parent} is no directory here`
      }
      const found = to === undefined || !isNew ? undefined : await statOf(join(directory, path))
      if (found === undefined || found.isDirectory()) return undefined
      return `${path} is there already, ignored by Git`
    },
    catch: (error) => new CopyFailed({ problem: (error as Error).message })
  })

// The blob that a file is now, if it's one that Git knows.
const blobOf = async (file: string, like: string) => {
  const found = await statOf(file)
  if (found === undefined || !(found.isFile() || found.isSymbolicLink())) return undefined
  const content = found.isSymbolicLink() ? await fs.readlink(file, { encoding: "buffer" }) : await fs.readFile(file)
  return createHash(like.length === 40 ? "sha1" : "sha256").update(`blob ${content.length}\0`).update(content)
    .digest("hex")
}

/**
 * Makes a change in a directory; a reader sees a file as it was or as it is then. It fails where the file isn't what it
 * was any more when it was read.
 */
export const change = (directory: string, { from, path, to }: Change, content: Uint8Array) =>
  Effect.tryPromise({
    try: async () => {
      const file = join(directory, path)
      if (from !== undefined && await blobOf(file, from) !== from) {
        throw new Error(`${path} was changed here meanwhile: pull again`)
      }
      if (to === undefined) {
        await fs.rm(file, { force: true })
        // Git knows no empty directories.
        for (let parent = dirname(file); parent !== directory; parent = dirname(parent)) {
          if (await fs.rmdir(parent).then(() => false, () => true)) break
        }
        return
      }
      await fs.mkdir(dirname(file), { recursive: true })
      const temporary = `${file}.gangway-${process.pid}`
      if (to.mode === "120000") await fs.symlink(Buffer.from(content), temporary)
      else {
        const before = await statOf(file)
        const mode = before?.isFile() === true ? before.mode & 0o666 : 0o644
        await fs.writeFile(temporary, content, { mode: 0o600 })
        await fs.chmod(temporary, to.mode === "100755" ? mode | ((mode & 0o444) >> 2) : mode)
      }
      await fs.rename(temporary, file)
    },
    catch: (error) => new CopyFailed({ problem: (error as Error).message })
  })
