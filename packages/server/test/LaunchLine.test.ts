import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { Cause, Duration, Effect, Fiber, PlatformError, Redacted, Runtime, Schema, Sink, Stdio, Stream } from "effect"
import { TestClock } from "effect/testing"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { LaunchLineError, readLaunchOptions } from "../src/LaunchLine.ts"

const secret = "sEcReT"
const options = {
  token: `${secret}-${"t".repeat(32)}`,
  bridge: "b1",
  stateDirectory: "/var/lib/gangway/b1",
  agentOptions: { agent: "scripted", key: secret }
}
const line = (changes: object = {}) => JSON.stringify({ ...options, ...changes })
const encode = (text: string) => new TextEncoder().encode(text)

const readFrom = (stdin: Stream.Stream<Uint8Array, PlatformError.PlatformError>) =>
  Effect.provideService(
    readLaunchOptions,
    Stdio.Stdio,
    Stdio.make({ args: Effect.succeed([]), stdin, stdout: () => Sink.drain, stderr: () => Sink.drain })
  )
const read = (text: string | Uint8Array) => readFrom(Stream.make(typeof text === "string" ? encode(text) : text))

describe("LaunchLine", () => {
  it.effect("reads all that a host can say", () =>
    Effect.gen(function*() {
      const all = {
        ...options,
        port: 4711,
        hostname: "127.0.0.1",
        launch: "launch_0-9",
        allowedOrigins: ["https://a.example"],
        sync: true,
        maxTurnBytes: 1024 * 1024
      }
      const { idleTimeout, keepAwake, previousToken, ...rest } = yield* read(
        `${
          JSON.stringify({
            ...all,
            previousToken: "p".repeat(32),
            idleTimeout: "10 minutes",
            keepAwake: { url: "https://a.example/x", headers: { "X-Token": "h" }, every: "30 seconds" }
          })
        }\n`
      )
      assert.deepStrictEqual(rest, all as never)
      assert.strictEqual(Redacted.value(previousToken!), "p".repeat(32))
      assert.strictEqual(Duration.toMillis(idleTimeout!), 600_000)
      assert.strictEqual(keepAwake!.url, "https://a.example/x")
      assert.strictEqual(Redacted.value(keepAwake!.headers["X-Token"]!), "h")
      assert.strictEqual(Duration.toMillis(keepAwake!.every), 30_000)
    }))

  it.effect("ignores fields of a newer host and a carriage return, and the last of equal fields counts", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* read(`${line({ hologram: secret })}\r\n`), options as never)
      const twice = `{"bridge":"b0",${line().slice(1)}`
      assert.strictEqual((yield* read(twice)).bridge, "b1")
    }))

  it.effect.prop(
    "reads one line, ended by a newline or the end, however it's cut, and nothing after it",
    { cuts: Schema.Array(Schema.Int), rest: Schema.String },
    ({ cuts, rest }) =>
      Effect.gen(function*() {
        const bytes = encode(line({ agentOptions: { agent: "a", text: "ü😀\u2028" } }))
        const at = [...new Set([0, ...cuts.map((cut) => Math.abs(cut) % bytes.length)]), bytes.length].sort((a, b) =>
          a - b
        )
        const chunks = at.slice(1).map((end, index) => bytes.slice(at[index], end))
        const expected = yield* read(bytes)
        assert.deepStrictEqual(yield* readFrom(Stream.fromArray(chunks)), expected)
        const ended = chunks.concat(encode(`\n${rest}`))
        const further = Stream.concat(Stream.fromArray(ended), Stream.die("read further"))
        assert.deepStrictEqual(yield* readFrom(further), expected)
      })
  )

  it.effect("has no need of an end of input", () =>
    Effect.gen(function*() {
      assert.strictEqual(
        (yield* readFrom(Stream.concat(Stream.make(encode(`${line()}\n`)), Stream.never))).bridge,
        "b1"
      )
    }))

  it.effect("waits for 60 seconds", () =>
    Effect.gen(function*() {
      const fiber = yield* Effect.forkChild(
        Effect.flip(readFrom(Stream.concat(Stream.make(encode(line())), Stream.never))),
        { startImmediately: true }
      )
      yield* TestClock.adjust("59 seconds")
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.strictEqual(
        (yield* Fiber.join(fiber)).message,
        "launch line: expected a line of JSON, ended by a newline, within 60 seconds"
      )
    }))

  it.effect("takes a line of 1 MiB, and no byte more", () =>
    Effect.gen(function*() {
      const pad = Bridge.maxLaunchLineBytes - line({ pad: "" }).length
      assert.strictEqual((yield* read(`${line({ pad: "x".repeat(pad) })}\nmore`)).bridge, "b1")
      const tooLong = "launch line: expected at most 1048576 bytes"
      assert.strictEqual((yield* Effect.flip(read(`${line({ pad: "x".repeat(pad + 1) })}\n`))).message, tooLong)
      // It isn't read to its end.
      const endless = Stream.forever(Stream.make(encode("x".repeat(65_536))))
      assert.strictEqual((yield* Effect.flip(readFrom(endless))).message, tooLong)
    }))

  const { token: _, ...withoutToken } = options
  const bad: ReadonlyArray<readonly [text: string | Uint8Array, message: string]> = [
    ["", "expected a JSON object, got an empty line"],
    [`\n${line()}`, "expected a JSON object, got an empty line"],
    ["\0", "expected a JSON object, got what isn't JSON"],
    [secret, "expected a JSON object, got what isn't JSON"],
    [line().slice(0, -1), "expected a JSON object, got what isn't JSON"],
    [`${line()}\0`, "expected a JSON object, got what isn't JSON"],
    [Uint8Array.of(0xff, 0xfe), "expected UTF-8"],
    [JSON.stringify(secret), "expected an object"],
    ["null", "expected an object"],
    [`[${line()}]`, "expected an object"],
    [JSON.stringify(withoutToken), "token: is missing"],
    [line({ token: secret }), "token: expected 32 to 4096 visible ASCII characters"],
    [line({ token: `${options.token} ` }), "token: expected 32 to 4096 visible ASCII characters"],
    [line({ token: `${options.token}\0` }), "token: expected 32 to 4096 visible ASCII characters"],
    [line({ token: secret.repeat(1000) }), "token: expected 32 to 4096 visible ASCII characters"],
    [line({ token: [options.token] }), "token: expected 32 to 4096 visible ASCII characters"],
    [line({ previousToken: secret }), "previousToken: expected 32 to 4096 visible ASCII characters"],
    ...["", "-a", "A", "../b1", "b/1", "b1\0", "b 1", "ü", "x".repeat(65), secret].map((bridge) =>
      [line({ bridge }), "bridge: expected 1 to 64 of a-z, 0-9 and '-', the first of them no '-'"] as const
    ),
    [line({ stateDirectory: secret }), "stateDirectory: expected an absolute path"],
    [line({ stateDirectory: `/${secret}\0` }), "stateDirectory: expected an absolute path"],
    [line({ agentOptions: secret }), "agentOptions: expected an object whose 'agent' names the driver"],
    [line({ agentOptions: { key: secret } }), "agentOptions.agent: is missing"],
    [line({ agentOptions: { agent: `${secret}/` } }), "agentOptions.agent: expected the name of a driver"],
    [
      line({}).replace(/}$/, `,"a":${"[".repeat(50_000)}${"]".repeat(50_000)}}`),
      "expected JSON that is nested at most 512 deep"
    ],
    [line({ port: secret }), "port: expected a whole number from 0 to 65535"],
    [line({ port: null }), "port: expected a whole number from 0 to 65535"],
    [line({ port: 70_000 }), "port: expected a whole number from 0 to 65535"],
    [line({ port: 8675.309 }), "port: expected a whole number from 0 to 65535"],
    [line({ hostname: `${secret}/` }), "hostname: expected a host name or an IP address"],
    [line({ launch: `${secret}/../` }), "launch: expected 8 to 64 of A-Z, a-z, 0-9, '_' and '-'"],
    [line({ idleTimeout: secret }), "idleTimeout: expected a number more than 0 and a unit"],
    [line({ idleTimeout: "-8675 seconds" }), "idleTimeout: expected a number more than 0 and a unit"],
    [line({ idleTimeout: "0 seconds" }), "idleTimeout: expected a number more than 0 and a unit"],
    [line({ allowedOrigins: ["https://a.example", 8_675_309] }), "allowedOrigins.1: expected an array of web origins"],
    [line({ sync: secret }), "sync: expected true or false"],
    [line({ maxTurnBytes: 867_530 }), "maxTurnBytes: expected a whole number of bytes, at least 1048576"],
    [
      line({ keepAwake: { url: "https://a.example", headers: { "X-Token": `${secret}\n` }, every: "30 seconds" } }),
      "keepAwake.headers.X-Token: expected an http or https URL, headers, and how often"
    ]
  ]
  it.effect("says in one line what's wrong and what was expected, without a value", () =>
    Effect.gen(function*() {
      for (const [text, expected] of bad) {
        const error = yield* Effect.flip(read(text))
        assert.instanceOf(error, LaunchLineError)
        assert.isTrue(error.message.startsWith(`launch line: ${expected}`), `${String(text)}: ${error.message}`)
        for (const shown of [error.message, Cause.pretty(Cause.fail(error)).split("\n")[0]!, JSON.stringify(error)]) {
          assert.notMatch(shown, /sEcReT|8675|867530|70000|\n/)
        }
        assert.strictEqual(Runtime.getErrorExitCode(error), 2)
      }
    }))

  it.effect("says so when standard input can't be read", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(readFrom(Stream.fail(PlatformError.systemError({
        _tag: "Unknown",
        module: "Stdio",
        method: "stdin"
      }))))
      assert.strictEqual(
        error.message,
        "launch line: expected a line of JSON on standard input, which can't be read"
      )
    }))

  describe("in a process", () => {
    const launch = (input: string | undefined, stdin: "pipe" | "ignore" = "pipe") =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const child = spawn(process.execPath, [fileURLToPath(new URL("fixtures/launched.ts", import.meta.url))], {
            stdio: [stdin, "pipe", "pipe"]
          })
          const output = { stdout: "", stderr: "" }
          child.stdout!.on("data", (data) => output.stdout += String(data))
          child.stderr!.on("data", (data) => output.stderr += String(data))
          if (input !== undefined) child.stdin!.write(input)
          const exit = Effect.callback<number | null>((resume) => {
            child.once("close", (code) => resume(Effect.succeed(code)))
          })
          return { child, output, exit }
        }),
        ({ child }) => Effect.sync(() => child.kill("SIGKILL"))
      )

    it.live("reads its line while standard input stays open, and may hold more", () =>
      Effect.gen(function*() {
        const { exit, output } = yield* launch(`${line()}\n{"token":`)
        assert.strictEqual(yield* exit, 0)
        assert.deepStrictEqual(output, { stdout: "b1\n", stderr: "" })
      }))

    it.live("exits with 2 and one line on standard error, also without any input", () =>
      Effect.gen(function*() {
        const { exit, output } = yield* launch(`${line({ bridge: secret })}\n`)
        assert.strictEqual(yield* exit, 2)
        assert.match(output.stderr, /^launch line: bridge: expected [^\n]+\n$/)
        const empty = yield* launch(undefined, "ignore")
        assert.strictEqual(yield* empty.exit, 2)
        assert.strictEqual(empty.output.stderr, "launch line: expected a JSON object, got an empty line\n")
      }))
  })
})
