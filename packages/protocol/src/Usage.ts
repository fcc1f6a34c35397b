/**
 * What model calls used.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Tokens and cost. `measured` is false where the agent didn't say, or where a step was cut before it said: the figures
 * are then what is known, a lower bound. A field is absent where the agent doesn't tell it.
 *
 * @category schemas
 * @since 0.1.0
 */
export const Usage = Schema.Struct({
  measured: Schema.Boolean,
  inputTokens: Schema.optional(Schema.Struct({
    total: Schema.optional(Schema.Finite),
    uncached: Schema.optional(Schema.Finite),
    cacheRead: Schema.optional(Schema.Finite),
    cacheWrite: Schema.optional(Schema.Finite)
  })),
  outputTokens: Schema.optional(Schema.Struct({
    total: Schema.optional(Schema.Finite),
    text: Schema.optional(Schema.Finite),
    reasoning: Schema.optional(Schema.Finite)
  })),
  /** In US dollars. */
  cost: Schema.optional(Schema.Finite)
})

/** @category models @since 0.1.0 */
export type Usage = typeof Usage.Type

const sum = (a: number | undefined, b: number | undefined) => a === undefined ? b : b === undefined ? a : a + b

const sumFields = <K extends string>(
  keys: ReadonlyArray<K>,
  a: { readonly [P in K]?: number | undefined } | undefined,
  b: { readonly [P in K]?: number | undefined } | undefined
): { readonly [P in K]?: number } | undefined => {
  if (a === undefined && b === undefined) return undefined
  const out: { [P in K]?: number } = {}
  for (const key of keys) {
    const value = sum(a?.[key], b?.[key])
    if (value !== undefined) out[key] = value
  }
  return out
}

/**
 * The usage of nothing, measured.
 *
 * @category constants
 * @since 0.1.0
 */
export const zeroUsage: Usage = { measured: true }

/**
 * The usage of both together; measured if both are.
 *
 * @category combining
 * @since 0.1.0
 */
export const addUsage = (a: Usage, b: Usage): Usage => {
  const inputTokens = sumFields(["total", "uncached", "cacheRead", "cacheWrite"], a.inputTokens, b.inputTokens)
  const outputTokens = sumFields(["total", "text", "reasoning"], a.outputTokens, b.outputTokens)
  const cost = sum(a.cost, b.cost)
  return {
    measured: a.measured && b.measured,
    ...(inputTokens === undefined ? {} : { inputTokens }),
    ...(outputTokens === undefined ? {} : { outputTokens }),
    ...(cost === undefined ? {} : { cost })
  }
}
