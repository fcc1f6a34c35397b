/**
 * Looks at a bridge as it is: nothing is launched, and no sandbox is woken for it.
 */
import * as BridgeClient from "@gangway/client/BridgeClient"
import * as BridgeUnavailable from "@gangway/client/BridgeUnavailable"
import * as TokenStore from "@gangway/client/TokenStore"
import { Bridge } from "@gangway/protocol"
import * as LocalSandbox from "@gangway/sandbox/LocalSandbox"
import type { Sandbox } from "@gangway/sandbox/Sandbox"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { host } from "./Connect.ts"
import { type BridgeRecord, Registry } from "./Registry.ts"
import { findPlace } from "./sandboxes/Enter.ts"

/** Where a bridge's own files are. */
export interface Place {
  readonly sandbox: Sandbox["Service"]
  readonly stateDirectory: string
}

/** The place of a bridge; none where its sandbox is gone. */
export const placeOf = Effect.fnUntraced(function*(bridge: Bridge.BridgeId, { sandbox }: BridgeRecord) {
  if (sandbox !== undefined) return yield* findPlace(bridge, sandbox)
  const { places } = yield* Registry
  return { sandbox: yield* LocalSandbox.make, stateDirectory: places(bridge).stateDirectory } satisfies Place
})

const decodeListeningFile = Schema.decodeOption(Schema.fromJsonString(Bridge.ListeningFile))

/** Connects to the bridge that serves a place, until the scope closes; none where none does. */
export const open = Effect.fnUntraced(function*(bridge: Bridge.BridgeId, { sandbox, stateDirectory }: Place) {
  const { tokens } = yield* Registry
  const file = Option.flatMap(
    yield* sandbox.readFile(Bridge.listeningFile(stateDirectory)),
    (bytes) => decodeListeningFile(new TextDecoder().decode(bytes))
  )
  if (Option.isNone(file)) return undefined
  const { launch, pid, port } = file.value
  const store = yield* Effect.provide(TokenStore.TokenStore, TokenStore.layerFile(tokens))
  const unavailable = (reason: BridgeUnavailable.Reason) => new BridgeUnavailable.BridgeUnavailable({ bridge, reason })
  // One that dies meanwhile is nobody, too.
  const found = yield* BridgeClient.make({
    bridge,
    host,
    reconnectFor: 0,
    address: Effect.all({
      endpoint: Effect.mapError(sandbox.endpoint(port), (error) => unavailable({ _tag: "SandboxFailed", error })),
      token: Effect.mapError(store.get(bridge), ({ message }) => unavailable({ _tag: "NoToken", problem: message }))
    }).pipe(Effect.map(({ endpoint, token }) => ({ ...endpoint, token })))
  }).pipe(
    Effect.flatMap((client) => Effect.map(client.hello, (hello) => ({ client, hello, pid }))),
    Effect.catchIf(({ reason }) => isNobody(reason, launch), () => Effect.undefined)
  )
  return found?.hello.launch === launch ? found : undefined
})

// Nobody is at the file's address, or somebody else.
const isNobody = (reason: BridgeUnavailable.Reason, launch: string): boolean =>
  reason._tag === "Refused" || reason._tag === "WrongBridge" || reason._tag === "UnexpectedStatus" ||
  (reason._tag === "TokenMismatch" && reason.launch !== launch)
