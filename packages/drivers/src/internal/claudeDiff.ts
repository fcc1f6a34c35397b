/**
 * The changes of files that Claude Code's tools tell, as unified diffs.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Hunk, unifiedDiff, wholeFile } from "./unifiedDiff.ts"

const Edited = Schema.Struct({
  filePath: Schema.String,
  type: Schema.optional(Schema.String),
  content: Schema.optional(Schema.String),
  structuredPatch: Schema.Array(Hunk)
})

const Notebook = Schema.Struct({
  notebook_path: Schema.String,
  edit_mode: Schema.String,
  error: Schema.optional(Schema.String)
})

const decodeEdited = Schema.decodeUnknownOption(Edited)
const decodeNotebook = Schema.decodeUnknownOption(Notebook)

/**
 * The change that a tool's structured result tells, if it is one.
 */
export const fileChange = (result: unknown, toolCallId: string): typeof Bridge.FileChange.Type | undefined => {
  const edited = Option.getOrUndefined(decodeEdited(result))
  if (edited !== undefined) {
    const created = edited.type === "create"
    const hunks = created && edited.structuredPatch.length === 0
      ? wholeFile(edited.content ?? "")
      : edited.structuredPatch
    return {
      type: "file-change",
      path: edited.filePath,
      kind: created ? "create" : "update",
      // A change that took too long to compare comes without hunks.
      ...(created || hunks.length > 0 ? { diff: unifiedDiff(edited.filePath, created, hunks) } : {}),
      toolCallId
    }
  }
  const notebook = Option.getOrUndefined(decodeNotebook(result))
  if (notebook === undefined || notebook.error !== undefined) return undefined
  return { type: "file-change", path: notebook.notebook_path, kind: "update", toolCallId }
}
