/**
 * What the command line asks of a kind of sandbox: to find or create a bridge's, and to look after what is left.
 */
import { Bridge } from "@gangway/protocol"
import type { Sandbox, SandboxError } from "@gangway/sandbox/Sandbox"
import * as Clock from "effect/Clock"
import type { Crypto } from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import type { UsageError } from "../Failure.ts"
import type { Registry, RegistryError, SandboxRecord } from "../Registry.ts"
import type { Screen } from "../Screen.ts"

type Services = ChildProcessSpawner | Crypto | Registry | Scope.Scope | Screen

type Failures = RegistryError | SandboxError | UsageError

/** A bridge and the sandbox it's known to have. */
export interface Wanted {
  readonly bridge: Bridge.BridgeId
  readonly record: SandboxRecord
}

/** A sandbox that Gangway created. */
export interface Listed {
  /** Short, and enough for it to be named by. */
  readonly id: string
  readonly name: string
  /** What it was made of, and how it is. */
  readonly words: ReadonlyArray<string>
  readonly labels: Readonly<Record<string, string>>
  /** Whether nothing runs in it, that bridges may or may not. */
  readonly state: "running" | "stopped" | "other"
  /** An ISO time, where it's told. */
  readonly created?: string | undefined
  readonly attach: Effect.Effect<Sandbox["Service"], SandboxError | UsageError, Services>
  readonly remove: Effect.Effect<void, SandboxError | UsageError, Services>
}

export interface Kind {
  /** The sandbox of a bridge; `None` where there's none, or no more. */
  readonly find: (wanted: Wanted) => Effect.Effect<Option.Option<Sandbox["Service"]>, Failures, Services>
  /** The sandbox of a bridge, created where there's none. Where two do so at once, both get the same. */
  readonly enter: (wanted: Wanted) => Effect.Effect<Sandbox["Service"], Failures, Services>
  /** The directory in a sandbox, which runs, that a bridge keeps its files in. */
  readonly root: (sandbox: Sandbox["Service"]) => Effect.Effect<string, SandboxError>
  /** The sandboxes that this user may remove. */
  readonly list: Effect.Effect<ReadonlyArray<Listed>, Failures, Services>
}

/** Tells the bridge of a sandbox. */
export const bridgeLabel = "dev.gangway.bridge"

/** Tells the directory of a sandbox. */
export const directoryLabel = "dev.gangway.directory"

export const labelsOf = ({ bridge, record }: Wanted) => ({
  [bridgeLabel]: bridge,
  [directoryLabel]: record.directory
})

/** Where a bridge's files are in its sandbox. */
export const placesIn = (root: string) => ({ stateDirectory: `${root}/state`, agentHome: `${root}/agent` })

export const isNotFound = ({ reason }: SandboxError) => reason._tag === "NotFound"

/** Whether nothing runs in a sandbox: it's stopped, or one of ours whose bridge has ended. */
export const isIdle = (kind: Kind, listed: Listed) =>
  Effect.gen(function*() {
    if (listed.state === "stopped") return true
    // Of one that another program created it isn't known what runs in it, and for whom.
    if (listed.state !== "running" || !(bridgeLabel in listed.labels)) return false
    const sandbox = yield* listed.attach
    const { stateDirectory } = placesIn(yield* kind.root(sandbox))
    const file = yield* sandbox.readFile(Bridge.listeningFile(stateDirectory))
    const listening = Option.flatMap(file, (bytes) => decodeListeningFile(new TextDecoder().decode(bytes)))
    // A new one's bridge is still on its way.
    if (Option.isNone(listening)) {
      return listed.created !== undefined &&
        (yield* Clock.currentTimeMillis) - Date.parse(listed.created) > 120_000
    }
    const { exitCode } = yield* sandbox.run({
      command: ["test", "-d", `/proc/${listening.value.pid}`],
      timeout: "30 seconds"
    })
    return exitCode !== 0
  }).pipe(
    Effect.scoped,
    // Somebody else has stopped or removed it meanwhile.
    Effect.catchIf(
      (error) =>
        error._tag === "SandboxError" && (error.reason._tag === "NotFound" || error.reason._tag === "NotRunning"),
      () => Effect.succeed(false)
    )
  )

const decodeListeningFile = Schema.decodeOption(Schema.fromJsonString(Bridge.ListeningFile))
