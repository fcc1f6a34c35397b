/**
 * The user that an agent runs as, where that isn't the bridge's own: it can then read neither the bridge's memory nor
 * its state directory.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import { type Driver, noCapabilities } from "./Driver.ts"
import * as agentLauncher from "./internal/agentLauncher.ts"
import * as userFiles from "./internal/userFiles.ts"

/**
 * A user of the sandbox.
 *
 * @category models
 * @since 0.1.0
 */
export interface AgentUser {
  readonly name: string
  readonly uid: number
  readonly gid: number
  readonly home: string
}

/**
 * Makes a driver whose agent runs as another user, by name or uid, found in `/etc/passwd`. What the driver itself does
 * outside of the bridge is done as that user too: the processes that it starts, its files, and the `HOME` that it finds
 * in its configuration.
 *
 * It takes root, or the capabilities to change user and groups, and the program `setpriv` of util-linux. Where there's
 * no such user, or nothing can be started as that one, every session of the driver fails with a `DriverError` of kind
 * `start` that says why.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeDriver = Effect.fnUntraced(function*<E, R>(options: {
  readonly user: string | number
  /** The driver's name. */
  readonly name: string
  readonly make: Effect.Effect<Driver, E, R>
}): Effect.fn.Return<Driver, E, R | FileSystem.FileSystem> {
  const became = yield* Effect.result(become(options.user))
  if (Result.isFailure(became)) {
    const problem = `agentUser: ${became.failure.problem}`
    const error = new Bridge.DriverError({ driver: options.name, kind: "start", problem })
    return { name: options.name, version: "unknown", capabilities: noCapabilities, open: () => Effect.fail(error) }
  }
  const { spawner, user } = became.success
  const config = ConfigProvider.orElse(
    ConfigProvider.fromEnvRecord({ HOME: user.home, USER: user.name, LOGNAME: user.name }),
    yield* ConfigProvider.ConfigProvider
  )
  const driver = yield* options.make.pipe(Effect.updateContext((context: Context.Context<R>) =>
    Context.mergeAll(
      context,
      Context.make(ChildProcessSpawner, spawner),
      Context.make(FileSystem.FileSystem, userFiles.make(spawner)),
      Context.make(ConfigProvider.ConfigProvider, config)
    )
  ))
  return { ...driver, user }
})

// -----------------------------------------------------------------------------
// Internal
// -----------------------------------------------------------------------------

class Unusable extends Data.TaggedError("Unusable")<{ readonly problem: string }> {}

const become = Effect.fnUntraced(function*(nameOrUid: string | number) {
  const fs = yield* FileSystem.FileSystem
  const table = yield* Effect.mapError(
    fs.readFileString("/etc/passwd"),
    () => new Unusable({ problem: "/etc/passwd can't be read" })
  )
  const users = table.split("\n").map((line) => line.split(":"))
  const [name, , uid, gid, , home] = users.find(([name, , uid]) =>
    typeof nameOrUid === "number" ? uid === `${nameOrUid}` : name === nameOrUid
  ) ?? []
  if (name === undefined || uid === undefined || gid === undefined || home === undefined) {
    return yield* new Unusable({ problem: `there is no user '${nameOrUid}' in /etc/passwd` })
  }
  const user: AgentUser = { name, uid: Number(uid), gid: Number(gid), home }
  const base = yield* Effect.serviceOption(ChildProcessSpawner)
  if (Option.isNone(base)) {
    return yield* new Unusable({ problem: "this bridge program was given no ChildProcessSpawner" })
  }
  const spawner = yield* agentLauncher.make(base.value, user)
  yield* spawner.string(ChildProcess.make("true", [], { cwd: "/", stdin: "ignore" })).pipe(
    Effect.mapError((error) => new Unusable({ problem: agentLauncher.problemOf(error) ?? error.message }))
  )
  return { user, spawner }
})
