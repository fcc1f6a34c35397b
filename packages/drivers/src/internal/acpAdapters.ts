/**
 * In what the adapters of Claude Code and Codex have their own way.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Call } from "./acpTools.ts"
import * as ClaudeDiff from "./claudeDiff.ts"

const ClaudeMeta = Schema.Struct({
  claudeCode: Schema.Struct({ toolName: Schema.optional(Schema.String), toolResponse: Schema.optional(Schema.Unknown) })
})
const decodeClaude = Schema.decodeUnknownOption(ClaudeMeta)
const claudeOf = ({ fields }: Call) => Option.getOrUndefined(decodeClaude(fields._meta))?.claudeCode

/** It starts with a way around permissions, which Claude Code refuses to root, unless it's told not to. */
export const claudeMeta = { claudeCode: { options: { allowDangerouslySkipPermissions: false } } }

export const claudeToolName = (call: Call): string | undefined => claudeOf(call)?.toolName

/** Its own diffs are pieces of files; what Claude Code itself tells of an edit has the lines' numbers. */
export const claudeChanges = (call: Call): ReadonlyArray<typeof Bridge.FileChange.Type> | undefined => {
  const change = ClaudeDiff.fileChange(claudeOf(call)?.toolResponse, call.id)
  return change === undefined ? undefined : [change]
}

const CodexExit = Schema.Struct({ terminal_exit: Schema.Struct({ exit_code: Schema.NullOr(Schema.Finite) }) })
const decodeExit = Schema.decodeUnknownOption(CodexExit)

export const codexFailure = ({ fields }: Call): string | undefined => {
  const exit = Option.getOrUndefined(decodeExit(fields._meta))?.terminal_exit.exit_code ?? 0
  return exit === 0 ? undefined : `exit code ${exit}`
}
