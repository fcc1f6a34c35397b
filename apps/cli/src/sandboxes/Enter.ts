/**
 * The sandboxes that bridges run in, of any kind: made ready for a bridge, and found again.
 */
import type { Bridge } from "@gangway/protocol"
import * as Executable from "@gangway/sandbox/Executable"
import { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as BridgeBuilds from "../BridgeBuilds.ts"
import * as BridgeProgram from "../BridgeProgram.ts"
import * as Copy from "../copy/Copy.ts"
import * as Trees from "../copy/Trees.ts"
import { UsageError } from "../Failure.ts"
import { Registry, type SandboxRecord } from "../Registry.ts"
import { daytona } from "./Daytona.ts"
import { docker } from "./Docker.ts"
import { type Kind, placesIn } from "./Kind.ts"

/** Each kind by its name. */
export const kinds: Readonly<Record<SandboxRecord["kind"], Kind>> = { docker, daytona }

/** A bridge's sandbox, running, with the bridge program and the directory in it. */
export const enter = Effect.fnUntraced(function*(options: {
  readonly bridge: Bridge.BridgeId
  readonly record: SandboxRecord
  /** The program in the image, where it isn't to be brought in. */
  readonly bridgeCommand: Option.Option<string>
}) {
  const { bridge, record } = options
  const path = yield* Path.Path
  const kind = kinds[record.kind]
  const sandbox = yield* kind.enter({ bridge, record })
  yield* sandbox.wake
  const root = yield* rootOf(sandbox, bridge, record)
  yield* sandbox.run({ command: ["mkdir", "-p", `${root}/home`], timeout: "30 seconds" })
  const copy = record.copy
    ? yield* Copy.bringIn(sandbox, root, record.directory, yield* treesOf(bridge))
    : undefined
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
  return {
    ...placesIn(root),
    sandbox,
    command,
    cwd: root,
    // Where in the sandbox a directory of this machine is.
    directoryOf: (directory: string) =>
      copy === undefined ? directory : path.join(copy.directory, path.relative(record.directory, directory))
  }
})

/** Where a bridge's files are, in a sandbox that's left as it is; nowhere where that's gone. */
export const findPlace = Effect.fnUntraced(function*(bridge: Bridge.BridgeId, record: SandboxRecord) {
  const sandbox = Option.getOrUndefined(yield* kinds[record.kind].find({ bridge, record }))
  if (sandbox === undefined) return undefined
  return { sandbox, stateDirectory: placesIn(yield* rootOf(sandbox, bridge, record)).stateDirectory }
})

/** The copy that a bridge's sandbox has, with what's known of it here. */
export const findCopy = Effect.fnUntraced(function*(bridge: Bridge.BridgeId, record: SandboxRecord | undefined) {
  if (record === undefined || !record.copy) {
    return yield* new UsageError({
      problem: `what bridge ${bridge} works on isn't a copy: all changes are here already`
    })
  }
  const kind = kinds[record.kind]
  const sandbox = Option.getOrUndefined(yield* kind.find({ bridge, record }))
  if (sandbox === undefined) return yield* new UsageError({ problem: `the sandbox of bridge ${bridge} is gone` })
  yield* sandbox.wake
  const root = yield* rootOf(sandbox, bridge, record)
  const copy = Option.getOrUndefined(yield* Copy.find(sandbox, root, record.directory))
  const trees = yield* treesOf(bridge)
  if (copy === undefined || !(yield* trees.has(Copy.baseOf(copy)))) {
    return yield* new UsageError({ problem: `the sandbox of bridge ${bridge} has no copy that was made from here` })
  }
  return { copied: { sandbox, root, copy, trees }, directory: record.directory }
})

// One that was there before may have several bridges.
const rootOf = (sandbox: Sandbox["Service"], bridge: Bridge.BridgeId, { from, kind }: SandboxRecord) =>
  Effect.map(kinds[kind].root(sandbox), (root) => from?.sandbox === undefined ? root : `${root}/${bridge}`)

const treesOf = Effect.fnUntraced(function*(bridge: Bridge.BridgeId) {
  return yield* Trees.open((yield* Registry).places(bridge).trees)
})
