#!/usr/bin/env bun
/**
 * `gangway-bridge`, the program that runs in the sandbox.
 *
 *   gangway-bridge                  reads its launch line from standard input, and serves the agent that it names
 *   gangway-bridge scripted-agent   is the scripted agent, which the bridge starts
 *   gangway-bridge agents           says which agents are here, and what each can do: a `FoundAgent` a line
 *   gangway-bridge --version        says its version
 *
 * Exit codes are `Bridge.ExitCode`s; what made it end is one line on standard error.
 */
import * as BunRuntime from "@effect/platform-bun/BunRuntime"
import { Bridge, BridgeServer } from "@gangway/server"
import * as Kernel from "@gangway/server/Kernel"
import * as StateDirectory from "@gangway/server/StateDirectory"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Runtime from "effect/Runtime"
import * as HttpServer from "effect/unstable/http/HttpServer"
import manifest from "../package.json" with { type: "json" }
import { makeDriver } from "./Agents.ts"
import { listen } from "./Listen.ts"
import * as Services from "./Services.ts"
import * as SynchronousFiles from "./SynchronousFiles.ts"

const command = process.argv[2]

// Compiled, it starts with a policy by which nearly nothing is worth machine code: see scripts/build.ts.
setTimeout(() => Bun.unsafe.setJITPolicy(1), 250).unref()

const bridge = Effect.gen(function*() {
  const { agentOptions, hostname = "0.0.0.0", port = 0, ...line } = yield* BridgeServer.readLaunchOptions
  const token = Redacted.make(line.token)
  const driver = yield* makeDriver(agentOptions)
  // Whose it is, is known before anything listens.
  let serves = false
  const stateDirectory = yield* Effect.updateService(
    StateDirectory.open({ path: line.stateDirectory, bridge: line.bridge }),
    FileSystem.FileSystem,
    (files) => SynchronousFiles.make(files, { isServing: () => serves })
  )
  const server = yield* listen({ hostname, port, bridge: line.bridge, stateDirectory })
  serves = true
  yield* Effect.provideService(
    BridgeServer.serve(driver, { ...line, stateDirectory, token }),
    HttpServer.HttpServer,
    server
  )
}).pipe(
  Effect.scoped,
  Effect.provide(Layer.merge(Kernel.layer, Services.layer))
)

// What a host can do nothing about with another launch line has no code of its own.
const exitCodeOf = (error: unknown): number => {
  if (error instanceof Bridge.DriverError) return Bridge.ExitCode.launchLine
  if (error instanceof Bridge.LogUnavailable) return Bridge.ExitCode.notWritable
  return Runtime.getErrorExitCode(error)
}

const run = (effect: Effect.Effect<number | void, unknown>) =>
  BunRuntime.runMain(effect, {
    disableErrorReporting: true,
    // Standard input that was read and is still open would keep the process alive.
    teardown: (exit) => {
      if (Exit.isSuccess(exit) && typeof exit.value === "number") process.exit(exit.value)
      if (Exit.isFailure(exit) && Cause.hasFails(exit.cause)) {
        const error = Cause.squash(exit.cause)
        console.error((error instanceof Error ? error.message : String(error)).replaceAll("\n", " "))
        process.exit(exitCodeOf(error))
      }
      if (Exit.isFailure(exit) && Cause.hasDies(exit.cause)) console.error(Cause.pretty(exit.cause))
      Runtime.defaultTeardown(exit, (code) => process.exit(code))
    }
  })

switch (command) {
  case undefined:
    // A terminal that goes away changes nothing.
    process.on("SIGHUP", () => {})
    run(bridge)
    break
  case "scripted-agent":
    run(
      Effect.promise(() =>
        Promise.all([import("@gangway/drivers/ScriptedAgent"), import("@effect/platform-bun/BunServices")])
      ).pipe(Effect.flatMap(([{ program }, { layer }]) => Effect.provide(program, layer)))
    )
    break
  case "agents":
    run(
      Effect.promise(() => import("@gangway/drivers/KnownAgents")).pipe(
        Effect.flatMap(({ find }) => find(makeDriver)),
        Effect.map((found) => found.forEach((agent) => console.log(JSON.stringify(agent)))),
        Effect.provide(Services.layer)
      )
    )
    break
  case "--version":
    console.log(manifest.version)
    break
  default:
    console.error(`usage: gangway-bridge [scripted-agent | agents | --version], not '${command}'`)
    process.exit(Bridge.ExitCode.launchLine)
}
