/**
 * The owner of an agent's processes: starts them, knows all that descends from them, and ends them in bounded time.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Stream from "effect/Stream"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"

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
   * `DriverError` of kind `exit` where the process is gone.
   */
  readonly write: (text: string) => Effect.Effect<void, Bridge.DriverError>
  readonly endInput: Effect.Effect<void>
  /**
   * The lines of its standard output, decoded as UTF-8 across chunks, without their newline; can be run once. Reading
   * is paced by the consumer. A line over `maxLine` (64 MiB) fails it with a `DriverError` of kind `protocol`.
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
  readonly spawn: (command: AgentCommand) => Effect.Effect<AgentProcess, Bridge.DriverError, ChildProcessSpawner>
}

/**
 * What was ended, and what could not be.
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
   * What runs of the session besides the processes that `spawn` started themselves: children of theirs, in whatever
   * group or session, orphans too.
   */
  readonly background: Effect.Effect<ReadonlyArray<Bridge.ProcessInfo>>
  /**
   * Ends all the session's processes, those of an earlier bridge too (by the marker): SIGTERM, SIGKILL after 3 s,
   * again until none is found or 5 s have passed since. Nothing that runs is success.
   */
  readonly endAll: Effect.Effect<Ended>
  /** Ends `background` only. */
  readonly endBackground: Effect.Effect<Ended>
}
