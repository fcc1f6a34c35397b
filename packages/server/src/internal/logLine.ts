/**
 * The lines of a turn's file: how they are written, and how a file is checked.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { TurnHeader } from "../TurnLog.ts"
import * as TurnUsage from "../TurnUsage.ts"
import { LineIndex } from "./lineIndex.ts"

/** The newest format of a turn's file that this version knows. */
export const format = 1

/** The first line of a file. */
export const Header = Schema.Struct({
  format: Schema.Literal(format),
  turn: Bridge.TurnId,
  prompt: Schema.String,
  responseFormat: Schema.optional(Schema.String),
  startedAt: Schema.Finite
})

const decodeHeader = Schema.decodeUnknownSync(Header)
const decodeEnd = Schema.decodeUnknownSync(Bridge.EndLine)

/** The first line of a file, without its newline. */
export const headerLine = ({ prompt, responseFormat, startedAt, turn }: TurnHeader): string =>
  JSON.stringify({ format, turn, prompt, responseFormat, startedAt })

/** A part as JSON, lone surrogates replaced by U+FFFD. */
export const encodePart = (part: Bridge.Part): string => wellFormed(JSON.stringify(part))

/** The line of an encoded part, without its newline. */
export const partLine = (n: number, part: string): string => `{"n":${n},"part":${part}}`

/** An end line, without its newline. */
export const endLine = ({ attempt, end, next }: Bridge.EndLine): string =>
  wellFormed(JSON.stringify({ end, attempt, next }))

// `JSON.stringify` escapes a surrogate if and only if it's alone.
const wellFormed = (json: string) =>
  json.includes("\\ud")
    ? json.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (escape, lone) => lone === undefined ? escape : "\ufffd")
    : json

const newline = 10
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/**
 * Checks a file as its lines come: their form, their numbers, and that each is JSON. A whole `JSON.parse` of each
 * line takes less time than a framing check of our own, and only that finds every line that isn't JSON.
 */
export class LogScan {
  readonly index = new LineIndex()
  readonly usage = TurnUsage.make()
  header: TurnHeader | undefined
  /** The format, where it's newer than ours: nothing else is known then. */
  newerFormat: number | undefined
  /** The end, if the last line is one. */
  end: { readonly line: string; readonly value: Bridge.EndLine } | undefined
  /** What's wrong with the first line that doesn't fit; nothing after it counts. */
  damage: string | undefined

  /** Takes the file's next lines, newline of the last one included. */
  add(bytes: Uint8Array): void {
    const problem = Result.try(() => this.lines(bytes))
    this.damage = Result.isSuccess(problem) ? problem.success : String(problem.failure)
  }

  private lines(bytes: Uint8Array): string | undefined {
    const decoded = Result.try(() => strict.decode(bytes))
    // Where something in here is no UTF-8, what's before that line still counts.
    const text = Result.isSuccess(decoded) ? decoded.success : undefined
    let start = 0
    let position = 0
    while (start < bytes.length && this.newerFormat === undefined) {
      const end = bytes.indexOf(newline, start)
      let line: string
      if (text === undefined) {
        line = strict.decode(bytes.subarray(start, end))
      } else {
        const stop = text.indexOf("\n", position)
        line = text.slice(position, stop)
        position = stop + 1
      }
      const problem = this.line(line, this.index.size + end + 1 - start)
      if (problem !== undefined) return problem
      start = end + 1
    }
    return undefined
  }

  // Raises where the line isn't JSON.
  private line(line: string, size: number): string | undefined {
    const { index } = this
    if (this.header === undefined) {
      const header = JSON.parse(line)
      if (typeof header.format === "number" && header.format > format) {
        this.newerFormat = header.format
        return undefined
      }
      this.header = decodeHeader(header)
      index.begin(1)
      index.size = size
      return undefined
    }
    const next = index.count + 1
    if (line.startsWith(`{"n":${next},"part":{"`)) {
      const { n, part } = JSON.parse(line)
      if (n !== next || typeof part.type !== "string") return `the line of part ${next} holds something else`
      if (this.end !== undefined) {
        if (
          part.type !== "turn-continued" || !Number.isInteger(part.attempt) || part.attempt <= index.attempt.attempt
        ) {
          return `part ${next} comes after an end`
        }
        index.begin(part.attempt, part.keep)
        this.end = undefined
      }
      this.usage.add(part)
      index.push(size)
      return undefined
    }
    const value = decodeEnd(JSON.parse(line))
    if (value.next !== next) return `an end before part ${value.next} follows part ${index.count}`
    // A repaired file may say an attempt of which it has no part.
    if (value.attempt > index.attempt.attempt) index.begin(value.attempt)
    else if (this.end !== undefined || value.attempt < index.attempt.attempt) return "an attempt ends twice"
    this.end = { line, value }
    index.pushEnd(size)
    return undefined
  }
}
