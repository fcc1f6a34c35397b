/**
 * Real agents that wait for a host which is gone: the next one finds what they wait for, answers, and nothing is asked or
 * run twice.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { assert, describe, it } from "@effect/vitest"
import { Launcher, TokenStore } from "@gangway/client"
import { Bridge } from "@gangway/protocol"
import { LocalSandbox } from "@gangway/sandbox"
import { Deferred, Effect, FileSystem, Layer, Redacted, type Schema, Stream } from "effect"
import { only } from "../conformance/driverWorld.ts"
import { installAgent, type InstalledAgent } from "../installAgent.ts"
import * as ModelServer from "../model/ModelServer.ts"
import { script } from "../model/Script.ts"
import { endBridge } from "./endBridge.ts"

interface Waiting {
  readonly name: string
  readonly agent: InstalledAgent
  /** The options of a bridge whose agent keeps its files in `home`, and speaks to the model at `url`. */
  readonly options: (options: { readonly home: string; readonly url: string }) => Bridge.AgentOptions
  /** The name under which the model calls a host tool. */
  readonly hostTool: (name: string) => string
}

const [claude, codex, opencode] = await Promise.all(["claude-code", "codex", "opencode"].map(installAgent)) as [
  InstalledAgent,
  InstalledAgent,
  InstalledAgent
]

const agents: ReadonlyArray<Waiting> = [
  {
    name: "Claude Code",
    agent: claude,
    options: ({ home, url }) => ({
      agent: "claude-code",
      command: claude.program!,
      apiKey: "a-key",
      baseUrl: url,
      model: "scripted-model",
      configDirectory: home,
      env: { HOME: home, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", CLAUDE_CODE_TMPDIR: `${home}-temporary` }
    }),
    hostTool: (name) => `mcp__host__${name}`
  },
  {
    name: "Codex",
    agent: codex,
    options: ({ home, url }) => ({
      agent: "codex",
      command: codex.program!,
      apiKey: "a-key",
      baseUrl: `${url}/v1`,
      model: "scripted-model",
      home,
      env: { HOME: home }
    }),
    hostTool: (name) => name
  },
  {
    name: "OpenCode",
    agent: opencode,
    options: ({ home, url }) => ({
      agent: "acp",
      profile: "opencode",
      command: [opencode.program!, "acp"],
      home,
      env: {
        OPENCODE_CONFIG_CONTENT: JSON.stringify({
          provider: {
            scripted: {
              npm: "@ai-sdk/openai-compatible",
              options: { baseURL: `${url}/v1`, apiKey: "a-key" },
              models: { "scripted-model": { tool_call: true, limit: { context: 128_000, output: 8_000 } } }
            }
          },
          model: "scripted/scripted-model",
          small_model: "scripted/scripted-model"
        }),
        OPENCODE_MODELS_PATH: `${import.meta.dirname}/../drivers/fixtures/noModels.json`,
        OPENCODE_DISABLE_MODELS_FETCH: "1",
        OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
        OPENCODE_DISABLE_DEFAULT_PLUGINS: "1"
      }
    }),
    hostTool: (name) => `host_${name}`
  }
]

const launching = Launcher.layer({
  command: [process.execPath, new URL("../../apps/bridge/src/main.ts", import.meta.url).pathname]
}).pipe(
  Layer.provide([LocalSandbox.layer, TokenStore.layerToken(Redacted.make("a-token-that-has-32-characters-at-least"))]),
  Layer.provideMerge(BunServices.layer)
)

interface Answers {
  readonly approve: Effect.Effect<{ readonly decision: Bridge.Decision }>
  readonly lookup: Effect.Effect<{ readonly result: Schema.Json; readonly isFailure: boolean }>
}

for (const { agent, hostTool, name, options } of agents) {
  describe(
    `${name}, whose host is gone`,
    agent.skipped === undefined ? {} : { skip: true, meta: { skipped: agent.skipped } },
    () => {
      it.layer(launching, { excludeTestServices: true, timeout: "2 minutes" })((it) => {
        it.effect("is answered by the next, and nothing is asked or run twice", () =>
          Effect.gen(function*() {
            const fs = yield* FileSystem.FileSystem
            const { connect } = yield* Launcher.Launcher
            const root = yield* fs.realPath(yield* fs.makeTempDirectoryScoped({ prefix: "gangway-pending-" }))
            const directory = `${root}/project`
            const stateDirectory = `${root}/state`
            yield* fs.makeDirectory(directory)
            const { calls, url } = yield* ModelServer.start
            yield* Effect.addFinalizer(() => endBridge(stateDirectory))
            let lookups = 0

            /** A host that knows what it wants done, and nothing of the hosts before it. */
            const host = Effect.fnUntraced(function*({ approve, lookup }: Answers) {
              const client = yield* connect({
                bridge: Bridge.BridgeId.make("b1"),
                stateDirectory,
                agentOptions: options({ home: `${root}/home`, url }),
                idleTimeout: "1 minute"
              })
              const session = yield* client.startSession({
                session: Bridge.SessionId.make("s1"),
                directory,
                tools: {
                  tools: [{ name: "lookup", description: "Looks a word up.", parameters: { type: "object" } }],
                  handle: () => {
                    lookups++
                    return lookup
                  }
                },
                onApproval: () => approve
              })
              return yield* session.startTurn({
                turn: Bridge.TurnId.make("t1"),
                prompt: `Do it. ${
                  script({ bash: "echo once >> once.txt" }, { tool: [hostTool("lookup"), { word: "x" }] }, {
                    text: "Done."
                  })
                }`
              })
            })

            const isAsked = yield* Deferred.make<void>()
            yield* Effect.scoped(Effect.andThen(
              host({
                approve: Effect.andThen(Deferred.succeed(isAsked, undefined), Effect.never),
                lookup: Effect.never
              }),
              Deferred.await(isAsked)
            ))
            const isCalled = yield* Deferred.make<void>()
            yield* Effect.scoped(Effect.andThen(
              host({
                approve: Effect.succeed({ decision: "allow" }),
                lookup: Effect.andThen(Deferred.succeed(isCalled, undefined), Effect.never)
              }),
              Deferred.await(isCalled)
            ))
            const handle = yield* host({
              // Too late: the first answer counts.
              approve: Effect.succeed({ decision: "deny" }),
              lookup: Effect.succeed({ result: "FOUND-IT", isFailure: false })
            })
            assert.strictEqual(yield* handle.text, "Done.")
            assert.strictEqual((yield* handle.end).type, "finished")
            const parts = (yield* Stream.runCollect(handle.parts())).map(({ part }) => part as Bridge.KnownPart)
            assert.strictEqual(only(parts, "tool-approval-request").length, 1)
            assert.strictEqual(only(parts, "tool-call").length, 2)
            assert.strictEqual(only(parts, "tool-result").length, 2)
            assert.notInclude(parts.map(({ type }) => type), "turn-continued")
            assert.strictEqual(lookups, 2)
            assert.strictEqual(yield* fs.readFileString(`${directory}/once.txt`), "once\n")
            const seen = yield* calls("Do it.")
            assert.strictEqual(seen.length, 3)
            assert.include(JSON.stringify(seen.at(-1)!.body), "FOUND-IT")
          }), 120_000)
      })
    }
  )
}
