#!/usr/bin/env bun
/**
 * `gangway`, the host's command line.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Runtime from "effect/Runtime"
import * as CliConfig from "effect/unstable/cli/CliConfig"
import * as CliOutput from "effect/unstable/cli/CliOutput"
import * as Command from "effect/unstable/cli/Command"
import * as GlobalFlag from "effect/unstable/cli/GlobalFlag"
import manifest from "../package.json" with { type: "json" }
import { gangway } from "./commands/gangway.ts"
import * as Failure from "./Failure.ts"
import * as Keyboard from "./Keyboard.ts"
import { plain } from "./render/Style.ts"
import * as Screen from "./Screen.ts"
import * as Signals from "./Signals.ts"

// Help that was asked for is what's printed; with a wrong command line, one line is told instead of it.
const help: Array<string> = []
const collecting: Console.Console = { ...console, log: (...words) => void help.push(words.join(" ")) }

const program = Effect.gen(function*() {
  const { look, note, write } = yield* Screen.Screen
  const formatter = CliOutput.defaultFormatter({ colors: look.style !== plain })
  const exit = yield* gangway.pipe(
    Command.run({ version: manifest.version, renderErrors: false }),
    Effect.provideService(Console.Console, collecting),
    Effect.provide(CliOutput.layer(formatter)),
    Effect.exit
  )
  const { exitCode, message } = Failure.ending(exit)
  if (message === undefined && help.length > 0) yield* Effect.ignore(write(`${help.join("\n")}\n`))
  if (message !== undefined) yield* note(Failure.line(message))
  return exitCode
}).pipe(
  Effect.provide(Layer.mergeAll(
    Screen.layer,
    Signals.layer,
    Keyboard.layer,
    CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] }),
    // What the client logs is told by errors too; standard output is the turn's.
    Logger.layer([]),
    BunServices.layer
  ))
)

Runtime.makeRunMain(({ fiber, teardown }) => {
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(code)))
})(program, {
  disableErrorReporting: true,
  // Standard input that's open would keep the process alive.
  teardown: (exit, onExit) => onExit(exit._tag === "Success" ? exit.value as number : Failure.ExitCode.unexpected)
})
