import { assert, describe, it } from "@effect/vitest"
import { Scripted } from "@gangway/drivers"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { basename, join } from "node:path"
import { eventually, isRunning } from "../../../packages/server/test/fixtures/processes.ts"
import {
  connect,
  fromSources,
  isListening,
  launch,
  launchLine,
  listening,
  place,
  token
} from "./fixtures/bridgeProgram.ts"

const test = (name: string, body: () => Effect.Effect<void, any, any>, timeout?: number) =>
  it.live(name, () => Effect.suspend(body).pipe(Effect.scoped) as Effect.Effect<void, any>, timeout)

const textOf = (parts: ReadonlyArray<{ readonly part: object }>) =>
  parts.map(({ part }) => "delta" in part ? part.delta : "").join("")

const childrenOf = (pid: number) => /\d+/.exec(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")) ?? undefined

const hang = Scripted.toPrompt({ steps: [{ actions: [{ type: "text", text: "." }, { type: "hang" }] }] })

describe("gangway-bridge", () => {
  test("serves the agent that its launch line names, and exits when it's idle, whatever its input does", () =>
    Effect.gen(function*() {
      const where = yield* place
      const program = yield* launch(`${launchLine(where, { idleTimeout: "1 second" })}\nwhatever follows`)
      const file = yield* isListening(where, program)
      yield* Effect.scoped(Effect.gen(function*() {
        const host = yield* connect(file)
        const hello = yield* host.hello
        assert.deepInclude(hello, { bridge: "b1", launch: file.launch, driver: { name: "scripted", version: "0.1.0" } })
        yield* host.startSession("s1", where.work)
        yield* host.startTurn("s1", "t1", "Good morning, gangway")
        const { end, parts } = yield* host.readTurn("s1", "t1")
        assert.strictEqual(end.type, "finished")
        assert.strictEqual(textOf(parts), "Good morning, gangway")
        assert.isTrue(existsSync(join(where.root, "home/conversations")))
      }))
      assert.strictEqual(yield* program.exited, 0)
      assert.strictEqual(program.stderr(), "")
    }))

  const lines: ReadonlyArray<readonly [string, (valid: any) => object | string, number, string]> = [
    ["an empty line", () => "", 2, "launch line: expected a JSON object"],
    ["a short token", (line) => ({ ...line, token: "sesame" }), 2, "launch line: token: expected"],
    ["an unknown agent", (line) => ({ ...line, agentOptions: { agent: "clippy" } }), 2, "agentOptions.agent: expected"],
    [
      "an option of another type",
      (line) => ({ ...line, agentOptions: { ...line.agentOptions, journal: "sesame" } }),
      2,
      "agentOptions.journal: expected"
    ],
    [
      "an option that the driver refuses",
      (line) => ({ ...line, agentOptions: { ...line.agentOptions, home: "sesame" } }),
      2,
      "the option 'home' must be an absolute path"
    ],
    ["an address of another machine", (line) => ({ ...line, hostname: "192.0.2.1" }), 2, "hostname: can't listen on"],
    [
      "a directory that can't be made",
      (line) => ({ ...line, stateDirectory: "/proc/gangway" }),
      4,
      "stateDirectory: /proc/gangway can't be used"
    ]
  ]
  for (const [what, line, code, message] of lines) {
    test(`refuses ${what} with one line, which doesn't repeat it`, () =>
      Effect.gen(function*() {
        const where = yield* place
        const input = line(JSON.parse(launchLine(where)))
        const program = yield* launch(`${typeof input === "string" ? input : JSON.stringify(input)}\n`)
        assert.strictEqual(yield* program.exited, code)
        assert.include(program.stderr(), message)
        assert.strictEqual(program.stderr().indexOf("\n"), program.stderr().length - 1)
        assert.notInclude(program.stderr(), "sesame")
        assert.notInclude(program.stderr(), token)
        assert.strictEqual(program.stdout(), "")
        assert.isUndefined(listening(where))
        if (!what.includes("address")) assert.isFalse(existsSync(where.state))
      }))
  }

  test("refuses another bridge's state directory before it listens", () =>
    Effect.gen(function*() {
      const where = yield* place
      mkdirSync(where.state)
      writeFileSync(join(where.state, "owner.json"), `{"bridge":"b2"}`)
      const program = yield* launch(`${launchLine(where)}\n`)
      assert.strictEqual(yield* program.exited, 2)
      assert.include(program.stderr(), "belongs to bridge 'b2'")
      assert.isUndefined(listening(where))
    }))

  test("says its version, and how it's used", () =>
    Effect.gen(function*() {
      const [bun, main] = fromSources
      assert.match(execFileSync(bun!, [main!, "--version"]).toString(), /^\d+\.\d+\.\d+\n$/)
      const program = yield* launch("", { command: [...fromSources, "--help"] })
      assert.strictEqual(yield* program.exited, 2)
      assert.include(program.stderr(), "usage: gangway-bridge")
    }))

  test("ends its turn and is gone soon after SIGTERM, with a host connected, and lives through SIGHUP", () =>
    Effect.gen(function*() {
      const where = yield* place
      const program = yield* launch(`${launchLine(where)}\n`)
      const host = yield* connect(yield* isListening(where, program))
      program.child.kill("SIGHUP")
      yield* host.startSession("s1", where.work)
      yield* host.startTurn("s1", "t1", hang)
      const turn = join(where.state, "sessions/s1/turns/t1.ndjson")
      yield* eventually("the text", Effect.sync(() => readFileSync(turn, "utf8").includes("text-end")))
      const children = readdirSync("/proc").filter((pid) =>
        /^\d+$/.test(pid) && existsSync(`/proc/${pid}/stat`) &&
        readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[1] === String(program.pid)
      )
      assert.strictEqual(children.length, 1)
      program.child.kill("SIGTERM")
      assert.strictEqual(yield* Effect.timeout(program.exited, "6 seconds"), 130)
      const last = JSON.parse(readFileSync(turn, "utf8").trim().split("\n").at(-1)!)
      assert.deepInclude(last.end, { type: "aborted", reason: "shutdown" })
      assert.isFalse(children.some((pid) => isRunning(Number(pid))))
    }))

  describe("on a given port", () => {
    test("leaves it to the bridge that has it", () =>
      Effect.gen(function*() {
        const where = yield* place
        const first = yield* launch(`${launchLine(where)}\n`)
        const { port } = yield* isListening(where, first)
        const second = yield* launch(`${launchLine(where, { port })}\n`)
        assert.strictEqual(yield* second.exited, 3)
        assert.include(second.stderr(), "the bridge already listens")
        assert.strictEqual(listening(where)?.pid, first.pid)
      }))

    test("leaves it to whatever else has it", () =>
      Effect.gen(function*() {
        const where = yield* place
        const server = yield* Effect.acquireRelease(
          Effect.callback<ReturnType<typeof createServer>>((resume) => {
            const server = createServer((socket) => socket.end("220 hello\r\n"))
            server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
          }),
          (server) => Effect.sync(() => server.close())
        )
        const { port } = server.address() as { port: number }
        const program = yield* launch(`${launchLine(where, { port })}\n`)
        assert.strictEqual(yield* program.exited, 3)
        assert.include(program.stderr(), "something that isn't this bridge")
      }))

    test("shows no token to whatever else has it, and makes nothing of what that says", () =>
      Effect.gen(function*() {
        const where = yield* place
        const seen: Array<string> = []
        const server = yield* Effect.acquireRelease(
          Effect.sync(() =>
            Bun.serve({
              port: 0,
              hostname: "127.0.0.1",
              fetch: (request, server) => {
                seen.push(JSON.stringify([request.url, ...request.headers]))
                return server.upgrade(request) ? undefined : new Response("sesame", { status: 401 })
              },
              websocket: { open: (socket) => void socket.send("sesame"), message: () => {} }
            })
          ),
          (server) => Effect.promise(() => server.stop(true))
        )
        const program = yield* launch(`${launchLine(where, { port: server.port })}\n`)
        assert.strictEqual(yield* program.exited, 3)
        assert.include(program.stderr(), "something that isn't this bridge")
        assert.notInclude(program.stderr(), "sesame")
        assert.isAbove(seen.length, 0)
        assert.notInclude(seen.join(), token)
      }))

    test("ends a bridge that doesn't answer any more", () =>
      Effect.gen(function*() {
        const where = yield* place
        const first = yield* launch(`${launchLine(where)}\n`)
        const { port } = yield* isListening(where, first)
        first.child.kill("SIGSTOP")
        const second = yield* launch(`${launchLine(where, { port })}\n`)
        const file = yield* isListening(where, second)
        assert.strictEqual(file.port, port)
        assert.isFalse(isRunning(first.pid))
        yield* (yield* connect(file)).hello
      }), 60_000)
  })

  for (const what of ["bundle", "compile"]) {
    test(`runs from an empty directory where nothing is installed, built by '${what}'`, () =>
      Effect.gen(function*() {
        const where = yield* place
        const build = new URL("../../../scripts/build.ts", import.meta.url).pathname
        execFileSync(process.execPath, [build, what, "--outdir", join(where.root, "built")])
        const file = join(where.root, "built", what === "bundle" ? "gangway-bridge.js" : "gangway-bridge")
        const command = [file]
        assert.sameMembers(readdirSync(join(where.root, "built")), [basename(file), "THIRD_PARTY_LICENSES"])
        const empty = join(where.root, "empty")
        mkdirSync(empty)

        const program = yield* launch(`${launchLine(where)}\n`, { command, cwd: empty })
        const host = yield* connect(yield* isListening(where, program))
        assert.deepInclude(yield* host.hello, { bridge: "b1" })
        yield* host.startSession("s1", where.work)
        yield* host.startTurn("s1", "t1", "Good morning, gangway")
        const { end, parts } = yield* host.readTurn("s1", "t1")
        assert.strictEqual(end.type, "finished", JSON.stringify(end))
        assert.strictEqual(textOf(parts), "Good morning, gangway")
        assert.deepStrictEqual(readdirSync(empty), [])

        // The agent may write what it likes in its directory, and a bridge may be started there.
        const theirs = join(where.root, "theirs")
        mkdirSync(theirs)
        writeFileSync(join(theirs, "bunfig.toml"), `preload = ["./theirs.ts"]`)
        writeFileSync(join(theirs, "theirs.ts"), `require("node:fs").writeFileSync("ran", "")`)
        writeFileSync(join(theirs, ".env"), "THEIR_VARIABLE=theirs")
        const other = yield* place
        const bridge = yield* launch(`${launchLine(other)}\n`, { command, cwd: theirs })
        const another = yield* connect(yield* isListening(other, bridge))
        yield* another.startSession("s1", theirs)
        yield* another.startTurn("s1", "t1", "Good morning, gangway")
        assert.strictEqual((yield* another.readTurn("s1", "t1")).end.type, "finished")
        yield* another.startTurn("s1", "t2", hang)
        const [agent] = yield* eventually("the agent", Effect.sync(() => childrenOf(bridge.pid)))
        assert.notInclude(readFileSync(`/proc/${agent}/environ`, "utf8"), "THEIR_VARIABLE")
        assert.isFalse(existsSync(join(theirs, "ran")))
      }), 60_000)
  }
})
