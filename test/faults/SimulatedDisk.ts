/**
 * A disk in memory, under the code that really runs: each change is a step that can fail, be cut short, or be the last
 * one before a process or a machine dies.
 *
 * What a process wrote is there when it dies. When the power fails, only what was synced is sure to be: a file has the
 * bytes of its last sync, and of those after it some, all, or zeros; a directory has the names of its last sync, and
 * some of the changes after it, in their order.
 */
import { Effect, FileSystem, Option, PlatformError } from "effect"
import type * as Random from "../chaos/Random.ts"

/** What happens at a step. */
export type Fault =
  /** The process dies before the step. */
  | { readonly _tag: "Crash" }
  /** A write ends after some of its bytes, and the process dies; any other step is done. */
  | { readonly _tag: "Torn"; readonly bytes: (length: number) => number }
  /** The step fails, and a write has written some of its bytes. */
  | { readonly _tag: "Fail"; readonly code: "EIO" | "ENOSPC"; readonly bytes: (length: number) => number }
  /** A write takes fewer bytes than it was given, and says so. */
  | { readonly _tag: "Short"; readonly bytes: (length: number) => number }

/** A change of the disk, such as `write t1.ndjson`. */
export interface Step {
  readonly method: string
  readonly path: string
}

interface FileNode {
  readonly kind: "File"
  readonly inode: number
  mode: number
  mtime: Date
  data: Uint8Array
  synced: Uint8Array
}

interface DirectoryNode {
  readonly kind: "Directory"
  readonly inode: number
  mode: number
  mtime: Date
  readonly entries: Map<string, Node>
  /** The entries of the last sync, and what changed since. */
  synced: Map<string, Node>
  changes: Array<(entries: Map<string, Node>) => void>
}

type Node = FileNode | DirectoryNode

const concat = (a: Uint8Array, b: Uint8Array): Uint8Array => {
  const both = new Uint8Array(a.length + b.length)
  both.set(a)
  both.set(b, a.length)
  return both
}

const systemError = (
  code: string,
  method: string,
  path: string,
  _tag: PlatformError.SystemErrorTag = "Unknown"
): PlatformError.PlatformError =>
  PlatformError.systemError({
    _tag,
    module: "FileSystem",
    method,
    pathOrDescriptor: path,
    cause: Object.assign(new Error(`${code}: ${method}`), { code })
  })

const notFound = (method: string, path: string) => systemError("ENOENT", method, path, "NotFound")

export class SimulatedDisk {
  /** All changes so far. */
  readonly steps: Array<Step> = []
  /** Asked before each step; absent, all works. */
  fault: ((index: number, step: Step) => Fault | undefined) | undefined
  /** Whether the process that used it is dead: nothing of it reaches the disk any more. */
  isDead = false
  /** Called at the moment of death. */
  onDeath: () => void = () => {}
  private inodes = 1
  private readonly root: DirectoryNode

  private constructor(root: DirectoryNode | undefined, inodes: number) {
    this.inodes = inodes
    this.root = root ?? this.directory()
  }

  static make(): SimulatedDisk {
    return new SimulatedDisk(undefined, 1)
  }

  /** The disk as the next process finds it, where this one's died. */
  afterDeath(): SimulatedDisk {
    this.isDead = true
    const copies = new Map<Node, Node>()
    return new SimulatedDisk(copy(this.root, copies), this.inodes)
  }

  /** The disk as the next process finds it, where the power failed. */
  afterPowerCut(random: Random.Random): SimulatedDisk {
    this.isDead = true
    const copies = new Map<Node, Node>()
    return new SimulatedDisk(survivor(this.root, random, copies), this.inodes)
  }

  /** The text of a file. */
  text(path: string): string {
    const node = this.find(path)
    if (node?.kind !== "File") throw new Error(`${path} is no file`)
    return new TextDecoder().decode(node.data)
  }

  /** Dies now. */
  die(): void {
    if (this.isDead) return
    this.isDead = true
    this.onDeath()
  }

  readonly fileSystem: FileSystem.FileSystem = FileSystem.make({
    ...FileSystem.makeNoop({}),
    access: (path) => this.reading("access", path, () => undefined),
    realPath: (path) => this.reading("realPath", path, () => path.replaceAll(/\/+/g, "/").replace(/(.)\/$/, "$1")),
    readLink: (path) => Effect.fail(systemError("EINVAL", "readLink", path)),
    stat: (path) => this.reading("stat", path, (node) => info(node)),
    readFile: (path) =>
      this.reading("readFile", path, (node) => {
        if (node.kind !== "File") throw systemError("EISDIR", "readFile", path, "BadResource")
        return node.data.slice()
      }),
    readDirectory: (path) =>
      this.reading("readDirectory", path, (node) => {
        if (node.kind !== "Directory") throw systemError("ENOTDIR", "readDirectory", path)
        return [...node.entries.keys()]
      }),
    chmod: (path, mode) =>
      this.step("chmod", path, () => {
        this.get("chmod", path).mode = mode
      }),
    makeDirectory: (path, options) =>
      this.step("makeDirectory", path, () => {
        const names = path.split("/").filter((name) => name !== "")
        let current = this.root
        names.forEach((name, index) => {
          const existing = current.entries.get(name)
          const isLast = index === names.length - 1
          if (existing !== undefined) {
            if (isLast && options?.recursive !== true) {
              throw systemError("EEXIST", "makeDirectory", path, "AlreadyExists")
            }
            if (existing.kind !== "Directory") throw systemError("ENOTDIR", "makeDirectory", path)
            current = existing
            return
          }
          if (!isLast && options?.recursive !== true) throw notFound("makeDirectory", path)
          const made = this.directory()
          change(current, (entries) => entries.set(name, made))
          current = made
        })
      }),
    link: (from, to) =>
      this.step("link", to, () => {
        const node = this.get("link", from)
        const [parent, name] = this.place("link", to)
        if (parent.entries.has(name)) throw systemError("EEXIST", "link", to, "AlreadyExists")
        change(parent, (entries) => entries.set(name, node))
      }),
    copyFile: (from, to) =>
      this.step("copyFile", to, () => {
        const node = this.get("copyFile", from)
        if (node.kind !== "File") throw systemError("EISDIR", "copyFile", from, "BadResource")
        const [parent, name] = this.place("copyFile", to)
        const made = this.file(node.mode)
        made.data = node.data.slice()
        change(parent, (entries) => entries.set(name, made))
      }),
    rename: (from, to) =>
      this.step("rename", to, () => {
        const node = this.get("rename", from)
        const [source, oldName] = this.place("rename", from)
        const [target, newName] = this.place("rename", to)
        if (source !== target) throw systemError("EXDEV", "rename", to)
        change(source, (entries) => {
          entries.delete(oldName)
          entries.set(newName, node)
        })
      }),
    remove: (path, options) =>
      this.step("remove", path, () => {
        const node = this.find(path)
        if (node === undefined) {
          if (options?.force === true) return
          throw notFound("remove", path)
        }
        if (node.kind === "Directory" && options?.recursive !== true) throw systemError("EISDIR", "remove", path)
        const [parent, name] = this.place("remove", path)
        change(parent, (entries) => entries.delete(name))
      }),
    open: (path, options) => this.open(path, options?.flag ?? "r", options?.mode ?? 0o666)
  })

  private open(
    path: string,
    flag: FileSystem.OpenFlag,
    mode: number
  ): Effect.Effect<FileSystem.File, PlatformError.PlatformError> {
    const isWritten = flag !== "r"
    const opened = (node: Node) => this.handle(path, node)
    if (!isWritten) return this.reading("open", path, opened)
    const existing = this.find(path)
    // Without a change of the disk there's no step.
    if (existing !== undefined && !flag.includes("x") && flag.startsWith("a")) {
      return this.reading("open", path, opened)
    }
    return this.step("open", path, () => {
      const [parent, name] = this.place("open", path)
      const found = parent.entries.get(name)
      if (found !== undefined && flag.includes("x")) throw systemError("EEXIST", "open", path, "AlreadyExists")
      const node = found ?? this.file(mode)
      if (found === undefined) change(parent, (entries) => entries.set(name, node))
      else if (flag.startsWith("w") && node.kind === "File") node.data = new Uint8Array()
      return opened(node)
    })
  }

  private handle(path: string, node: Node): FileSystem.File {
    let position = 0
    const bytesOf = (method: string): FileNode => {
      if (node.kind !== "File") throw systemError("EISDIR", method, path, "BadResource")
      return node
    }
    const append = (bytes: Uint8Array) => {
      const file = bytesOf("write")
      file.data = concat(file.data, bytes)
      file.mtime = new Date()
    }
    return {
      [FileSystem.FileTypeId]: FileSystem.FileTypeId,
      stat: Effect.suspend(() => this.isDead ? dead("stat", path) : Effect.succeed(info(node))),
      seek: (offset, from) =>
        Effect.sync(() => {
          position = from === "start" ? Number(offset) : position + Number(offset)
          return BigInt(position)
        }),
      sync: this.step("sync", path, () => {
        if (node.kind === "File") node.synced = node.data
        else {
          node.synced = new Map(node.entries)
          node.changes = []
        }
      }),
      read: (buffer) =>
        Effect.suspend(() => {
          if (this.isDead) return dead("read", path)
          const file = bytesOf("read")
          const bytes = file.data.subarray(position, position + buffer.length)
          buffer.set(bytes)
          position += bytes.length
          return Effect.succeed(bytes.length)
        }),
      readAlloc: () => Effect.succeedNone,
      truncate: (length = 0) =>
        this.step("truncate", path, () => {
          const file = bytesOf("truncate")
          file.data = file.data.slice(0, length)
        }),
      write: (bytes) => this.writing("write", path, bytes, append),
      writeAll: (bytes) => {
        const rest = (written: number): Effect.Effect<void, PlatformError.PlatformError> =>
          written === bytes.length
            ? Effect.void
            : Effect.flatMap(
              this.writing("write", path, bytes.subarray(written), append),
              (count) => rest(written + count)
            )
        return rest(0)
      }
    }
  }

  private writing(
    method: string,
    path: string,
    bytes: Uint8Array,
    append: (bytes: Uint8Array) => void
  ): Effect.Effect<number, PlatformError.PlatformError> {
    return Effect.suspend(() => {
      const fault = this.next(method, path)
      if (this.isDead) return dead(method, path)
      if (fault === undefined) {
        append(bytes)
        return Effect.succeed(bytes.length)
      }
      switch (fault._tag) {
        case "Crash":
          this.die()
          return dead(method, path)
        case "Torn":
          append(bytes.subarray(0, fault.bytes(bytes.length)))
          this.die()
          return dead(method, path)
        case "Fail":
          append(bytes.subarray(0, fault.bytes(bytes.length)))
          return Effect.fail(systemError(fault.code, method, path))
        case "Short": {
          const count = Math.max(1, Math.min(bytes.length, fault.bytes(bytes.length)))
          append(bytes.subarray(0, count))
          return Effect.succeed(count)
        }
      }
    })
  }

  private step<A>(method: string, path: string, run: () => A): Effect.Effect<A, PlatformError.PlatformError> {
    return Effect.suspend(() => {
      const fault = this.next(method, path)
      if (this.isDead) return dead(method, path)
      if (fault?._tag === "Crash") {
        this.die()
        return dead(method, path)
      }
      if (fault?._tag === "Fail") return Effect.fail(systemError(fault.code, method, path))
      const outcome = attempt(run)
      if (fault?._tag !== "Torn") return outcome
      this.die()
      return dead(method, path)
    })
  }

  private reading<A>(
    method: string,
    path: string,
    run: (node: Node) => A
  ): Effect.Effect<A, PlatformError.PlatformError> {
    return Effect.suspend(() => this.isDead ? dead(method, path) : attempt(() => run(this.get(method, path))))
  }

  private next(method: string, path: string): Fault | undefined {
    if (this.isDead) return undefined
    const step: Step = { method, path }
    const fault = this.fault?.(this.steps.length, step)
    this.steps.push(step)
    return fault
  }

  private file(mode: number): FileNode {
    const none = new Uint8Array()
    return { kind: "File", inode: this.inodes++, mode, mtime: new Date(), data: none, synced: none }
  }

  private directory(): DirectoryNode {
    return {
      kind: "Directory",
      inode: this.inodes++,
      mode: 0o700,
      mtime: new Date(),
      entries: new Map(),
      synced: new Map(),
      changes: []
    }
  }

  private find(path: string): Node | undefined {
    let node: Node = this.root
    for (const name of path.split("/")) {
      if (name === "") continue
      if (node.kind !== "Directory") return undefined
      const next = node.entries.get(name)
      if (next === undefined) return undefined
      node = next
    }
    return node
  }

  private get(method: string, path: string): Node {
    const node = this.find(path)
    if (node === undefined) throw notFound(method, path)
    return node
  }

  private place(method: string, path: string): readonly [DirectoryNode, string] {
    const at = path.lastIndexOf("/")
    const parent = this.get(method, path.slice(0, at) || "/")
    if (parent.kind !== "Directory") throw systemError("ENOTDIR", method, path)
    return [parent, path.slice(at + 1)]
  }
}

// Whoever still asks is told something, so that its fibers can end; nobody listens any more.
const dead = (method: string, path: string) => Effect.fail(systemError("EIO", method, path))

const attempt = <A>(run: () => A): Effect.Effect<A, PlatformError.PlatformError> => {
  try {
    return Effect.succeed(run())
  } catch (error) {
    if (error instanceof PlatformError.PlatformError) return Effect.fail(error)
    throw error
  }
}

const change = (directory: DirectoryNode, apply: (entries: Map<string, Node>) => void): void => {
  apply(directory.entries)
  directory.changes.push(apply)
  directory.mtime = new Date()
}

const info = (node: Node): FileSystem.File.Info => ({
  type: node.kind,
  mtime: Option.some(node.mtime),
  atime: Option.none(),
  birthtime: Option.none(),
  dev: 1,
  ino: Option.some(node.inode),
  mode: node.mode,
  nlink: Option.none(),
  uid: Option.none(),
  gid: Option.none(),
  rdev: Option.none(),
  size: BigInt(node.kind === "File" ? node.data.length : 0) as FileSystem.File.Info["size"],
  blksize: Option.none(),
  blocks: Option.none()
})

const copy = <N extends Node>(node: N, copies: Map<Node, Node>): N => {
  const known = copies.get(node)
  if (known !== undefined) return known as N
  if (node.kind === "File") {
    const made: FileNode = { ...node }
    copies.set(node, made)
    return made as N
  }
  const made: DirectoryNode = { ...node, entries: new Map(), synced: new Map(), changes: [] }
  copies.set(node, made)
  for (const [name, child] of node.entries) made.entries.set(name, copy(child, copies))
  // A process's death syncs nothing; that a change comes back in its order matters to no test.
  made.synced = new Map(made.entries)
  return made as N
}

// What the disk may have of a node: at least what was synced.
const survivor = <N extends Node>(node: N, random: Random.Random, copies: Map<Node, Node>): N => {
  const known = copies.get(node)
  if (known !== undefined) return known as N
  if (node.kind === "File") {
    const data = surviving(node, random)
    const made: FileNode = { ...node, data, synced: data }
    copies.set(node, made)
    return made as N
  }
  const entries = new Map(node.synced)
  const kept = random.pick([0, node.changes.length, random.integer(0, node.changes.length)])
  for (const apply of node.changes.slice(0, kept)) apply(entries)
  const made: DirectoryNode = { ...node, entries: new Map(), synced: new Map(), changes: [] }
  copies.set(node, made)
  for (const [name, child] of entries) made.entries.set(name, survivor(child, random, copies))
  made.synced = new Map(made.entries)
  return made as N
}

const surviving = ({ data, synced }: FileNode, random: Random.Random): Uint8Array => {
  // Cut since the last sync.
  if (data.length < synced.length) return random.pick([data, synced])
  const size = random.integer(synced.length, data.length)
  switch (random.integer(0, 3)) {
    case 0:
      return synced
    case 1:
      return data
    case 2:
      return data.slice(0, size)
    default:
      return zeroed(data, random.integer(synced.length, size), size)
  }
}

// The size was written, and the last bytes weren't.
const zeroed = (data: Uint8Array, written: number, size: number): Uint8Array =>
  concat(data.slice(0, written), new Uint8Array(size - written))
