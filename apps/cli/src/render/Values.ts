/**
 * Tools' inputs and results, changes and usage, in few words.
 */
import type { Bridge } from "@gangway/protocol"
import type { Schema } from "effect"
import type { Look, Style } from "./Style.ts"
import { oneLine, printable } from "./Text.ts"

const isObject = (value: unknown): value is Readonly<Record<string, Schema.Json>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** A path, from the look's directory if it's in there. */
export const path = (path: string, { directory }: Look): string =>
  oneLine(directory !== undefined && path.startsWith(`${directory}/`) ? path.slice(directory.length + 1) : path)

// What tells most of a tool's input, in this order.
const telling = ["command", "pattern", "file_path", "path", "notebook_path", "query", "url", "subject", "description"]

/** A tool's input on one line. */
export const input = (params: Schema.Json, look: Look): string => {
  if (typeof params === "string") return oneLine(params)
  if (!isObject(params)) return params === null ? "" : JSON.stringify(params)
  const key = telling.find((key) => typeof params[key] === "string")
  if (key !== undefined) return path(params[key] as string, look)
  return Object.keys(params).length === 0 ? "" : oneLine(JSON.stringify(params))
}

/** All of a tool's input, for whoever has to decide on it. */
export const wholeInput = (params: Schema.Json): string => {
  if (typeof params === "string") return printable(params)
  if (!isObject(params)) return printable(JSON.stringify(params))
  return Object.entries(params).map(([key, value]) => {
    const text = printable(typeof value === "string" ? value : JSON.stringify(value))
    return text.includes("\n") ? `${key}:\n${text.replace(/^/gm, "  ")}` : `${key}: ${text}`
  }).join("\n")
}

const textKeys = ["output", "stdout", "text", "content", "message", "error"]

/** A tool's result as text. */
export const result = (value: Schema.Json): string => {
  if (typeof value === "string") return value
  if (value === null) return ""
  if (Array.isArray(value)) {
    const texts = value.map((item: Schema.Json) =>
      isObject(item) && typeof item["text"] === "string" ? item["text"] : undefined
    )
    if (texts.every((text) => text !== undefined)) return texts.join("\n")
  }
  if (isObject(value)) {
    for (const key of textKeys) {
      const text = value[key]
      if (typeof text === "string") return text === "" && typeof value["stderr"] === "string" ? value["stderr"] : text
      if (Array.isArray(text)) return result(text)
    }
  }
  return JSON.stringify(value)
}

/** A unified diff, its lines coloured, without the names of the files. */
export const diff = (text: string, style: Style): ReadonlyArray<string> =>
  printable(text).replace(/^--- .*\n\+\+\+ .*\n/, "").replace(/\n$/, "").split("\n").map((line) => {
    if (line.startsWith("@@")) return style.cyan(line)
    if (line.startsWith("+")) return style.green(line)
    if (line.startsWith("-")) return style.red(line)
    return line
  })

const count = (value: number) => value.toLocaleString("en")

/** What was used, such as `1,200 in (1,000 cached), 56 out, $0.0123`. */
export const usage = ({ cost, inputTokens, measured, outputTokens }: Bridge.Usage): string => {
  const words: Array<string> = []
  const { cacheRead = 0, total } = inputTokens ?? {}
  if (total !== undefined) words.push(`${count(total)} in${cacheRead > 0 ? ` (${count(cacheRead)} cached)` : ""}`)
  if (outputTokens?.total !== undefined) words.push(`${count(outputTokens.total)} out`)
  if (cost !== undefined) words.push(`$${cost.toFixed(4)}`)
  if (words.length === 0) return "usage unknown"
  return measured ? words.join(", ") : `at least ${words.join(", ")}`
}

const decisions = { "allow": "allowed", "allow-always": "always allowed", "deny": "denied" } as const

/** A decision, such as `denied: not today`. */
export const decision = (
  { by, decision, reason }: Pick<typeof Bridge.ToolApprovalResponse.Type, "decision" | "reason" | "by">
): string => {
  const why = by === "timeout" ? "nobody answered in time" : reason
  return `${decisions[decision]}${why === undefined || why === "" ? "" : `: ${oneLine(why)}`}`
}

/** An answer to a question, such as `Blue` or `Apple, Pear`. */
export const answer = (value: Schema.Json): string => {
  if (!isObject(value)) return oneLine(result(value))
  return Object.values(value).map((one) => oneLine(Array.isArray(one) ? one.join(", ") : result(one))).join("; ")
}
