/**
 * All that the scripted agent writes: lines to its driver, its journal and its conversation, in an order that a crash
 * can't turn.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { PlatformError } from "effect/PlatformError"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import type * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type { FromAgent, JournalEntry } from "../ScriptedAgent.ts"
import { type Entry, entryLine, partsLine } from "./scriptedConversation.ts"
import * as Files from "./scriptedFiles.ts"

/** A step of a turn's attempt. */
export interface At {
  readonly turn: string
  readonly attempt: number
  readonly step: number
}

/** What a host is asked. */
export type Request = Extract<FromAgent, { readonly type: "call" | "approval" | "question" }>

export interface Output {
  /** Writes a line to the driver; waits while the pipe is full. */
  readonly send: (message: FromAgent) => Effect.Effect<void, PlatformError>
  /** Prints a line that is no message. */
  readonly print: (to: "stdout" | "stderr", text: string) => Effect.Effect<void, PlatformError>
  readonly journal: (entry: JournalEntry) => Effect.Effect<void, PlatformError>
  /** Appends to the conversation, synced. */
  readonly remember: (entry: Entry) => Effect.Effect<void, PlatformError>
  /** The parts from here on are the step's. */
  readonly begin: (at: At) => Effect.Effect<void>
  /** Takes a part of the step; it's written with the next ones, at the latest at `flush`. */
  readonly emit: (part: Bridge.AgentPart) => Effect.Effect<void, PlatformError>
  /** Writes the parts that were taken: journal first, then conversation, then driver. */
  readonly flush: Effect.Effect<void, PlatformError>
  /**
   * Writes the step's last part. By the time `recorded` runs, the conversation holds the step finished, and the driver
   * doesn't know it.
   */
  readonly finish: (
    part: Bridge.AgentPart,
    recorded: Effect.Effect<void, PlatformError>
  ) => Effect.Effect<void, PlatformError>
  /** How many parts of the step were taken. */
  readonly count: () => number
  /** Drops what was taken, and says so in the journal; `false` where no turn was running. */
  readonly interrupted: Effect.Effect<boolean, PlatformError>
}

/** The journal's path. */
export const journalPath = (path: Path.Path, home: string, conversation: string): string =>
  path.join(home, "journal", `${conversation}.ndjson`)

// Parts go out together, up to so many, or about so many UTF-16 units.
const batchParts = 512
const batchLength = 128 * 1024
// A longer line goes out in pieces.
const pieceLength = 8 * 1024 * 1024

const write = (stdio: Stdio.Stdio, to: "stdout" | "stderr", text: string) =>
  Stream.run(Stream.succeed(text), stdio[to]())

/** Prints lines. */
export const printer = (stdio: Stdio.Stdio): Output["print"] => (to, text) => write(stdio, to, `${text}\n`)

const writeLine = Effect.fnUntraced(function*(stdio: Stdio.Stdio, text: string) {
  if (text.length <= pieceLength) return yield* write(stdio, "stdout", `${text}\n`)
  for (let i = 0; i < text.length; i += pieceLength) {
    const piece: FromAgent = {
      type: "piece",
      text: text.slice(i, i + pieceLength),
      last: i + pieceLength >= text.length
    }
    yield* write(stdio, "stdout", `${JSON.stringify(piece)}\n`)
  }
})

export const make = Effect.fnUntraced(function*(options: {
  readonly home: string
  readonly conversation: string
  readonly journal: "synced" | "off"
  /** The conversation's file. */
  readonly file: string
  readonly stdio: Stdio.Stdio
}): Effect.fn.Return<Output, PlatformError, FileSystem.FileSystem | Path.Path | Scope.Scope> {
  const { stdio } = options
  const path = yield* Path.Path
  const synced = options.journal === "synced"
  const conversation = yield* Files.open(options.file)
  const journalFile = synced
    ? yield* Files.open(journalPath(path, options.home, options.conversation))
    : undefined

  // The pieces of a line are not parted.
  const oneLine = yield* Semaphore.make(1)
  const sendText = (text: string) => oneLine.withPermit(writeLine(stdio, text))

  let at: At = { turn: "", attempt: 0, step: 0 }
  let count = 0
  let length = 0
  let buffer: Array<Bridge.AgentPart> = []
  let running: { readonly turn: string; readonly attempt: number } | undefined

  const journalText = (text: string) =>
    journalFile === undefined ? Effect.void : journalFile.append(text, { sync: true })

  const journal = (entry: JournalEntry) =>
    Effect.suspend(() => {
      if (entry.type === "turn") running = { turn: entry.turn, attempt: entry.attempt }
      else if (entry.type === "ended") running = undefined
      return journalText(`${JSON.stringify(entry)}\n`)
    })

  // The buffered parts as JSON, encoded once for the journal, the conversation and the driver.
  const take = () => {
    const taken = { at, first: count - buffer.length, parts: JSON.stringify(buffer) }
    buffer = []
    length = 0
    return taken
  }

  const journalParts = ({ at, first, parts }: ReturnType<typeof take>) =>
    journalText(
      `{"type":"emitted","turn":${JSON.stringify(at.turn)},"attempt":${at.attempt},"step":${at.step},` +
        `"first":${first},"parts":${parts}}\n`
    )

  const flush = Effect.suspend(() => {
    if (buffer.length === 0) return Effect.void
    const taken = take()
    const told = sendText(`{"type":"parts","parts":${taken.parts}}`)
    if (!synced) return told
    return Effect.andThen(
      Effect.andThen(journalParts(taken), conversation.append(partsLine(taken.at, taken.parts), { sync: false })),
      told
    )
  })

  const add = (part: Bridge.AgentPart) => {
    buffer.push(part)
    count++
    length += "delta" in part ? part.delta.length + 64 : 256
  }

  return {
    send: (message) => sendText(JSON.stringify(message)),
    print: printer(stdio),
    journal,
    remember: (entry) => conversation.append(entryLine(entry), { sync: synced }),
    begin: (step) =>
      Effect.sync(() => {
        at = step
        count = 0
      }),
    emit: (part) =>
      Effect.suspend(() => {
        add(part)
        return buffer.length >= batchParts || length >= batchLength ? flush : Effect.void
      }),
    flush,
    finish: Effect.fnUntraced(function*(part, recorded) {
      yield* flush
      add(part)
      const taken = take()
      yield* journalParts(taken)
      yield* conversation.append(
        (synced ? partsLine(at, taken.parts) : "") + entryLine({ type: "step", ...at, parts: count }),
        { sync: synced }
      )
      yield* recorded
      yield* journal({ type: "recorded", ...at })
      yield* sendText(`{"type":"parts","parts":${taken.parts}}`)
    }),
    count: () => count,
    interrupted: Effect.suspend(() => {
      buffer = []
      length = 0
      if (running === undefined) return Effect.succeed(false)
      return Effect.as(journal({ type: "ended", ...running, how: "interrupted" }), true)
    })
  }
})
