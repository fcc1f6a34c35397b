/**
 * A turn as Markdown: the agent's text as it is, and what it did as code, quotes and lists.
 */
import { Bridge } from "@gangway/protocol"
import { ending } from "./End.ts"
import { plain } from "./Style.ts"
import { oneLine, printable } from "./Text.ts"
import * as Values from "./Values.ts"

/** The block that is being written; none at the start of one. */
export type State = string | undefined

/** What comes next, and what is written for it. */
export type Rendered = readonly [state: State, text: string]

const look = { style: plain, columns: Number.POSITIVE_INFINITY }

// Longer than any in the text.
const fence = (text: string, language = ""): string => {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length))
  const ticks = "`".repeat(longest + 1)
  return `${ticks}${language}\n${text.replace(/\n$/, "")}\n${ticks}`
}

const code = (text: string): string => {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length))
  const ticks = "`".repeat(longest + 1)
  return text === "" ? "" : longest === 0 ? `${ticks}${text}${ticks}` : `${ticks} ${text} ${ticks}`
}

const quote = (text: string): string => text.replace(/\n/g, "\n> ")

// What is meant as itself.
const escaped = (text: string): string => oneLine(text).replace(/[\\`*_[\]<>]/g, "\\$&")

const close = (state: State): string => state === undefined ? "" : "\n\n"

const block = (state: State, text: string): Rendered => [undefined, `${close(state)}${text}\n\n`]

const prose = (state: State, key: string, delta: string, isQuoted: boolean): Rendered => {
  const begins = state !== key
  const text = begins ? printable(delta).trimStart() : printable(delta)
  if (text === "") return [state, ""]
  return [key, (begins ? close(state) + (isQuoted ? "> " : "") : "") + (isQuoted ? quote(text) : text)]
}

/** Renders the next part of a turn. */
export const render = (state: State, { part }: Bridge.NumberedPart, directory: string | undefined): Rendered => {
  if (!Bridge.isKnown(part)) return [state, ""]
  const from = { ...look, directory }
  const { parent = "" } = part
  switch (part.type) {
    case "text-delta":
      return prose(state, `text ${part.id} ${parent}`, part.delta, parent !== "")
    case "reasoning-delta":
      return prose(state, `reasoning ${part.id} ${parent}`, part.delta, true)
    case "tool-call":
      return block(state, `**${escaped(part.name)}** ${code(Values.input(part.params, from))}`.trimEnd())
    case "tool-result": {
      if (part.preliminary === true) return [state, ""]
      const text = printable(Values.result(part.result))
      const failed = part.isFailure ? "It failed:\n\n" : ""
      return text.trim() === ""
        ? (part.isFailure ? block(state, "It failed.") : [state, ""])
        : block(state, failed + fence(text))
    }
    case "tool-approval-request":
      return block(state, `*May it?* **${escaped(part.name)}** ${code(Values.input(part.params, from))}`.trimEnd())
    case "tool-approval-response":
      return block(state, `*${escaped(Values.decision(part))}*`)
    case "question":
      return block(
        state,
        part.questions.map(({ options, question }) =>
          [`**${escaped(question)}**`, ...options.map(({ label }) => `- ${escaped(label)}`)].join("\n")
        ).join("\n\n")
      )
    case "question-answer":
      return block(state, `*${part.isFailure ? "not answered" : "answered"}: ${escaped(Values.answer(part.answer))}*`)
    case "user-message":
      return block(
        state,
        `> ${
          quote(printable(part.prompt.map((one) => one.type === "text" ? one.text : `[${one.mediaType}]`).join(" ")))
        }\n>\n> (a message, ${part.messageId})`
      )
    case "file-change": {
      const title = `*${part.kind}* ${part.from === undefined ? "" : `${code(Values.path(part.from, from))} → `}${
        code(Values.path(part.path, from))
      }`
      const diff = part.diff === undefined || part.diff === "" ? "" : `\n\n${fence(printable(part.diff), "diff")}`
      return block(state, title + diff)
    }
    case "file":
      return block(state, `*a file, ${escaped(part.mediaType)}*`)
    case "source":
      return block(state, `*source:* ${escaped(part.title)} ${escaped(part.url ?? part.fileName ?? "")}`.trimEnd())
    case "error":
      return block(state, `*error: ${escaped(Values.result(part.error))}*`)
    case "compaction":
      return block(state, "*the conversation was shortened*")
    case "plan":
      return block(
        state,
        part.entries.map(({ content, status }) => `- [${status === "completed" ? "x" : " "}] ${escaped(content)}`)
          .join("\n")
      )
    case "retry":
      return block(state, `*the model's call failed and is tried again: ${escaped(part.message)}*`)
    case "turn-continued":
      return block(state, `*the turn goes on, attempt ${part.attempt}*`)
    case "notice":
      return block(state, `*${escaped(part.message)}*`)
    case "text-start":
    case "text-end":
    case "reasoning-start":
    case "reasoning-end":
    case "tool-params-start":
    case "tool-params-delta":
    case "tool-params-end":
    case "user-message-delivered":
    case "step-finished":
    case "response-metadata":
    case "raw":
    case "part-fragment":
      return [state, ""]
  }
}

/** The last lines of a turn. */
export const renderEnd = (state: State, end: Bridge.End): string =>
  `${close(state)}---\n\n${escaped(ending(end))} · ${Values.usage(end.usage)}\n${
    end.type === "finished" && end.output !== undefined
      ? `\n${fence(JSON.stringify(end.output, undefined, 2), "json")}\n`
      : ""
  }`
