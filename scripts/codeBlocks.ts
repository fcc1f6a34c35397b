/**
 * The fenced code blocks of Markdown: the docs' examples, for the checks and for tests that run them.
 */
export interface Block {
  /** What follows the opening fence, such as `ts check bridge.ts`. */
  readonly info: string
  readonly text: string
  /** The line of the opening fence, from 1. */
  readonly line: number
}

export const codeBlocks = (markdown: string): ReadonlyArray<Block> => {
  const blocks: Array<Block> = []
  const lines = markdown.split("\n")
  for (let index = 0; index < lines.length; index++) {
    const [, fence, info] = /^(`{3,})(.*)$/.exec(lines[index]!) ?? []
    if (fence === undefined || info === undefined) continue
    const end = lines.indexOf(fence, index + 1)
    if (end === -1) break
    blocks.push({ info: info.trim(), text: lines.slice(index + 1, end).join("\n") + "\n", line: index + 1 })
    index = end
  }
  return blocks
}
