/**
 * Standard output and error: the turn goes to one, what the command itself says to the other.
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { coloured, type Look, plain } from "./render/Style.ts"

/** Nobody reads the output any more. */
export class OutputClosed extends Data.TaggedError("OutputClosed") {
  override get message() {
    return "The output was closed."
  }
}

export class Screen extends Context.Service<Screen, {
  /** How standard output looks. */
  readonly look: Look
  /** How standard error looks. */
  readonly noteLook: Look
  /** Whether standard error is a terminal, so that a person sees what is asked there. */
  readonly isSeen: boolean
  /** Whether standard output is a terminal, where not every byte may go. */
  readonly isTerminal: boolean
  /** The lines of the terminal that standard output is. */
  readonly rows: () => number
  /** Writes to standard output; returns when it's written, so a slow reader slows the turn's reading down. */
  readonly write: (text: string | Uint8Array) => Effect.Effect<void, OutputClosed>
  /** Writes to standard error. */
  readonly note: (text: string) => Effect.Effect<void>
  /**
   * Shows a line where the cursor is that goes away with whatever is written next: of what takes long, for a person at the
   * terminal. Nothing is shown amid a line, or where standard output is something else.
   */
  readonly progress: (line: string) => Effect.Effect<void>
  /** Writes whole lines to standard error at any time: on lines of their own also where they come amid a line. */
  readonly tell: (lines: string) => Effect.Effect<void>
}>()("@gangway/cli/Screen") {}

// For pipes and files: long enough for most lines, and short enough to be read.
const plainColumns = 160

const lookOf = (stream: NodeJS.WriteStream): Look => {
  const terminal = stream.isTTY === true
  const colours = terminal && !process.env["NO_COLOR"] && process.env["TERM"] !== "dumb"
  return {
    style: colours ? coloured : plain,
    wraps: terminal,
    get columns() {
      return terminal ? stream.columns || 80 : plainColumns
    }
  }
}

const write = (stream: NodeJS.WriteStream, text: string | Uint8Array): Effect.Effect<void, OutputClosed> =>
  text.length === 0 ? Effect.void : Effect.callback((resume) => {
    stream.write(text, (error) => resume(error ? Effect.fail(new OutputClosed()) : Effect.void))
  })

export const layer: Layer.Layer<Screen> = Layer.sync(Screen, () => {
  // What is written after the reader went away fails there; nobody listens for the event.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {})
  const isSeen = process.stderr.isTTY === true
  // Where both are a terminal, which is then the same one.
  const isShared = isSeen && process.stdout.isTTY === true
  let isAmidLine = false
  let isInProgress = false
  // What is to be written in the place of what is shown.
  const instead = (text: string): string => {
    if (text === "") return text
    isAmidLine = !text.endsWith("\n")
    const wasInProgress = isInProgress
    isInProgress = false
    return wasInProgress ? `\r\x1b[K${text}` : text
  }
  const note = (text: string) => Effect.suspend(() => Effect.ignore(write(process.stderr, instead(text))))
  return Screen.of({
    look: lookOf(process.stdout),
    noteLook: lookOf(process.stderr),
    isSeen,
    isTerminal: process.stdout.isTTY === true,
    rows: () => process.stdout.rows || 24,
    write: (text) =>
      Effect.suspend(() => {
        const now = isShared && typeof text === "string" ? instead(text) : text
        return write(process.stdout, now)
      }),
    note,
    progress: (line) =>
      Effect.suspend(() => {
        if (!isShared || isAmidLine) return Effect.void
        isInProgress = true
        return Effect.ignore(write(process.stderr, `\r\x1b[K${line}`))
      }),
    tell: (lines) => Effect.suspend(() => note(isSeen && isAmidLine ? `\n${lines}` : lines))
  })
})
