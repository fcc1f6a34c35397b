/**
 * A session's conversation with Codex: which one it is, and what its file holds.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled, SessionOptions } from "@gangway/server/Driver"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type * as Schema from "effect/Schema"
import { clientIds } from "./codexEntries.ts"
import { failed } from "./codexProcess.ts"
import * as Prompt from "./codexPrompt.ts"
import { reconcile } from "./codexReconcile.ts"
import * as Rollout from "./codexRollout.ts"
import * as ConversationFile from "./conversationFile.ts"
import { inFiles } from "./work.ts"

export interface Conversation {
  /** Codex's id of it, as far as there's one. */
  readonly thread: () => string | undefined
  /** The bridge's name for it. */
  readonly name: () => string
  /** Takes the id of the thread that Codex opened; whether it's a new one. */
  readonly named: (thread: string) => boolean
  /** Whether it's known to have begun: Codex writes its file with the first prompt. */
  readonly begun: () => boolean
  /** Takes note that it has. */
  readonly begin: () => void
  /** Where Codex keeps its databases. */
  readonly database: string
  /** The host's tools, as Codex is told them. */
  readonly tools: ReadonlyArray<Tool>
  /** Whether there's a file. */
  readonly exists: Effect.Effect<boolean, Bridge.DriverError>
  /** The lines of the file; none where there's no file. */
  readonly lines: Effect.Effect<ReadonlyArray<Schema.JsonObject>, Bridge.DriverError>
  /** Fails where it has begun and its file is gone. */
  readonly check: Effect.Effect<void, Bridge.DriverError | Bridge.ContextLost>
  /** Makes the directories that Codex needs. */
  readonly prepare: Effect.Effect<void, Bridge.DriverError>
  /** Compares it with the log of a turn. */
  readonly compare: (previous: PreviousAttempts) => Effect.Effect<Reconciled, Bridge.DriverError | Bridge.ContextLost>
  /** It as JSON. */
  readonly state: Effect.Effect<Schema.Json, Bridge.DriverError | Bridge.ContextLost>
}

interface Tool {
  readonly type: "function"
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema.Json
}

/** Opens the conversation of a session: a known one, one carried over, or a new one. */
export const open = Effect.fnUntraced(function*(
  options: SessionOptions,
  homeOf: ReturnType<typeof Rollout.homeOf>
): Effect.fn.Return<
  Conversation,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Crypto.Crypto
> {
  const crypto = yield* Crypto.Crypto
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const files = inFiles(yield* Effect.context<FileSystem.FileSystem | Path.Path>(), failed)
  const home = yield* homeOf(options.env)
  const { directory } = options

  const named = options.conversation === undefined ? undefined : Rollout.toName(options.conversation)
  const key = named?.key ?? (yield* Effect.orDie(crypto.randomUUIDv4))
  const database = Rollout.databaseOf(path, home, key)
  const tools = options.tools.map(({ description, name, parameters }): Tool => ({
    type: "function",
    name,
    description,
    inputSchema: parameters
  }))

  let thread = named?.thread
  let begun = false
  const lost = (problem: string) => new Bridge.ContextLost({ session: options.session, problem })
  const find = Effect.suspend(() => thread === undefined ? Effect.undefined : files(Rollout.find(home, thread)))
  const missing = Effect.suspend(() => Effect.fail(lost(`Codex has no conversation ${thread} of ${directory}`)))
  const lines = Effect.flatMap(
    find,
    (file) => file === undefined ? Effect.succeed([]) : files(ConversationFile.read(file))
  )
  const check = Effect.gen(function*() {
    if (begun && (yield* find) === undefined) return yield* missing
  })

  const own = (held: ReadonlyArray<Schema.JsonObject>) => {
    const of = Rollout.threadOf(held)
    return of === undefined || of === thread
      ? Effect.void
      : Effect.fail(lost(`the file of conversation ${thread} is another conversation's, ${of}`))
  }

  if (thread !== undefined) {
    const held = yield* lines
    yield* own(held)
    const from = Rollout.directoryOf(held)
    if (from === undefined ? options.established : from !== directory) return yield* missing
    if (from === undefined) thread = undefined
    else begun = true
  } else if (options.established) return yield* missing

  if (options.conversation === undefined && options.state !== undefined) {
    const id = yield* Effect.orDie(crypto.randomUUIDv7)
    const restored = yield* files(
      Rollout.restore(home, options.state, { thread: id, directory, tools: tools as unknown as Schema.Json })
    ).pipe(
      Effect.catchTag("SchemaError", () => Effect.fail(lost("the given state is none of Codex's")))
    )
    if (restored) {
      thread = id
      begun = true
    }
  }

  return {
    thread: () => thread,
    name: () => Rollout.fromName({ thread, key }),
    named: (id) => {
      const isNew = id !== thread
      thread = id
      return isNew
    },
    begun: () => begun,
    begin: () => void (begun = true),
    database,
    tools,
    exists: Effect.map(find, (file) => file !== undefined),
    lines,
    check,
    prepare: files(fs.makeDirectory(database, { recursive: true, mode: 0o700 })),

    compare: Effect.fnUntraced(function*(previous) {
      yield* check
      const prompts = new Set<string>()
      for (let attempt = 1; thread !== undefined && attempt < previous.attempt; attempt++) {
        prompts.add(Prompt.messageId(thread, previous.turn, attempt))
      }
      const held = yield* lines
      yield* own(held)
      const ids = clientIds(held)
      const messages = new Set(
        previous.messages.filter((message) => ids.has(Prompt.messageId(thread ?? "", previous.turn, message)))
      )
      const reconciled = yield* reconcile({
        lines: held,
        prompts,
        previous,
        tools: new Set(options.tools.map(({ name }) => name)),
        directory
      })
      return "lost" in reconciled ? yield* lost(reconciled.lost) : { ...reconciled, messages }
    }),

    state: Effect.gen(function*() {
      yield* check
      return Rollout.toState(yield* lines, { thread: thread ?? "", directory })
    })
  }
})
