/**
 * A session's conversation with Claude Code: which one it is, and what its transcript holds.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import type { PreviousAttempts, Reconciled, SessionOptions, Turn } from "@gangway/server/Driver"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import type * as Path from "effect/Path"
import type * as Schema from "effect/Schema"
import { failed } from "./claudeProcess.ts"
import * as Prompt from "./claudePrompt.ts"
import { reconcile } from "./claudeReconcile.ts"
import * as Transcript from "./claudeTranscript.ts"
import { inFiles } from "./work.ts"

export interface Conversation {
  /** The CLI's id of it. */
  readonly id: string
  /** The bridge's name for it, which says whether it has begun. */
  readonly name: string
  /** Whether it's known to have begun. */
  readonly begun: () => boolean
  /** Stores that it has begun. */
  readonly begin: Effect.Effect<void>
  /** Stores that it has begun where its transcript says so. */
  readonly beginOnceWritten: Effect.Effect<void>
  /** Whether there's a transcript. */
  readonly exists: Effect.Effect<boolean, Bridge.DriverError>
  /** Whether it's to be carried on, and not begun, by a CLI that is started now. */
  readonly prepare: Effect.Effect<boolean, Bridge.DriverError | Bridge.ContextLost>
  /** An id for a message of no turn. */
  readonly newId: Effect.Effect<string>
  /** The id of the message that brings a turn's prompt, or what a host sent into the turn. */
  readonly messageId: (turn: Turn["turn"], of: number | Bridge.MessageId) => Effect.Effect<string>
  /** Compares it with the log of a turn. */
  readonly compare: (previous: PreviousAttempts) => Effect.Effect<Reconciled, Bridge.DriverError | Bridge.ContextLost>
  /** It as JSON. */
  readonly state: Effect.Effect<Schema.Json, Bridge.DriverError | Bridge.ContextLost>
}

/** Opens the conversation of a session: a known one, one carried over, or a new one. */
export const open = Effect.fnUntraced(function*(
  options: SessionOptions,
  homeOf: ReturnType<typeof Transcript.homeOf>
): Effect.fn.Return<
  Conversation,
  Bridge.DriverError | Bridge.ContextLost,
  FileSystem.FileSystem | Path.Path | Crypto.Crypto
> {
  const context = yield* Effect.context<FileSystem.FileSystem | Path.Path | Crypto.Crypto>()
  const crypto = yield* Crypto.Crypto
  const newId = Effect.orDie(crypto.randomUUIDv4)
  const home = yield* homeOf(options.env)
  const { directory } = options
  const files = inFiles(context, failed)
  const lost = (problem: string) => new Bridge.ContextLost({ session: options.session, problem })

  // The CLI writes a conversation's beginning a little after its first answers. Until it's there, the id says that a
  // missing transcript is new and not lost; parts in the log don't tell.
  const named = options.conversation ?? Transcript.newConversation(yield* newId)
  const conversation = Transcript.idOf(named)
  const place = { conversation, directory }
  const find = files(Transcript.find(home, place))

  let begun = named === conversation
  const missing = lost(`Claude Code has no transcript ${conversation} of ${directory}`)
  const isEmpty = (file: string) => files(Transcript.isEmpty(file))
  if (begun) {
    const file = yield* find
    if (file === undefined || (yield* isEmpty(file))) return yield* missing
  }
  if (options.conversation === undefined && options.state !== undefined) {
    const restored = yield* files(Transcript.restore(home, options.state, place)).pipe(
      Effect.catchTags({
        SchemaError: () => Effect.fail(lost("the given state is none of Claude Code's")),
        DirectoryTooLong: () => Effect.fail(failed("options", "a conversation can't be carried into so long a path"))
      })
    )
    if (restored) begun = true
  }

  const begin = Effect.suspend(() => {
    if (begun) return Effect.void
    begun = true
    return Effect.ignore(options.saveConversation(conversation))
  })

  const messageId: Conversation["messageId"] = (turn, of) =>
    Effect.provideContext(Prompt.messageId(conversation, turn, of), context)

  return {
    id: conversation,
    name: begun ? conversation : named,
    begun: () => begun,
    begin,
    beginOnceWritten: Effect.suspend(() =>
      begun ? Effect.void : find.pipe(
        Effect.flatMap((file) => file === undefined ? Effect.succeed(true) : isEmpty(file)),
        Effect.flatMap((empty) => empty ? Effect.void : begin),
        Effect.ignore
      )
    ),
    exists: Effect.map(find, (file) => file !== undefined),
    prepare: Effect.gen(function*() {
      const file = yield* find
      if (file === undefined) return begun ? yield* missing : false
      if (begun || !(yield* isEmpty(file))) return true
      // One that was killed before it wrote the prompt: the CLI takes such a transcript neither for old nor for new.
      yield* files(Transcript.remove(home, place))
      return false
    }),
    newId,
    messageId,

    compare: Effect.fnUntraced(function*(previous) {
      const file = yield* find
      if (file === undefined && begun) return yield* missing
      const transcript = file === undefined ? undefined : yield* files(Transcript.read(file))
      if (transcript?.conversation !== undefined && transcript.conversation !== conversation) {
        return yield* lost(`the transcript ${conversation} is another conversation's, ${transcript.conversation}`)
      }
      const prompts = new Set<string>()
      for (let attempt = 1; attempt < previous.attempt; attempt++) {
        prompts.add(yield* messageId(previous.turn, attempt))
      }
      const messages = new Set<Bridge.MessageId>()
      for (const message of previous.messages) {
        if (transcript?.messages.has(yield* messageId(previous.turn, message)) === true) messages.add(message)
      }
      const reconciled = yield* reconcile({ transcript, prompts, previous })
      return "lost" in reconciled ? yield* lost(reconciled.lost) : { ...reconciled, messages }
    }),

    state: Effect.gen(function*() {
      const file = yield* find
      if (file === undefined && begun) return yield* missing
      return yield* files(Transcript.toState(file, place))
    })
  }
})
