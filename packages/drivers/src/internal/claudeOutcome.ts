/**
 * How a turn ended, by the result that Claude Code prints.
 */
import { type Finished, TurnFailed } from "@gangway/server/Driver"
import * as Predicate from "effect/Predicate"
import { finishReason } from "./claudeBlocks.ts"
import type { Result } from "./claudeMessages.ts"
import * as HttpStatus from "./httpStatus.ts"

type Outcome = { readonly finished: Finished } | { readonly failed: TurnFailed }

export const outcomeOf = (result: Result, options: {
  /** The CLI's word for the error, where it put a message of its own in place of an answer. */
  readonly error: string | undefined
  /** Whether an answer in a given form was asked for. */
  readonly structured: boolean
  /** What an earlier result of the same turn said. */
  readonly before: Finished | undefined
}): Outcome => {
  if (result.is_error || result.terminal_reason?.startsWith("aborted") === true) {
    return { failed: new TurnFailed({ kind: kindOf(result, options.error), message: messageOf(result) }) }
  }
  const output = result.structured_output ?? options.before?.output
  if (options.structured && output === undefined) {
    return {
      failed: new TurnFailed({ kind: "unknown", message: "Claude Code gave no answer in the form that was asked for." })
    }
  }
  return {
    finished: {
      finishReason: result.structured_output === undefined ? finishReason(result.stop_reason) : "stop",
      ...(output === undefined ? {} : { output })
    }
  }
}

const messageOf = ({ errors, result, subtype }: Result): string =>
  Predicate.isString(result) && result !== "" ? result : errors?.join("\n") ?? `Claude Code ended with ${subtype}.`

const kindOf = (
  { api_error_status: status, terminal_reason: reason }: Result,
  error: string | undefined
): TurnFailed["kind"] => {
  if (reason === "prompt_too_long" || status === 413) return "context-too-long"
  switch (error) {
    case "authentication_failed":
    case "oauth_org_not_allowed":
    case "account_on_hold":
    case "verification_required":
    case "billing_error":
    case "cloud_credential_error":
      return "auth"
    case "rate_limit":
      return "rate-limit"
    case "overloaded":
    case "server_error":
      return "overloaded"
    case "invalid_request":
    case "model_not_found":
      return "invalid-request"
  }
  return status === undefined || status === null ? "unknown" : HttpStatus.kindOf(status)
}
