import { assert, describe } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Puppet from "./fixtures/puppet.ts"
import * as Sessions from "./fixtures/sessions.ts"

const secret = (value: string) => Redacted.make(value)

const text = (parts: ReadonlyArray<{ readonly part: { readonly type: string } }>) =>
  parts.map(({ part }) => "delta" in part ? part.delta : "").join("")

describe("a session's secrets", () => {
  Sessions.test(
    "are all replaced, also where servers and the environment have them by one name",
    Effect.gen(function*() {
      const puppet = Puppet.make({
        tell: Puppet.says("first-secret second-secret third-secret fourth-secret, Basic fifth-secret")
      })
      const server = (name: string, header: string) =>
        ({ type: "http", name, url: "http://127.0.0.1:9/", headers: { Authorization: secret(header) } }) as const
      const stdio = { type: "stdio", name: "c", command: "c", env: { KEY: secret("third-secret") } } as const
      const { client } = yield* Sessions.started(puppet, {
        env: { KEY: secret("fourth-secret"), token: secret("Basic fifth-secret") },
        mcpServers: [server("a", "first-secret"), server("b", "Bearer second-secret"), stdio]
      })
      yield* client.StartTurn(Sessions.act(1, "tell"))
      const { parts } = yield* Sessions.read(client, Sessions.turn(1))
      assert.strictEqual(
        text(parts),
        "[redacted:Authorization] [redacted:Authorization] [redacted:KEY] [redacted:KEY], [redacted:token]"
      )
    })
  )

  Sessions.test(
    "stay replaced when the session is started with others: what runs has them",
    Effect.gen(function*() {
      const puppet = Puppet.make({ tell: Puppet.says("the-old-secret the-new-secret") })
      const { client, start } = yield* Sessions.started(puppet, { env: { KEY: secret("the-old-secret") } })
      yield* client.StartSession({ ...start, env: { KEY: secret("the-new-secret") } })
      yield* client.StartTurn(Sessions.act(1, "tell"))
      const { parts } = yield* Sessions.read(client, Sessions.turn(1))
      assert.strictEqual(text(parts), "[redacted:KEY] [redacted:KEY]")
    })
  )
})
