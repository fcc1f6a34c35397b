/**
 * What was looked at, as a person reads it: a line each, and below it what to do.
 */
import type { Check } from "../Doctor.ts"
import type { Look } from "./Style.ts"
import { cut, oneLine, pad, wrap } from "./Text.ts"

export const checks = (all: ReadonlyArray<Check>, { columns, style }: Look): string => {
  const width = Math.max(...all.map(({ check }) => check.length))
  return all.map(({ check, found, remedy, status }) => {
    const mark = status === "ok" ? style.green("✓") : status === "missing" ? style.dim("·") : style.red("✗")
    const line = `${mark} ${style.bold(pad(check, width))}  ${cut(oneLine(found), columns - width - 4)}\n`
    if (remedy === undefined) return line
    const dress = status === "failed" ? style.yellow : style.dim
    const indent = " ".repeat(width + 4)
    return line +
      wrap(oneLine(remedy), columns - width - 4).map((line) => `${indent}${dress(line)}\n`).join("")
  }).join("")
}
