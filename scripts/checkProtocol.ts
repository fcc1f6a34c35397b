/**
 * Checks that tests show what the protocol's document says: every sentence with MUST names one, before the next such
 * sentence, or says that it's the same test; and the tables that name tests name some that exist. That all others
 * exist is for `checkDocs.ts`.
 *
 *   bun scripts/checkProtocol.ts [root]
 */
import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { lineAt, type Problem, report } from "./project.ts"
import { readTestNames } from "./testNames.ts"

const root = resolve(process.argv[2] ?? ".")
const path = "docs/protocol.md"
const document = readFileSync(join(root, path), "utf8")
const tests = readTestNames(root)
const problems: Array<Problem> = []

// A table's column of names, headed "test in `File.test.ts`".
let column: { readonly file: string; readonly at: number } | undefined
for (const { 0: line, index } of document.matchAll(/^.*$/gm)) {
  if (!line.startsWith("|")) {
    column = undefined
    continue
  }
  const cells = line.split("|")
  const [, file] = /test in `([\w.-]+)`/.exec(line) ?? []
  if (file !== undefined) {
    column = { file, at: cells.findIndex((cell) => cell.includes("test in")) }
  } else if (column !== undefined) {
    for (const [, name] of cells[column.at]?.matchAll(/`([^`]*)`/g) ?? []) {
      if (tests.has(column.file, name!)) continue
      problems.push({ path, line: lineAt(document, index), message: `no test '${name}' is in ${column.file}` })
    }
  }
}

let sentences = 0
// Paragraphs and items of lists, without blocks of code.
const blocks = document
  .replaceAll(/^```[\s\S]*?^```/gm, (block) => block.replaceAll(/[^\n]/g, " "))
  .matchAll(/(?:^(?:- |\d+\. ).*|^[^\s|#-].*)(?:\n {2,}\S.*|\n(?![-|#]|\d+\. )\S.*)*/gm)
for (const { 0: block, index } of blocks) {
  if (block.includes("RFC 2119")) continue
  // What's quoted, and what stands in brackets, ends no sentence.
  const plain = block.replaceAll(/`[^`]*`|\([^()`]*\)/g, (quote) => quote.replaceAll(/[.:](?=\s)/g, "·"))
  let start = 0
  let open: { readonly at: number; readonly sentence: string } | undefined
  const close = () => {
    if (open === undefined) return
    const message = `no test is named for: ${open.sentence.replaceAll(/\s+/g, " ").slice(0, 100)}`
    problems.push({ path, line: lineAt(document, open.at), message })
  }
  for (const sentence of plain.split(/(?<=[.:](?:\*\*)?)\s+(?=[A-Z`*])/)) {
    if (/\bMUST\b/.test(sentence)) {
      sentences++
      close()
      open = { at: index + start, sentence }
    }
    if (/\(tests?:|same test|test\.ts ›/.test(sentence)) open = undefined
    start += sentence.length + 1
  }
  close()
}

console.log(`${sentences} sentences with MUST checked`)
report(problems)
