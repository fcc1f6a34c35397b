/**
 * Checks what no other tool does: headers, docs of exports, the length of files, and traces of a machine.
 *
 *   bun scripts/checkHouse.ts [root]
 */
import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { type ModifierLike, type Node, type StringLiteral, SyntaxKind } from "typescript/unstable/ast"
import { lineAt, type Problem, readSources, report, type Source } from "./project.ts"

const maxLines = 800
const manyLines = 400

const traces: ReadonlyArray<readonly [pattern: RegExp, message: string]> = [
  [/(?<![\w.@}-])\/(?:work|root|home\/[a-z]\w*|Users\/\w+|tmp\/\w[\w.-]*)\//, "a path of one machine"],
  [/\bregistry\.[a-z0-9-]+\.[a-z]{2,}/, "the host of a package registry"]
]

const root = resolve(process.argv[2] ?? ".")
const problems: Array<Problem> = []

const checkHeader = ({ path, text }: Source) => {
  const [, first = ""] = /^(?:#!.*\n)?\/\*\*\s*\n? \* ?(.*)/.exec(text) ?? []
  if (!/^[^@\s]/.test(first)) problems.push({ path, line: 1, message: "the file must start with a sentence in /** */" })
}

const checkLength = ({ path, text }: Source) => {
  const lines = text.split("\n").length - 1
  if (lines > maxLines) {
    problems.push({ path, line: maxLines, message: `${lines} lines: split it, ${maxLines} are the most` })
  } else if (lines > manyLines) console.log(`notice: ${path} has ${lines} lines; most files stay below ${manyLines}`)
}

const checkDocs = ({ path, text, tree }: Source) => {
  const seen = new Set<string>()
  for (const statement of tree.statements) {
    const { modifiers } = statement as { readonly modifiers?: ReadonlyArray<ModifierLike> }
    if (modifiers?.some(({ kind }) => kind === SyntaxKind.ExportKeyword) !== true) continue
    // The overloads of a function share the docs of the first.
    const { name } = statement as { readonly name?: Node }
    if (statement.kind === SyntaxKind.FunctionDeclaration && name !== undefined) {
      if (seen.has(name.getText(tree))) continue
      seen.add(name.getText(tree))
    }
    // The file's header isn't the docs of what follows it.
    const docs = statement.jsDoc?.findLast((comment) => comment.getStart(tree) > 0)?.getText(tree) ?? ""
    const line = lineAt(text, statement.getStart(tree))
    if (!/@since \d+\.\d+\.\d+/.test(docs)) problems.push({ path, line, message: "an export needs @since" })
    if (!/@category [a-z]/.test(docs)) problems.push({ path, line, message: "an export needs @category" })
  }
}

const checkTry = ({ path, text, tree }: Source) => {
  // The modules that the linter lets touch the platform may catch what it throws.
  if (tree.imports.some((node) => /^(node|bun):/.test((node as StringLiteral).text))) return
  const visit = (node: Node): void => {
    if (node.kind === SyntaxKind.TryStatement) {
      problems.push({ path, line: lineAt(text, node.getStart(tree)), message: "use Effect.try in place of try" })
    }
    node.forEachChild(visit)
  }
  visit(tree)
}

for (const source of await readSources(root)) {
  const [, place] = /^(packages|apps)\/[^/]+\/src\//.exec(source.path) ?? []
  if (place === undefined) continue
  checkLength(source)
  if (!source.path.endsWith("/index.ts")) checkHeader(source)
  if (place === "apps") continue
  checkTry(source)
  if (!source.path.includes("/src/internal/")) checkDocs(source)
}

for (const path of new Bun.Glob("**/*").scanSync({ cwd: root, dot: true })) {
  if (
    /(^|\/)(node_modules|dist|\.git)\//.test(path) ||
    !/(\.(ts|js|json|jsonc|md|toml|yml|yaml|lock|sh)|\/run)$/.test(path)
  ) {
    continue
  }
  const text = readFileSync(join(root, path), "utf8")
  for (const [pattern, message] of traces) {
    for (const match of text.matchAll(new RegExp(pattern, "g"))) {
      problems.push({ path, line: lineAt(text, match.index), message: `${match[0]}: ${message}` })
    }
  }
}
report(problems)
