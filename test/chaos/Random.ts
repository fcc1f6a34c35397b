/**
 * Random numbers that follow from a seed.
 */
export interface Random {
  /** From 0 up to and without 1. */
  readonly next: () => number
  /** An integer from `min` to `max`, both of them possible. */
  readonly integer: (min: number, max: number) => number
  readonly chance: (probability: number) => boolean
  readonly pick: <A>(values: readonly [A, ...Array<A>]) => A
}

/** Makes numbers of a seed: mulberry32. */
export const make = (seed: number): Random => {
  let state = seed | 0
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let z = Math.imul(state ^ (state >>> 15), state | 1)
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61)
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32
  }
  const integer = (min: number, max: number) => min + Math.floor(next() * (max - min + 1))
  return {
    next,
    integer,
    chance: (probability) => next() < probability,
    pick: (values) => values[integer(0, values.length - 1)]!
  }
}
