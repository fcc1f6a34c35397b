/**
 * Which of the running processes are a session's: remembered from look to look, because a parent may end in between.
 */
import type { RunningProcess } from "../ProcessTable.ts"

/** A process that the session started itself. */
export interface Root {
  readonly pid: number
  /** Absent where it had ended before it could be looked at. */
  readonly start: string | undefined
  readonly command: string
  running: boolean
}

/** A process of the session, and which of the started ones it descends from, where that's known. */
export interface Owned {
  readonly process: RunningProcess
  readonly root: Root | undefined
  /** Whether a turn left it behind: what isn't the agent, nor a helper that the agent keeps, such as an MCP server. */
  readonly left: boolean
}

/** What a session remembers of its processes. */
export interface ProcessTree {
  readonly roots: Set<Root>
  /** By pid, as they were seen last. */
  readonly known: Map<number, { readonly start: string; readonly root: Root | undefined; readonly left: boolean }>
  /** Process groups that only the session's processes are in, by their id, which was the pid of their first process. */
  readonly groups: Map<number, { readonly start: string | undefined; readonly root: Root | undefined }>
  /** The start of the first process that the session started, in clock ticks: what's older isn't an orphan of it. */
  since: number | undefined
  /** When the turn's first tool call was, in clock ticks: what started before that, below the agent, is its helper. */
  acted: number
}

/** @internal */
export const make = (): ProcessTree => ({
  roots: new Set(),
  known: new Map(),
  groups: new Map(),
  since: undefined,
  acted: 0
})

/** Remembers a process that was just started, in a group of its own. */
export const addRoot = (tree: ProcessTree, root: Root): void => {
  tree.roots.add(root)
  tree.groups.set(root.pid, { start: root.start, root })
  if (root.start === undefined) return
  tree.known.set(root.pid, { start: root.start, root, left: false })
  tree.since = Math.min(tree.since ?? Infinity, Number(root.start))
}

/** When all processes so far have been ended: orphans that turn up later can only be another session's. */
export const forgetPast = (tree: ProcessTree): void => {
  tree.since = undefined
  for (const { pid, start } of tree.roots) {
    // What isn't known was gone at the last look; what was started since then is.
    if (start !== undefined && tree.known.get(pid)?.start === start) {
      tree.since = Math.min(tree.since ?? Infinity, Number(start))
    }
  }
}

/** What it takes to tell a session's processes from others. */
export interface Look {
  readonly list: ReadonlyArray<RunningProcess>
  /** The bridge's own pid, which is never owned. */
  readonly self: number
  /** The value of the session's marker. */
  readonly mark: string
  /** Whether a child of the bridge that nobody started, without any marker, is this session's. */
  readonly isOrphan: (process: RunningProcess) => boolean
}

/**
 * Finds the session's processes, and remembers them: those it knew, their descendants, the members of its groups,
 * those that carry its marker, and the orphans that came to the bridge.
 */
export const look = (tree: ProcessTree, options: Look): ReadonlyArray<Owned> => {
  const byPid = new Map(options.list.map((process) => [process.pid, process]))
  const byParent = Map.groupBy(options.list, (process) => process.parent)
  const byGroup = Map.groupBy(options.list, (process) => process.group)
  const owned = new Map<number, Omit<Owned, "left">>()

  const claim = (first: RunningProcess, root: Root | undefined) => {
    const found = [first]
    for (let process = found.pop(); process !== undefined; process = found.pop()) {
      if (process.pid === options.self || owned.has(process.pid)) continue
      owned.set(process.pid, { process, root })
      found.push(...byParent.get(process.pid) ?? [])
      // A group's id is its first process's pid, and a descendant's group has only descendants in it.
      const members = process.pid === process.group ? byGroup.get(process.group) ?? [] : []
      if (members.length > 0 && members.every(({ pid }) => pid !== options.self)) {
        if (!tree.groups.has(process.group)) tree.groups.set(process.group, { start: process.start, root })
        found.push(...members)
      }
    }
  }

  // Those whose root is known come first, so that the others can't hide it.
  for (const process of options.list) {
    const known = tree.known.get(process.pid)
    if (known !== undefined && known.start === process.start) claim(process, known.root)
  }
  for (const [group, { root, start }] of tree.groups) {
    const first = byPid.get(group)
    // The kernel gives a group's id to no new process while the group has members. Somebody else with that pid means
    // that the group was gone, and the id is used anew.
    if (first !== undefined && first.start !== start) {
      tree.groups.delete(group)
      continue
    }
    const members = byGroup.get(group)
    if (members === undefined) {
      if (root?.pid !== group || !root.running) tree.groups.delete(group)
      continue
    }
    for (const process of members) claim(process, root)
  }
  for (const process of options.list) {
    if (process.mark === options.mark || options.isOrphan(process)) claim(process, undefined)
  }

  const before = new Map(tree.known)
  const lefts = new Map<number, boolean>()
  // Whose parents are gone up to the agent isn't kept by it any more.
  const isLeft = ({ process, root }: Omit<Owned, "left">): boolean => {
    if (root !== undefined && root.pid === process.pid && root.start === process.start) return false
    const decided = lefts.get(process.pid)
    if (decided !== undefined) return decided
    const known = before.get(process.pid)
    const parent = owned.get(process.parent)
    const left = Number(process.start) >= tree.acted || parent === undefined ||
      (known?.start === process.start && known.left) || isLeft(parent)
    lefts.set(process.pid, left)
    return left
  }

  tree.known.clear()
  return Array.from(owned.values(), ({ process, root }) => {
    const left = isLeft({ process, root })
    tree.known.set(process.pid, { start: process.start, root, left })
    return { process, root, left }
  })
}
