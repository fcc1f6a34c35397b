/**
 * The bridge program that is launched on this machine.
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Schema from "effect/Schema"
import { UsageError } from "./Failure.ts"

/** A program and its arguments. */
export type BridgeCommand = readonly [string, ...Array<string>]

const decodeCommand = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.NonEmptyArray(Schema.String)))

// The directory that it's started in is the agent's: nothing in it says how Bun runs, or what's in the environment.
const bun = [process.execPath, "--no-env-file", "--config=/dev/null"] as const

/** Whether this runs from a checkout: a built one has other neighbours. */
export const isSource = import.meta.url.endsWith(".ts")

/**
 * Finds it: what `given` or GANGWAY_BRIDGE names, a path or a JSON array of a program and its arguments; beside these
 * sources, from where they run; `gangway-bridge` beside this program; the package that was installed with it; and then
 * on the PATH.
 */
export const find = Effect.fnUntraced(function*(given: Option.Option<string>) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const exists = (file: string) => Effect.orElseSucceed(fs.exists(file), () => false)

  const variable = Effect.map(Effect.option(Config.String("GANGWAY_BRIDGE")), Option.filter((value) => value !== ""))
  const named = Option.orElse(given, yield* Effect.map(variable, (found) => () => found))
  if (Option.isSome(named)) return absolute(path, yield* parse(named.value))

  const sources = path.join(import.meta.dirname, "..", "..", "bridge", "src", "main.ts")
  if (isSource && (yield* exists(sources))) return [...bun, sources] satisfies BridgeCommand

  const beside = path.join(path.dirname(Bun.isStandaloneExecutable ? process.execPath : Bun.main), "gangway-bridge")
  if (yield* exists(beside)) return [beside] satisfies BridgeCommand
  const installed = Option.liftThrowable(Bun.resolveSync)("@gangway/bridge/gangway-bridge.js", import.meta.dirname)
  if (Option.isSome(installed)) return [...bun, installed.value] satisfies BridgeCommand
  const onPath = Bun.which("gangway-bridge")
  if (onPath !== null) return [onPath] satisfies BridgeCommand
  return yield* new UsageError({
    problem:
      "there is no gangway-bridge beside this program or on the PATH: name it with --bridge-command or GANGWAY_BRIDGE"
  })
})

/** A command as it's given: a path, or a JSON array of a program and its arguments. */
export const parse = Effect.fnUntraced(function*(given: string): Effect.fn.Return<BridgeCommand, UsageError> {
  const value = given.trim()
  if (!value.startsWith("[")) return [value]
  const command = decodeCommand(value)
  if (Option.isSome(command)) return command.value
  return yield* new UsageError({
    problem: "the bridge command must be a path, or a JSON array of a program and its arguments"
  })
})

// It's run in another directory.
const absolute = (path: Path.Path, [program, ...args]: BridgeCommand): BridgeCommand => [
  program.includes("/") ? path.resolve(program) : program,
  ...args
]
