/**
 * What the status of a refusal by the model's API says of a turn.
 */
import type { TurnFailed } from "@gangway/server/Driver"

/** The kind of failure, where the agent says no more than the status. */
export const kindOf = (status: number): TurnFailed["kind"] => {
  if (status === 401 || status === 403) return "auth"
  if (status === 429) return "rate-limit"
  return status >= 500 ? "overloaded" : "invalid-request"
}
