/**
 * Where a host keeps the tokens of its bridges: one a bridge, shared by all hosts of that bridge.
 *
 * @since 0.1.0
 */
import type { BridgeId } from "@gangway/protocol/Bridge"
import * as Context from "effect/Context"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Path from "effect/Path"
import type * as PlatformError from "effect/PlatformError"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"

/**
 * A token could be neither read nor made.
 *
 * @remedy Let the host's user write the directory of tokens, or name another one; remove a token's file that holds
 *   none.
 * @client It is `BridgeUnavailable` with the reason `NoToken`, and final.
 * @category errors
 * @since 0.1.0
 */
export class TokenStoreError extends Schema.TaggedError<TokenStoreError>()("TokenStoreError", {
  problem: Schema.String,
  cause: Schema.optional(Schema.Defect())
}) {
  override get message() {
    return this.problem
  }
}

/**
 * Keeps the tokens of bridges.
 *
 * @category services
 * @since 0.1.0
 */
export class TokenStore extends Context.Service<TokenStore, {
  /** The bridge's token; made where there's none yet. Hosts that ask at once get the same one. */
  readonly get: (bridge: BridgeId) => Effect.Effect<Redacted.Redacted<string>, TokenStoreError>
}>()("@gangway/client/TokenStore") {}

/**
 * Keeps tokens in memory: for one process, whose bridges needn't be found by a later one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerMemory: Layer.Layer<TokenStore, never, Crypto.Crypto> = Layer.effect(
  TokenStore,
  Effect.gen(function*() {
    const crypto = yield* Crypto.Crypto
    const tokens = new Map<BridgeId, Redacted.Redacted<string>>()
    return TokenStore.of({
      get: Effect.fnUntraced(function*(bridge) {
        const made = yield* makeToken(crypto)
        const token = tokens.get(bridge) ?? made
        tokens.set(bridge, token)
        return token
      }, Effect.mapError(toError))
    })
  })
)

/**
 * Gives every bridge one token that the host was given.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerToken = (token: Redacted.Redacted<string>): Layer.Layer<TokenStore> =>
  Layer.succeed(TokenStore, TokenStore.of({ get: () => Effect.succeed(token) }))

/**
 * Keeps tokens in a directory of the host, which is made with mode 0700: `<bridge>.token`, mode 0600. Hosts that share
 * the directory agree on each token, also where they make it at once.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerFile = (
  directory: string
): Layer.Layer<TokenStore, never, Crypto.Crypto | FileSystem.FileSystem | Path.Path> =>
  Layer.effect(
    TokenStore,
    Effect.gen(function*() {
      const crypto = yield* Crypto.Crypto
      const fileSystem = yield* FileSystem.FileSystem
      const path = yield* Path.Path

      const read = (file: string) =>
        fileSystem.readFileString(file).pipe(
          Effect.map((text) => Redacted.make(text.trim())),
          Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.undefined)
        )

      // The file is linked to its name when it's whole, so nobody reads half a token, and only the first one is kept.
      const create = Effect.fnUntraced(function*(file: string) {
        yield* fileSystem.makeDirectory(directory, { recursive: true, mode: 0o700 })
        const temporary = `${file}.${Redacted.value(yield* makeToken(crypto)).slice(0, 16)}`
        yield* Effect.ensuring(
          Effect.gen(function*() {
            const handle = yield* fileSystem.open(temporary, { flag: "wx", mode: 0o600 })
            const token = yield* makeToken(crypto)
            yield* handle.writeAll(new TextEncoder().encode(`${Redacted.value(token)}\n`))
            yield* handle.sync
            yield* Effect.catchIf(
              fileSystem.link(temporary, file),
              (error) => error.reason._tag === "AlreadyExists",
              () => Effect.void
            )
          }).pipe(Effect.scoped),
          Effect.ignore(fileSystem.remove(temporary, { force: true }))
        )
      })

      return TokenStore.of({
        get: Effect.fnUntraced(function*(bridge) {
          const file = path.join(directory, `${bridge}.token`)
          const known = yield* read(file)
          if (known !== undefined) return yield* checked(known, file)
          yield* create(file)
          return yield* checked((yield* read(file)) ?? Redacted.make(""), file)
        }, Effect.mapError(toError))
      })
    })
  )

// 32 bytes make 43 characters.
const makeToken = (crypto: Crypto.Crypto) =>
  Effect.map(crypto.randomBytes(32), (bytes) => Redacted.make(Encoding.encodeBase64Url(bytes)))

const checked = (token: Redacted.Redacted<string>, file: string) =>
  Redacted.value(token).length >= 32
    ? Effect.succeed(token)
    : Effect.fail(new TokenStoreError({ problem: `${file} holds no token: remove it, and another one is made` }))

const toError = (cause: PlatformError.PlatformError | TokenStoreError) =>
  cause._tag === "TokenStoreError" ? cause : new TokenStoreError({ problem: cause.message, cause })
