/**
 * Counts what a reader of a turn lost and what it got twice, by the turn's file and by the journal of the agent.
 */
import { counted } from "@gangway/client/Turn"
import type { ScriptedAgent } from "@gangway/drivers"
import { Bridge } from "@gangway/protocol"
import * as Schema from "effect/Schema"

/** What came of a comparison. */
export interface Count {
  readonly lost: number
  readonly doubled: number
}

const add = (a: Count, b: Count): Count => ({ lost: a.lost + b.lost, doubled: a.doubled + b.doubled })

/** Compares two lists of texts, in whatever order they are: what there was, and what was had of it. */
export const compare = (there: ReadonlyArray<string>, had: ReadonlyArray<string>): Count => {
  const left = new Map<string, number>()
  for (const text of there) left.set(text, (left.get(text) ?? 0) + 1)
  let doubled = 0
  for (const text of had) {
    const count = left.get(text) ?? 0
    if (count === 0) doubled++
    else left.set(text, count - 1)
  }
  return { lost: [...left.values()].reduce((sum, count) => sum + count, 0), doubled }
}

/** The part lines of a turn's file. */
export const partsOfFile = (text: string): ReadonlyArray<Bridge.NumberedPart> =>
  text.split("\n").flatMap((line) => {
    const value: unknown = line === "" ? undefined : JSON.parse(line)
    return isNumberedPart(value) ? [value] : []
  })

const isNumberedPart = Schema.is(Bridge.NumberedPart)

/** What was read against the turn's file: each line once, and in its words. */
export const byFile = (read: ReadonlyArray<Bridge.NumberedPart>, file: ReadonlyArray<Bridge.NumberedPart>): Count =>
  compare(file.map((part) => JSON.stringify(part)), read.map(({ n, part }) => JSON.stringify({ n, part })))

/** What counts of what was read against what the agent emitted in the steps that it finished. */
export const byJournal = (
  read: ReadonlyArray<Bridge.NumberedPart>,
  journal: ReadonlyArray<ScriptedAgent.JournalEntry>
): Count => {
  const finished = new Set(
    journal.flatMap((entry) => entry.type === "recorded" ? [`${entry.attempt} ${entry.step}`] : [])
  )
  const emitted = journal.flatMap((entry) =>
    entry.type === "emitted" && finished.has(`${entry.attempt} ${entry.step}`) ? entry.parts : []
  )
  return compare(said(emitted), said(counted(read).map(({ part }) => part)))
}

/** What the agent said, as texts: those of a block are one, wherever they were cut. The bridge's own parts are left out. */
const said = (parts: ReadonlyArray<Bridge.Part>): ReadonlyArray<string> => {
  const blocks = new Map<string, string>()
  const out: Array<string> = []
  for (const part of parts) {
    if (!Bridge.isKnown(part)) continue
    switch (part.type) {
      case "text-delta":
        blocks.set(part.id, (blocks.get(part.id) ?? "") + part.delta)
        break
      case "tool-approval-request":
      case "tool-approval-response":
        break
      case "tool-result":
        if (part.providerExecuted === true) out.push(JSON.stringify({ ...part, recovered: undefined }))
        break
      default:
        out.push(JSON.stringify({ ...part, recovered: undefined }))
    }
  }
  return [...out, ...[...blocks].map(([id, text]) => `${id}: ${text}`)]
}

/** Both comparisons together. */
export const total = (counts: ReadonlyArray<Count>): Count => counts.reduce(add, { lost: 0, doubled: 0 })
