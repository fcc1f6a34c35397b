/**
 * One model API's side of the server: it reads a request into a conversation, and gives a reply its form.
 */
import type { Conversation, Reply } from "./Script.ts"

/** A request as it came, body parsed. */
export interface ModelRequest {
  readonly method: string
  /** Without the query. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: unknown
}

/** A streamed answer: pieces of the response body, sent one by one. */
export interface Frames {
  readonly contentType: string
  /** All but the end; a step that hangs sends these. */
  readonly body: ReadonlyArray<string>
  readonly end: ReadonlyArray<string>
}

/** A whole answer. */
export interface Whole {
  readonly status: number
  readonly json: unknown
}

/** What an API makes of a request. */
export type Read =
  /** A call of the model. `side`: an agent's own errand, such as a summary, which is answered with that text. */
  | {
    readonly _tag: "Call"
    readonly conversation: Conversation
    readonly side: string | undefined
    readonly answer: (reply: Reply) => Frames | Whole
    readonly fail: (status: number, message: string) => Whole
  }
  /** Anything else that agents ask, such as a token count. */
  | { readonly _tag: "Other"; readonly answer: Whole }

export interface Api {
  /** Absent where the request is not this API's. */
  readonly read: (request: ModelRequest) => Read | undefined
}
