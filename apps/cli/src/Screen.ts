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
  const wrote = (text: string) => {
    if (text !== "") isAmidLine = !text.endsWith("\n")
  }
  const note = (text: string) =>
    Effect.suspend(() => {
      wrote(text)
      return Effect.ignore(write(process.stderr, text))
    })
  return Screen.of({
    look: lookOf(process.stdout),
    noteLook: lookOf(process.stderr),
    isSeen,
    isTerminal: process.stdout.isTTY === true,
    rows: () => process.stdout.rows || 24,
    write: (text) =>
      Effect.suspend(() => {
        if (isShared && typeof text === "string") wrote(text)
        return write(process.stdout, text)
      }),
    note,
    tell: (lines) => Effect.suspend(() => note(isSeen && isAmidLine ? `\n${lines}` : lines))
  })
})
