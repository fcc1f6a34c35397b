/**
 * The files in which Claude Code keeps its conversations: one JSON object a line, appended as the conversation goes.
 *
 * They aren't synced, and their last line may be torn; the CLI begins a new one then. Only what a comparison with the log and a move to another
 * sandbox need is read.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { SessionOptions } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { AssistantMessage, CompactMetadata, Content } from "./claudeMessages.ts"
import type { Options } from "./claudeOptions.ts"
import { failed } from "./claudeProcess.ts"
import * as ConversationFile from "./conversationFile.ts"

/** Where Claude Code keeps what it keeps. */
export interface Home {
  /** `~/.claude`, or what `CLAUDE_CONFIG_DIR` says. */
  readonly configDirectory: string
  /** Where it puts the images of prompts, and what commands in the background print. */
  readonly temporaryDirectory: string
}

/** Where the CLI keeps its conversations, given the session's environment. */
export const homeOf = (path: Path.Path, options: Options, inherited: {
  readonly configDirectory: Option.Option<string>
  readonly home: Option.Option<string>
  readonly temporaryDirectory: Option.Option<string>
}) =>
(env: SessionOptions["env"]): Effect.Effect<Home, Bridge.DriverError> => {
  const variable = (name: string) => {
    const secret = env[name] ?? options.secretEnv?.[name]
    return secret === undefined ? options.env?.[name] : Redacted.value(secret)
  }
  const given = (env["CLAUDE_CONFIG_DIR"] === undefined ? options.configDirectory : undefined) ??
    variable("CLAUDE_CONFIG_DIR") ?? Option.getOrUndefined(inherited.configDirectory)
  const temporaryDirectory = variable("CLAUDE_CODE_TMPDIR") ?? variable("TMPDIR") ??
    Option.getOrElse(inherited.temporaryDirectory, () => "/tmp")
  if (given !== undefined) return Effect.succeed({ configDirectory: given, temporaryDirectory })
  const home = variable("HOME") ?? Option.getOrUndefined(inherited.home)
  return home === undefined
    ? Effect.fail(failed("options", "there is no HOME: set the option 'configDirectory'"))
    : Effect.succeed({ configDirectory: path.join(home, ".claude"), temporaryDirectory })
}

const newPrefix = "new:"

/** The name of a conversation that has no transcript yet. */
export const newConversation = (id: string): string => newPrefix + id

/** The CLI's id of a conversation. */
export const idOf = (conversation: string): string =>
  conversation.startsWith(newPrefix) ? conversation.slice(newPrefix.length) : conversation

/** What a line of a transcript tells, where it's one that counts. */
export type Entry =
  /** What the user said, or the results of tools. */
  | {
    readonly _tag: "User"
    readonly uuid: string
    readonly content: typeof Content.Type
    readonly structured: unknown
  }
  | {
    readonly _tag: "Answer"
    readonly message: AssistantMessage
    /** The block's place in the answer. */
    readonly index: number | undefined
  }
  | { readonly _tag: "Compaction"; readonly uuid: string; readonly metadata: typeof CompactMetadata.Type }

const Line = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("user"),
    uuid: Schema.String,
    isSidechain: Schema.optional(Schema.Boolean),
    message: Schema.Struct({ content: Content }),
    toolUseResult: Schema.optional(Schema.Unknown)
  }),
  Schema.Struct({
    type: Schema.Literal("assistant"),
    isSidechain: Schema.optional(Schema.Boolean),
    isApiErrorMessage: Schema.optional(Schema.Boolean),
    apiBlockIndex: Schema.optional(Schema.Int),
    message: AssistantMessage
  }),
  /** What the user said while the CLI was at work. */
  Schema.Struct({
    type: Schema.Literal("attachment"),
    attachment: Schema.Struct({ type: Schema.Literal("queued_command"), source_uuid: Schema.String })
  }),
  Schema.Struct({
    type: Schema.Literal("system"),
    subtype: Schema.Literal("compact_boundary"),
    uuid: Schema.String,
    compactMetadata: Schema.Struct({
      trigger: CompactMetadata.fields.trigger,
      preTokens: Schema.optional(Schema.NullOr(Schema.Finite)),
      postTokens: Schema.optional(Schema.NullOr(Schema.Finite))
    })
  })
])

const decodeLine = Schema.decodeUnknownOption(Line)

// The CLI's rule for the folder of a working directory.
const folderOf = (directory: string): string => directory.replace(/[^a-zA-Z0-9]/g, "-")
const maxFolder = 200

const projects = (path: Path.Path, home: Home) => path.join(home.configDirectory, "projects")

/**
 * The transcript of a conversation in a working directory, if there is one. The folder of a long directory ends in a
 * hash of the CLI's own, so there only its beginning is compared.
 */
export const find = Effect.fnUntraced(function*(home: Home, options: {
  readonly conversation: string
  readonly directory: string
}) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const folder = folderOf(options.directory)
  const name = `${options.conversation}.jsonl`
  const exact = path.join(projects(path, home), folder, name)
  if (folder.length <= maxFolder) {
    return (yield* fs.exists(exact)) ? exact : undefined
  }
  const folders = yield* Effect.orElseSucceed(fs.readDirectory(projects(path, home)), () => [])
  for (const candidate of folders) {
    const file = path.join(projects(path, home), candidate, name)
    if (candidate.startsWith(`${folder.slice(0, maxFolder)}-`) && (yield* fs.exists(file))) return file
  }
  return undefined
})

/** Whose transcript it is: the conversation's id that its lines hold. */
export interface Transcript {
  readonly conversation: string | undefined
  /** The ids of all that the user said. */
  readonly messages: ReadonlySet<string>
  readonly entries: ReadonlyArray<Entry>
}

/**
 * Reads the main agent's conversation; what sub-agents said is in files of their own.
 */
export const read = Effect.fnUntraced(function*(
  file: string
): Effect.fn.Return<Transcript, PlatformError, FileSystem.FileSystem> {
  const lines = yield* ConversationFile.read(file)
  const entries: Array<Entry> = []
  const messages = new Set<string>()
  const counts = new Map<string, number>()
  for (const json of lines) {
    const line = Option.getOrUndefined(decodeLine(json))
    if (line === undefined) continue
    if (line.type === "system") {
      const { compactMetadata: { postTokens, preTokens, trigger }, uuid } = line
      entries.push({ _tag: "Compaction", uuid, metadata: { trigger, pre_tokens: preTokens, post_tokens: postTokens } })
    } else if (line.type === "attachment") {
      messages.add(line.attachment.source_uuid)
    } else if (line.isSidechain === true) {
      continue
    } else if (line.type === "assistant") {
      const { apiBlockIndex, isApiErrorMessage, message } = line
      if (isApiErrorMessage === true || message.model === "<synthetic>") continue
      const count = counts.get(message.id) ?? 0
      counts.set(message.id, count + 1)
      entries.push({ _tag: "Answer", message, index: apiBlockIndex ?? count })
    } else {
      messages.add(line.uuid)
      entries.push({ _tag: "User", uuid: line.uuid, content: line.message.content, structured: line.toolUseResult })
    }
  }
  const conversation = lines.map((line) => line["sessionId"]).find(Predicate.isString)
  return { conversation, messages, entries }
})

/** Whether a transcript holds no message yet, only notes about what was going to be said. */
export const isEmpty = Effect.fnUntraced(function*(file: string) {
  const fs = yield* FileSystem.FileSystem
  const lines = (yield* fs.readFileString(file)).split("\n")
  // Without parsing: a transcript may be long, and within strings the quotes are escaped.
  return !lines.some((line) => line.endsWith("}") && /"type":"(?:user|assistant)"/.test(line))
})

const State = Schema.Struct({
  agent: Schema.Literal("claude-code"),
  format: Schema.Literal(1),
  conversation: Schema.String,
  directory: Schema.String,
  lines: Schema.Array(Schema.JsonObject)
})

// Records of what was sent, by which nothing is carried on: most of a transcript's bytes.
const records = new Set([
  "api-request",
  "api-request-blob",
  "api-request-resumed",
  "api-request-shape",
  "queue-operation",
  "tools-used",
  "last-prompt",
  "cost-state",
  "atis-latch"
])

/** A conversation as JSON, for `restore`; without a file, one that hasn't begun. */
export const toState = Effect.fnUntraced(function*(
  file: string | undefined,
  options: { readonly conversation: string; readonly directory: string }
) {
  const lines = file === undefined ? [] : yield* ConversationFile.read(file)
  const state: typeof State.Type = {
    agent: "claude-code",
    format: 1,
    ...options,
    lines: lines.filter((line) => !Predicate.isString(line["type"]) || !records.has(line["type"]))
  }
  return state as unknown as Schema.Json
})

const decodeState = Schema.decodeUnknownEffect(State)

/**
 * Writes a state as the transcript of another conversation in another working directory. Each line names both, so both
 * are replaced; what the conversation itself says of the old directory stays. Answers whether there was anything.
 */
export const restore = Effect.fnUntraced(function*(
  home: Home,
  state: Schema.Json,
  options: { readonly conversation: string; readonly directory: string }
) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const from = yield* decodeState(state)
  if (from.lines.length === 0) return false
  const folder = folderOf(options.directory)
  if (folder.length > maxFolder) return yield* Effect.fail({ _tag: "DirectoryTooLong" } as const)
  const directory = path.join(projects(path, home), folder)
  yield* fs.makeDirectory(directory, { recursive: true, mode: 0o700 })
  const text = from.lines.map((line) =>
    JSON.stringify({
      ...line,
      ...("sessionId" in line ? { sessionId: options.conversation } : {}),
      ...(line["cwd"] === from.directory ? { cwd: options.directory } : {})
    }) + "\n"
  ).join("")
  const file = path.join(directory, `${options.conversation}.jsonl`)
  yield* ConversationFile.write(file, text)
  return true
})

/** Deletes a conversation's files: its transcript, its sub-agents', what it kept for undoing edits, temporary ones. */
export const remove = Effect.fnUntraced(function*(home: Home, options: {
  readonly conversation: string
  readonly directory: string
}) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const file = yield* find(home, options)
  const force = { force: true, recursive: true }
  if (file !== undefined) {
    yield* fs.remove(file, force)
    yield* fs.remove(file.slice(0, -".jsonl".length), force)
  }
  for (const folder of ["file-history", "session-env", "todos", "tasks"]) {
    yield* fs.remove(path.join(home.configDirectory, folder, options.conversation), force)
  }
  // There's one folder a user of the machine, and in it one a working directory.
  for (const name of yield* Effect.orElseSucceed(fs.readDirectory(home.temporaryDirectory), () => [])) {
    if (!name.startsWith("claude-")) continue
    const users = path.join(home.temporaryDirectory, name)
    const folder = file === undefined ? folderOf(options.directory) : path.basename(path.dirname(file))
    yield* Effect.ignore(fs.remove(path.join(users, folder, options.conversation), force))
  }
})
