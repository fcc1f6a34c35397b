/**
 * Starts an agent's processes so that they're asked to end when the bridge is killed, and as another user where that's
 * wanted: by `setpriv`, which becomes the agent's program. Without it they live on until the next bridge ends them.
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as PlatformError from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import {
  type ChildProcessHandle,
  type ChildProcessSpawner,
  make as makeSpawner,
  makeHandle
} from "effect/unstable/process/ChildProcessSpawner"
import type { AgentUser } from "../AgentUser.ts"
import * as procfs from "./procfs.ts"

type Spawner = ChildProcessSpawner["Service"]

/** What processes are started by, looked for once; nothing where the system doesn't have it. */
const searches = new WeakMap<Spawner, Effect.Effect<string | undefined>>()

// The agent may end its own children; who doesn't act on it is ended by the next bridge.
const endWithBridge = ["--pdeathsig", "TERM"]

/** Another program by that name, such as BusyBox's, can't do it. */
const search = Effect.fnUntraced(function*(spawner: Spawner) {
  const directories = yield* Effect.orElseSucceed(Config.String("PATH"), () => "/usr/bin:/bin")
  for (const directory of directories.split(":")) {
    if (!directory.startsWith("/")) continue
    const program = `${directory}/setpriv`
    const tried = yield* Effect.exit(spawner.exitCode(
      ChildProcess.make(program, [...endWithBridge, "--", program, "--version"], quiet)
    ))
    if (Exit.isSuccess(tried) && tried.value === 0) return program
  }
  return undefined
}, Effect.uninterruptible)

const quiet = { stdin: "ignore", stdout: "ignore", stderr: "ignore", detached: false } as const

const find = Effect.fnUntraced(function*(spawner: Spawner) {
  let found = searches.get(spawner)
  if (found === undefined) {
    found = yield* Effect.cached(search(spawner))
    searches.set(spawner, found)
  }
  return yield* found
})

/** How long `setpriv` may take to become the agent, in milliseconds; after that it's left to itself. */
const patience = 5000

// What it exits with where it can't do what it's told, or can't start the program.
const setprivFailed = 126
const setprivMissed = 127

/** Starts what `base` starts, which is then asked to end when this process is killed, and runs as the user. */
export const make = Effect.fnUntraced(function*(base: Spawner, user?: AgentUser): Effect.fn.Return<Spawner> {
  const setpriv = yield* find(base)
  if (setpriv === undefined && user === undefined) return base
  const options = [
    ...(user === undefined ? [] : [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--init-groups"]),
    ...endWithBridge,
    "--"
  ]
  const before = [setpriv, ...options].join(" ")

  const spawn = Effect.fnUntraced(function*(
    command: ChildProcess.Command
  ): Effect.fn.Return<ChildProcessHandle, PlatformError.PlatformError, Scope.Scope> {
    if (setpriv === undefined) return yield* refused(command, "to run as another user takes setpriv, of util-linux")
    const handle = yield* base.spawn(wrap(command, setpriv, options, user))
    return command._tag === "StandardCommand" ? yield* becomes(command, handle, before, user) : handle
  })
  return makeSpawner(spawn)
})

const wrap = (
  command: ChildProcess.Command,
  setpriv: string,
  options: ReadonlyArray<string>,
  user: AgentUser | undefined
): ChildProcess.Command => {
  if (command._tag === "PipedCommand") {
    const { left, right } = command
    return ChildProcess.pipeTo(
      wrap(left, setpriv, options, user),
      wrap(right, setpriv, options, user),
      command.options
    )
  }
  return ChildProcess.make(setpriv, [...options, command.command, ...command.args], {
    ...command.options,
    ...(user === undefined
      ? {}
      : { env: { HOME: user.home, USER: user.name, LOGNAME: user.name, ...command.options.env } })
  })
}

/** Waits until the process is the program that was asked for: nobody sees another, and what fails fails here. */
const becomes = Effect.fnUntraced(function*(
  command: ChildProcess.StandardCommand,
  handle: ChildProcessHandle,
  before: string,
  user: AgentUser | undefined
): Effect.fn.Return<ChildProcessHandle, PlatformError.PlatformError> {
  if (!procfs.isAvailable()) return handle
  for (let waited = 0; (yield* handle.isRunning) && waited < patience; waited++) {
    const now = procfs.command(handle.pid)
    // Nothing, while it's becoming another.
    if (now !== "" && !now.startsWith(before)) return handle
    yield* Effect.sleep(1)
  }
  if (yield* handle.isRunning) return handle
  const code = yield* Effect.orElseSucceed(handle.exitCode, () => 0)
  if (code !== setprivFailed && code !== setprivMissed) return handle
  // A descendant that keeps it open has been the program.
  const chunks: Array<Uint8Array> = []
  yield* handle.stderr.pipe(
    Stream.runForEach((chunk) => Effect.sync(() => chunks.push(chunk))),
    Effect.ignore,
    Effect.timeoutOption("1 second")
  )
  const decoder = new TextDecoder()
  const [, said] = /^setpriv: (.*)/.exec(chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join("")) ?? []
  if (said === undefined) return makeHandle({ ...handle, stderr: Stream.fromIterable(chunks) })
  if (!said.includes(command.command)) {
    return yield* refused(command, `to run as ${user?.name} takes root, or CAP_SETUID and CAP_SETGID: ${said}`)
  }
  if (code === setprivFailed) return yield* refused(command, said.slice(said.lastIndexOf(": ") + 2))
  return yield* PlatformError.systemError({ _tag: "NotFound", ...where(command) })
})

const where = (command: ChildProcess.Command) => ({
  module: "ChildProcess",
  method: "spawn",
  ...(command._tag === "StandardCommand" ? { pathOrDescriptor: command.command } : {})
})

const refused = (command: ChildProcess.Command, code: string) =>
  PlatformError.systemError({ _tag: "PermissionDenied", ...where(command), cause: { code } })

/** What keeps a program from being started, in the system's words; nothing of its arguments. */
export const problemOf = ({ reason: { cause } }: PlatformError.PlatformError): string | undefined =>
  Predicate.hasProperty(cause, "code") && Predicate.isString(cause.code) ? cause.code : undefined
