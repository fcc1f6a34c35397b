/**
 * The agent options of Codex.
 */
import * as Schema from "effect/Schema"

const secret = Schema.RedactedFromValue(Schema.String)

export const Options = Schema.Struct({
  /** The program; absent, `codex` on the PATH. */
  command: Schema.optional(Schema.String),
  /** `OPENAI_API_KEY`, for the provider that `baseUrl` names; absent, what the user of the sandbox is logged in with. */
  apiKey: Schema.optional(secret),
  /** Where the model's Responses API is; absent, OpenAI's. */
  baseUrl: Schema.optional(Schema.String),
  /** The model of sessions and turns that name none; absent, what `config.toml` says, or the program's own default. */
  model: Schema.optional(Schema.String),
  /** Values in place of those of `config.toml`, by their dotted keys, none of them secret. */
  config: Schema.optional(Schema.JsonObject),
  /** More variables for the agent's environment, none of them secret. */
  env: Schema.optional(Schema.Record(Schema.String, Schema.String)),
  /** Secret ones, such as the key that a provider of `config` names in its `env_key`. */
  secretEnv: Schema.optional(Schema.Record(Schema.String, secret)),
  /** `CODEX_HOME`, absolute: where Codex keeps settings, its login and conversations; absent, `~/.codex`. */
  home: Schema.optional(Schema.String)
})

export type Options = typeof Options.Type
