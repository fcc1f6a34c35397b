import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { TokenStore } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { Effect, FileSystem, type Layer, Redacted } from "effect"

const b1 = Bridge.BridgeId.make("b1")
const b2 = Bridge.BridgeId.make("b2")

const directory = Effect.flatMap(FileSystem.FileSystem, (fileSystem) => fileSystem.makeTempDirectoryScoped())

const store = (layer: Layer.Layer<TokenStore.TokenStore, never, Layer.Success<typeof BunServices.layer>>) =>
  Effect.provide(TokenStore.TokenStore, layer)

describe("TokenStore", () => {
  it.layer(BunServices.layer, { excludeTestServices: true })((it) => {
    it.effect("keeps one token a bridge in memory, of at least 32 characters, and doesn't show it", () =>
      Effect.gen(function*() {
        const tokens = yield* store(TokenStore.layerMemory)
        const token = yield* tokens.get(b1)
        assert.match(Redacted.value(token), /^[\w-]{43}$/)
        assert.strictEqual(Redacted.value(yield* tokens.get(b1)), Redacted.value(token))
        assert.notStrictEqual(Redacted.value(yield* tokens.get(b2)), Redacted.value(token))
        assert.notInclude(JSON.stringify(token), Redacted.value(token))
      }))

    it.effect("keeps them in files for their owner alone, and later hosts find them", () =>
      Effect.gen(function*() {
        const fileSystem = yield* FileSystem.FileSystem
        const path = `${yield* directory}/new/tokens`
        const token = yield* Effect.flatMap(store(TokenStore.layerFile(path)), (tokens) => tokens.get(b1))
        const again = yield* Effect.flatMap(store(TokenStore.layerFile(path)), (tokens) => tokens.get(b1))
        assert.strictEqual(Redacted.value(again), Redacted.value(token))
        assert.deepStrictEqual(yield* fileSystem.readDirectory(path), ["b1.token"])
        assert.strictEqual((yield* fileSystem.stat(path)).mode & 0o777, 0o700)
        assert.strictEqual((yield* fileSystem.stat(`${path}/b1.token`)).mode & 0o777, 0o600)
      }))

    it.effect("gives hosts that come at once the same token", () =>
      Effect.gen(function*() {
        const path = `${yield* directory}/tokens`
        const tokens = yield* Effect.forEach(
          Array.from({ length: 30 }),
          () => Effect.flatMap(store(TokenStore.layerFile(path)), (tokens) => tokens.get(b1)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(new Set(tokens.map(Redacted.value)).size, 1)
        assert.deepStrictEqual(yield* Effect.flatMap(FileSystem.FileSystem, (fs) => fs.readDirectory(path)), [
          "b1.token"
        ])
      }))

    it.effect("fails where the directory can't be used, or the file holds no token", () =>
      Effect.gen(function*() {
        const fileSystem = yield* FileSystem.FileSystem
        const path = yield* directory
        yield* fileSystem.writeFileString(`${path}/file`, "")
        const nowhere = yield* store(TokenStore.layerFile(`${path}/file/tokens`))
        assert.strictEqual((yield* Effect.flip(nowhere.get(b1)))._tag, "TokenStoreError")
        yield* fileSystem.writeFileString(`${path}/b1.token`, "short")
        const short = yield* Effect.flatMap(store(TokenStore.layerFile(path)), (tokens) => Effect.flip(tokens.get(b1)))
        assert.include(short.message, "b1.token holds no token")
        assert.notInclude(short.message, "short")
      }))

    it.effect("gives every bridge the token that the host was given", () =>
      Effect.gen(function*() {
        const given = Redacted.make("g".repeat(40))
        const tokens = yield* store(TokenStore.layerToken(given))
        assert.strictEqual(yield* tokens.get(b1), given)
      }))
  })
})
