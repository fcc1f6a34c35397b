/**
 * The options of a session: which of them must not change, where it may work, what must not be shown.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type * as Redacted from "effect/Redacted"
import * as Redaction from "../Redaction.ts"
import type { BridgeContext } from "./bridgeContext.ts"
import { digestJson } from "./digest.ts"

/** The options of a started session, with its working directory's real path. */
export type Started = Bridge.SessionOptions

const contains = (outer: string, inner: string) => inner === outer || inner.startsWith(`${outer}/`) || outer === "/"

/** The real path of a session's working directory. */
export const sessionDirectory = Effect.fnUntraced(function*(
  context: BridgeContext,
  directory: string
): Effect.fn.Return<string, Bridge.DirectoryInvalid, FileSystem.FileSystem | Path.Path> {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const invalid = (problem: string) => new Bridge.DirectoryInvalid({ directory, problem })
  if (!path.isAbsolute(directory) || directory.includes("\0")) return yield* invalid("it isn't an absolute path")
  const real = yield* Effect.mapError(fs.realPath(directory), () => invalid("it doesn't exist"))
  const info = yield* Effect.mapError(fs.stat(real), () => invalid("it can't be read"))
  if (info.type !== "Directory") return yield* invalid("it isn't a directory")
  const state = yield* Effect.mapError(fs.realPath(context.state.path), () => invalid("the state directory is gone"))
  if (contains(real, state)) return yield* invalid("it contains the bridge's state directory")
  if (contains(state, real)) return yield* invalid("it lies in the bridge's state directory")
  return real
})

/** Digests of the options that must stay as they are. */
export const optionDigests = (options: Started) =>
  Effect.all({
    directory: digestJson(options.directory),
    instructions: digestJson(options.instructions ?? ""),
    tools: digestJson(options.tools ?? []),
    permissions: digestJson(options.permissions),
    mcpServers: digestJson(
      (options.mcpServers ?? []).map((server) => [server.name, server.type === "stdio" ? server.command : server.url])
    )
  })

/** Replaces every secret that the bridge knows of while these options hold. */
export const redactionOf = (context: BridgeContext, options: Started | undefined): Redaction.Redaction => {
  const secrets: Record<string, Redacted.Redacted<string>> = { ...context.secrets }
  for (const server of options?.mcpServers ?? []) {
    Object.assign(secrets, server.type === "stdio" ? server.env : server.headers)
  }
  Object.assign(secrets, options?.env)
  return Redaction.make(secrets)
}
