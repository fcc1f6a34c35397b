/**
 * The agent options of the ACP driver.
 */
import * as Schema from "effect/Schema"
import { profileNames } from "./acpProfiles.ts"

const secret = Schema.RedactedFromValue(Schema.String)

export const Options = Schema.Struct({
  /** A known agent: how it's started, logged in and understood. One of `profile` and `command` is needed. */
  profile: Schema.optional(Schema.Literals(profileNames)),
  /** The program and its arguments; absent, the profile's on the PATH. */
  command: Schema.optional(Schema.NonEmptyArray(Schema.String)),
  /** Variables for the agent's environment, none of them secret. */
  env: Schema.optional(Schema.Record(Schema.String, Schema.String)),
  /** Secret ones, such as the key of its model. */
  secretEnv: Schema.optional(Schema.Record(Schema.String, secret)),
  /** `HOME`, absolute: where the agent keeps its settings and conversations; absent, the bridge's own. */
  home: Schema.optional(Schema.String),
  /** The model of sessions and turns that name none, by the agent's own name for it; absent, the agent's default. */
  model: Schema.optional(Schema.String),
  /** The mode that sessions are set to first; absent, the profile's. It should be one in which the agent asks. */
  mode: Schema.optional(Schema.String),
  /** The method by which the agent is logged in; absent, the profile's, where a variable that it needs is there. */
  authMethod: Schema.optional(Schema.String)
})

export type Options = typeof Options.Type
