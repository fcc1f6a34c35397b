/**
 * Deltas whose text is well-formed: what an agent cuts in the middle of a character is put together again.
 */
import type * as Bridge from "@gangway/protocol/Bridge"

/**
 * Makes a function that takes an agent's parts and gives those to emit, in order. A delta's trailing high surrogate
 * is held until its block's next delta or end; other lone surrogates become U+FFFD. A delta with nothing left is left
 * out, unless it was empty from the start.
 */
export const joinSurrogates = (): (part: Bridge.AgentPart) => ReadonlyArray<Bridge.AgentPart> => {
  const held = new Map<string, string>()
  return (part) => {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
      case "tool-params-delta": {
        const before = held.size === 0 ? undefined : held.get(part.id)
        if (before === undefined && part.delta.isWellFormed()) return [part]
        const text = (before ?? "") + part.delta
        const last = text.charCodeAt(text.length - 1)
        const cut = last >= 0xd800 && last <= 0xdbff
        if (cut) held.set(part.id, text.slice(-1))
        else held.delete(part.id)
        const delta = (cut ? text.slice(0, -1) : text).toWellFormed()
        return delta === "" ? [] : [{ ...part, delta }]
      }
      case "text-end":
      case "reasoning-end":
      case "tool-params-end": {
        if (!held.delete(part.id)) return [part]
        const type = part.type === "text-end"
          ? "text-delta"
          : part.type === "reasoning-end"
          ? "reasoning-delta"
          : "tool-params-delta"
        const { parent } = part
        return [{ type, id: part.id, delta: "\ufffd", ...(parent === undefined ? {} : { parent }) }, part]
      }
      default:
        return [part]
    }
  }
}
