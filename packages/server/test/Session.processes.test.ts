import { assert, describe } from "@effect/vitest"
import type { SessionOptions } from "@gangway/server/Driver"
import { ProcessTable } from "@gangway/server/ProcessTable"
import { type AgentProcess, markerName } from "@gangway/server/Supervisor"
import { Effect, Redacted, Stream } from "effect"
import { spawn } from "node:child_process"
import { eventually, killAll, marked } from "./fixtures/processes.ts"
import * as Puppet from "./fixtures/puppet.ts"
import {
  act,
  editSessionFile,
  endOf,
  firstPart,
  launch,
  session,
  sessionFile,
  started,
  test,
  turn,
  until
} from "./fixtures/sessions.ts"

// An agent of which each turn is a process: it does in a shell what its prompt says, as a tool, and says `ready` when it's
// there.
const shell = (told: SessionOptions) => ({
  run: (turn: Parameters<Puppet.Act>[0]) =>
    Effect.gen(function*() {
      const script = turn.prompt.map((part) => part.type === "text" ? part.text : "").join("")
      yield* turn.emit({ type: "tool-call", id: "c", name: "shell", params: {}, providerExecuted: true })
      const process = yield* told.processes.spawn({
        command: "bash",
        args: ["-c", script],
        cwd: "/",
        env: told.env
      })
      yield* process.lines.pipe(
        Stream.takeUntil((line) => line === "ready"),
        Stream.runDrain
      )
      yield* turn.emit({ type: "text-start", id: "t" })
      if (script.endsWith("# stay")) yield* process.exit
      return { finishReason: "stop" }
    })
})

const agent = (more?: Parameters<typeof Puppet.make>[1]) =>
  Puppet.make({}, (told) => ({ ...shell(told), ...(typeof more === "function" ? more(told) : more) }) as never)

const world = Effect.fnUntraced(function*(...args: Parameters<typeof started>) {
  const world = yield* started(...args)
  const { marker } = yield* sessionFile(world.sessionDirectory)
  yield* Effect.addFinalizer(() => Effect.sync(() => killAll(marked(markerName, marker))))
  return { ...world, left: () => marked(markerName, marker) }
})

const stubborn =
  "trap '' TERM; (trap '' TERM; setsid sleep 1001 & echo ready; wait) & while :; do sleep 0.1; done # stay"
// Starts a program that stays behind, and waits until it's what it will be.
const leave = (command: string) => {
  const program = command.replace("setsid ", "").split(" ")[0]
  return `${command} >/dev/null & until [ "$(cat /proc/$!/comm)" = ${program} ] && [ -n "$(tr -d '\\0' </proc/$!/cmdline)" ]; do :; done;`
}

// One in a session of its own, one in the agent's group.
const leaves = `${leave("setsid sleep 1002")} ${leave("sleep 1003")} echo ready`

describe("an agent's processes", () => {
  test(
    "are all ended by an abort within seconds, which says what it ended",
    Effect.gen(function*() {
      const { client, left } = yield* world(agent())
      yield* client.StartTurn(act(1, stubborn))
      yield* firstPart(client, turn(1), "text-start")
      assert.isAtLeast(left().length, 3)
      const { ended, left: notEnded } = yield* Effect.timeout(
        client.AbortTurn({ session, turn: turn(1) }),
        "10 seconds"
      )
      assert.deepStrictEqual([left(), notEnded], [[], []])
      assert.isTrue(ended.some(({ command }) => command.includes("sleep 1001")))
    })
  )

  test(
    "that are left running when a turn is finished stay, are listed in its end, and are ended with the session",
    Effect.gen(function*() {
      const { client, left } = yield* world(agent())
      yield* client.StartTurn(act(1, leaves))
      const end = yield* endOf(client, turn(1))
      const commands = end.type === "finished" ? end.background?.map(({ command }) => command).sort() : []
      assert.deepStrictEqual(commands, ["sleep 1002", "sleep 1003"])
      yield* client.StartTurn(act(2, "echo ready"))
      assert.strictEqual((yield* endOf(client, turn(2))).type, "finished")
      yield* eventually("the agent's own end", Effect.sync(() => left().length === 2))
      const stopped = yield* client.StopSession({ session })
      assert.deepStrictEqual(stopped.ended.map(({ command }) => command).sort(), ["sleep 1002", "sleep 1003"])
      assert.deepStrictEqual(left(), [])
    })
  )

  test(
    "that are left running are ended with their turn where the session says so",
    Effect.gen(function*() {
      const { client, left } = yield* world(agent(), { background: "end" })
      yield* client.StartTurn(act(1, leaves))
      const end = yield* endOf(client, turn(1))
      assert.strictEqual(end.type, "finished")
      assert.notProperty(end, "background")
      yield* eventually("the agent's own end", Effect.sync(() => left().length === 0))
    })
  )

  for (const background of ["kept", "ended"] as const) {
    test(
      `that live on with their helpers keep these, where what a turn leaves is ${background}`,
      Effect.gen(function*() {
        // It starts a helper at once, and with each line that it reads what a tool leaves below it.
        const script =
          "sleep 2001 & echo started; n=2002; while read line; do sleep $n & n=$((n + 1)); echo ready; done"
        let started: AgentProcess | undefined
        const said: Array<string> = []
        const lives = (told: SessionOptions) => ({
          run: (turn: Parameters<Puppet.Act>[0]) =>
            Effect.gen(function*() {
              if (started === undefined) {
                started = yield* told.processes.spawn({ command: "sh", args: ["-c", script], cwd: "/", env: {} })
                yield* Effect.forkDetach(Stream.runForEach(started.lines, (line) => Effect.sync(() => said.push(line))))
                yield* eventually("its start", Effect.sync(() => said.includes("started")))
              }
              yield* turn.emit({ type: "text-start", id: "t" })
              const [prompt] = turn.prompt
              if (prompt?.type !== "text" || prompt.text !== "tool") return { finishReason: "stop" }
              const before = said.length
              yield* turn.emit({ type: "tool-call", id: "c", name: "shell", params: {}, providerExecuted: true })
              yield* started.write("\n")
              yield* eventually("its tool", Effect.sync(() => said.length > before))
              return { finishReason: "stop" }
            })
        })
        const { client, left } = yield* world(agent(lives as never), {
          background: background === "kept" ? "keep" : "end"
        })
        const inBackground = Effect.fnUntraced(function*(n: number, prompt: string) {
          yield* client.StartTurn(act(n, prompt))
          const end = yield* endOf(client, turn(n))
          assert.strictEqual(end.type, "finished", JSON.stringify(end))
          return end.type === "finished" ? end.background?.map(({ command }) => command).sort() : []
        })
        const kept = background === "kept"
        assert.isUndefined(yield* inBackground(1, "say something"))
        assert.deepStrictEqual(yield* inBackground(2, "tool"), kept ? ["sleep 2002"] : undefined)
        assert.deepStrictEqual(yield* inBackground(3, "say something"), kept ? ["sleep 2002"] : undefined)
        assert.deepStrictEqual(yield* inBackground(4, "tool"), kept ? ["sleep 2002", "sleep 2003"] : undefined)
        // The agent, its helper, and what was kept.
        assert.strictEqual(left().length, kept ? 4 : 2)
        const { ended } = yield* client.StopSession({ session })
        assert.isTrue(ended.some(({ command }) => command === "sleep 2001"))
        assert.deepStrictEqual(left(), [])
      })
    )
  }

  test(
    "are ended when a turn fails, when the session is destroyed, and when the bridge exits",
    Effect.gen(function*() {
      const failing = yield* world(agent((told) => ({
        run: (turn) => Effect.andThen(shell(told).run(turn), Effect.die("broken")) as never
      })))
      yield* failing.client.StartTurn(act(1, leaves))
      assert.strictEqual((yield* endOf(failing.client, turn(1))).type, "failed")
      assert.deepStrictEqual(failing.left(), [])

      const destroyed = yield* world(agent())
      yield* destroyed.client.StartTurn(act(1, leaves))
      yield* endOf(destroyed.client, turn(1))
      const { ended } = yield* destroyed.client.DestroySession({ session })
      assert.strictEqual(ended.filter(({ command }) => command.startsWith("sleep")).length, 2)
      assert.deepStrictEqual(destroyed.left(), [])

      const exiting = yield* world(agent())
      yield* exiting.client.StartTurn(act(1, stubborn))
      yield* firstPart(exiting.client, turn(1), "text-start")
      yield* exiting.end
      assert.deepStrictEqual(exiting.left(), [])
    })
  )

  test(
    "are listed without the session's secrets, which their arguments may hold",
    Effect.gen(function*() {
      const secret = "hush-hush-0123"
      const { client } = yield* world(agent(), { env: { KEY: Redacted.make(secret) } })
      yield* client.StartTurn(act(1, `${leave(`perl -e 'sleep 1004' "$KEY"`)} echo ready`))
      const end = yield* endOf(client, turn(1))
      const listed = JSON.stringify(end.type === "finished" ? end.background : [])
      assert.include(listed, "[redacted:KEY]")
      assert.notInclude(listed, secret)
      const stopped = JSON.stringify(yield* client.StopSession({ session }))
      assert.include(stopped, "[redacted:KEY]")
      assert.notInclude(stopped, secret)
    })
  )

  test(
    "of a bridge that died are ended before the session is used again",
    Effect.gen(function*() {
      const { client, end, left, sessionDirectory, start, stateDirectory } = yield* world(agent())
      assert.isFalse((yield* sessionFile(sessionDirectory)).active)
      yield* client.StartTurn(act(1, leaves))
      yield* endOf(client, turn(1))
      const { active, marker } = yield* sessionFile(sessionDirectory)
      assert.isTrue(active)
      yield* end
      assert.isFalse((yield* sessionFile(sessionDirectory)).active)
      assert.deepStrictEqual(left(), [])
      // One that was killed leaves its processes, and the file as it was.
      spawn("sleep", ["1005"], { env: { ...process.env, [markerName]: marker }, stdio: "ignore" })
      yield* until("its start", () => left().length === 1)
      yield* editSessionFile(sessionDirectory, (file) => ({ ...file, active: true }))
      const puppet = agent(() => {
        assert.deepStrictEqual(left(), [])
        return {}
      })
      const { client: later } = yield* launch(puppet.driver, stateDirectory)
      yield* later.StartSession(start)
      assert.strictEqual(puppet.opened.length, 1)
      assert.deepStrictEqual(left(), [])
    })
  )

  test(
    "that couldn't be ended are looked for by the next bridge",
    Effect.gen(function*() {
      const table = yield* ProcessTable
      const { client, end, left, sessionDirectory, stateDirectory } = yield* world(agent()).pipe(
        Effect.provideService(ProcessTable, {
          ...table,
          signal: () => Effect.succeed(false),
          signalGroup: () => Effect.succeed(false)
        })
      )
      yield* client.StartTurn(act(1, leaves))
      yield* endOf(client, turn(1))
      assert.isAtLeast((yield* client.StopSession({ session })).left.length, 2)
      assert.isTrue((yield* sessionFile(sessionDirectory)).active)
      yield* end
      assert.isTrue((yield* sessionFile(sessionDirectory)).active)
      const { client: later } = yield* launch(agent().driver, stateDirectory)
      yield* later.StopSession({ session })
      assert.deepStrictEqual(left(), [])
      assert.isFalse((yield* sessionFile(sessionDirectory)).active)
    }),
    // It's tried three times, for 8 s each.
    90_000
  )
})
