import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import type { SessionOptions, Turn } from "@gangway/server/Driver"
import type { AgentProcess } from "@gangway/server/Supervisor"
import { Deferred, Effect, Fiber, FileSystem, Queue, type Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as Loopback from "../../../apps/bridge/src/Loopback.ts"
import * as Conversation from "../src/internal/acpConversation.ts"
import * as Inspect from "../src/internal/acpInspect.ts"
import { open } from "../src/internal/acpSession.ts"
import { isRunning } from "./fixtures/processes.ts"

const directory = "/"

const answers: Readonly<Record<string, Schema.Json>> = {
  initialize: { protocolVersion: 1, agentCapabilities: { loadSession: true } },
  authenticate: {},
  "session/new": { sessionId: "s" },
  "session/load": {},
  "session/set_mode": {},
  "session/set_model": {}
}

/** A process that answers everything but one request. */
const makeProcess = Effect.fnUntraced(function*(silent: string) {
  const lines = yield* Queue.unbounded<string>()
  const reached = yield* Deferred.make<void>()
  const ended = yield* Deferred.make<{ code: number | undefined; signal: string | undefined }>()
  const process: AgentProcess = {
    pid: 1,
    write: (text) => {
      const { id, method } = JSON.parse(text) as { id: number; method: string }
      return Effect.asVoid(
        method === silent
          ? Deferred.succeed(reached, undefined)
          : Queue.offer(lines, JSON.stringify({ jsonrpc: "2.0", id, result: answers[method] }))
      )
    },
    endInput: Effect.void,
    lines: Stream.fromQueue(lines),
    stderr: Effect.succeed(""),
    exit: Deferred.await(ended),
    end: Effect.as(Deferred.succeed(ended, { code: undefined, signal: "SIGTERM" }), { ended: [], left: [] })
  }
  return { process, reached, ended }
})

const turn: Turn = {
  turn: "t1" as Turn["turn"],
  attempt: 1,
  prompt: [{ type: "text", text: "Hello." }],
  model: "another",
  raw: false,
  emit: () => Effect.void,
  callHostTool: () => Effect.never,
  requestApproval: () => Effect.never,
  ask: () => Effect.never,
  delivered: () => Effect.void
}

describe("an agent that falls silent at its start", () => {
  for (
    const [silent, time] of [
      ["initialize", "2m"],
      ["authenticate", "2m"],
      ["session/new", "10m"],
      ["session/load", "10m"],
      ["session/set_mode", "2m"],
      ["session/set_model", "2m"]
    ] as const
  ) {
    it.effect(`is given up and ended where it doesn't answer ${silent}`, () =>
      Effect.gen(function*() {
        const { ended, process, reached } = yield* makeProcess(silent)
        const conversation = silent === "session/load"
          ? Conversation.toString({ id: "s", directory: Conversation.fingerprint(directory), turn: undefined })
          : undefined
        const options: SessionOptions = {
          session: "s1" as SessionOptions["session"],
          directory,
          conversation,
          established: conversation !== undefined,
          tools: [],
          permissions: "ask",
          mcpServers: [],
          settings: "none",
          env: {},
          processes: { spawn: () => Effect.succeed(process) },
          saveConversation: () => Effect.void
        }
        const running = yield* open({
          options: { authMethod: "key", mode: "asking" },
          profile: undefined,
          command: ["agent"],
          title: "agent",
          continues: true
        }, options).pipe(
          Effect.flatMap((agent) => agent.run(turn)),
          Effect.flip,
          Effect.forkChild
        )
        yield* Deferred.await(reached)
        yield* TestClock.adjust("119 seconds")
        assert.isUndefined(running.pollUnsafe())
        yield* TestClock.adjust("10 minutes")
        const error = yield* Fiber.join(running)
        assert.deepInclude(error, { _tag: "DriverError", kind: "start" })
        assert.include(error.message, `it didn't answer ${silent} within ${time}`)
        // One that had started is ended by the bridge, like after all that doesn't end well.
        if (silent !== "session/set_model") yield* Deferred.await(ended)
      }).pipe(Effect.scoped, Effect.provide([BunServices.layer, Loopback.layer])))
  }
})

describe("a command that is asked what it can do", () => {
  it.live("is ended, and what it started, where nobody waits any more and it doesn't heed that", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const root = yield* fs.makeTempDirectoryScoped({ prefix: "gangway-deaf-" })
      const script = `trap '' TERM\necho $$ > ${root}/pids\n(while :; do sleep 1; done) & echo $! >> ${root}/pids\nwait`
      const asked = yield* Effect.forkChild(
        Inspect.ask({ options: {}, profile: undefined, command: ["sh", "-c", script], title: "sh" })
      )
      const pids = yield* Effect.orElseSucceed(fs.readFileString(`${root}/pids`), () => "").pipe(
        Effect.map((text) => text.split("\n").slice(0, -1).map(Number)),
        Effect.delay("10 millis"),
        Effect.repeat({ until: (pids) => pids.length === 2 })
      )
      yield* Fiber.interrupt(asked)
      for (const pid of pids) assert.isFalse(isRunning(pid))
    }).pipe(Effect.scoped, Effect.provide(BunServices.layer)))
})
