import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { change } from "../src/copy/Files.ts"

// As `git hash-object` names "one\n" and the link to it.
const one = "5626abf0f72e58d7a153368ba57db4c673c0e171"
const link = "43dd47ea691c90a5fa7827892c70241913351963"

describe("a change that's pulled", () => {
  it.live("is made where the file is still what it was, and otherwise leaves it as it is", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const file = `${directory}/file`
      const to = { mode: "100644", blob: "" } as const
      const make = (path: string, from: string, next: { readonly to?: typeof to }) =>
        change(directory, { path, from, isNew: false, ...next }, new TextEncoder().encode("two\n"))

      yield* fs.writeFileString(file, "one\n")
      yield* make("file", one, { to })
      assert.strictEqual(yield* fs.readFileString(file), "two\n")
      // It's no more what it was.
      for (const next of [{ to }, {}]) {
        const error = yield* Effect.flip(make("file", one, next))
        assert.include(error.message, "file was changed here meanwhile")
      }
      assert.strictEqual(yield* fs.readFileString(file), "two\n")
      assert.deepStrictEqual(yield* fs.readDirectory(directory), ["file"])

      yield* fs.symlink("one", `${directory}/link`)
      yield* make("link", link, { to })
      assert.strictEqual(yield* fs.readFileString(`${directory}/link`), "two\n")
      yield* Effect.flip(make("gone", one, { to }))
      assert.isFalse(yield* fs.exists(`${directory}/gone`))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
