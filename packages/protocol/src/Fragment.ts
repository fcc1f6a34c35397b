/**
 * Parts that are too long for a line: cut into `part-fragment`s, and put together again.
 *
 * @since 0.1.0
 */
import * as Arr from "effect/Array"
import * as Stream from "effect/Stream"
import { maxLineBytes, type NumberedPart, type Part, type PartFragment } from "./Part.ts"

/**
 * What a joiner makes of a fragment: nothing yet, the JSON of a whole part with its number, or, where the run's
 * beginning is missing, the number to read again from.
 *
 * @category models
 * @since 0.1.0
 */
export type Joined =
  | { readonly _tag: "Pending" }
  | { readonly _tag: "Whole"; readonly n: number; readonly json: string }
  | { readonly _tag: "Misplaced"; readonly of: number }

/**
 * Puts fragments together, in the order of their numbers and across batches and reconnects. It holds the pieces of
 * one part at most.
 *
 * @category models
 * @since 0.1.0
 */
export interface FragmentJoiner {
  /** Takes the fragment with the number `n`. A run that another one interrupts is void. */
  readonly add: (n: number, fragment: typeof PartFragment.Type) => Joined
  /** Drops a run without its last piece: to be called at any other part, which makes it void. */
  readonly clear: () => void
}

const pending: Joined = { _tag: "Pending" }

// Room for a fragment's line around its text.
const envelopeBytes = 256

/**
 * Cuts the JSON of a part into fragments whose lines have at most `lineBytes` bytes each. `n` is the number of the
 * first one, the others have those that follow. The JSON must not hold lone surrogates.
 *
 * @category constructors
 * @since 0.1.0
 */
export const splitPart = (
  json: string,
  n: number,
  lineBytes: number = maxLineBytes
): ReadonlyArray<typeof PartFragment.Type> => {
  // As a string in JSON, a UTF-16 unit takes 3 bytes at most: JSON text has no raw control characters.
  const size = Math.floor((lineBytes - envelopeBytes) / 3)
  const fragments: Array<typeof PartFragment.Type> = []
  let start = 0
  while (start < json.length) {
    let end = Math.min(start + size, json.length)
    if (end < json.length && isLowSurrogate(json.charCodeAt(end))) end--
    fragments.push({
      type: "part-fragment",
      of: n,
      index: fragments.length,
      last: end === json.length,
      text: json.slice(start, end)
    })
    start = end
  }
  return fragments
}

/**
 * Makes a joiner with nothing in it.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeFragmentJoiner = (): FragmentJoiner => {
  let of = 0
  let texts: Array<string> = []
  const clear = () => {
    texts = []
  }
  return {
    clear,
    add: (n, fragment) => {
      if (fragment.index === 0) {
        of = fragment.of
        texts = []
      } else if (fragment.of !== of || fragment.index !== texts.length || n !== of + fragment.index) {
        clear()
        return { _tag: "Misplaced", of: fragment.of }
      }
      texts.push(fragment.text)
      if (!fragment.last) return pending
      const json = texts.join("")
      clear()
      return { _tag: "Whole", n: of, json }
    }
  }
}

/**
 * Puts the fragments in a stream of parts together; runs without their beginning or their last piece are left out.
 * For parts that come from a checked log: a text that isn't JSON is a defect.
 *
 * @category combining
 * @since 0.1.0
 */
export const joinFragments = <E, R>(self: Stream.Stream<NumberedPart, E, R>): Stream.Stream<NumberedPart, E, R> =>
  Stream.suspend(() => {
    const joiner = makeFragmentJoiner()
    const joined = Stream.mapArray(self, (parts) => {
      const whole: Array<NumberedPart> = []
      for (const numbered of parts) {
        if (!isFragment(numbered.part)) {
          joiner.clear()
          whole.push(numbered)
          continue
        }
        const part = joiner.add(numbered.n, numbered.part)
        if (part._tag === "Whole") whole.push({ n: part.n, part: JSON.parse(part.json) })
      }
      return Arr.of(whole)
    })
    return Stream.flattenArray(Stream.filter(joined, Arr.isArrayNonEmpty))
  })

/**
 * Whether a part is a piece of another one.
 *
 * @category guards
 * @since 0.1.0
 */
export const isFragment = (part: Part): part is typeof PartFragment.Type => part.type === "part-fragment"

const isLowSurrogate = (unit: number) => unit >= 0xdc00 && unit <= 0xdfff
