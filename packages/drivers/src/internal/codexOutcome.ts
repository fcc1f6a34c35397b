/**
 * How a turn failed, by the error that Codex tells.
 */
import { TurnFailed } from "@gangway/server/Driver"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type { TurnError } from "./codexMessages.ts"
import * as HttpStatus from "./httpStatus.ts"

type Kind = TurnFailed["kind"]

// Where a provider refuses a request, its answer is the message.
const Refusal = Schema.fromJsonString(Schema.Struct({
  error: Schema.Struct({
    type: Schema.optional(Schema.NullOr(Schema.String)),
    code: Schema.optional(Schema.NullOr(Schema.String)),
    message: Schema.String
  })
}))

const decodeRefusal = Schema.decodeUnknownOption(Refusal)

export const turnFailed = (error: TurnError | null | undefined): TurnFailed => {
  if (error === null || error === undefined) {
    return new TurnFailed({ kind: "unknown", message: "Codex failed without saying why." })
  }
  const refusal = Option.getOrUndefined(decodeRefusal(error.message))?.error
  const message = refusal?.message ?? error.message
  if (refusal?.code === "context_length_exceeded" || /context[ _](?:length|window)|too long/i.test(message)) {
    return new TurnFailed({ kind: "context-too-long", message })
  }
  const kind = refusal?.type === "invalid_request_error" ? "invalid-request" : kindOf(error.codexErrorInfo ?? null)
  return new TurnFailed({ kind, message })
}

const kinds: Readonly<Record<string, Kind>> = {
  contextWindowExceeded: "context-too-long",
  sessionBudgetExceeded: "rate-limit",
  usageLimitExceeded: "rate-limit",
  rateLimitExceeded: "rate-limit",
  flexUnavailable: "overloaded",
  serverOverloaded: "overloaded",
  policyCapacityUnavailable: "overloaded",
  internalServerError: "overloaded",
  modelNotFound: "invalid-request",
  badRequest: "invalid-request",
  unauthorized: "auth"
}

const kindOf = (info: Schema.Json): Kind => {
  if (Predicate.isString(info)) return kinds[info] ?? "unknown"
  if (!Predicate.isObject(info)) return "unknown"
  // A connection that failed, with the status of the answer if there was one.
  for (const [name, detail] of Object.entries(info)) {
    const status = Predicate.isObject(detail) ? detail["httpStatusCode"] : undefined
    if (Predicate.isNumber(status)) return HttpStatus.kindOf(status)
    if (name.startsWith("http") || name.startsWith("response")) return "overloaded"
  }
  return "unknown"
}
