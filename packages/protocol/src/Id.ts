/**
 * The names by which hosts address bridges, sessions, turns and messages, chosen by the host.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * The shape of every id: it is safe as a file name, in a URL and in a shell.
 *
 * @category constants
 * @since 0.1.0
 */
export const idPattern: RegExp = /^[a-z0-9][a-z0-9-]{0,63}$/

const id = Schema.String.check(
  Schema.isPattern(idPattern, {
    expected: "1 to 64 of a-z, 0-9 and '-', the first of them no '-'"
  })
)

/**
 * The id of a bridge: one accepts work per bridge id and state directory.
 *
 * @category schemas
 * @since 0.1.0
 */
export const BridgeId = id.pipe(Schema.brand("@gangway/protocol/BridgeId"))

/**
 * The id of a bridge.
 *
 * @category models
 * @since 0.1.0
 */
export type BridgeId = typeof BridgeId.Type

/**
 * The id of a session: one conversation with the agent in one working directory.
 *
 * @category schemas
 * @since 0.1.0
 */
export const SessionId = id.pipe(Schema.brand("@gangway/protocol/SessionId"))

/**
 * The id of a session.
 *
 * @category models
 * @since 0.1.0
 */
export type SessionId = typeof SessionId.Type

/**
 * The id of a turn: one prompt and all that follows from it.
 *
 * @category schemas
 * @since 0.1.0
 */
export const TurnId = id.pipe(Schema.brand("@gangway/protocol/TurnId"))

/**
 * The id of a turn.
 *
 * @category models
 * @since 0.1.0
 */
export type TurnId = typeof TurnId.Type

/**
 * The id of a message that a host sends into a running turn.
 *
 * @category schemas
 * @since 0.1.0
 */
export const MessageId = id.pipe(Schema.brand("@gangway/protocol/MessageId"))

/**
 * The id of a message that a host sends into a running turn.
 *
 * @category models
 * @since 0.1.0
 */
export type MessageId = typeof MessageId.Type
