/**
 * The user that an agent runs as, where that isn't the bridge's own.
 *
 * @since 0.1.0
 */

/**
 * A user of the sandbox.
 *
 * @category models
 * @since 0.1.0
 */
export interface AgentUser {
  readonly name: string
  readonly uid: number
  readonly gid: number
  readonly home: string
}
