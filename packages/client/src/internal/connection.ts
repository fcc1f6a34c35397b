/**
 * A connection to a bridge: an open socket on which `Hello` was answered.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as FetchHttpClient from "effect/unstable/http/FetchHttpClient"
import * as RpcClient from "effect/unstable/rpc/RpcClient"
import type { RpcClientError } from "effect/unstable/rpc/RpcClientError"
import type * as RpcGroup from "effect/unstable/rpc/RpcGroup"
import type { Reason } from "../BridgeUnavailable.ts"
import * as Socket from "./socket.ts"

const commands = Bridge.Rpcs.omit("ReadTurn")

export type Commands = RpcClient.RpcClient<RpcGroup.Rpcs<typeof commands>, RpcClientError>

/** Where a bridge is, and what opens it. */
export interface Address {
  /** An `http:` or `https:` URL. */
  readonly url: URL
  readonly headers: Readonly<Record<string, Redacted.Redacted<string>>>
  readonly token: Redacted.Redacted<string>
}

/** What a host says of itself. */
export interface Host {
  readonly name: string
  readonly version: string
}

export interface Connection {
  readonly hello: Bridge.HelloReply
  /** The bridge's port, as its listening file names it. */
  readonly port: number
  readonly commands: Commands
  readonly socket: Socket.Socket
}

/** The connection broke, or never came to be; `final` where trying again is of no use. */
export class Lost extends Data.TaggedError("Lost")<{ readonly reason: Reason; readonly final?: boolean }> {}

const deadline = "10 seconds"

/** Opens a connection, closed with the scope: `Hello` is answered within 10 s, by the bridge of that id. */
export const open = (options: {
  readonly address: Address
  readonly port: number
  readonly bridge: Bridge.BridgeId
  readonly host: Host
  readonly pings: boolean
}): Effect.Effect<Connection, Lost, Scope.Scope> =>
  Effect.gen(function*() {
    const { address, bridge, port } = options
    const url = new URL(address.url)
    const headers = Object.fromEntries(
      Object.entries(address.headers).map(([name, value]) => [name, Redacted.value(value)])
    )
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:"
    const socket = yield* Socket.open({
      url: url.href,
      protocols: ["bridge.v1", `bridge.token.${Encoding.encodeBase64Url(Redacted.value(address.token))}`],
      headers,
      pings: options.pings
    }).pipe(
      Effect.catch((reason) =>
        Effect.flatMap(reason === undefined ? diagnose(address, headers) : Effect.succeed(reason), (reason) =>
          new Lost({ reason }))
      )
    )
    const commands_ = yield* RpcClient.make(commands, { generateRequestId: socket.makeRequestId }).pipe(
      Effect.provideService(RpcClient.Protocol, socket.protocol)
    )
    const hello = yield* attempt(commands_.Hello(helloPayload(options))).pipe(
      Effect.catchTag("ProtocolMismatch", (error) =>
        new Lost({ reason: { _tag: "ProtocolMismatch", error } }))
    )
    if (hello.bridge !== bridge) {
      return yield* new Lost({ reason: { _tag: "WrongBridge", bridge: hello.bridge, launch: hello.launch } })
    }
    return { hello, port, commands: commands_, socket }
  }).pipe(
    Effect.timeoutOrElse({ duration: deadline, orElse: () => new Lost({ reason: { _tag: "TimedOut" } }) })
  )

export const helloPayload = ({ host, pings }: { readonly host: Host; readonly pings: boolean }) => ({
  host,
  protocol: Bridge.protocolVersion,
  ...(pings ? {} : { pings })
})

/**
 * Turns what can go wrong with a call besides its own errors into `Lost`: the connection's end, a remote defect. An
 * interruption that is seen here is the closed client's, for a fiber that's interrupted itself runs no handler.
 */
export const attempt = <A, E, R>(
  call: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, RpcClientError> | Lost, R> =>
  Effect.catchCause(call, (cause): Effect.Effect<never, Exclude<E, RpcClientError> | Lost> => {
    const error = Cause.findErrorOption(cause)
    if (Option.isNone(error)) {
      const reason: Reason = Cause.hasInterruptsOnly(cause)
        ? { _tag: "Disconnected", code: 1006, problem: "" }
        : { _tag: "ProtocolError", problem: problemOf(Cause.squash(cause)) }
      return Effect.fail(new Lost({ reason }))
    }
    return Effect.fail(
      isRpcClientError(error.value)
        ? new Lost({ reason: Socket.reasonOf(error.value) })
        : error.value as Exclude<E, RpcClientError>
    )
  })

// A defect is what the bridge says is wrong, or an answer of it that isn't as this client knows it.
const problemOf = (defect: unknown): string =>
  Schema.isSchemaError(defect)
    ? `its answer isn't what this client knows: ${defect.message}`
    : Socket.defectText(defect)

const isRpcClientError = (error: unknown): error is RpcClientError =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === "RpcClientError"

// A WebSocket doesn't tell why it didn't open, so a plain request asks. The token goes in its header, which no proxy
// keeps in its log, and nothing follows a redirect with it.
const diagnose = Effect.fnUntraced(function*(address: Address, headers: Readonly<Record<string, string>>) {
  const fetch = yield* FetchHttpClient.Fetch
  return yield* Effect.tryPromise((signal) =>
    fetch(address.url, {
      redirect: "manual",
      ...direct,
      headers: { ...headers, "X-Bridge-Token": Redacted.value(address.token) },
      signal
    })
  ).pipe(
    Effect.map((response): Reason => {
      const { status } = response
      if (response.type === "opaqueredirect") return { _tag: "Redirected", status: 307 }
      if (status === 401) {
        const launch = response.headers.get("x-bridge-launch")
        return launch === null ? { _tag: "TokenMismatch" } : { _tag: "TokenMismatch", launch }
      }
      if (status === 403) return { _tag: "Forbidden" }
      if (status === 426) return { _tag: "UpgradeRefused" }
      if (status >= 300 && status < 400) return { _tag: "Redirected", status }
      if (status >= 502 && status <= 504) return { _tag: "BadGateway", status }
      return { _tag: "UnexpectedStatus", status }
    }),
    Effect.catch((error) => Effect.succeed(fetchReason(error.cause))),
    Effect.timeoutOrElse({
      duration: "5 seconds",
      orElse: () =>
        Effect.succeed<Reason>({ _tag: "Unreachable", problem: "it neither opens nor refuses a connection" })
    })
  )
})

// A WebSocket goes straight to its address. Bun's `fetch` would ask the proxy that the environment names, and give it
// the token; its types and other platforms don't know the option.
const direct: object = { proxy: false }

const fetchReason = (error: unknown): Reason => {
  const codes = errorCodes(error)
  return codes.some((code) => code === "ECONNREFUSED" || code === "ConnectionRefused")
    ? { _tag: "Refused" }
    : { _tag: "Unreachable", problem: codes[0] ?? String(error) }
}

// Bun puts the code on the error, Node on its cause, or on the errors of a cause with one for each address.
const errorCodes = (error: unknown): ReadonlyArray<string> => {
  if (typeof error !== "object" || error === null) return []
  const { cause, code, errors } = error as { cause?: unknown; code?: unknown; errors?: ReadonlyArray<unknown> }
  return [...(typeof code === "string" ? [code] : []), ...errorCodes(cause), ...(errors ?? []).flatMap(errorCodes)]
}
