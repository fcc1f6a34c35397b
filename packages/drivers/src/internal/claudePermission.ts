/**
 * What Claude Code asks before it uses a tool, as an approval request.
 */
import type { Turn } from "@gangway/server/Driver"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { PermissionRequest } from "./claudeMessages.ts"

const Suggestion = Schema.Union([
  Schema.Struct({
    type: Schema.Literal("addRules"),
    rules: Schema.Array(
      Schema.Struct({ toolName: Schema.String, ruleContent: Schema.optional(Schema.NullOr(Schema.String)) })
    )
  }),
  Schema.Struct({ type: Schema.Literal("addDirectories"), directories: Schema.Array(Schema.String) }),
  Schema.Struct({ type: Schema.Literal("setMode"), mode: Schema.String })
])

const decodeSuggestion = Schema.decodeUnknownOption(Suggestion)

/** The tools that do nothing but change files. */
const fileTools = new Set(["Edit", "MultiEdit", "NotebookEdit", "Write"])

/**
 * What is asked, without who asks.
 *
 * **Details**
 *
 * The CLI itself says what would make the question superfluous: rules for commands like this one, more directories,
 * a mode in which edits aren't asked for. An edit that the mode alone would allow is one inside the working directory,
 * links followed. All that is said together is what `allow-always` allows, so that a command which also writes
 * elsewhere isn't covered by the rule of one that doesn't. Where the CLI says nothing, or that no rule should be made,
 * only this call can be allowed.
 */
export const approval = (
  request: PermissionRequest
): Omit<Parameters<Turn["requestApproval"]>[0], "approvalId" | "parent"> => {
  const suggested = (request.permission_suggestions ?? []).map((one) => Option.getOrUndefined(decodeSuggestion(one)))
  const known = suggested.filter((one) => one !== undefined)
  const onlyMode = known.length > 0 && suggested.every((one) => one?.type === "setMode" && one.mode === "acceptEdits")
  const safe = request.decision_reason_type !== "safetyCheck"
  const ruled = safe && request.suppress_always_allow_rule !== true && known.length > 0 &&
    known.length === suggested.length
  return {
    toolCallId: request.tool_use_id,
    name: request.tool_name,
    params: request.input,
    edits: fileTools.has(request.tool_name) && onlyMode && safe,
    ...(request.decision_reason === undefined || request.decision_reason === null
      ? {}
      : { reason: request.decision_reason }),
    ...(ruled ? { rule: { key: JSON.stringify(known), title: known.map(titleOf).join(", ") } } : {})
  }
}

const titleOf = (suggestion: typeof Suggestion.Type): string => {
  switch (suggestion.type) {
    case "addRules":
      return suggestion.rules.map(({ ruleContent, toolName }) =>
        ruleContent === undefined || ruleContent === null ? toolName : `${toolName}(${ruleContent})`
      ).join(", ")
    case "addDirectories":
      return `files in ${suggestion.directories.join(", ")}`
    case "setMode":
      return suggestion.mode === "acceptEdits" ? "edits in the working directory" : `the mode ${suggestion.mode}`
  }
}

const Questions = Schema.Struct({
  questions: Schema.Array(Schema.Struct({
    question: Schema.String,
    header: Schema.optional(Schema.String),
    options: Schema.optional(
      Schema.Array(Schema.Struct({ label: Schema.String, description: Schema.optional(Schema.String) }))
    ),
    multiSelect: Schema.optional(Schema.Boolean)
  }))
})

const decodeQuestions = Schema.decodeUnknownOption(Questions)

/** The questions in a request to use the tool that asks them. */
export const questions = (request: PermissionRequest): Parameters<Turn["ask"]>[0]["questions"] | undefined => {
  if (request.tool_name !== "AskUserQuestion") return undefined
  return Option.getOrUndefined(decodeQuestions(request.input))?.questions.map(
    ({ header, multiSelect, options = [], question }) => ({
      question,
      options,
      ...(header === undefined ? {} : { header }),
      ...(multiSelect === undefined ? {} : { multiple: multiSelect })
    })
  )
}

const decodeAnswers = Schema.decodeUnknownOption(
  Schema.Record(Schema.String, Schema.Union([Schema.String, Schema.Array(Schema.String)]))
)

/** A host's answers in the form of the tool: chosen labels of one question are joined. */
export const answers = (answer: Schema.Json): Schema.JsonObject | undefined => {
  const given = Option.getOrUndefined(decodeAnswers(answer))
  if (given === undefined) return undefined
  return Object.fromEntries(
    Object.entries(given).map((
      [question, chosen]
    ) => [question, typeof chosen === "string" ? chosen : chosen.join(", ")])
  )
}
