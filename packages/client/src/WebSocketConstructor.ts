/**
 * How a WebSocket is made.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type { WebSocketLike } from "effect/unstable/socket/Socket"

/**
 * Makes a WebSocket. `headers` has what the sandbox's proxy asks for and is empty where there's none; browsers can't
 * send any.
 *
 * @category models
 * @since 0.1.0
 */
export type WebSocketConstructor = (options: {
  readonly url: string
  readonly protocols: Array<string>
  readonly headers: Readonly<Record<string, string>>
}) => WebSocketLike

/**
 * The constructor that connections use: by default the global `WebSocket`, which on Bun and on Node from 22 on takes
 * headers too; `undefined` where there's none.
 *
 * @category references
 * @since 0.1.0
 */
export const WebSocketConstructor: Context.Reference<WebSocketConstructor | undefined> = Context.Reference(
  "@gangway/client/WebSocketConstructor",
  {
    defaultValue: (): WebSocketConstructor | undefined => {
      // The type is the browser's, which knows no options.
      const Global = globalThis.WebSocket as unknown as
        | (new(url: string, options: unknown) => WebSocketLike)
        | undefined
      if (Global === undefined) return undefined
      return ({ headers, protocols, url }) =>
        new Global(url, Object.keys(headers).length === 0 ? protocols : { protocols, headers })
    }
  }
)
