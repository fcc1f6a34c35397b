/**
 * The parts of a turn with their numbers, in a line each, or one for a run of deltas.
 */
import { Bridge } from "@gangway/protocol"
import type { Look } from "../render/Style.ts"
import { cut, oneLine } from "../render/Text.ts"
import * as Values from "../render/Values.ts"

/** A run of deltas that isn't told yet. */
export interface Run {
  readonly type: string
  readonly id: string
  readonly from: number
  readonly to: number
  readonly text: string
}

const numberColumns = 9
const typeColumns = 23

const line = (numbers: string, type: string, text: string, { columns, style }: Look): string => {
  const room = columns - numberColumns - typeColumns - 2
  return `  ${style.dim(numbers.padEnd(numberColumns))}${style.cyan(type.padEnd(typeColumns))}${cut(text, room)}\n`
}

/** Tells the run, if there's one. */
export const flush = (run: Run | undefined, look: Look): string =>
  run === undefined
    ? ""
    : line(run.from === run.to ? `${run.from}` : `${run.from}-${run.to}`, run.type, `"${oneLine(run.text)}"`, look)

/** Takes the next part into the run, or tells the run and the part. */
export const report = (
  run: Run | undefined,
  { n, part }: Bridge.NumberedPart,
  look: Look
): readonly [run: Run | undefined, text: string] => {
  if (!Bridge.isKnown(part)) return [undefined, flush(run, look) + line(`${n}`, part.type, "", look)]
  switch (part.type) {
    case "text-start":
    case "text-delta":
    case "text-end": {
      const delta = part.type === "text-delta" ? part.delta : ""
      if (run?.id !== part.id) return [{ type: "text", id: part.id, from: n, to: n, text: delta }, flush(run, look)]
      const grown = { ...run, to: n, text: run.text + delta }
      return part.type === "text-end" ? [undefined, flush(grown, look)] : [grown, ""]
    }
    default:
      return [undefined, flush(run, look) + line(`${n}`, part.type, words(part, look), look)]
  }
}

const words = (part: Bridge.KnownPart, look: Look): string => {
  switch (part.type) {
    case "tool-call":
      return `${part.name} ${Values.input(part.params, look)}${
        part.providerExecuted === false ? ", run by the host" : ""
      }`
    case "tool-result":
      return `${part.name}: ${oneLine(Values.result(part.result))}`
    case "tool-approval-request":
      return `${part.name} ${Values.input(part.params, look)}, ${part.reason ?? "may it?"}`
    case "tool-approval-response":
      return Values.decision(part)
    case "file-change":
      return `${part.kind} ${Values.path(part.path, look)}`
    case "step-finished":
      return Values.usage(part.usage)
    case "turn-continued":
      return `attempt ${part.attempt}; parts up to ${part.keep} count`
    case "notice":
      return part.message
    default:
      return ""
  }
}
