import { assert, describe } from "@effect/vitest"
import { Bridge } from "@gangway/server"
import { Effect, FileSystem, Option, Redacted, Stream } from "effect"
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

  Sessions.test(
    "are no reason to refuse an answer that is given again, also where they aren't known any more",
    Effect.gen(function*() {
      const asks: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          yield* turn.callHostTool({ id: "c1", name: "login", params: {} })
          yield* turn.requestApproval({ approvalId: "a1", toolCallId: "c", name: "Bash", params: {}, edits: false })
          return { finishReason: "stop" }
        })
      const first = yield* Sessions.started(Puppet.make({ asks }), { env: { KEY: secret("hush-hush-0123") } })
      const turn = Sessions.turn(1)
      const answers = (client: Sessions.Client, key: string, url = "https://example.org") =>
        Effect.all([
          Effect.isSuccess(client.SubmitToolResult({
            session: Sessions.session,
            turn,
            toolCallId: "c1",
            result: { header: `Basic ${key}, \ud83d`, urls: [url, `${url}?${key}&${key}`], port: 80 },
            isFailure: false
          })),
          Effect.isSuccess(client.Approve({
            session: Sessions.session,
            turn,
            approvalId: "a1",
            decision: "deny",
            reason: `${key} is ${url}`
          }))
        ])
      yield* first.client.StartTurn(Sessions.act(1, "asks"))
      yield* Sessions.firstPart(first.client, turn, "tool-call")
      const [result] = yield* answers(first.client, "hush-hush-0123")
      assert.isTrue(result)
      yield* Sessions.firstPart(first.client, turn, "tool-approval-request")
      // While the turn runs, it's known what the agent heard.
      assert.deepStrictEqual(yield* answers(first.client, "hush-hush-0123"), [true, true])
      const decided = yield* Sessions.read(first.client, turn)
      assert.include(JSON.stringify(decided.parts), "Basic [redacted:KEY], �")

      yield* first.end
      const { client } = yield* Sessions.launch(Puppet.make({}).driver, first.stateDirectory)
      assert.deepStrictEqual(yield* answers(client, "hush-hush-0123"), [true, true])
      assert.deepStrictEqual(yield* answers(client, "hush-hush-0123", "https://example.com"), [false, false])
      yield* client.StartSession({ ...first.start, env: { KEY: secret("another-one-4567") } })
      assert.deepStrictEqual(yield* answers(client, "hush-hush-0123"), [true, true])
      assert.deepStrictEqual(yield* answers(client, "hush-hush-0123", "[redacted:KEY]"), [false, false])
    })
  )

  Sessions.test(
    "are compared while the turn runs that was answered with them",
    Effect.gen(function*() {
      const calls: Puppet.Act = (turn) =>
        Effect.andThen(turn.callHostTool({ id: "c1", name: "login", params: {} }), Effect.never)
      const { client } = yield* Sessions.started(Puppet.make({ calls }), {
        env: { A: secret("hush-hush-0123"), B: secret("hush-hush-4567") }
      })
      yield* client.StartTurn(Sessions.act(1, "calls"))
      yield* Sessions.firstPart(client, Sessions.turn(1), "tool-call")
      const submit = (result: string) =>
        client.SubmitToolResult({
          session: Sessions.session,
          turn: Sessions.turn(1),
          toolCallId: "c1",
          result,
          isFailure: false
        })
      yield* submit("hush-hush-0123")
      yield* submit("hush-hush-0123")
      for (const other of ["hush-hush-4567", "[redacted:A]", "something"]) {
        const refused = yield* Effect.flip(submit(other))
        assert.strictEqual(refused._tag, "AlreadyAnswered")
        assert.include(JSON.stringify(refused), "[redacted:A]")
      }
    })
  )

  Sessions.test(
    "are replaced where deltas split them, in answers, and in whatever else a part says",
    Effect.gen(function*() {
      const value = "hush-hush-0123"
      let answer: unknown
      const tell: Puppet.Act = (turn) =>
        Effect.gen(function*() {
          for (const delta of ["it's hush", "-hu", "sh-01", "23, and hush-h"]) {
            yield* turn.emit({ type: "text-delta", id: "t", delta })
          }
          yield* turn.emit({ type: "raw", event: { [value]: [value] } })
          const heard = yield* turn.callHostTool({ id: "c1", name: "x", params: { key: value } })
          answer = heard.result
          return { finishReason: "stop" }
        })
      const { client, end, sessionDirectory } = yield* Sessions.started(Puppet.make({ tell }), {
        env: { KEY: secret(value) }
      })
      yield* client.StartTurn(Sessions.act(1, "tell"))
      yield* Sessions.firstPart(client, Sessions.turn(1), "tool-call")
      const submit = { session: Sessions.session, turn: Sessions.turn(1), toolCallId: "c1", isFailure: false }
      yield* client.SubmitToolResult({ ...submit, result: `key ${value}` })
      const { parts } = yield* Sessions.read(client, Sessions.turn(1))
      assert.strictEqual(text(parts), "it's [redacted:KEY], and hush-h")
      // The agent has it as the host gave it; a repeat is the same answer.
      assert.strictEqual(answer, `key ${value}`)
      assert.deepStrictEqual(yield* client.SubmitToolResult({ ...submit, result: `key ${value}` }), { accepted: true })
      yield* end
      const fs = yield* FileSystem.FileSystem
      const file = yield* fs.readFileString(`${sessionDirectory}/turns/t1.ndjson`)
      assert.notInclude(file, value)
      assert.strictEqual(file.split("[redacted:KEY]").length - 1, 5)
    })
  )

  Sessions.test(
    "are replaced in ends: the answer, what failed, why it was aborted",
    Effect.gen(function*() {
      const value = "hush-hush-0123"
      const { client } = yield* Sessions.started(
        Puppet.make({
          answer: () => Effect.succeed({ finishReason: value, output: { key: value } } as never),
          fail: () => Effect.fail(new Bridge.TurnFailed({ kind: "auth", message: `no such key: ${value}` })),
          hang: Puppet.hangs
        }),
        { env: { KEY: secret(value) } }
      )
      const ends: Array<Bridge.End> = []
      for (const [i, name] of ["answer", "fail", "hang"].entries()) {
        const responseFormat = { type: "json", schema: {} } as const
        yield* client.StartTurn({ ...Sessions.act(i, name), responseFormat })
        if (name === "hang") {
          const { session } = Sessions
          ends.push((yield* client.AbortTurn({ session, turn: Sessions.turn(i), reason: `leaks ${value}` })).end)
        }
        ends.push(yield* Sessions.endOf(client, Sessions.turn(i)))
      }
      assert.notInclude(JSON.stringify(ends), value)
      assert.deepInclude(ends[0], { finishReason: "[redacted:KEY]", output: { key: "[redacted:KEY]" } })
      assert.deepInclude(ends[1]?.type === "failed" && ends[1].error, { message: "no such key: [redacted:KEY]" })
      assert.deepInclude(ends[2], { message: "leaks [redacted:KEY]" })
    })
  )

  Sessions.test(
    "don't hide that something is asked again",
    Effect.gen(function*() {
      const value = "hush-hush-0123"
      const asks = (id: string): Puppet.Act => (turn) =>
        Effect.as(turn.callHostTool({ id, name: "x", params: { key: value } }), { finishReason: "stop" })
      const { client } = yield* Sessions.started(Puppet.make({ ask: asks("c1"), nudge: asks("c2") }), {
        env: { KEY: secret(value) }
      })
      const key = { session: Sessions.session, turn: Sessions.turn(1) }
      yield* client.StartTurn(Sessions.act(1, "ask"))
      yield* Sessions.firstPart(client, key.turn, "tool-call")
      yield* client.AbortTurn(key)
      const { from } = yield* client.StartTurn({ ...key, attempt: 2 })
      const asked = yield* client.ReadTurn({ ...key, from }).pipe(
        Stream.flatMap((event) => Stream.fromIterable("parts" in event ? event.parts : [])),
        Stream.filter(({ part }) => part.type === "tool-call"),
        Stream.runHead
      )
      assert.deepInclude(Option.getOrThrow(asked).part, { id: "c2", replaces: "c1" })
    })
  )
})
