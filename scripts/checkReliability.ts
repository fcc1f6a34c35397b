/**
 * Checks the document of faults: each row of its table has a section, which names a test or says that nothing is promised,
 * and each file of `test/faults` is named. That the tests exist is for `checkDocs.ts`.
 *
 *   bun scripts/checkReliability.ts [root]
 */
import { existsSync, readFileSync } from "node:fs"
import { basename, join, resolve } from "node:path"
import { lineAt, type Problem, report } from "./project.ts"

const root = resolve(process.argv[2] ?? ".")
const path = "docs/reliability.md"
const document = readFileSync(join(root, path), "utf8")
const problems: Array<Problem> = []

const sections = new Map<string, { readonly index: number; readonly text: string }>()
for (const match of document.matchAll(/^## (\d+)\. (.*)$\n([\s\S]*?)(?=^## |(?![\s\S]))/gm)) {
  const [, number, title, text] = match
  const anchor = `#${number}-${title!.toLowerCase().replaceAll(/[^a-z0-9 -]/g, "").replaceAll(" ", "-")}`
  sections.set(anchor, { index: match.index, text: text! })
}

const rows = [...document.matchAll(/^\| \[(\d+)\]\((#[^)]*)\) \|.*\|$/gm)]
rows.forEach(([row, number, anchor], index) => {
  const at = document.indexOf(row)
  const problem = (message: string) => problems.push({ path, line: lineAt(document, at), message })
  if (number !== String(index + 1)) problem(`row ${number} comes as the ${index + 1}th`)
  const section = sections.get(anchor!)
  if (section === undefined) problem(`no section has the anchor ${anchor}`)
  else if (!/\.test\.ts ›/.test(section.text) && !section.text.includes("No promise")) {
    problem(`row ${number} has no test`)
  }
  sections.delete(anchor!)
})
for (const [anchor, { index }] of sections) {
  problems.push({ path, line: lineAt(document, index), message: `no row of the table leads to ${anchor}` })
}

for (const file of new Bun.Glob("test/faults/**/*.test.ts").scanSync(root)) {
  const name = basename(file)
  if (document.includes(`\`${name} ›`)) continue
  const other = join(root, "docs/security.md")
  if (existsSync(other) && readFileSync(other, "utf8").includes(`\`${name} ›`)) continue
  problems.push({ path: file, line: 1, message: "neither reliability.md nor security.md names a test of it" })
}

console.log(`${rows.length} faults checked`)
report(problems)
