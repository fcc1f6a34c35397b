/**
 * Known secrets in what an agent says, replaced before anybody stores or sends it.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Redacted from "effect/Redacted"

/**
 * Replaces secrets by `[redacted:NAME]`. Stateful: one for each attempt of a turn.
 *
 * @category models
 * @since 0.1.0
 */
export interface Redaction {
  /**
   * The parts to log in the place of this one. Of a delta, the longest end that may be the beginning of a secret, or
   * of a surrogate pair, is held back until the next delta or any other part of that id; so nothing may be left of
   * it, and a part may be preceded by what was held.
   */
  readonly apply: (part: Bridge.KnownPart) => ReadonlyArray<Bridge.KnownPart>
  /** What is still held back; to be logged before the attempt's end. */
  readonly flush: () => ReadonlyArray<Bridge.KnownPart>
  /** A text that is whole, such as an error's message. */
  readonly text: (text: string) => string
  /** JSON that is whole; where it holds no secret, the same object. */
  readonly json: <A>(value: A) => A
}

/**
 * A value that must not be shown, and the name that stands in its place. Several values may have one name.
 *
 * @category models
 * @since 0.1.0
 */
export type Secret = readonly [name: string, value: Redacted.Redacted<string>]

/**
 * The shortest value that counts as a secret, in UTF-16 units: replacing shorter ones, such as `true` or `8080`,
 * would spoil what has nothing to do with them.
 *
 * @category constants
 * @since 0.1.0
 */
export const minSecretLength = 8

type Delta = typeof Bridge.TextDelta.Type | typeof Bridge.ReasoningDelta.Type | typeof Bridge.ToolParamsDelta.Type

/**
 * Makes a redaction of secrets. Values shorter than `minSecretLength` are left
 * alone. Where secrets overlap, the leftmost is replaced, and of those that begin there the longest. A secret is also
 * found where it's escaped as in a JSON string, which is how a tool's input comes piece by piece.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (secrets: Iterable<Secret>): Redaction => {
  const { cut, text } = makeMatcher(toPatterns(secrets))
  // By id: the end of its deltas so far. Shorter than the longest secret.
  const held = new Map<string, Delta>()

  // What was held is whole now: nothing follows that could make a secret of it.
  const release = (id: string): Array<Bridge.KnownPart> => {
    const delta = held.get(id)
    if (delta === undefined) return []
    held.delete(id)
    return [{ ...delta, delta: text(delta.delta) }]
  }

  const applyDelta = (part: Delta): ReadonlyArray<Bridge.KnownPart> => {
    const before = held.get(part.id)
    if (before !== undefined && before.type !== part.type) return [...release(part.id), ...applyDelta(part)]
    const { rest, text } = cut(before === undefined ? part.delta : before.delta + part.delta)
    if (rest.length > 0) {
      const { id, parent, type } = part
      held.set(id, { type, id, delta: rest, ...(parent === undefined ? {} : { parent }) })
      if (text.length === 0) return []
    } else if (before !== undefined) {
      held.delete(part.id)
    }
    return [text === part.delta ? part : { ...part, delta: text }]
  }

  return {
    text,
    json: (value) => inJson(text, value),
    flush: () => Array.from(held.keys()).flatMap(release),
    apply: (part) => {
      if (isDelta(part)) {
        return applyDelta(part.metadata === undefined ? part : { ...part, metadata: inJson(text, part.metadata) })
      }
      const redacted = inJson(text, part)
      return held.size > 0 && "id" in part && part.id !== undefined ? [...release(part.id), redacted] : [redacted]
    }
  }
}

/**
 * Whether `redacted` may be what a redaction made of this JSON: a name may stand for any text. So a secret needn't be
 * known, and none has to be kept, not even as a digest, by which a short one could be found. What secrets were replaced
 * in the keys of doesn't fit.
 *
 * @category guards
 * @since 0.1.0
 */
export const mayComeFrom = (redacted: unknown, value: unknown): boolean => {
  if (typeof redacted === "string") return typeof value === "string" && textMayComeFrom(redacted, value.toWellFormed())
  if (typeof redacted !== "object" || redacted === null) return redacted === value
  if (typeof value !== "object" || value === null || Array.isArray(redacted) !== Array.isArray(value)) return false
  const entries = Object.entries(redacted)
  return entries.length === Object.keys(value).length &&
    entries.every(([key, field]) => Object.hasOwn(value, key) && mayComeFrom(field, value[key as keyof typeof value]))
}

const textMayComeFrom = (redacted: string, text: string): boolean => {
  const pieces = redacted.split(/\[redacted:[^\]]*\]/)
  const last = pieces.pop()!
  if (pieces.length === 0) return last === text
  let from = 0
  for (const [i, piece] of pieces.entries()) {
    const found = i === 0 && !text.startsWith(piece) ? -1 : text.indexOf(piece, from)
    if (found === -1) return false
    from = found + piece.length
  }
  return text.length - last.length >= from && text.endsWith(last)
}

interface Pattern {
  readonly name: string
  readonly value: string
}

const isDelta = (part: Bridge.KnownPart): part is Delta =>
  part.type === "text-delta" || part.type === "reasoning-delta" || part.type === "tool-params-delta"

// Longest first: the first that fits at a place is the longest.
const toPatterns = (secrets: Iterable<Secret>): ReadonlyArray<Pattern> => {
  const patterns = new Map<string, Pattern>()
  for (const [name, secret] of secrets) {
    const value = Redacted.value(secret)
    if (value.length < minSecretLength) continue
    for (const form of [value, JSON.stringify(value).slice(1, -1)]) {
      // Of equal secrets the first gives the name.
      if (!patterns.has(form)) patterns.set(form, { name, value: form })
    }
  }
  return Array.from(patterns.values()).sort((a, b) => b.value.length - a.value.length)
}

interface Matcher {
  /** Replaces all secrets of a whole text. */
  readonly text: (text: string) => string
  /** Replaces those of a text that goes on, up to where its end may become one; `rest` is that end. */
  readonly cut: (text: string) => { readonly text: string; readonly rest: string }
}

const makeMatcher = (patterns: ReadonlyArray<Pattern>): Matcher => {
  const values = patterns.map(({ value }) => value)
  const replacements = new Map(patterns.map(({ name, value }) => [value, `[redacted:${name}]`]))
  const expression = new RegExp(values.map((value) => value.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|"), "g")
  const firstUnits = new Set(values.map((value) => value.charCodeAt(0)))
  const longest = Math.max(0, ...values.map((value) => value.length))

  // Mostly there is none, and looking for each by itself is faster than the expression.
  const hasSecret = (text: string) => {
    for (const value of values) if (text.includes(value)) return true
    return false
  }

  /** The first place from `from` on where the rest of the text is the beginning of a secret; the text's end if none. */
  const beginning = (text: string, from: number) => {
    for (let i = Math.max(from, text.length - longest + 1); i < text.length; i++) {
      if (!firstUnits.has(text.charCodeAt(i))) continue
      const rest = text.slice(i)
      for (const value of values) if (value.length > rest.length && value.startsWith(rest)) return i
    }
    return text.length
  }

  const replace = (value: string) => replacements.get(value)!

  return {
    text: (text) => hasSecret(text) ? text.replace(expression, replace) : text,
    cut: (text) => {
      let redacted = ""
      let start = 0
      let end = beginning(text, 0)
      if (hasSecret(text)) {
        expression.lastIndex = 0
        // A secret that may become a longer one, or overlaps one that began before it, waits.
        for (let found = expression.exec(text); found !== null && found.index < end; found = expression.exec(text)) {
          redacted += text.slice(start, found.index) + replace(found[0])
          start = expression.lastIndex
          if (end < start) end = beginning(text, start)
        }
      }
      if (end === text.length && isHighSurrogate(text.charCodeAt(end - 1))) end--
      return { text: redacted + text.slice(start, end), rest: text.slice(end) }
    }
  }
}

/** Replaces strings in JSON, keys included; what holds none stays the same object. */
const inJson = <A>(text: (text: string) => string, value: A): A => redactJson(text, value) as A

const redactJson = (text: (text: string) => string, value: unknown): unknown => {
  if (typeof value === "string") return text(value)
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) {
    const items = value.map((item) => redactJson(text, item))
    return items.every((item, i) => item === value[i]) ? value : items
  }
  let changed = false
  const fields: Array<[string, unknown]> = []
  for (const [key, field] of Object.entries(value)) {
    const redacted: [string, unknown] = [text(key), redactJson(text, field)]
    changed = changed || redacted[0] !== key || redacted[1] !== field
    fields.push(redacted)
  }
  return changed ? Object.fromEntries(fields) : value
}

const isHighSurrogate = (unit: number) => unit >= 0xd800 && unit <= 0xdbff
