/**
 * The bridge program with the scripted agent and a fault in its files: otherwise what `apps/bridge` runs.
 */
import * as BunRuntime from "@effect/platform-bun/BunRuntime"
import * as BunServices from "@effect/platform-bun/BunServices"
import { Scripted, ScriptedAgent } from "@gangway/drivers"
import { BridgeServer } from "@gangway/server"
import * as Kernel from "@gangway/server/Kernel"
import * as StateDirectory from "@gangway/server/StateDirectory"
import { Cause, Effect, Exit, Layer, Redacted, Runtime } from "effect"
import * as HttpServer from "effect/unstable/http/HttpServer"
import { makeDriver } from "../../apps/bridge/src/Agents.ts"
import { listen } from "../../apps/bridge/src/Listen.ts"
import * as Faults from "./Faults.ts"

const services = process.env[Faults.portableVariable] === undefined
  ? Layer.merge(Kernel.layer, BunServices.layer)
  : BunServices.layer

const bridge = Effect.gen(function*() {
  const { agentOptions, hostname = "0.0.0.0", port = 0, ...line } = yield* BridgeServer.readLaunchOptions
  const token = Redacted.make(line.token)
  const driver = yield* makeDriver(agentOptions)
  const stateDirectory = yield* StateDirectory.open({ path: line.stateDirectory, bridge: line.bridge })
  const server = yield* listen({ hostname, port, bridge: line.bridge, stateDirectory })
  yield* Effect.provideService(BridgeServer.serve(driver, { ...line, token }), HttpServer.HttpServer, server)
}).pipe(
  Effect.scoped,
  Effect.provideService(Scripted.AgentCommand, [process.execPath, Bun.main, "scripted-agent"]),
  Effect.provide(Layer.provideMerge(Faults.layer, services))
)

const run = (effect: Effect.Effect<number | void, unknown>) =>
  BunRuntime.runMain(effect, {
    disableErrorReporting: true,
    teardown: (exit) => {
      if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)) console.error(Cause.pretty(exit.cause))
      if (Exit.isSuccess(exit) && typeof exit.value === "number") process.exit(exit.value)
      Runtime.defaultTeardown(exit, (code) => process.exit(code))
    }
  })

process.on("SIGHUP", () => {})
run(process.argv[2] === "scripted-agent" ? Effect.provide(ScriptedAgent.program, BunServices.layer) : bridge)
