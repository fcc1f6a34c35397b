/**
 * Checks the documentation: its code's types, that the files it links and the tests it names exist, and that the table of
 * agents is what their suites expect.
 *
 * Checked are the blocks of Markdown files, which start with ```ts check, and the ```ts blocks of doc comments in packages
 * that import what they use; blocks of ```json are read. A block may have a name, ```ts check echo.ts, by which tests find it and other blocks of its
 * document import it.
 *
 *   bun scripts/checkDocs.ts [root]
 */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import { paths, withTable } from "./agentsTable.ts"
import { type Block, codeBlocks } from "./codeBlocks.ts"
import { lineAt, type Problem, report } from "./project.ts"
import { readTestNames } from "./testNames.ts"
import { typeChecker } from "./typeChecker.ts"

const root = resolve(process.argv[2] ?? ".")
const directory = mkdtempSync(join(root, ".tmp-docs-"))
const problems: Array<Problem> = []
/** Where each written file's code comes from. */
const origins = new Map<string, { readonly path: string; readonly line: number }>()

const find = (...patterns: ReadonlyArray<string>): ReadonlyArray<string> =>
  patterns.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)])

const write = (document: number, name: string, text: string, path: string, line: number): void => {
  mkdirSync(join(directory, `${document}`), { recursive: true })
  writeFileSync(join(directory, `${document}`, name), text)
  origins.set(`${document}/${name}`, { path, line })
}

const checkLinks = (path: string, text: string): void => {
  for (const match of text.matchAll(/\]\(([^)\s#]+)(#[^)\s]*)?\)/g)) {
    const [, target] = match
    if (/^[a-z]+:/.test(target!) || existsSync(join(root, dirname(path), target!))) continue
    problems.push({ path, line: lineAt(text, match.index), message: `${target} doesn't exist` })
  }
}

// A whole one, or one a line.
const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

const checkJson = (path: string, { line, text }: Block): void => {
  if (isJson(text)) return
  text.trimEnd().split("\n").forEach((one, index) => {
    if (!isJson(one)) problems.push({ path, line: line + index + 1, message: "this isn't JSON" })
  })
}

const tests = readTestNames(root)

// A test is named by its file and its name, `File.test.ts › does this`, which `…` may shorten at its end.
const checkTests = (path: string, text: string): void => {
  for (const match of text.matchAll(/`([\w.-]+\.test\.ts) › ([^`]+)`/g)) {
    const name = match[2]!.split("›").at(-1)!.replace(/\s+/g, " ").trim()
    if (tests.has(match[1]!, name)) continue
    problems.push({ path, line: lineAt(text, match.index), message: `no test '${name}' is in ${match[1]}` })
  }
}

for (const path of paths.filter((path) => existsSync(join(root, path)))) {
  const text = readFileSync(join(root, path), "utf8")
  if (withTable(path, text) !== text) {
    problems.push({ path, line: 1, message: "its table is old: bun scripts/agentsTable.ts writes it" })
  }
}

find("*.md", "docs/**/*.md", "packages/*/README.md", "apps/*/README.md", "packages/*/src/**/*.ts").forEach(
  (path, document) => {
    const text = readFileSync(join(root, path), "utf8")
    if (path.endsWith(".md")) {
      checkLinks(path, text)
      checkTests(path, text)
      for (const block of codeBlocks(text)) {
        const [, name = `${block.line}.ts`] = /^ts check(?: (\S+))?$/.exec(block.info) ?? []
        if (block.info.startsWith("ts check")) write(document, basename(name), block.text, path, block.line)
        else if (/^(ts|typescript|js|javascript)\b/.test(block.info)) {
          problems.push({ path, line: block.line, message: "a block of code must be checked: write ts check" })
        }
        if (block.info === "json") checkJson(path, block)
      }
    } else {
      for (const block of codeBlocks(text.replace(/^ *\* ?/gm, ""))) {
        const whole = /^import .* from "[^."]/m.test(block.text) && !/ from "\./.test(block.text)
        if (block.info === "ts" && whole) write(document, `${block.line}.ts`, block.text, path, block.line)
      }
    }
  }
)

writeFileSync(
  join(directory, "tsconfig.json"),
  JSON.stringify({
    extends: "../tsconfig.json",
    // An example may name what only its reader will use.
    compilerOptions: { noUnusedLocals: false, noUnusedParameters: false },
    include: ["*/*.ts"],
    exclude: []
  })
)
const { command: [command, ...args] } = typeChecker()
const { status, stdout } = spawnSync(command, [...args, "--noEmit", "--pretty", "false", "-p", directory], {
  cwd: root,
  encoding: "utf8"
})
rmSync(directory, { recursive: true })
if (status === null) throw new Error(`${command} doesn't run`)
for (const [, file, line, message] of stdout.matchAll(/^\.tmp-docs-\w+\/(\S+)\((\d+),\d+\): error (.*)$/gm)) {
  const origin = origins.get(file!)
  if (origin !== undefined) problems.push({ path: origin.path, line: origin.line + Number(line), message: message! })
}
console.log(`${origins.size} code blocks checked`)
report(problems)
