/**
 * An error that the agent answered a prompt with, as the failure of a turn.
 *
 * The protocol has no place for what the model's API said. Some agents give its status as the error's code, most only
 * its words.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { TurnFailed } from "@gangway/server/Driver"
import { RpcCode, type RpcError } from "./acpConnection.ts"

type Kind = TurnFailed["kind"]

const byStatus = (status: number): Kind | undefined => {
  if (status === RpcCode.authRequired || status === 401 || status === 403) return "auth"
  if (status === 413) return "context-too-long"
  if (status === 429) return "rate-limit"
  if (status >= 500 && status < 600) return "overloaded"
  return status === 400 || status === 404 || status === 422 ? "invalid-request" : undefined
}

const byWords: ReadonlyArray<readonly [RegExp, Extract<Bridge.FailureKind, Kind>]> = [
  [
    /prompt is too long|context[ _-]?(?:length|window)|maximum context|too many tokens|compaction.*exhausted/i,
    "context-too-long"
  ],
  [/rate.?limit|too many requests|quota|slow down|\b429\b/i, "rate-limit"],
  [/unauthori[sz]ed|authenticat|api[ -]?key|forbidden|not logged in|\b40[13]\b/i, "auth"],
  [/overloaded|unavailable|try again later|\b5(?:00|02|03|04|29)\b/i, "overloaded"],
  [/invalid.?request|bad request|model.*not found|\b400\b/i, "invalid-request"]
]

export const turnFailed = ({ code, data, message }: RpcError): TurnFailed => {
  const words = data === undefined ? message : `${message} ${JSON.stringify(data)}`
  const kind = byStatus(code) ?? byWords.find(([pattern]) => pattern.test(words))?.[1] ?? "unknown"
  return new TurnFailed({ kind, message })
}
