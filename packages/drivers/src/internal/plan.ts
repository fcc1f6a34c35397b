/**
 * The plan of an agent that has a to-do list.
 */
import type * as Bridge from "@gangway/protocol/Bridge"

/** The part that tells it. */
export const planOf = (
  entries: ReadonlyArray<{ readonly content: string; readonly status?: string | null | undefined }>
): typeof Bridge.Plan.Type => ({
  type: "plan",
  entries: entries.map(({ content, status }) => ({
    content,
    status: status === "completed" ? "completed" : status === "in_progress" ? "in-progress" : "pending"
  }))
})
