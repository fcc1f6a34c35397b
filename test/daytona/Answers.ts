/**
 * What the loopback Daytona answers: each answer is kept, to be held against Daytona's API documents.
 */
import type { ErrorResponse } from "@daytona/toolbox-api-client"

/** Whose answer it is: the API's, of the program in the sandbox, or of the proxy in front of that one. */
export type Origin = "api" | "toolbox" | "proxy"

export interface Answer {
  readonly origin: Origin
  readonly method: string
  readonly path: string
  readonly status: number
  /** Absent where there's none, or it isn't JSON. */
  readonly body?: unknown
}

/** Fails a request with a status. */
export class Refusal extends Error {
  readonly status: number
  readonly code: ErrorResponse["code"]
  readonly origin: Origin | undefined
  constructor(status: number, message: string, code?: ErrorResponse["code"], origin?: Origin) {
    super(message)
    this.status = status
    this.code = code
    this.origin = origin
  }
}

const sources = { api: "DAYTONA_API", toolbox: "DAYTONA_DAEMON", proxy: "DAYTONA_PROXY" }

/** What an error looks like on the wire. */
export const toErrorResponse = (
  origin: Origin,
  method: string,
  path: string,
  { code, message, status }: Refusal
): ErrorResponse => ({
  statusCode: status,
  message,
  ...(code === undefined ? {} : { code }),
  source: sources[origin],
  method,
  path,
  timestamp: new Date().toISOString()
})
