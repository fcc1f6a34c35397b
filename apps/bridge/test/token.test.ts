import { assert, describe, it } from "@effect/vitest"
import { Scripted } from "@gangway/drivers"
import { Effect } from "effect"
import { readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { eventually } from "../../../packages/server/test/fixtures/processes.ts"
import { connect, isListening, launch, launchLine, place, token } from "./fixtures/bridgeProgram.ts"

const hang = Scripted.toPrompt({ steps: [{ actions: [{ type: "text", text: "." }, { type: "hang" }] }] })

const secrets = { token, previousToken: "an-older-token-of-at-least-thirty-two-characters" }

const filesIn = (directory: string): ReadonlyArray<string> =>
  readdirSync(directory, { recursive: true, encoding: "utf8" }).map((name) => join(directory, name))

describe("the token", () => {
  it.live("is in no argument, environment, file or output of the sandbox once the bridge listens", () =>
    Effect.gen(function*() {
      const where = yield* place
      const program = yield* launch(`${launchLine(where, secrets)}\n`)
      const host = yield* connect(yield* isListening(where, program))
      yield* host.startSession("s1", where.work)
      yield* host.startTurn("s1", "t1", hang)
      const turn = join(where.state, "sessions/s1/turns/t1.ndjson")
      yield* eventually("the text", Effect.sync(() => readFileSync(turn, "utf8").includes("text-end")))
      // The bridge's refusals, too.
      yield* Effect.exit(host.call("StartTurn", { session: token }))

      const children = readFileSync(`/proc/${program.pid}/task/${program.pid}/children`, "utf8").trim().split(" ")
      assert.strictEqual(children.length, 1)
      const found: Array<string> = []
      for (const pid of [`${program.pid}`, ...children]) {
        for (const name of ["cmdline", "environ"]) found.push(readFileSync(`/proc/${pid}/${name}`, "latin1"))
      }
      const files = filesIn(where.root).filter((path) => statSync(path).isFile())
      assert.isAbove(files.length, 4)
      for (const path of files) found.push(readFileSync(path, "latin1"))
      found.push(program.stdout(), program.stderr())
      for (const text of found) {
        for (const secret of Object.values(secrets)) assert.notInclude(text, secret)
      }
    }).pipe(Effect.scoped))

  it.live("keeps the state directory its owner's: directories 0700, files 0600", () =>
    Effect.gen(function*() {
      const where = yield* place
      const umask = process.umask(0)
      const program = yield* launch(`${launchLine(where)}\n`).pipe(
        Effect.ensuring(Effect.sync(() => process.umask(umask)))
      )
      const host = yield* connect(yield* isListening(where, program))
      yield* host.startSession("s1", where.work)
      yield* host.startTurn("s1", "t1", "hello")
      yield* host.readTurn("s1", "t1")
      yield* host.call("StopSession", { session: "s1" })
      yield* host.startSession("s2", where.work)
      yield* host.call("DestroySession", { session: "s2" })
      for (const path of [where.state, ...filesIn(where.state)]) {
        const stat = statSync(path, { throwIfNoEntry: false })
        // A temporary file, or what's left of a session that was destroyed, may be gone by now.
        if (stat === undefined) continue
        assert.strictEqual(stat.mode & 0o777, stat.isDirectory() ? 0o700 : 0o600, path)
      }
    }).pipe(Effect.scoped))
})
