/**
 * The conversation that the scripted agent keeps: a file of lines in its home, appended to as a turn goes on.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { lines } from "./scriptedFiles.ts"
import { Script, type Step, stepsOf } from "./scriptedScript.ts"

const format = 1

const inStep = { turn: Schema.String, attempt: Schema.Int, step: Schema.Int }

const Opened = Schema.Struct({
  type: Schema.Literal("opened"),
  format: Schema.Literal(format),
  conversation: Schema.String
})

const Entry = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("prompt"),
    turn: Schema.String,
    attempt: Schema.Int,
    prompt: Schema.Array(Bridge.PromptPart),
    script: Script
  }),
  // A message that a host sent into the turn. Its steps come before the one that had the index `at`.
  Schema.Struct({
    type: Schema.Literal("message"),
    turn: Schema.String,
    attempt: Schema.Int,
    id: Schema.String,
    at: Schema.Int,
    prompt: Schema.Array(Bridge.PromptPart),
    script: Script
  }),
  Schema.Struct({ type: Schema.Literal("nudge"), turn: Schema.String, attempt: Schema.Int }),
  // What a host said to a tool call, an approval request or a question.
  Schema.Struct({ type: Schema.Literal("answer"), ...inStep, id: Schema.String, answer: Schema.Json }),
  // The step is finished; `parts` is how many it has.
  Schema.Struct({ type: Schema.Literal("step"), ...inStep, parts: Schema.Int }),
  Schema.Struct({ type: Schema.Literal("ended"), turn: Schema.String, attempt: Schema.Int, failed: Schema.Boolean }),
  Schema.Struct({ type: Schema.Literal("compaction"), summary: Schema.String })
])

export type Entry = typeof Entry.Type

// Parts of a step, finished or not. Their lines are many and long, and known by how they begin.
const Parts = Schema.Struct({ type: Schema.Literal("parts"), ...inStep, parts: Schema.Array(Bridge.AgentPart) })
const partsPrefix = `{"type":"parts",`

export const entryLine = (entry: Entry | typeof Opened.Type): string => `${JSON.stringify(entry)}\n`

/** The line of parts that are JSON text already. */
export const partsLine = (at: { turn: string; attempt: number; step: number }, parts: string): string =>
  `${partsPrefix}"turn":${JSON.stringify(at.turn)},"attempt":${at.attempt},"step":${at.step},"parts":${parts}}\n`

/** The conversation's file is missing, or not what the agent writes. */
export class ConversationUnreadable extends Data.TaggedError("ConversationUnreadable")<{
  readonly problem: string
}> {}

export interface TurnRecord {
  readonly turn: string
  readonly prompt: ReadonlyArray<Bridge.PromptPart>
  readonly script: Script
  /** The finished steps by index: the attempt that finished each, and how many parts it has. */
  readonly steps: Map<number, { readonly attempt: number; readonly parts: number }>
  readonly answers: Array<{ readonly id: string; readonly answer: Schema.Json }>
  /** In the order in which they were taken, as `at` counts. */
  readonly messages: Array<Extract<Entry, { readonly type: "message" }>>
  nudges: number
  ended: boolean
}

export interface Conversation {
  readonly conversation: string
  readonly turns: Map<string, TurnRecord>
  summary: string | undefined
}

export const pathOf = (path: Path.Path, home: string, conversation: string): string =>
  path.join(home, "conversations", `${conversation}.ndjson`)

/** Takes an entry into account. */
export const apply = (conversation: Conversation, entry: Entry): void => {
  if (entry.type === "compaction") {
    conversation.summary = entry.summary
    return
  }
  if (entry.type === "prompt") {
    const { prompt, script, turn } = entry
    // A turn that is prompted again takes its place at the end.
    conversation.turns.delete(turn)
    conversation.turns.set(turn, {
      turn,
      prompt,
      script,
      steps: new Map(),
      answers: [],
      messages: [],
      nudges: 0,
      ended: false
    })
    return
  }
  const turn = conversation.turns.get(entry.turn)
  if (turn === undefined) return
  if (entry.type === "nudge") turn.nudges++
  else if (entry.type === "answer") turn.answers.push({ id: entry.id, answer: entry.answer })
  else if (entry.type === "message") turn.messages.push(entry)
  else if (entry.type === "step") turn.steps.set(entry.step, { attempt: entry.attempt, parts: entry.parts })
  else turn.ended = true
}

/** All steps of a turn, those of its messages included. */
export const stepsIn = ({ messages, script }: TurnRecord): Array<Step> => {
  const steps = [...stepsOf(script)]
  for (const { at, script } of messages) steps.splice(at, 0, ...stepsOf(script))
  return steps
}

const unreadable = (path: string) => (error: PlatformError) =>
  new ConversationUnreadable({
    problem: error.reason._tag === "NotFound"
      ? `its file ${path} is gone`
      : `its file ${path} can't be read: ${error.message}`
  })

const parse = <S extends Schema.ConstraintDecoder<unknown>>(schema: S) => {
  const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(schema))
  return (line: string, number: number) =>
    Effect.mapError(decode(line), () => new ConversationUnreadable({ problem: `line ${number} isn't the agent's` }))
}
const parseOpened = parse(Opened)
const parseEntry = parse(Entry)
const parseParts = parse(Parts)
const parseJson = parse(Schema.Json)

/** Reads all but the parts. */
export const read = Effect.fnUntraced(function*(path: string) {
  let conversation: Conversation | undefined
  let number = 0
  yield* lines(path).pipe(
    Stream.mapError(unreadable(path)),
    Stream.runForEach((line) =>
      Effect.gen(function*() {
        number++
        if (conversation === undefined) {
          const opened = yield* parseOpened(line, number)
          conversation = { conversation: opened.conversation, turns: new Map(), summary: undefined }
        } else if (!line.startsWith(partsPrefix)) apply(conversation, yield* parseEntry(line, number))
      })
    )
  )
  if (conversation === undefined) return yield* new ConversationUnreadable({ problem: `its file ${path} is empty` })
  return conversation
})

/** The parts of a turn's finished steps from `from` on, by step. */
export const partsFrom = Effect.fnUntraced(function*(path: string, record: TurnRecord, from: number) {
  const parts = new Map<number, Array<Bridge.AgentPart>>()
  let number = 0
  yield* lines(path).pipe(
    Stream.mapError(unreadable(path)),
    Stream.runForEach((line) =>
      Effect.gen(function*() {
        number++
        if (!line.startsWith(partsPrefix)) return
        const entry = yield* parseParts(line, number)
        if (entry.turn !== record.turn || entry.step < from) return
        if (record.steps.get(entry.step)?.attempt !== entry.attempt) return
        const step = parts.get(entry.step)
        if (step === undefined) parts.set(entry.step, [...entry.parts])
        else for (const part of entry.parts) step.push(part)
      })
    )
  )
  return parts
})

const State = Schema.Struct({ format: Schema.Literal(format), entries: Schema.Array(Entry) })

/** What another home needs to carry the conversation on: all but the parts. */
export const toState = Effect.fnUntraced(function*(path: string) {
  const entries: Array<Schema.Json> = []
  let number = 0
  yield* lines(path).pipe(
    Stream.mapError(unreadable(path)),
    Stream.runForEach((line) =>
      Effect.gen(function*() {
        if (number++ === 0) yield* parseOpened(line, number)
        else if (!line.startsWith(partsPrefix)) entries.push(yield* parseJson(line, number))
      })
    )
  )
  return { format, entries } satisfies Schema.Json
})

/** Writes a new conversation, empty or with another one's state. */
export const create = Effect.fnUntraced(function*(options: {
  readonly path: string
  readonly conversation: string
  readonly state?: Schema.Json | undefined
}) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const entries = options.state === undefined
    ? []
    : yield* Schema.decodeUnknownEffect(State)(options.state).pipe(
      Effect.map((state) => state.entries),
      Effect.mapError(() => new ConversationUnreadable({ problem: "its state isn't what the scripted agent gives" }))
    )
  const directory = path.dirname(options.path)
  const temporary = `${options.path}.new`
  const text = entryLine({ type: "opened", format, conversation: options.conversation }) +
    entries.map(entryLine).join("")
  yield* Effect.scoped(Effect.gen(function*() {
    yield* fs.makeDirectory(directory, { recursive: true, mode: 0o700 })
    const file = yield* fs.open(temporary, { flag: "w", mode: 0o600 })
    yield* file.writeAll(new TextEncoder().encode(text))
    yield* file.sync
    yield* fs.rename(temporary, options.path)
    yield* (yield* fs.open(directory)).sync
  })).pipe(Effect.mapError(unreadable(options.path)))
})
