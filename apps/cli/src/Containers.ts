/**
 * The Docker containers that bridges run in: one each, with the agent's directory at its own path, kept until it's
 * removed.
 */
import { Bridge } from "@gangway/protocol"
import * as DockerSandbox from "@gangway/sandbox/DockerSandbox"
import * as Executable from "@gangway/sandbox/Executable"
import { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as BridgeBuilds from "./BridgeBuilds.ts"
import * as BridgeProgram from "./BridgeProgram.ts"
import { shortSum } from "./Container.ts"
import { UsageError } from "./Failure.ts"
import { type Container, Registry } from "./Registry.ts"
import { Screen } from "./Screen.ts"

/** Tells the bridge of a container. */
export const bridgeLabel = "dev.gangway.bridge"

/** Tells the directory of a container. */
export const directoryLabel = "dev.gangway.directory"

// A place that any user of a container may write, and that outlives its stops.
const root = "/var/tmp/gangway"

// Where a bridge's files are in its container.
const places = { stateDirectory: `${root}/state`, agentHome: `${root}/agent` }

/** A bridge's container, running, with the bridge program in it. */
export const enter = Effect.fnUntraced(function*(options: {
  readonly bridge: Bridge.BridgeId
  readonly container: Container
  /** The program in the image, where it isn't to be brought in. */
  readonly bridgeCommand: Option.Option<string>
}) {
  const { bridge, container } = options
  const screen = yield* Screen
  const registry = yield* Registry
  // Others of the same name are another user's.
  const name = `gangway-${bridge}-${yield* shortSum(registry.root)}`
  const attach = DockerSandbox.attach({ container: name })
  const create = Effect.gen(function*() {
    yield* screen.note(screen.noteLook.style.dim(`gangway: creating a container of ${container.image}\n`))
    return yield* DockerSandbox.make({
      name,
      image: container.image,
      labels: { [bridgeLabel]: bridge, [directoryLabel]: container.directory },
      mounts: [{ source: container.directory, target: container.directory }],
      keep: true,
      ...asUser()
    })
  })
  const sandbox = yield* attach.pipe(
    Effect.catchIf(isNotFound, () => create),
    // Another one is creating it: the name is taken before the container is there.
    Effect.catchIf(
      (error) => error.reason.problem.includes("already in use"),
      () => Effect.retry(attach, { while: isNotFound, schedule: Schedule.spaced("100 millis"), times: 100 })
    )
  )
  yield* sandbox.wake
  yield* sandbox.run({ command: ["mkdir", "-p", `${root}/home`], timeout: "30 seconds" })
  const command = Option.isSome(options.bridgeCommand)
    ? yield* BridgeProgram.parse(options.bridgeCommand.value)
    : [
      yield* Effect.provideService(
        Executable.install({ name: "gangway-bridge", directory: `${root}/bin`, build: BridgeBuilds.find }),
        Sandbox,
        sandbox
      ).pipe(Effect.catchTag("NoBuild", ({ message }) =>
        new UsageError({
          problem: `${message}: put one beside gangway or where GANGWAY_BRIDGE_BUILDS says, ` +
            "or name one in the image with --bridge-command"
        })))
    ] as const
  return { ...places, sandbox, command, cwd: root }
})

/** Whether nothing runs in a container: it's stopped, or one of ours whose bridge has ended. */
export const isIdle = (container: DockerSandbox.CreatedContainer) =>
  Effect.gen(function*() {
    if (["created", "dead", "exited"].includes(container.status)) return true
    // Of one that another program created it isn't known what runs in it, and for whom.
    if (container.status !== "running" || !(bridgeLabel in container.labels)) return false
    const sandbox = yield* DockerSandbox.attach({ container: container.id })
    const file = yield* sandbox.readFile(Bridge.listeningFile(places.stateDirectory))
    const listening = Option.flatMap(file, (bytes) => decodeListeningFile(new TextDecoder().decode(bytes)))
    // A new one's bridge is still on its way.
    if (Option.isNone(listening)) return (yield* Clock.currentTimeMillis) - Date.parse(container.created) > 120_000
    const { exitCode } = yield* sandbox.run({
      command: ["test", "-d", `/proc/${listening.value.pid}`],
      timeout: "30 seconds"
    })
    return exitCode !== 0
  }).pipe(
    Effect.scoped,
    // Somebody else has stopped or removed it meanwhile.
    Effect.catchIf(({ reason }) => reason._tag === "NotFound" || reason._tag === "NotRunning", () =>
      Effect.succeed(false))
  )

const decodeListeningFile = Schema.decodeOption(Schema.fromJsonString(Bridge.ListeningFile))

const isNotFound = ({ reason }: { readonly reason: { readonly _tag: string } }) => reason._tag === "NotFound"

// What the agent writes is the user's then. One without a name has no home either.
const asUser = () => {
  const [user, group] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0]
  return process.platform !== "linux" || user === 0
    ? {}
    : { user: `${user}:${group}`, env: { HOME: `${root}/home` } }
}
