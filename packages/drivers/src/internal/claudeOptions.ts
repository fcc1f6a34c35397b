/**
 * The agent options of Claude Code.
 */
import * as Schema from "effect/Schema"

const secret = Schema.RedactedFromValue(Schema.String)

export const Options = Schema.Struct({
  /** The program; absent, `claude` on the PATH. */
  command: Schema.optional(Schema.String),
  /** `ANTHROPIC_API_KEY`. */
  apiKey: Schema.optional(secret),
  /** `ANTHROPIC_AUTH_TOKEN`. */
  authToken: Schema.optional(secret),
  /** `ANTHROPIC_BASE_URL`: where the model's API is; absent, Anthropic's. */
  baseUrl: Schema.optional(Schema.String),
  /** The model of sessions and turns that name none; absent, the CLI's own default. */
  model: Schema.optional(Schema.String),
  /** More variables for the agent's environment, none of them secret. */
  env: Schema.optional(Schema.Record(Schema.String, Schema.String)),
  /** Secret ones, such as the keys of a cloud provider. */
  secretEnv: Schema.optional(Schema.Record(Schema.String, secret)),
  /** `CLAUDE_CONFIG_DIR`, absolute: where the CLI keeps settings and conversations; absent, `~/.claude`. */
  configDirectory: Schema.optional(Schema.String)
})

export type Options = typeof Options.Type
