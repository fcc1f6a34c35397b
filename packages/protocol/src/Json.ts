/**
 * How deep JSON may be nested.
 *
 * @since 0.1.0
 */

/**
 * How many objects and arrays may be inside of each other in what hosts and agents say: the schema of a tool, an answer,
 * a result, the state of a conversation. What's deeper by far can't be written as JSON by every runtime.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxJsonDepth = 512

/**
 * What was expected of what's too deep, in words.
 *
 * @category constants
 * @since 0.1.0
 */
export const expectedDepth = `expected JSON that is nested at most ${maxJsonDepth} deep`

/**
 * Whether what an object holds is nested deeper than `maxJsonDepth`, the object itself not counted; one that holds itself
 * is.
 *
 * @category guards
 * @since 0.1.0
 */
export const isTooDeep = (object: unknown): boolean => {
  let level: Iterable<unknown> = [object]
  for (let depth = 0; depth <= maxJsonDepth; depth++) {
    // As a set, what holds itself twice isn't looked at twice as often at each level.
    const next = new Set<unknown>()
    for (const outer of level) {
      if (!isNested(outer)) continue
      for (const inner of Object.values(outer)) {
        if (isNested(inner)) next.add(inner)
      }
    }
    if (next.size === 0) return false
    level = next
  }
  return true
}

const isNested = (value: unknown): value is object => typeof value === "object" && value !== null
