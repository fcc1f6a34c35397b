/**
 * Digests of JSON, and random names. Web Crypto is a global of every runtime that Effect supports, so no service is
 * asked for.
 */
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"

/** JSON text in which equal values are equal text: keys sorted, nothing between tokens. */
export const canonicalJson = (value: unknown): string =>
  JSON.stringify(value, (_, nested) =>
    nested !== null && typeof nested === "object" && !Array.isArray(nested)
      ? Object.fromEntries(Object.entries(nested).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : nested) ?? "null"

/** SHA-256 of text, in hexadecimal. */
export const sha256 = (text: string): Effect.Effect<string> =>
  Effect.map(
    Effect.promise(() => globalThis.crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))),
    (digest) => Encoding.encodeHex(new Uint8Array(digest))
  )

/** SHA-256 of the canonical JSON of a value, in hexadecimal. */
export const digestJson = (value: unknown): Effect.Effect<string> => sha256(canonicalJson(value))

/** A random name of 32 hexadecimal digits. */
export const randomName: Effect.Effect<string> = Effect.sync(() =>
  Encoding.encodeHex(globalThis.crypto.getRandomValues(new Uint8Array(16)))
)
