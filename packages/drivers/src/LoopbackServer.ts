/**
 * A small HTTP server that only this machine reaches: how agents that take their tools from MCP servers reach those of
 * the host.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"

/**
 * A request, its body read.
 *
 * @category models
 * @since 0.1.0
 */
export interface Request {
  readonly method: string
  /** The header `authorization`. */
  readonly authorization: string | undefined
  readonly body: string
}

/**
 * An answer. A stream is sent as it comes.
 *
 * @category models
 * @since 0.1.0
 */
export interface Response {
  readonly status: number
  readonly contentType?: string | undefined
  readonly body?: string | Stream.Stream<string> | undefined
}

/**
 * How such servers are started; a bridge program has its platform's.
 *
 * @category services
 * @since 0.1.0
 */
export class LoopbackServer extends Context.Service<LoopbackServer, {
  /**
   * Listens on a free port of 127.0.0.1 until the scope closes, and answers the URL, without a slash at its end. A
   * request whose caller goes away is interrupted. What is open when the scope closes is cut.
   */
  readonly serve: (
    answer: (request: Request) => Effect.Effect<Response>
  ) => Effect.Effect<string, Bridge.DriverError, Scope.Scope>
}>()("@gangway/drivers/LoopbackServer") {}
