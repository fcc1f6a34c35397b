/**
 * Random content that can be made again: it follows from its position alone.
 */
import type { RandomContent } from "./scriptedScript.ts"

/** Where in a script's play something is; `action` is its index in the step, `2.0` inside a sub-agent's. */
export interface Position {
  readonly seed: number
  readonly turn: string
  readonly attempt: number
  readonly step: number
  readonly action: string
}

const hash = (text: string): number => {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  return h
}

// Integers from 0 up to and without `bound`: a Weyl sequence through a multiplicative mixer.
const generator = (position: Position): (bound: number) => number => {
  const { action, attempt, seed, step, turn } = position
  let state = hash(`${seed} ${turn} ${attempt} ${step} ${action}`)
  return (bound) => {
    state = (state + 0x9e3779b9) | 0
    let z = Math.imul(state ^ (state >>> 16), 0x45d9f3b)
    z = Math.imul(z ^ (z >>> 15), 0x2c1b3c6d)
    return ((z ^ (z >>> 16)) >>> 0) % bound
  }
}

const ascii = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,;:-_ etaoin shrdlu"
const unicode = [..."\n\t\"\\/é日本ßя‏\u2028\u0000\u007f", "🙂", "👩‍👩‍👧", "🏳️‍🌈", "e\u0301", "\r\n", "𝔊"]
const surrogates = ["\ud83d", "\ude42", "\udc00\ud800"]

// Long ASCII content is put together from slices of this many random characters.
const poolLength = 8192

const asciiText = (next: (bound: number) => number, length: number): string => {
  let text = ""
  for (let i = 0; i < Math.min(length, poolLength); i++) text += ascii[next(ascii.length)]
  if (length <= poolLength) return text
  const pieces = [text]
  for (let rest = length - poolLength; rest > 0; rest -= poolLength) {
    const offset = next(poolLength)
    pieces.push((text.slice(offset) + text.slice(0, offset)).slice(0, rest))
  }
  return pieces.join("")
}

/** The random content of an action. */
export const randomText = (position: Position, { alphabet = "ascii", length }: typeof RandomContent.Type): string => {
  const next = generator(position)
  if (alphabet === "ascii") return asciiText(next, length)
  const special = alphabet === "unicode" ? unicode : [...unicode, ...surrogates]
  let text = ""
  while (text.length < length) {
    const piece = next(3) === 0 ? special[next(special.length)] : ascii[next(ascii.length)]
    // What doesn't fit is not cut: it would make lone surrogates.
    text += text.length + piece.length <= length ? piece : "x"
  }
  return text
}

/** The content in pieces of `size` UTF-16 units, whatever they cut through. */
export const pieces = function*(text: string, size: number): Generator<string> {
  for (let i = 0; i < text.length; i += size) yield text.slice(i, i + size)
}

/** The deltas of a burst. */
export const burst = function*(position: Position, parts: number, size: number): Generator<string> {
  const next = generator(position)
  const pool = asciiText(next, poolLength + size)
  for (let i = 0; i < parts; i++) {
    const offset = next(poolLength)
    yield pool.slice(offset, offset + size)
  }
}
