import { afterAll, assert, describe, it } from "@effect/vitest"
import { Scripted } from "@gangway/drivers"
import { Cause, Effect } from "effect"
import { spawnSync } from "node:child_process"
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually, isRunning, killAll } from "../../../packages/server/test/fixtures/processes.ts"
import { connect, isListening, launch, launchLine, type Place, place, token } from "./fixtures/bridgeProgram.ts"

const nobody = 65534

const asNobody = (...command: ReadonlyArray<string>) =>
  spawnSync("setpriv", [`--reuid=${nobody}`, `--regid=${nobody}`, "--init-groups", "--", ...command], { cwd: "/" })

// The agent is this very program, and a checkout may be its owner's alone.
const directory = mkdtempSync(join(tmpdir(), "gangway-user-"))
chmodSync(directory, 0o755)
const build = new URL("../../../scripts/build.ts", import.meta.url).pathname
spawnSync(process.execPath, [build, "compile", "--outdir", directory])
const compiled = [join(directory, "gangway-bridge")]
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const canBecome = asNobody(...compiled, "--version").status === 0
const options = canBecome
  ? {}
  : { skip: true, meta: { skipped: "it takes root, setpriv, and temporary files that every user can read" } }

// What root may do in a container by default: to look into another user's processes isn't among it.
const inContainers = ["chown", "dac_override", "fowner", "kill", "setgid", "setuid", "setpcap", "sys_chroot"]
  .map((capability) => `+${capability}`).join(",")

const world = Effect.gen(function*() {
  const where = yield* place
  chmodSync(where.root, 0o755)
  const home = join(where.root, "home")
  mkdirSync(home, { mode: 0o700 })
  for (const path of [home, where.work]) chownSync(path, nobody, nobody)
  return { ...where, home }
})

const lineFor = (where: Place, agentUser: string | number, more: object = {}) =>
  `${launchLine(where, { agentOptions: { agent: "scripted", agentUser, home: join(where.root, "home"), ...more } })}\n`

const script = (command: string): string =>
  Scripted.toPrompt({ steps: [{ actions: [{ type: "tool", name: "Bash", command: ["sh", "-c", command] }] }] })

/** What a call fails with. */
const failure = (call: Effect.Effect<unknown, unknown>) =>
  Effect.matchCause(call, { onFailure: Cause.pretty, onSuccess: (value) => JSON.stringify(value) })

/** What the commands of a turn print. */
const output = (parts: ReadonlyArray<{ readonly part: object }>): string =>
  parts.map(({ part }) => "result" in part ? JSON.stringify(part.result) : "").join("")

describe("an agent that runs as another user", options, () => {
  it.live("can read neither the bridge's memory nor its state, and works as that user", () =>
    Effect.gen(function*() {
      const where = yield* world
      const program = yield* launch(lineFor(where, "nobody"), { command: compiled })
      const file = yield* isListening(where, program)
      const host = yield* connect(file)
      yield* host.startSession("s1", where.work)
      const attempts = [
        "id -u",
        "id -G",
        "echo $HOME $USER $LOGNAME",
        `cat ${where.state}/owner.json`,
        `ls ${where.state}`,
        `touch ${where.state}/forged`,
        `perl -e 'open my $m, "<", "/proc/${program.pid}/mem" or die "closed: $!"; print "open"'`,
        `cat /proc/${program.pid}/environ`,
        `kill -STOP ${program.pid}`,
        `head -c 1 /proc/${program.pid}/fd/0`,
        "echo mine > own; cat own"
      ]
      yield* host.startTurn("s1", "t1", script(attempts.map((attempt) => `(${attempt}) 2>&1`).join("; ")))
      const { end, parts } = yield* host.readTurn("s1", "t1")
      assert.strictEqual(end.type, "finished", JSON.stringify(end))
      const said = output(parts)
      assert.include(said, `${nobody}\\n${nobody}\\n/nonexistent nobody nobody\\n`)
      assert.include(said, "mine")
      assert.include(said, "closed: Permission denied")
      assert.notInclude(said, token)
      assert.strictEqual(said.match(/Permission denied|not permitted/g)?.length, 7, said)
      assert.isFalse(existsSync(join(where.state, "forged")))
      assert.strictEqual(statSync(join(where.work, "own")).uid, nobody)
      // The driver's own files are that user's too.
      const conversations = join(where.home, "conversations")
      for (const name of [".", ...readdirSync(conversations)]) {
        assert.strictEqual(statSync(join(conversations, name)).uid, nobody)
      }
      // Another turn of the conversation, and then neither it nor its agent is left.
      const other = yield* connect(file)
      yield* other.startTurn("s1", "t2", script("echo again"))
      assert.include(output((yield* other.readTurn("s1", "t2")).parts), "again")
      yield* (yield* connect(file)).call("DestroySession", { session: "s1" })
      assert.deepStrictEqual(readdirSync(conversations), [])
    }).pipe(Effect.scoped), 60_000)

  const bridges = [
    { of: "a machine", command: compiled },
    { of: "a container", command: ["setpriv", `--bounding-set=-all,${inContainers}`, "--", ...compiled] }
  ]
  it.live.each(bridges)(
    "is ended with all that it started, also after its bridge was killed, by the root of $of",
    ({ command }) =>
      Effect.gen(function*() {
        const where = yield* world
        const first = yield* launch(lineFor(where, nobody), { command })
        const host = yield* connect(yield* isListening(where, first))
        yield* host.startSession("s1", where.work)
        const stubborn =
          `setsid perl -e '$SIG{TERM} = "IGNORE"; open my $f, ">", "pid"; print $f $$; close $f; sleep 1000 while 1'`
        yield* host.startTurn("s1", "t1", script(`${stubborn} & while [ ! -s pid ]; do sleep 0.01; done; wait`))
        const pid = yield* eventually(
          "its pid",
          Effect.sync(() => {
            const text = spawnSync("cat", [join(where.work, "pid")], { encoding: "utf8" }).stdout
            return text !== "" && Number(text)
          })
        )
        yield* Effect.addFinalizer(() => Effect.sync(() => killAll([pid])))
        const ofNobody = statSync(`/proc/${pid}`).uid
        assert.strictEqual(ofNobody, nobody)
        first.child.kill("SIGKILL")
        yield* first.exited
        assert.isTrue(isRunning(pid))
        const second = yield* launch(lineFor(where, nobody), { command })
        const again = yield* connect(yield* isListening(where, second))
        yield* again.hello
        yield* eventually("its end", Effect.sync(() => !isRunning(pid)))

        // An abort, of what the second bridge started itself.
        yield* again.startSession("s1", where.work)
        yield* again.startTurn("s1", "t2", script(`${stubborn} & wait`))
        const next = yield* eventually(
          "its pid",
          Effect.sync(() => {
            const text = spawnSync("cat", [join(where.work, "pid")], { encoding: "utf8" }).stdout
            return text !== "" && Number(text) !== pid && Number(text)
          })
        )
        yield* Effect.addFinalizer(() => Effect.sync(() => killAll([next])))
        const { ended, left } = yield* again.call("AbortTurn", { session: "s1", turn: "t2" })
        assert.isTrue(ended.some((found: { readonly pid: number }) => found.pid === next))
        assert.deepStrictEqual(left, [])
        assert.isFalse(isRunning(next))
      }).pipe(Effect.scoped),
    60_000
  )

  it.live("can't have the bridge read or write elsewhere by a link", () =>
    Effect.gen(function*() {
      const where = yield* world
      const target = join(where.root, "secret")
      mkdirSync(target, { mode: 0o700 })
      writeFileSync(join(target, "file"), "not to be seen")
      symlinkSync(target, join(where.home, "conversations"))
      const program = yield* launch(lineFor(where, "nobody"), { command: compiled })
      const host = yield* connect(yield* isListening(where, program))
      assert.match(yield* failure(host.startSession("s1", where.work)), /permission denied/i)
      assert.deepStrictEqual(readdirSync(target), ["file"])
    }).pipe(Effect.scoped), 60_000)
})

describe("a user that can't be had", () => {
  const refused = (agentUser: string | number, problem: string, command?: ReadonlyArray<string>) =>
    Effect.gen(function*() {
      const where = yield* world
      if (command !== undefined) chownSync(where.root, nobody, nobody)
      const program = yield* launch(lineFor(where, agentUser), command === undefined ? {} : { command })
      const host = yield* connect(yield* isListening(where, program))
      const failed = yield* failure(host.startSession("s1", where.work))
      assert.include(failed, `"_tag":"DriverError","driver":"scripted","kind":"start"`)
      assert.include(failed, problem)
    }).pipe(Effect.scoped)

  it.live("is a driver error at the session's start, for one that isn't there", () =>
    Effect.andThen(
      refused("gangway-no-such-user", "there is no user 'gangway-no-such-user'"),
      refused(4_000_000, "there is no user '4000000'")
    ), 60_000)

  it.live.skipIf(!canBecome)(
    "is a driver error at the session's start, for a bridge that isn't root",
    () =>
      refused("root", "takes root", [
        "setpriv",
        `--reuid=${nobody}`,
        `--regid=${nobody}`,
        "--init-groups",
        "--",
        ...compiled
      ]),
    60_000
  )
})
