/**
 * The token that hosts present, and where it stands in a request. Web Crypto is a global of every runtime that Effect
 * supports, so no service is asked for.
 */
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Result from "effect/Result"
import * as Headers from "effect/unstable/http/Headers"
import type * as HttpServerRequest from "effect/unstable/http/HttpServerRequest"

const tokenHeader = "x-bridge-token"

// Browsers can't set any other.
const protocolHeader = "sec-websocket-protocol"

// The subprotocol that's offered first, and echoed.
const subprotocol = "bridge.v1"

const tokenPrefix = "bridge.token."

/** What a request says of itself. */
export interface Credentials {
  /** Whether subprotocols are offered, and `bridge.v1` isn't the first of them. */
  readonly foreign: boolean
  readonly token: string | undefined
}

/** SHA-256 of a token. */
export const digest = (token: string): Effect.Effect<Uint8Array> =>
  Effect.map(
    Effect.promise(() => globalThis.crypto.subtle.digest("SHA-256", new TextEncoder().encode(token))),
    (buffer) => new Uint8Array(buffer)
  )

/** Whether a digest is one of the accepted, in a time that tells neither which nor how far they agree. */
export const isAccepted = (digest: Uint8Array, accepted: ReadonlyArray<Uint8Array>): boolean => {
  let found = 0
  for (const candidate of accepted) {
    let difference = digest.length ^ candidate.length
    for (let i = 0; i < candidate.length; i++) difference |= digest[i]! ^ candidate[i]!
    found |= Number(difference === 0)
  }
  return found === 1
}

/**
 * Reads the credentials, and takes the token out of the request's headers, so that whoever has it afterwards can't read
 * it there: handlers, logs, and the tracer, which writes down all headers when the request ends.
 */
export const takeCredentials = (request: HttpServerRequest.HttpServerRequest): Credentials => {
  const offered = request.headers[protocolHeader]
  const entries = offered === undefined ? [] : offered.split(",").map((entry) => entry.trim())
  const encoded = entries.find((entry) => entry.startsWith(tokenPrefix))?.slice(tokenPrefix.length)
  const token = request.headers[tokenHeader] ?? (encoded === undefined ? undefined : decode(encoded))
  // In place: the tracer holds the same request. What's left of the subprotocols is what is echoed.
  const headers = request.headers as Record<string, string>
  delete headers[tokenHeader]
  if (offered !== undefined) headers[protocolHeader] = subprotocol
  return { foreign: entries.length > 0 && entries[0] !== subprotocol, token }
}

const decode = (encoded: string): string | undefined => Result.getOrUndefined(Encoding.decodeBase64UrlString(encoded))

/** Runs an effect with the names of both headers among those that are never shown. */
export const withRedactedNames = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.updateService(effect, Headers.CurrentRedactedNames, (names) => [...names, tokenHeader, protocolHeader])
