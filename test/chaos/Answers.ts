/**
 * What hosts answer: the same for the same question, whoever is asked.
 */
import type { HostTools } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import { Effect, type Schema } from "effect"

const sumOf = (id: string): number => [...id].reduce((sum, unit) => (sum * 31 + unit.charCodeAt(0)) | 0, 7) >>> 0

/** The answer to a host tool's call. */
export const toolResult = (id: string): { readonly result: Schema.Json; readonly isFailure: boolean } => ({
  result: { answer: id, found: "🙂".repeat(sumOf(id) % 5) },
  isFailure: sumOf(id) % 4 === 0
})

/** The tools of each host. */
export const tools: HostTools.HostTools = {
  tools: [{ name: "lookup", description: "Looks up", parameters: { type: "object" } }],
  handle: ({ id }) => Effect.succeed(toolResult(id))
}

/** The decision on an approval request. */
export const decision = (id: string): { readonly decision: Bridge.Decision; readonly reason?: string } =>
  sumOf(id) % 3 === 0 ? { decision: "deny", reason: `not ${id}` } : { decision: "allow" }

/** The answer to a question. */
export const questionAnswer = (id: string): Schema.JsonObject => ({
  "Which one?": sumOf(id) % 2 === 0 ? "this" : "that"
})

/** The request with which a part is answered, if it asks something. */
export const answerTo = (
  part: Bridge.KnownPart
): { readonly tag: string; readonly id: string; readonly payload: object } | undefined => {
  switch (part.type) {
    case "tool-call":
      return part.providerExecuted === false
        ? { tag: "SubmitToolResult", id: part.id, payload: { toolCallId: part.id, ...toolResult(part.id) } }
        : undefined
    case "tool-approval-request":
      return {
        tag: "Approve",
        id: part.approvalId,
        payload: { approvalId: part.approvalId, ...decision(part.approvalId) }
      }
    case "question":
      return {
        tag: "SubmitToolResult",
        id: part.questionId,
        payload: { toolCallId: part.questionId, result: questionAnswer(part.questionId), isFailure: false }
      }
    default:
      return undefined
  }
}
