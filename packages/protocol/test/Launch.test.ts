import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Effect, Schema } from "effect"

const decode = Schema.decodeUnknownEffect(Schema.toCodecJson(Bridge.LaunchOptions))

const secret = "sEcReT"
const right = {
  token: "t".repeat(32),
  bridge: "b1",
  stateDirectory: "/var/lib/gangway/b1",
  agentOptions: { agent: "scripted" }
}

// For each field what isn't of its type, and what is of it and wrong all the same.
const wrong: { readonly [K in keyof Required<Bridge.LaunchOptions>]: ReadonlyArray<unknown> } = {
  token: [secret, `${secret} `.repeat(9), 8_675_309],
  bridge: [secret, `b/${secret}`, 8_675_309],
  stateDirectory: [secret, `/${secret}\0`, 8_675_309],
  agentOptions: [secret, { agent: secret }, { agent: [secret] }, 8_675_309],
  port: [secret, 8_675_309, -8_675_309, 86.75, "80"],
  hostname: [secret + "/", `a..${secret}`, `-${secret}`, "256.86.75.3", "86.75", "::86.75:x", "", 8_675_309],
  launch: [secret, `${secret}/../..`, 8_675_309],
  idleTimeout: [secret, "-8675 seconds", "0 seconds", 8_675_309],
  previousToken: [secret, 8_675_309],
  allowedOrigins: [secret, [secret], [`https://${secret}.example/`], ["*"], [8_675_309], 8_675_309],
  sync: [secret, 8_675_309, "true"],
  maxTurnBytes: [secret, 867_530, -8_675_309, 86_753_090.5],
  keepAwake: [
    secret,
    { url: secret, headers: {}, every: "30 seconds" },
    { url: `ftp://${secret}/`, headers: {}, every: "30 seconds" },
    { url: "https://a.example/", headers: secret, every: "30 seconds" },
    { url: "https://a.example/", headers: {}, every: "0 seconds" },
    8_675_309
  ]
}
const fields = Object.keys(wrong) as ReadonlyArray<keyof typeof wrong>

const problemWith = (field: string, value: unknown) =>
  Effect.map(Effect.flip(decode({ ...right, [field]: value })), ({ issue }) => Bridge.launchProblem(issue))

describe("launchProblem", () => {
  it.effect("says in one line which field is wrong and what was expected, in one wording a field, without the value", () =>
    Effect.gen(function*() {
      for (const field of fields) {
        const said = yield* Effect.forEach(wrong[field], (value) => problemWith(field, value))
        for (const problem of said) {
          assert.match(problem.field!, new RegExp(`^${field}(\\.\\w+)?$`))
          assert.match(problem.expected, /^expected [^\n]+$/)
          assert.notMatch(problem.expected, /sEcReT|8675|867530|86\.75|number \||string|boolean/)
        }
        const ofField = said.filter((problem) => problem.field !== "agentOptions.agent")
        assert.strictEqual(new Set(ofField.map(({ expected }) => expected)).size, 1)
      }
    }))

  it.effect.prop(
    "says so of whatever a field is that it can't be",
    { field: Schema.Literals(fields), value: Schema.Json },
    ({ field, value }) =>
      Effect.gen(function*() {
        const result = yield* Effect.result(decode({ ...right, [field]: value }))
        if (result._tag === "Success") return
        const problem = Bridge.launchProblem(result.failure.issue)
        assert.strictEqual(problem.field?.split(".")[0], field)
        assert.match(problem.expected, /^(expected|is missing)[^\n]*$/)
        const { expected } = yield* problemWith(field, wrong[field][0])
        if (problem.field === field) assert.strictEqual(problem.expected, expected)
      })
  )

  it.effect("says what names the agent's user", () =>
    Effect.gen(function*() {
      for (const agentUser of [true, "", -3, 1.5, { name: secret }]) {
        const { expected, field } = yield* problemWith("agentOptions", { agent: "scripted", agentUser })
        assert.strictEqual(`${field}: ${expected}`, "agentOptions.agentUser: expected the name or the uid of a user")
      }
      for (const agentUser of ["nobody", 0, 65_534]) {
        yield* decode({ ...right, agentOptions: { agent: "scripted", agentUser } })
      }
    }))

  it.effect("says of a driver's own options what JSON can be, and names a field in one line", () =>
    Effect.gen(function*() {
      const Options = Schema.Struct({
        count: Schema.optional(Schema.Finite),
        kind: Schema.Literals(["a", "b"]),
        env: Schema.Record(Schema.String, Schema.String)
      })
      const decodeOwn = Schema.decodeUnknownEffect(Schema.toCodecJson(Options))
      const said = Effect.fnUntraced(function*(options: object) {
        const { issue } = yield* Effect.flip(decodeOwn({ kind: "a", env: {}, ...options }))
        const { expected, field } = Bridge.launchProblem(issue, ["agentOptions"])
        return `${field}: ${expected}`
      })
      assert.strictEqual(yield* said({ count: secret }), "agentOptions.count: expected a number")
      assert.strictEqual(yield* said({ kind: secret }), "agentOptions.kind: expected \"a\" or \"b\"")
      assert.strictEqual(yield* said({ env: { "A\nB\0": 1 } }), "agentOptions.env.A B : expected a string")
      assert.strictEqual(yield* said({ env: undefined }), "agentOptions.env: expected an object")
    }))

  it.effect("takes addresses and names of machines", () =>
    Effect.forEach(
      ["localhost", "0.0.0.0", "127.0.0.1", "::", "::1", "2001:db8::192.0.2.1", "a-b.example", "3com.example", "x"],
      (hostname) => decode({ ...right, hostname }),
      { discard: true }
    ))
})
