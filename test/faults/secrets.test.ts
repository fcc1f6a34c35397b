import { assert, describe, it } from "@effect/vitest"
import { Scripted } from "@gangway/drivers"
import { Effect } from "effect"
import { readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import {
  connect,
  isListening,
  launch,
  launchLine,
  place,
  token
} from "../../apps/bridge/test/fixtures/bridgeProgram.ts"
import { eventually } from "../../packages/server/test/fixtures/processes.ts"

const key = "the-agents-key-0123456789"

const read = (path: string): string => {
  try {
    return readFileSync(path, "latin1")
  } catch {
    return ""
  }
}

const childrenOf = (pid: number): ReadonlyArray<number> =>
  read(`/proc/${pid}/task/${pid}/children`).trim().split(" ").filter(Boolean).flatMap((child) => {
    const found = Number(child)
    return [found, ...childrenOf(found)]
  })

// What an agent can print of what it has, as it is and in pieces.
const prints = [
  "printenv AGENT_KEY",
  "env",
  "cat /proc/$$/environ",
  "printf %s \"$AGENT_KEY\" | head -c 9; sleep 0.05; printf %s \"$AGENT_KEY\" | tail -c +10"
].join("; ")

describe.runIf(process.platform === "linux")("an agent's key", () => {
  it.live(
    "is in the environments of the agent and what it starts, and nowhere else: no argument, file, output or part",
    () =>
      Effect.gen(function*() {
        const where = yield* place
        const program = yield* launch(`${launchLine(where)}\n`)
        const file = yield* isListening(where, program)
        const host = yield* connect(file)
        yield* host.call("StartSession", {
          session: "s1",
          directory: where.work,
          permissions: "all",
          settings: "none",
          env: { AGENT_KEY: key }
        })
        const script = Scripted.toPrompt({
          steps: [{
            actions: [
              { type: "tool", name: "Bash", command: ["sh", "-c", prints] },
              { type: "spawn", command: "exec sleep 1000", background: true },
              { type: "hang" }
            ]
          }]
        })
        yield* host.startTurn("s1", "t1", script)
        const turn = join(where.state, "sessions/s1/turns/t1.ndjson")
        const isReplaced = Effect.sync(() => read(turn).includes("[redacted:AGENT_KEY]"))
        yield* eventually("the commands' output", isReplaced)
        const holds = (pid: number) => read(`/proc/${pid}/environ`).includes(key)
        yield* eventually(
          "the agent and what it left running",
          Effect.sync(() => childrenOf(program.pid).filter(holds).length >= 2)
        )
        assert.isFalse(holds(program.pid))
        for (const pid of [program.pid, ...childrenOf(program.pid)]) {
          assert.notInclude(read(`/proc/${pid}/cmdline`), key)
          assert.notInclude(read(`/proc/${pid}/environ`), token)
        }
        const files = readdirSync(where.state, { recursive: true, encoding: "utf8" })
          .map((name) => join(where.state, name))
          .filter((path) => statSync(path).isFile())
        assert.isAtLeast(files.length, 5)
        for (const text of [...files.map(read), program.stdout(), program.stderr()]) assert.notInclude(text, key)

        // Nor does any answer hold it.
        const other = yield* connect(file)
        const { ended } = yield* other.call("AbortTurn", { session: "s1", turn: "t1" })
        assert.isAtLeast(ended.length, 1)
        const said = JSON.stringify([ended, yield* (yield* connect(file)).readTurn("s1", "t1")])
        assert.include(said, "[redacted:AGENT_KEY]")
        assert.notInclude(said, key)
      }).pipe(Effect.scoped),
    120_000
  )
})
