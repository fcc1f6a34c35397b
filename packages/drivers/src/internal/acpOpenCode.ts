/**
 * In what OpenCode has its own way.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type { Surroundings } from "./acpProfiles.ts"
import { type Call, changesOf, fileChange, hostServer } from "./acpTools.ts"
import { planOf } from "./plan.ts"

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.JsonObject))

// In milliseconds, and still a number of 32 bits: longer than a host lets a tool call wait.
const forever = 2_000_000_000

// It asks for everything but to look; the host's own tools need no approval of the host.
const permission = {
  "*": "ask",
  read: "allow",
  glob: "allow",
  grep: "allow",
  list: "allow",
  lsp: "allow",
  skill: "allow",
  task: "allow",
  todoread: "allow",
  todowrite: "allow",
  [`${hostServer}_*`]: "allow"
}

/**
 * Its configuration comes in a variable, which stands over its files. What was given in that variable stays, but for
 * what the host is promised: that it's asked, and that a denial doesn't end the turn.
 */
export const env = ({ empty, instructions, settings, variable }: Surroundings): Readonly<Record<string, string>> => {
  const given = Option.getOrElse(parse(variable(configuration)), (): Schema.JsonObject => ({}))
  const part = (name: string) => {
    const value = given[name]
    return (Predicate.isObject(value) && !Array.isArray(value) ? value : {}) as Schema.JsonObject
  }
  const files = Array.isArray(given["instructions"]) ? given["instructions"] as ReadonlyArray<Schema.Json> : []
  return {
    [configuration]: JSON.stringify({
      autoupdate: false,
      share: "disabled",
      ...given,
      permission,
      experimental: { ...part("experimental"), continue_loop_on_deny: true, mcp_timeout: forever },
      ...(instructions === undefined ? {} : { instructions: [...files, instructions] })
    }),
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    ...(settings === "none" ? { OPENCODE_DISABLE_PROJECT_CONFIG: "1" } : {}),
    ...(settings === "user" ? {} : { OPENCODE_DISABLE_CLAUDE_CODE: "1", XDG_CONFIG_HOME: empty })
  }
}

const configuration = "OPENCODE_CONFIG_CONTENT"

const has = (input: Schema.Json | null | undefined, key: string): boolean => Predicate.isObject(input) && key in input

/** Told live by the first title; a conversation that is loaded has only what the call does. */
export const toolName = ({ fields: { kind, rawInput } }: Call): string | undefined => {
  if (kind === "execute" && has(rawInput, "command")) return "bash"
  if (kind !== "edit") return undefined
  if (has(rawInput, "oldString")) return "edit"
  return has(rawInput, "content") ? "write" : undefined
}

const Output = Schema.Struct({
  metadata: Schema.Struct({
    exit: Schema.optional(Schema.NullOr(Schema.Finite)),
    filepath: Schema.optional(Schema.String),
    exists: Schema.optional(Schema.Boolean),
    diff: Schema.optional(Schema.String),
    filediff: Schema.optional(Schema.Struct({ file: Schema.String })),
    todos: Schema.optional(Schema.Array(Schema.Struct({ content: Schema.String, status: Schema.String })))
  })
})
const decodeOutput = Schema.decodeUnknownOption(Output)
const metadataOf = ({ fields }: Call) => Option.getOrUndefined(decodeOutput(fields.rawOutput))?.metadata

/**
 * An edit's result has its diff. A write's says only whether there was a file before; what was in it is known while
 * the call runs, from the request for permission.
 */
export const changes = (call: Call): ReadonlyArray<typeof Bridge.FileChange.Type> | undefined => {
  const metadata = metadataOf(call)
  if (metadata === undefined) return undefined
  const { diff, exists, filediff, filepath } = metadata
  if (diff !== undefined && filediff !== undefined) {
    const path = filediff.file
    return [{
      type: "file-change",
      path,
      kind: "update",
      // Its own diff begins with lines of another program's.
      diff: diff.slice(Math.max(0, diff.indexOf("--- "))),
      toolCallId: call.id
    }]
  }
  const { rawInput } = call.fields
  if (filepath === undefined || exists === undefined || !Predicate.isObject(rawInput)) return undefined
  const content = (rawInput as Schema.JsonObject)["content"]
  if (!Predicate.isString(content)) return undefined
  if (!exists) return [fileChange(call.id, filepath, undefined, content)]
  const known = changesOf(call)
  return known.length > 0 ? known : [{ type: "file-change", path: filepath, kind: "update", toolCallId: call.id }]
}

export const failure = (call: Call): string | undefined => {
  const exit = metadataOf(call)?.exit
  if (exit === undefined || exit === 0) return undefined
  return exit === null ? "ended by a signal" : `exit code ${exit}`
}

export const plan = (call: Call): typeof Bridge.Plan.Type | undefined => {
  const todos = metadataOf(call)?.todos
  return todos === undefined ? undefined : planOf(todos)
}
