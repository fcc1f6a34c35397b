/**
 * What was found of an agent in a sandbox: whether it's there, whether its version fits, and what it can do.
 *
 * @since 0.1.0
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Schema from "effect/Schema"

const known = {
  /** Its short name, such as `claude-code`. */
  agent: Schema.String,
  /** Its name for people. */
  title: Schema.String,
  /** The agent options of a bridge that drives it. */
  agentOptions: Bridge.AgentOptions,
  /** The versions that its driver takes, in words. */
  versions: Schema.String,
  /** The command that installs the version that its driver is tested with. */
  install: Schema.String
}

/**
 * An agent that can be driven here.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Ready = Schema.Struct({
  ...known,
  status: Schema.Literal("ready"),
  version: Schema.String,
  capabilities: Bridge.Capabilities
})

/**
 * An agent that can't: there is none, its version doesn't fit, or it didn't say which it is.
 *
 * @category schemas
 * @since 0.1.0
 */
export const NotReady = Schema.Struct({
  ...known,
  status: Schema.Literals(["missing", "wrong-version", "failed"]),
  problem: Schema.String
})

/**
 * What was found of an agent: a line that `gangway-bridge agents` prints.
 *
 * @category schemas
 * @since 0.1.0
 */
export const FoundAgent = Schema.Union([Ready, NotReady])

/** @category models @since 0.1.0 */
export type FoundAgent = typeof FoundAgent.Type
