/**
 * Checks the documentation: its code blocks' types, and that its links lead somewhere.
 *
 * Checked are the blocks of Markdown files that start with ```ts check, optionally with a file name by which tests find
 * them, and every ```ts block of a doc comment in packages. All of them are whole files, imports included.
 *
 *   bun scripts/checkDocs.ts [root]
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { type Block, codeBlocks } from "./codeBlocks.ts"
import { lineAt, type Problem, report } from "./project.ts"
import { typeChecker } from "./typeChecker.ts"

const root = resolve(process.argv[2] ?? ".")
const problems: Array<Problem> = []
const blocks: Array<Block & { readonly path: string }> = []

const find = (...patterns: ReadonlyArray<string>): ReadonlyArray<string> =>
  patterns.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)])

for (const path of find("*.md", "docs/**/*.md", "packages/*/README.md", "apps/*/README.md")) {
  const text = readFileSync(join(root, path), "utf8")
  for (const block of codeBlocks(text)) {
    if (/^ts check( |$)/.test(block.info)) blocks.push({ path, ...block })
  }
  for (const match of text.matchAll(/\]\(([^)\s#]+)(#[^)\s]*)?\)/g)) {
    const [, target] = match
    if (/^[a-z]+:/.test(target!) || existsSync(join(root, dirname(path), target!))) continue
    problems.push({ path, line: lineAt(text, match.index), message: `${target} doesn't exist` })
  }
}
for (const path of find("packages/*/src/**/*.ts")) {
  const text = readFileSync(join(root, path), "utf8").replace(/^ *\* ?/gm, "")
  for (const block of codeBlocks(text)) if (block.info === "ts") blocks.push({ path, ...block })
}

const directory = mkdtempSync(join(root, ".tmp-docs-"))
writeFileSync(
  join(directory, "tsconfig.json"),
  JSON.stringify({
    extends: "../tsconfig.json",
    // An example may name what only its reader will use.
    compilerOptions: { noUnusedLocals: false, noUnusedParameters: false },
    include: ["*.ts"],
    exclude: []
  })
)
blocks.forEach(({ text }, index) => writeFileSync(join(directory, `${index}.ts`), text))
const { command: [command, ...args] } = typeChecker()
const { status, stdout } = spawnSync(command, [...args, "--noEmit", "--pretty", "false", "-p", directory], {
  cwd: root,
  encoding: "utf8"
})
rmSync(directory, { recursive: true })
if (status === null) throw new Error(`${command} doesn't run`)
for (const [, index, line, message] of stdout.matchAll(/^\.tmp-docs-\w+\/(\d+)\.ts\((\d+),\d+\): error (.*)$/gm)) {
  const block = blocks[Number(index)]!
  problems.push({ path: block.path, line: block.line + Number(line), message: message! })
}
console.log(`${blocks.length} code blocks checked`)
report(problems)
