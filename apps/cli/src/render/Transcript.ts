/**
 * A turn in one of the forms that it's printed in.
 */
import type { Bridge } from "@gangway/protocol"
import * as End from "./End.ts"
import * as Markdown from "./Markdown.ts"
import * as Parts from "./Parts.ts"
import type { Look } from "./Style.ts"

/** For people, for programs, for documents. */
export const formats = ["text", "json", "markdown"] as const

export type Format = (typeof formats)[number]

/** What is printed for each part in turn, and at the end. */
export interface Transcript {
  readonly part: (part: Bridge.NumberedPart) => string
  readonly end: (line: Bridge.EndLine) => string
}

const text = (look: Look): Transcript => {
  let state = Parts.initial
  return {
    part: (part) => {
      const [after, text] = Parts.render(state, part, look)
      state = after
      return text
    },
    end: ({ end }) => End.renderEnd(state, end, look)
  }
}

const json: Transcript = {
  part: ({ n, part }) => `${JSON.stringify({ n, part })}\n`,
  end: (line) => `${JSON.stringify(line)}\n`
}

const markdown = ({ directory }: Look): Transcript => {
  let state: Markdown.State
  return {
    part: (part) => {
      const [after, text] = Markdown.render(state, part, directory)
      state = after
      return text
    },
    end: ({ end }) => Markdown.renderEnd(state, end)
  }
}

export const make = (format: Format, look: Look): Transcript =>
  format === "text" ? text(look) : format === "json" ? json : markdown(look)
