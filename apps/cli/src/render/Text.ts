/**
 * Text of agents on a line of a terminal.
 */

// What agents say must not move the cursor, change colours, or turn the direction of what's asked for approval.
const isUnsafe = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** The text with control characters shown, not obeyed; newlines and tabs stay, carriage returns go. */
export const printable = (text: string): string =>
  text.replace(isUnsafe, (character) => {
    const code = character.charCodeAt(0)
    if (character === "\r") return ""
    if (code < 0x20) return String.fromCharCode(0x2400 + code)
    return code === 0x7f ? "\u2421" : "\ufffd"
  })

/** The text on one line, printable. */
export const oneLine = (text: string): string =>
  printable(text).trim().replace(/\s*\n\s*/g, " ⏎ ").replaceAll("\t", " ")

/** The text, or what of it fits the columns, with an ellipsis. */
export const cut = (text: string, columns: number): string => {
  if (Bun.stringWidth(text) <= columns) return text
  let out = ""
  let width = 0
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    const next = width + Bun.stringWidth(segment)
    if (next > columns - 1) break
    out += segment
    width = next
  }
  return `${out}…`
}

/** The text in lines of no more than so many columns, broken between words where that's possible. */
export const wrap = (text: string, columns: number): ReadonlyArray<string> =>
  Bun.wrapAnsi(text, Math.max(columns, 8), { hard: true }).split("\n")

/**
 * The next piece of a text that's written piece by piece, with newlines where its lines would be longer, and the columns that
 * its last line takes then. Words stay whole where a piece holds all of one.
 */
export const flow = (text: string, column: number, columns: number): readonly [text: string, column: number] => {
  const room = Math.max(columns, 8)
  let out = ""
  let at = column
  const put = (piece: string) => {
    const width = Bun.stringWidth(piece)
    if (at > 0 && at + width > room) {
      out += "\n"
      at = 0
      // What stood between two words stands between two lines.
      if (piece.trim() === "") return
    }
    out += piece
    at += width
  }
  for (const [piece] of text.matchAll(/\n|[^\S\n]+|\S+/g)) {
    if (piece === "\n") {
      out += piece
      at = 0
    } else if (Bun.stringWidth(piece) <= room) put(piece)
    else for (const { segment } of new Intl.Segmenter().segment(piece)) put(segment)
  }
  return [out, at]
}

/** The text with spaces after it, up to so many columns. */
export const pad = (text: string, columns: number): string =>
  text + " ".repeat(Math.max(0, columns - Bun.stringWidth(text)))

/** The first lines of a text, printable, each cut; a last one says how many more there are. */
export const firstLines = (text: string, lines: number, columns: number): ReadonlyArray<string> => {
  const all = printable(text).replace(/\s+$/, "").split("\n")
  // One line more costs as much as to say that there is one.
  if (all.length <= lines + 1) return all.map((line) => cut(line.replaceAll("\t", "  "), columns))
  return [
    ...all.slice(0, lines).map((line) => cut(line.replaceAll("\t", "  "), columns)),
    `… ${all.length - lines} more lines`
  ]
}
