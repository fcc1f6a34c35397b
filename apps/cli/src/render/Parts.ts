/**
 * The parts of a turn as a person reads them: text as it comes, all else in a line or a few.
 */
import { Bridge } from "@gangway/protocol"
import type { Look } from "./Style.ts"
import { cut, firstLines, flow, oneLine, printable } from "./Text.ts"
import * as Values from "./Values.ts"

/** Where the rendering of a turn stands. */
export interface State {
  /** The block of text or reasoning that is being written. */
  readonly block: string | undefined
  /** Whether the cursor is at the start of a line. */
  readonly fresh: boolean
  /** How many columns of a line of the block are taken, where its lines are broken here. */
  readonly column: number
  /** What stands above it. */
  readonly above: "nothing" | "prose" | "item"
  /** What each step used, of those that count. */
  readonly steps: ReadonlyArray<{ readonly n: number; readonly usage: Bridge.Usage }>
  /** How deep the calls of sub-agents stand; those that aren't here stand at the left. */
  readonly depths: ReadonlyMap<string, number>
}

export const initial: State = {
  block: undefined,
  fresh: true,
  column: 0,
  above: "nothing",
  steps: [],
  depths: new Map()
}

/** What comes next, and what is written for it. */
export type Rendered = readonly [state: State, text: string]

const maxResultLines = 4
const maxDiffLines = 200
// What's deeper stands there too.
const maxDepth = 5

const newline = (state: State): string => state.fresh ? "" : "\n"

const close = (state: State): Rendered => [{ ...state, block: undefined, fresh: true }, newline(state)]

// Lines of their own, with an empty one between them and prose.
const item = (state: State, lines: ReadonlyArray<string>, indent = ""): Rendered => [
  { ...state, block: undefined, fresh: true, above: "item" },
  newline(state) + (state.above === "prose" ? "\n" : "") + lines.map((line) => `${indent}${line}\n`).join("")
]

// What a sub-agent says and does stands to the right of the call that it works for.
const depthOf = ({ depths }: State, parent: string | undefined): number =>
  parent === undefined ? 0 : Math.min((depths.get(parent) ?? 0) + 1, maxDepth)

const at = (state: State, call: string, depth: number): State =>
  depth === 0 ? state : { ...state, depths: new Map(state.depths).set(call, depth) }

const prose = (
  state: State,
  delta: string,
  { columns, dress, key, prefix, wraps = false }: {
    readonly columns: number
    readonly wraps?: boolean | undefined
    readonly key: string
    readonly prefix: string
    readonly dress: (text: string) => string
  }
): Rendered => {
  const begins = state.block !== key
  // The empty lines at a block's beginning are ours.
  const whole = begins ? printable(delta).trimStart() : printable(delta)
  if (whole === "") return [state, ""]
  const before = begins ? newline(state) + (state.above === "nothing" ? "" : "\n") : ""
  const fresh = begins || state.fresh
  // Without a prefix a terminal breaks lines by itself, also later, when its width changes.
  const [text, column] = wraps && prefix !== ""
    ? flow(whole, fresh ? 0 : state.column, columns - Bun.stringWidth(prefix))
    : [whole, 0]
  return [
    { ...state, block: key, fresh: text.endsWith("\n"), column, above: "prose" },
    before + (fresh ? prefix : "") + dress(text).replace(/\n(?!$)/g, `\n${prefix}`)
  ]
}

/** Renders the next part of a turn. */
export const render = (state: State, { n, part }: Bridge.NumberedPart, look: Look): Rendered => {
  const { columns, style, wraps } = look
  if (!Bridge.isKnown(part)) return item(state, [style.dim(`(${oneLine(part.type)})`)])
  const { parent } = part
  const depth = depthOf(state, parent)
  const indent = "  │ ".repeat(depth)
  const room = columns - indent.length
  const lines = (...lines: ReadonlyArray<string>) => item(state, lines, indent)

  switch (part.type) {
    case "text-delta":
      return prose(state, part.delta, {
        columns,
        wraps,
        key: `text ${part.id} ${parent ?? ""}`,
        prefix: indent,
        dress: (text) => text
      })
    case "reasoning-delta":
      return prose(state, part.delta, {
        columns,
        wraps,
        key: `reasoning ${part.id} ${parent ?? ""}`,
        prefix: `${indent}${style.dim("┊ ")}`,
        dress: style.dim
      })
    case "text-end":
    case "reasoning-end":
      return state.block === `${part.type.slice(0, -4)} ${part.id} ${parent ?? ""}` ? close(state) : [state, ""]
    case "tool-call":
      return item(at(state, part.id, depth), [call(part, look, room)], indent)
    case "tool-result":
      return part.preliminary === true ? [state, ""] : lines(...result(part, look, room))
    case "tool-approval-request":
      return lines(
        style.yellow(`? ${oneLine(part.name)} `) + cut(Values.input(part.params, look), room - 3 - part.name.length),
        ...(part.reason === undefined ? [] : [style.dim(`  ${cut(oneLine(part.reason), room - 2)}`)])
      )
    case "tool-approval-response":
      return lines((part.decision === "deny" ? style.red : style.green)(`  ${cut(Values.decision(part), room - 2)}`))
    case "question":
      return lines(...part.questions.flatMap(({ options, question }) => [
        style.yellow(`? ${oneLine(question)}`),
        ...options.map(({ description, label }, index) =>
          `  ${index + 1}. ${oneLine(label)}${
            description === undefined || description === "" ? "" : style.dim(`  ${oneLine(description)}`)
          }`
        )
      ]))
    case "question-answer":
      return lines(
        part.isFailure
          ? style.red(`  not answered: ${cut(Values.answer(part.answer), room - 16)}`)
          : style.green(`  answered: ${cut(Values.answer(part.answer), room - 12)}`)
      )
    case "user-message":
      return lines(...message(part, look, room))
    case "user-message-delivered":
      return lines(style.dim(`« the agent has message ${oneLine(part.messageId)}`))
    case "file-change":
      return lines(...change(part, look, room))
    case "file":
      return lines(`▫ a file, ${oneLine(part.mediaType)}, ${Math.ceil(part.data.length * 3 / 4)} bytes`)
    case "source":
      return lines(
        style.dim(cut(`▫ ${oneLine(part.title)} ${oneLine(part.url ?? part.fileName ?? "")}`.trimEnd(), room))
      )
    case "error":
      return lines(style.red(cut(`✗ ${oneLine(Values.result(part.error))}`, room)))
    case "compaction":
      return lines(style.dim(`◇ the conversation was shortened${tokens(part)}`))
    case "plan":
      return lines(...part.entries.map(({ content, status }) => {
        const line = cut(`${marks[status]} ${oneLine(content)}`, room)
        return status === "completed" ? style.dim(line) : status === "in-progress" ? style.bold(line) : line
      }))
    case "retry":
      return lines(style.yellow(cut(
        `↻ the model's call failed and is tried again${
          part.delay === undefined ? "" : ` in ${seconds(part.delay)}`
        } (${part.attempt}${part.maxAttempts === undefined ? "" : ` of ${part.maxAttempts}`}): ${
          oneLine(part.message)
        }`,
        room
      )))
    case "turn-continued":
      return continued(state, n, part, look)
    case "notice":
      return lines((part.level === "warning" ? style.yellow : style.dim)(`! ${oneLine(part.message)}`))
    case "step-finished":
      return [{ ...state, steps: [...state.steps, { n, usage: part.usage }] }, ""]
    // A block begins with its first words; a call tells its whole input; the rest is for programs.
    case "text-start":
    case "reasoning-start":
    case "tool-params-start":
    case "tool-params-delta":
    case "tool-params-end":
    case "response-metadata":
    case "raw":
    case "part-fragment":
      return [state, ""]
  }
}

const call = (part: typeof Bridge.ToolCall.Type, look: Look, room: number): string => {
  const { style } = look
  const name = oneLine(part.name)
  const where = part.providerExecuted === false ? " (host tool)" : ""
  const input = cut(Values.input(part.params, look), room - 4 - name.length - where.length)
  return `${style.cyan("→")} ${style.bold(name)}${style.dim(where)}${input === "" ? "" : `  ${input}`}`
}

const result = (part: typeof Bridge.ToolResult.Type, { style }: Look, room: number): ReadonlyArray<string> => {
  const [first = "", ...rest] = firstLines(Values.result(part.result), maxResultLines, room - 4)
  const dress = part.isFailure ? style.red : style.dim
  return [`  ${part.isFailure ? style.red("✗") : style.green("✓")} ${dress(first)}`.trimEnd()].concat(
    rest.map((line) => dress(`    ${line}`))
  )
}

const message = (
  { delivery, messageId, prompt }: typeof Bridge.UserMessage.Type,
  { style }: Look,
  room: number
): ReadonlyArray<string> => {
  const text = prompt.map((part) => part.type === "text" ? part.text : `[${part.fileName ?? part.mediaType}]`).join(" ")
  const title = cut(`« message ${messageId}${delivery === "queue" ? ", for later" : ""}`, room)
  return [style.cyan(title), ...firstLines(text, maxResultLines, room - 2).map((line) => `  ${line}`)]
}

const change = (part: typeof Bridge.FileChange.Type, look: Look, room: number): ReadonlyArray<string> => {
  const { style } = look
  const from = part.from === undefined ? "" : `${Values.path(part.from, look)} → `
  const title = cut(`± ${part.kind} ${from}${Values.path(part.path, look)}`, room)
  if (part.diff === undefined || part.diff === "") return [style.bold(title)]
  const diff = Values.diff(part.diff, style)
  return [
    style.bold(title),
    ...diff.slice(0, maxDiffLines).map((line) => `  ${line}`),
    ...(diff.length > maxDiffLines ? [style.dim(`  … ${diff.length - maxDiffLines} more lines`)] : [])
  ]
}

const continued = (
  state: State,
  n: number,
  { attempt, keep }: typeof Bridge.TurnContinued.Type,
  { style }: Look
): Rendered => {
  const kept = { ...state, steps: state.steps.filter((step) => step.n <= keep) }
  const without = n - 1 - keep
  return item(kept, [
    style.yellow(
      `↺ the turn goes on, attempt ${attempt}` +
        (without > 0 ? `: of what stands above, the parts from ${keep + 1} to ${n - 1} are void` : "")
    )
  ])
}

const marks = { "pending": "☐", "in-progress": "◐", "completed": "☑" } as const

const seconds = (milliseconds: number): string => `${Math.round(milliseconds / 100) / 10} s`

const tokens = ({ tokensAfter, tokensBefore }: typeof Bridge.Compaction.Type): string =>
  tokensAfter === undefined || tokensBefore === undefined
    ? ""
    : `, from ${tokensBefore.toLocaleString("en")} to ${tokensAfter.toLocaleString("en")} tokens`
