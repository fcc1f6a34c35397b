/**
 * Makes tools of functions, and host tools of those.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import type { StandardJSONSchemaV1, StandardSchemaV1 } from "effect/StandardSchema"
import type { HostTools, Outcome } from "../../HostTools.ts"
import type * as Plain from "../../Promise.ts"
import { describe, failed, toJson } from "../toolOutcome.ts"
import { call } from "./runner.ts"

export interface Definition {
  readonly description: string
  readonly parameters: StandardSchemaV1 | Schema.JsonObject
  readonly jsonSchema?: Schema.JsonObject | undefined
  readonly run: (params: never, context: Plain.ToolContext) => unknown
}

export const make = (definition: Definition): Plain.Tool => {
  const { description, jsonSchema, parameters } = definition
  const run = definition.run as Plain.Tool["run"]
  if (!isStandard(parameters)) {
    return {
      description,
      parameters,
      run: (params, context) => {
        if (isObject(params)) return run(params, context)
        throw new TypeError("its input isn't an object")
      }
    }
  }
  const { validate } = parameters["~standard"]
  return {
    description,
    parameters: jsonSchema ?? toJsonSchema(parameters),
    run: (params, context) =>
      Promise.resolve(validate(params)).then((result) => {
        if (result.issues === undefined) return run(result.value as Schema.Json, context)
        throw new TypeError(`its input doesn't fit: ${result.issues.map(describeIssue).join("; ")}`)
      })
  }
}

export const toHostTools = (tools: Readonly<Record<string, Plain.Tool>>): HostTools => {
  const byName = new Map(Object.entries(tools))
  return {
    tools: Array.from(byName, ([name, { description, parameters }]) => ({ name, description, parameters })),
    handle: ({ id, name, params }) => {
      const tool = byName.get(name)
      if (tool === undefined) return Effect.succeed(failed(`there is none named ${name}`))
      return call((signal) => tool.run(params, { id, signal })).pipe(
        Effect.map((result): Outcome => ({ result: toJson(result), isFailure: false })),
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.failCause(cause as Cause.Cause<never>)
            : Effect.succeed(failed(describe(Cause.squash(cause))))
        )
      )
    }
  }
}

// A schema may be a function, as those of arktype are.
const isStandard = (parameters: Definition["parameters"]): parameters is StandardSchemaV1 => "~standard" in parameters

const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value)

const toJsonSchema = ({ "~standard": standard }: StandardSchemaV1): Schema.JsonObject => {
  if (!("jsonSchema" in standard)) {
    throw new TypeError(`A schema of ${standard.vendor} gives no JSON Schema: put one beside it, as 'jsonSchema'.`)
  }
  const { input } = (standard as StandardJSONSchemaV1.Props).jsonSchema
  // Models' interfaces refuse the keyword that names the draft, or ignore it.
  const { $schema: _, ...schema } = toJson(input({ target: "draft-2020-12" })) as { [key: string]: Schema.Json }
  return schema
}

const describeIssue = ({ message, path = [] }: StandardSchemaV1.Issue) => {
  const keys = path.map((segment) => String(typeof segment === "object" ? segment.key : segment))
  return keys.length === 0 ? message : `${keys.join(".")}: ${message}`
}
