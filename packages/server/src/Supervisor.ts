/**
 * The owner of an agent's processes: starts them, knows all that descends from them, and ends them in bounded time.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import type { AgentUser } from "./AgentUser.ts"
import * as agentLauncher from "./internal/agentLauncher.ts"
import * as agentProcess from "./internal/agentProcess.ts"
import * as processTree from "./internal/processTree.ts"
import * as userProcesses from "./internal/userProcesses.ts"
import { ProcessTable, type RunningProcess } from "./ProcessTable.ts"

/**
 * A program to start for an agent.
 *
 * @category models
 * @since 0.1.0
 */
export interface AgentCommand {
  readonly command: string
  readonly args: ReadonlyArray<string>
  readonly cwd: string
  /**
   * Variables added to the bridge's own environment (the bridge's environment holds no secret); `undefined` removes
   * one. The session's marker is added by the supervisor.
   */
  readonly env: Readonly<Record<string, string | Redacted.Redacted<string> | undefined>>
}

/**
 * A process of the agent.
 *
 * @category models
 * @since 0.1.0
 */
export interface AgentProcess {
  readonly pid: number
  /**
   * Writes to its standard input, which stays open until the process has ended or `endInput`. Fails with a
   * `DriverError` of kind `exit` where the process is gone; waits while 16 texts are pending.
   */
  readonly write: (text: string) => Effect.Effect<void, Bridge.DriverError>
  readonly endInput: Effect.Effect<void>
  /**
   * The lines of its standard output, decoded as UTF-8 across chunks, without their newline; can be run once. Reading
   * is paced by the consumer; what comes after the consumer has stopped is dropped. Ends with the output, or soon
   * after the process where a descendant keeps the output open. A line over 64 MiB fails it with a `DriverError` of
   * kind `protocol`.
   */
  readonly lines: Stream.Stream<string, Bridge.DriverError>
  /** The last 16 KiB of its standard error so far, known secrets replaced. */
  readonly stderr: Effect.Effect<string>
  /** Waits for its end. */
  readonly exit: Effect.Effect<{ readonly code: number | undefined; readonly signal: string | undefined }>
  /** Ends this process and its descendants: SIGTERM, SIGKILL after 3 s. Returns when they're gone. */
  readonly end: Effect.Effect<Ended>
}

/**
 * How drivers start processes.
 *
 * @category models
 * @since 0.1.0
 */
export interface AgentProcesses {
  /** Starts a process in a process group of its own. It's owned by the session, not by the calling fiber's scope. */
  readonly spawn: (command: AgentCommand) => Effect.Effect<AgentProcess, Bridge.DriverError>
}

/**
 * What was ended, at most 1,000 of them, and what could not be.
 *
 * @category models
 * @since 0.1.0
 */
export interface Ended {
  readonly ended: ReadonlyArray<Bridge.ProcessInfo>
  readonly left: ReadonlyArray<Bridge.ProcessInfo>
}

/**
 * The owner of one session's processes.
 *
 * @category models
 * @since 0.1.0
 */
export interface Supervisor {
  readonly processes: AgentProcesses
  /**
   * A turn begins: what runs then and isn't `background` is the agent's own, and so is what it starts until `toolCalled`.
   */
  readonly turnBegan: Effect.Effect<void>
  /** The turn's first tool call may have been carried out for so many nanoseconds. */
  readonly toolCalled: (ago: bigint) => Effect.Effect<void>
  /**
   * What turns left running: all of the session's processes, in whatever group or session, orphans too, but those that
   * `spawn` started themselves, and the helpers that these keep, such as MCP servers. A helper is a process that started
   * before a turn's first tool call, no turn before having left it, and whose parents still run, up to the one that
   * `spawn` started. What a helper starts later counts as left.
   */
  readonly background: Effect.Effect<ReadonlyArray<Bridge.ProcessInfo>>
  /**
   * Ends all the session's processes, those of an earlier bridge too (by the marker): SIGTERM, SIGKILL after 3 s,
   * again until none is found or 5 s have passed since. Nothing that runs is success.
   */
  readonly endAll: Effect.Effect<Ended>
  /** Ends `background` only. */
  readonly endBackground: Effect.Effect<Ended>
  /** Ends the processes that `spawn` started, and their helpers, and leaves `background`. */
  readonly endStarted: Effect.Effect<Ended>
}

/**
 * What a supervisor is told of its session.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /** The driver's name, for its errors. */
  readonly driver: string
  /**
   * The variable that all the session's processes have in their environment, and the session's value of it: random,
   * and the same for every bridge that has the session, so that a later one finds what an earlier one left.
   */
  readonly marker: { readonly name: string; readonly value: string }
  /** Replaces known secrets. */
  readonly redact: (text: string) => string
  /** Who the processes run as; absent, the bridge's own user. */
  readonly user?: AgentUser | undefined
}

/**
 * The variable in the environment of all that an agent starts.
 *
 * @category constants
 * @since 0.1.0
 */
export const markerName = "GANGWAY_SESSION"

/**
 * Makes the owner of a session's processes. When the scope closes, everything is ended.
 *
 * **Details**
 *
 * On Linux its processes are: those it started and their descendants, remembered from look to look; the members of
 * process groups that a descendant leads; those with the session's marker in their environment; and, where the program
 * adopts orphans, those that came to the bridge without any marker, if no other session started anything before they
 * did (with several candidates they're left alone until one remains). Elsewhere it's the groups of those it started.
 * No process is signalled whose pid was taken by another since it was seen, nor the bridge itself.
 *
 * Where the system has `setpriv`, of util-linux, those that it started get SIGTERM when the bridge is killed.
 *
 * Processes are started by the `ChildProcessSpawner` of the context. A program without one can serve drivers that start
 * nothing; `spawn` then fails.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<Supervisor, never, Scope.Scope> {
  const table = yield* ProcessTable
  const base = yield* Effect.serviceOption(ChildProcessSpawner)
  const spawner = Option.map(base, (base) => agentLauncher.make(base, options.user))
  // What it takes is looked for before it's needed.
  if (Option.isSome(spawner)) yield* Effect.forkScoped(spawner.value)
  const self = yield* table.self
  const adopts = yield* table.adoptOrphans(options.marker.name)
  const tree = processTree.make()
  const scopes = new Set<Scope.Closeable>()
  let closed = false

  const trees = treesOf(table)
  trees.add(tree)

  const isOrphan = (process: RunningProcess): boolean =>
    adopts && process.parent === self.pid && process.mark === undefined &&
    startedBefore(tree, process) &&
    Array.from(trees).every((other) => other === tree || !startedBefore(other, process))

  // Another user's markers may be for that user alone to read.
  let isReadable = options.user === undefined
  const list = Effect.gen(function*() {
    const processes = yield* table.list(options.marker.name)
    if (isReadable || Option.isNone(spawner)) return processes
    const { name, value } = options.marker
    const pids = yield* userProcesses.marked(yield* spawner.value, name, value)
    const marked = processes.filter(({ pid }) => pids.has(pid))
    isReadable = marked.length > 0 && marked.every(({ mark }) => mark === value)
    return processes.map((process) => pids.has(process.pid) ? { ...process, mark: value } : process)
  })

  const look: Effect.Effect<ReadonlyArray<processTree.Owned>> = Effect.map(
    list,
    (list) =>
      list.length > 0
        ? processTree.look(tree, { list, self: self.pid, mark: options.marker.value, isOrphan })
        : Array.from(tree.roots, (root) => ({
          process: {
            ...root,
            parent: self.pid,
            group: root.pid,
            start: root.start ?? "",
            ending: false,
            mark: undefined
          },
          root,
          left: false
        }))
  )

  const describe = ({ process }: processTree.Owned): Bridge.ProcessInfo => ({
    pid: process.pid,
    command: Array.from(options.redact(process.command)).slice(0, commandLength).join("")
  })

  /** Looks, signals and looks again, until nothing is found that `isMeant`. */
  const end = Effect.fnUntraced(function*(isMeant: (owned: processTree.Owned) => boolean): Effect.fn.Return<Ended> {
    const found = new Map<string, processTree.Owned>()
    const asked = new Set<string>()
    const started = yield* Clock.monotonicTimeNanos
    let quietLooks = 0
    for (let round = 0;; round++) {
      const owned = yield* look
      // A helper whose agent has ended meanwhile is still meant.
      const meant = owned.filter((one) => found.has(keyOf(one)) || isMeant(one))
      const elapsed = Number((yield* Clock.monotonicTimeNanos) - started) / 1e6
      const over = elapsed > patience + forcePatience
      quietLooks = meant.length === 0 ? quietLooks + 1 : 0
      if (over || quietLooks === quietEnough || found.size + meant.length === 0) {
        for (const one of meant) found.delete(keyOf(one))
        return { ended: Array.from(found.values(), describe), left: meant.map(describe) }
      }
      if (meant.length === 0) {
        yield* Effect.sleep(10)
        continue
      }
      for (const one of meant) {
        if (found.size < endedLength) found.set(keyOf(one), one)
      }
      if (elapsed < patience) {
        const fresh = meant.filter((one) => !asked.has(keyOf(one)))
        for (const one of fresh) {
          asked.add(keyOf(one))
          yield* table.signal(one.process, "SIGTERM")
          // A stopped process gets no other signal before it goes on.
          yield* table.signal(one.process, "SIGCONT")
        }
        yield* Effect.sleep(Math.min(10 * 2 ** round, 100))
      } else {
        // Group by group first: that's at once for all in it, so that none forks away in between.
        const groups = Map.groupBy(owned, ({ process }) => process.group)
        for (const [group, members] of groups) {
          if (tree.groups.has(group) && members.every((one) => meant.includes(one))) {
            yield* table.signalGroup(group, "SIGKILL")
          }
        }
        for (const one of meant) yield* table.signal(one.process, "SIGKILL")
        // Fast at first, for those that fork on; a process that hangs in the kernel is worth no hurry.
        yield* Effect.sleep(elapsed < patience + 1000 ? 10 : 100)
      }
    }
  })

  const endAll = Effect.tap(end(() => true), ({ left }) =>
    Effect.sync(() => {
      if (left.length === 0) processTree.forgetPast(tree)
    }))

  const spawn: AgentProcesses["spawn"] = Effect.fnUntraced(
    function*(command) {
      if (Option.isNone(spawner)) {
        return yield* new Bridge.DriverError({
          driver: options.driver,
          kind: "start",
          problem: "this bridge program can't start processes: it was given no ChildProcessSpawner"
        })
      }
      const scope = yield* Scope.make()
      const { settled, ...started } = yield* agentProcess.start(command, {
        driver: options.driver,
        variable: options.marker.name,
        mark: options.marker.value,
        redact: options.redact
      }).pipe(
        Effect.provideService(ChildProcessSpawner, yield* spawner.value),
        Scope.provide(scope),
        Effect.onError(() => Scope.close(scope, Exit.void))
      )
      const identity = yield* table.identify(started.pid)
      const root: processTree.Root = {
        pid: started.pid,
        start: identity?.start,
        command: [command.command, ...command.args].join(" "),
        running: true
      }
      processTree.addRoot(tree, root)
      scopes.add(scope)
      yield* started.exit.pipe(
        Effect.andThen(Effect.sync(() => {
          root.running = false
          tree.roots.delete(root)
        })),
        Effect.andThen(settled),
        Effect.andThen(Effect.suspend(() => {
          scopes.delete(scope)
          return Scope.close(scope, Exit.void)
        })),
        Effect.forkIn(supervisorScope)
      )
      const endProcess = end((owned) => owned.root === root)
      if (closed) {
        yield* endProcess
        return yield* new Bridge.DriverError({
          driver: options.driver,
          kind: "start",
          problem: "the session is closing"
        })
      }
      return { ...started, end: endProcess }
    },
    Effect.uninterruptible
  )

  const supervisorScope = yield* Scope.make()
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      closed = true
      return endAll
    }).pipe(
      Effect.andThen(Effect.suspend(() => {
        trees.delete(tree)
        return Effect.forEach([supervisorScope, ...scopes], (scope) => Scope.close(scope, Exit.void), { discard: true })
      }))
    )
  )

  return {
    processes: { spawn },
    turnBegan: Effect.sync(() => {
      tree.acted = Infinity
    }),
    toolCalled: (ago) =>
      Effect.map(table.now, (now) => {
        // Where nobody tells the time, nothing is known to be a helper. Rounded so that a tool is never taken for one.
        tree.acted = now === undefined ? 0 : now - Math.ceil(Number(ago) / nanosPerTick)
      }),
    background: Effect.map(look, (owned) => owned.filter(({ left, process }) => left && !process.ending).map(describe)),
    endAll,
    endBackground: end(({ left }) => left),
    endStarted: end(({ left }) => !left)
  }
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

/** How long, in milliseconds, a process has to end by itself, and how long it may take when forced. */
const patience = 3000
const forcePatience = 5000

// A look takes a while, and one that forks and ends meanwhile may be seen neither as itself nor as its child.
const quietEnough = 3

const nanosPerTick = 1e7

const commandLength = 200
const endedLength = 1000

const keyOf = ({ process }: processTree.Owned): string => `${process.pid}:${process.start}`

/** All sessions' processes, so that an orphan is given to none where it could be another's. */
const treesByTable = new WeakMap<ProcessTable, Set<processTree.ProcessTree>>()

const treesOf = (table: ProcessTable): Set<processTree.ProcessTree> => {
  const trees = treesByTable.get(table) ?? new Set()
  treesByTable.set(table, trees)
  return trees
}

const startedBefore = (tree: processTree.ProcessTree, process: RunningProcess): boolean =>
  tree.since !== undefined && tree.since <= Number(process.start)
