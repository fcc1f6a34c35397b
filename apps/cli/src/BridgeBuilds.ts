/**
 * The bridge program as one file, for a system that isn't this one.
 */
import * as Executable from "@gangway/sandbox/Executable"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as BridgeProgram from "./BridgeProgram.ts"

/**
 * Finds the build for a target, `gangway-bridge-<target>`, or `gangway-bridge` for a system like this one: where
 * GANGWAY_BRIDGE_BUILDS says, otherwise beside this program, or in a checkout where its builds are.
 */
export const find = Effect.fnUntraced(function*(target: Executable.Target) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const given = yield* Effect.option(Config.String("GANGWAY_BRIDGE_BUILDS"))
  const directory = Option.getOrElse(
    Option.filter(given, (value) => value !== ""),
    () =>
      BridgeProgram.isSource
        ? path.join(import.meta.dirname, "..", "..", "..", "dist", "bridge")
        : path.dirname(Bun.isStandaloneExecutable ? process.execPath : Bun.main)
  )
  const isOwn = target.machine === process.arch && process.platform === "linux" &&
    (target.libc === "musl") === (yield* Effect.orElseSucceed(fs.exists("/etc/alpine-release"), () => false))
  for (const name of [`gangway-bridge-${Executable.toName(target)}`, ...(isOwn ? ["gangway-bridge"] : [])]) {
    const content = yield* Effect.option(fs.readFile(path.join(directory, name)))
    if (Option.isSome(content)) return content
  }
  return Option.none<Uint8Array>()
})
