/**
 * The files in which Codex keeps its conversations: one JSON object a line, appended as the conversation goes.
 *
 * Only what a comparison with the log and a move to another sandbox need is read. Codex also keeps databases, from
 * which it needs nothing to carry a conversation on; each conversation has its own.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { SessionOptions } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { summaryIn } from "./codexEntries.ts"
import type { Options } from "./codexOptions.ts"
import { failed } from "./codexProcess.ts"
import * as ConversationFile from "./conversationFile.ts"

/** Where Codex keeps what it keeps, given the session's environment: `~/.codex`, or what `CODEX_HOME` says. */
export const homeOf = (path: Path.Path, options: Options, inherited: {
  readonly codexHome: Option.Option<string>
  readonly home: Option.Option<string>
}) =>
(env: SessionOptions["env"]): Effect.Effect<string, Bridge.DriverError> => {
  const variable = (name: string) => {
    const secret = env[name] ?? options.secretEnv?.[name]
    return secret === undefined ? options.env?.[name] : Redacted.value(secret)
  }
  const given = (env["CODEX_HOME"] === undefined ? options.home : undefined) ?? variable("CODEX_HOME") ??
    Option.getOrUndefined(inherited.codexHome)
  if (given !== undefined) return Effect.succeed(given)
  const home = variable("HOME") ?? Option.getOrUndefined(inherited.home)
  return home === undefined
    ? Effect.fail(failed("options", "there is no HOME: set the option 'home'"))
    : Effect.succeed(path.join(home, ".codex"))
}

/** A conversation as the bridge knows it: Codex's own id, once there is one, and the name of its databases. */
export interface Name {
  readonly thread: string | undefined
  readonly key: string
}

const unnamed = "new"

export const toName = (conversation: string): Name => {
  const [thread = unnamed, key = ""] = conversation.split(":")
  return { thread: thread === unnamed ? undefined : thread, key }
}

export const fromName = ({ key, thread = unnamed }: Name): string => `${thread}:${key}`

/** The directory of a conversation's databases. */
export const databaseOf = (path: Path.Path, home: string, key: string): string => path.join(home, "gangway", key)

const day = 24 * 60 * 60 * 1000

// An id begins with the milliseconds of its making; the folders are those of the local days then.
const foldersOf = (thread: string): ReadonlyArray<ReadonlyArray<string>> => {
  const made = parseInt(thread.replaceAll("-", "").slice(0, 12), 16)
  if (Number.isNaN(made)) return []
  return [0, -day, day].map((offset) => new Date(made + offset).toISOString().slice(0, 10).split("-"))
}

/** The file of a conversation, if there is one. */
export const find = Effect.fnUntraced(function*(home: string, thread: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  for (const folder of foldersOf(thread)) {
    const directory = path.join(home, "sessions", ...folder)
    for (const name of yield* Effect.orElseSucceed(fs.readDirectory(directory), () => [])) {
      if (name.endsWith(`-${thread}.jsonl`)) return path.join(directory, name)
    }
  }
  return undefined
})

const meta = (lines: ReadonlyArray<Schema.JsonObject>, field: string): string | undefined => {
  const payload = lines.find(({ type }) => type === "session_meta")?.["payload"]
  const value = Predicate.isObject(payload) ? payload[field] : undefined
  return Predicate.isString(value) ? value : undefined
}

/** The working directory of a conversation, as its file begins. */
export const directoryOf = (lines: ReadonlyArray<Schema.JsonObject>): string | undefined => meta(lines, "cwd")

/** The conversation that a file is of, as it begins. */
export const threadOf = (lines: ReadonlyArray<Schema.JsonObject>): string | undefined => meta(lines, "id")

/** What the last compaction left of a conversation. */
export const summaryOf = (lines: ReadonlyArray<Schema.JsonObject>): string | undefined => {
  const payload = lines.findLast(({ type }) => type === "compacted")?.["payload"]
  const message = Predicate.isObject(payload) ? payload["message"] : undefined
  return Predicate.isString(message) ? summaryIn(message) : undefined
}

const State = Schema.Struct({
  agent: Schema.Literal("codex"),
  format: Schema.Literal(1),
  thread: Schema.String,
  directory: Schema.String,
  lines: Schema.Array(Schema.JsonObject)
})

/** A conversation as JSON, for `restore`; without a file, one that hasn't begun. */
export const toState = (
  lines: ReadonlyArray<Schema.JsonObject>,
  options: { readonly thread: string; readonly directory: string }
): Schema.Json => {
  const state: typeof State.Type = { agent: "codex", format: 1, ...options, lines }
  return state as unknown as Schema.Json
}

const decodeState = Schema.decodeUnknownEffect(State)

/**
 * Writes a state as another conversation in another working directory, with the host's tools that there are now. Its
 * file names both in many places, so each value that is one of them is replaced; what the conversation itself says
 * stays. Answers whether there was anything.
 */
export const restore = Effect.fnUntraced(function*(
  home: string,
  state: Schema.Json,
  options: { readonly thread: string; readonly directory: string; readonly tools: Schema.Json }
) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const from = yield* decodeState(state)
  if (from.lines.length === 0) return false
  const [folder = []] = foldersOf(options.thread)
  const directory = path.join(home, "sessions", ...folder)
  yield* fs.makeDirectory(directory, { recursive: true, mode: 0o700 })
  const replace = (_: string, value: unknown) =>
    value === from.thread ? options.thread : value === from.directory ? options.directory : value
  const withTools = (line: Schema.JsonObject): Schema.JsonObject => {
    const { payload, type } = line
    return type === "session_meta" && Predicate.isObject(payload)
      ? { ...line, payload: { ...payload as Schema.JsonObject, dynamic_tools: options.tools } }
      : line
  }
  const text = from.lines.map((line) => JSON.stringify(withTools(line), replace) + "\n").join("")
  const file = path.join(directory, `rollout-${folder.join("-")}T00-00-00-${options.thread}.jsonl`)
  yield* ConversationFile.write(file, text)
  return true
})

const ids = /[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g

/** Deletes a conversation's files: what was said, also by its sub-agents, its databases, its locks. */
export const remove = Effect.fnUntraced(function*(home: string, { key, thread }: Name) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const force = { force: true, recursive: true }
  if (key !== "") yield* fs.remove(databaseOf(path, home, key), force)
  if (thread === undefined) return
  const file = yield* find(home, thread)
  const named = file === undefined ? [] : (yield* fs.readFileString(file)).match(ids) ?? []
  // Its own file last: by it, one that was interrupted here can go on.
  for (const id of [...new Set(named)].filter((id) => id !== thread).concat(thread)) {
    const found = id === thread ? file : yield* find(home, id)
    // What it names may be anybody's.
    if (found !== undefined && id !== thread && meta(yield* ConversationFile.read(found), "session_id") !== thread) {
      continue
    }
    if (found !== undefined) yield* fs.remove(found, force)
    if (found !== undefined || id === thread) yield* fs.remove(lockOf(path, home, id), force)
  }
})

const lockOf = (path: Path.Path, home: string, thread: string): string =>
  path.join(home, "thread-writer-locks", `${thread}.lock`)
