/**
 * The options of a session: which of them must not change, where it may work, what must not be shown.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import * as Redacted from "effect/Redacted"
import type { Secret } from "../Redaction.ts"
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

/** What of the options must not be shown, each value by the name that it has there. */
export const secretsOf = (options: Started): ReadonlyArray<Secret> => [
  ...Object.entries(options.env ?? {}),
  ...(options.mcpServers ?? []).flatMap((server) =>
    server.type === "stdio"
      ? Object.entries(server.env ?? {})
      : Object.entries(server.headers ?? {}).flatMap(([name, value]) => credentials(name, value))
  )
]

// What follows the scheme of a header, such as `Bearer`, is a secret by itself too.
const credentials = (name: string, value: Redacted.Redacted<string>): ReadonlyArray<Secret> => {
  const [, rest] = /^\S+ +(\S.*)$/.exec(Redacted.value(value)) ?? []
  return rest === undefined ? [[name, value]] : [[name, value], [name, Redacted.make(rest)]]
}

// As many secrets of earlier options are known, the newest ones.
const maxSecrets = 1_000

/** Those that are known and those that come to be; each value once. */
export const addSecrets = (known: ReadonlyArray<Secret>, more: ReadonlyArray<Secret>): ReadonlyArray<Secret> => {
  const byValue = new Map(known.map((secret) => [Redacted.value(secret[1]), secret]))
  for (const secret of more) {
    const value = Redacted.value(secret[1])
    byValue.delete(value)
    byValue.set(value, secret)
  }
  return Array.from(byValue.values()).slice(-Math.max(maxSecrets, more.length))
}
