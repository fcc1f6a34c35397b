/**
 * Makes clients.
 */
import type { BridgeId } from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Address, BridgeClient, ConnectOptions } from "../BridgeClient.ts"
import type { BridgeUnavailable } from "../BridgeUnavailable.ts"
import * as Connection from "./connection.ts"
import { type Connector, make as makeCore } from "./core.ts"
import * as Session from "./session.ts"
import * as Statuses from "./statuses.ts"

const defaultHost: Connection.Host = { name: "@gangway/client", version: "0.1.0" }

export const toHello = ({ host = defaultHost, pings = true }: ConnectOptions) => ({ host, pings })

/** Connects, and gives what a host uses. */
export const make = Effect.fnUntraced(function*(
  options: ConnectOptions,
  makeConnector: (tell: Statuses.Tell) => Connector
): Effect.fn.Return<BridgeClient["Service"], BridgeUnavailable, Scope.Scope> {
  const { bridge, reconnectFor = "5 minutes" } = options
  const tell = yield* Statuses.make(options.onStatus)
  const core = yield* makeCore({ bridge, connector: makeConnector(tell), tell, reconnectFor })
  yield* core.connection({ launch: true })
  return {
    bridge,
    hello: core.call((commands) => commands.Hello(Connection.helloPayload(toHello(options)))).pipe(
      Effect.catchTag("ProtocolMismatch", (error) => core.unavailable({ _tag: "ProtocolMismatch", error }))
    ),
    startSession: (options) => Session.start(core, options),
    session: (session) => Session.attach(core, session)
  }
})

/** Finds a bridge at its address, and another launch of it that holds a session at the address's other ports. */
export const fromAddress = (
  options: ConnectOptions & {
    readonly bridge: BridgeId
    readonly address: Effect.Effect<Address, BridgeUnavailable>
  }
): Connector => {
  const open = (change: (url: URL) => void) =>
    options.address.pipe(
      Effect.mapError(({ reason }) => new Connection.Lost({ reason, final: true })),
      Effect.flatMap(({ headers = {}, token, url }) => {
        const target = new URL(url)
        change(target)
        return Connection.open({
          bridge: options.bridge,
          port: Number(target.port || (target.protocol === "https:" ? 443 : 80)),
          address: { url: target, headers, token },
          ...toHello(options)
        })
      })
    )
  return {
    connect: () => open(() => {}),
    connectTo: (port) =>
      open((url) => {
        url.port = String(port)
      })
  }
}
