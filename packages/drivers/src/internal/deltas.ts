/**
 * Whole text as the deltas of a part that could have been streamed.
 */

/** The characters that a delta has at most, so that its line stays far below the limit. */
const maxDelta = 64 * 1024

/** The text in pieces. */
export const split = (text: string): ReadonlyArray<string> => {
  const pieces: Array<string> = []
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + maxDelta)
    const last = text.charCodeAt(to - 1)
    // Not between the halves of a character.
    if (to < text.length && last >= 0xd800 && last <= 0xdbff) to--
    pieces.push(text.slice(from, to))
    from = to
  }
  return pieces
}
