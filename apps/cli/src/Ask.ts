/**
 * What a person is asked for the agent, and what the typed lines mean.
 */
import type { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import type { Schema } from "effect"
import type { Look } from "./render/Style.ts"
import { oneLine } from "./render/Text.ts"
import * as Values from "./render/Values.ts"

type Request = typeof Bridge.ToolApprovalRequest.Type

type Question = (typeof Bridge.Question.Type)["questions"][number]

/** What a line means as the answer to an approval request. */
export type ApprovalLine =
  | { readonly _tag: "Decision"; readonly approval: Turn.Approval }
  | { readonly _tag: "View" }
  | { readonly _tag: "Unclear" }

/** The question after an approval request, which stands above it. */
export const approvalPrompt = ({ rule }: Request, { style }: Look): string =>
  `  ${style.bold("Allow?")} ${
    ["y yes", ...(rule === undefined ? [] : [`a always (${oneLine(rule)})`]), "n no", "n and a reason", "v view all"]
      .join(
        ", "
      )
  }: `

export const readApproval = (line: string, { rule }: Request): ApprovalLine => {
  const [word = "", ...rest] = line.trim().split(/\s+/)
  const reason = rest.join(" ")
  switch (word.toLowerCase()) {
    case "y":
    case "yes":
      return reason === "" ? { _tag: "Decision", approval: { decision: "allow" } } : { _tag: "Unclear" }
    case "a":
    case "always":
      return rule !== undefined && reason === ""
        ? { _tag: "Decision", approval: { decision: "allow-always" } }
        : { _tag: "Unclear" }
    case "n":
    case "no":
      return { _tag: "Decision", approval: { decision: "deny", ...(reason === "" ? {} : { reason }) } }
    case "v":
    case "view":
      return reason === "" ? { _tag: "View" } : { _tag: "Unclear" }
    default:
      return { _tag: "Unclear" }
  }
}

/** All that is known of a request. */
export const viewApproval = ({ name, params, reason }: Request): string =>
  [oneLine(name), ...(reason === undefined ? [] : [oneLine(reason)]), Values.wholeInput(params)].join("\n")
    .replace(/^/gm, "    ") + "\n"

/** The question below one of an agent's questions, whose options stand above it. */
export const questionPrompt = ({ multiple, options, question }: Question, several: boolean, { style }: Look): string =>
  `  ${style.bold(several ? oneLine(question) : "Answer?")} ${
    options.length === 0 ? "in words" : multiple === true ? "numbers with commas, or words" : "a number, or words"
  }: `

/** The chosen labels, or what was typed; none where nothing was. */
export const readAnswer = (line: string, { multiple, options }: Question): Schema.Json | undefined => {
  const text = line.trim()
  if (text === "") return undefined
  const pieces = multiple === true ? text.split(/\s*,\s*/).filter((piece) => piece !== "") : [text]
  const chosen = pieces.map((piece) => /^\d+$/.test(piece) ? options[Number(piece) - 1]?.label ?? piece : piece)
  return multiple === true ? chosen : chosen[0]!
}
