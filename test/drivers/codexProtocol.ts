/**
 * Compares the driver's own schemas of Codex's protocol with the JSON Schema that the program prints of it.
 */
import { Schema } from "effect"

/** A JSON Schema, as far as it's compared. */
interface Json {
  readonly $ref?: string
  readonly type?: string | ReadonlyArray<string>
  readonly enum?: ReadonlyArray<unknown>
  readonly const?: unknown
  readonly properties?: Readonly<Record<string, Json>>
  readonly items?: Json | boolean
  readonly oneOf?: ReadonlyArray<Json>
  readonly anyOf?: ReadonlyArray<Json>
  readonly allOf?: ReadonlyArray<Json>
}

type Definitions = Readonly<Record<string, Json>>

/** What a file of the program's schema holds. */
export type Document = Json & { readonly definitions: Definitions }

// The alternatives that a schema is, what they share put into each of them.
const alternatives = (schema: Json, definitions: Definitions): ReadonlyArray<Json> => {
  if (schema.$ref !== undefined) {
    return alternatives(definitions[decodeURIComponent(schema.$ref.split("/").at(-1)!)] ?? {}, definitions)
  }
  const choices = [...schema.oneOf ?? [], ...schema.anyOf ?? []]
  const own = choices.length === 0
    ? [schema]
    : choices.flatMap((choice) => alternatives(choice, definitions)).map((choice) => ({
      ...choice,
      ...(choice.properties === undefined && schema.properties === undefined
        ? {}
        : { properties: { ...schema.properties, ...choice.properties } })
    }))
  return (schema.allOf ?? []).reduce(
    (all, part) =>
      all.flatMap((one) =>
        alternatives(part, definitions).map((other) => ({
          ...one,
          ...other,
          properties: { ...one.properties, ...other.properties }
        }))
      ),
    own
  )
}

const literalsOf = (schema: Json): ReadonlyArray<unknown> | undefined =>
  schema.const === undefined ? schema.enum : [schema.const]

/** The names by which an object says what it is. */
const tags = ["method", "type"]

const problemsOf = (
  ours: Json,
  theirs: ReadonlyArray<Json>,
  our: Definitions,
  their: Definitions,
  path: string
): ReadonlyArray<string> =>
  alternatives(ours, our).flatMap((mine) => {
    const candidates = theirs.flatMap((schema) => alternatives(schema, their))
    const literals = literalsOf(mine)
    const known = candidates.map(literalsOf)
    if (literals !== undefined && known.every((values) => values !== undefined)) {
      const values = new Set(known.flat())
      return literals.filter((value) => !values.has(value) && value !== null).map((value) =>
        `${path} is never ${value}`
      )
    }
    if (mine.items !== undefined && typeof mine.items === "object") {
      const items = candidates.flatMap(({ items }) => typeof items === "object" ? [items] : [])
      return items.length === 0
        ? [`${path} is no array`]
        : problemsOf(mine.items, items, our, their, `${path}[]`)
    }
    if (mine.properties === undefined) return []
    // Those of the same tag, where both sides have one.
    const same = candidates.filter(({ properties = {} }) =>
      tags.every((tag) => {
        const wanted = mine.properties![tag]
        const found = properties[tag]
        const values = wanted === undefined ? undefined : literalsOf(wanted)
        const theirValues = found === undefined
          ? undefined
          : alternatives(found, their).flatMap((one) => literalsOf(one) ?? [])
        return values === undefined || theirValues === undefined || theirValues.length === 0 ||
          values.some((value) => theirValues.includes(value))
      })
    )
    if (same.length === 0) return [`${path} has no form with ${JSON.stringify(mine.properties["type"] ?? {})}`]
    return Object.entries(mine.properties).flatMap(([name, schema]) => {
      const found = same.flatMap(({ properties = {} }) => properties[name] === undefined ? [] : [properties[name]])
      return found.length === 0
        ? [`${path} has no '${name}'`]
        : problemsOf(schema, found, our, their, `${path}.${name}`)
    })
  })

/** What of one of our schemas the program's document doesn't have: fields and literals, each by its path. */
export const missing = (schema: Schema.Top, document: Document, root: Json = document): ReadonlyArray<string> => {
  const { definitions, schema: ours } = Schema.toJsonSchemaDocument(schema)
  return problemsOf(ours as Json, [root], definitions as Definitions, document.definitions, "")
}
