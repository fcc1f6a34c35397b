/**
 * A host that starts a program in a sandbox and then stays, to be killed: `sandboxCaller.ts <module> <start options>`.
 */
import * as BunRuntime from "@effect/platform-bun/BunRuntime"
import * as BunServices from "@effect/platform-bun/BunServices"
import { type LocalSandbox, Sandbox } from "@gangway/sandbox"
import { Console, Effect, Layer, Redacted } from "effect"

const [module, json] = process.argv.slice(2)
const { layer } = await import(module!)
const { command, line, log } = JSON.parse(json!)

Sandbox.Sandbox.use((sandbox) => sandbox.start({ command, log, stdinLine: Redacted.make(line) })).pipe(
  Effect.andThen(Console.log("started")),
  Effect.andThen(Effect.never),
  Effect.provide(Layer.provide(layer as typeof LocalSandbox.layer, BunServices.layer)),
  BunRuntime.runMain
)
