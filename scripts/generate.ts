/**
 * Writes what is made of the code: docs/schema and docs/errors.md. With `--check` it says what isn't as it would be
 * written. Either fails where the code doesn't say of an error what causes it and what to do.
 *
 *   bun scripts/generate.ts [--check [root of docs]]
 */
import { Reason } from "@gangway/client/BridgeUnavailable"
import * as Bridge from "@gangway/protocol/Bridge"
import * as Runtime from "effect/Runtime"
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { readDocs } from "./docComments.ts"
import { errorProblems, errorsPage, exportedErrors, literalProblems } from "./errorsPage.ts"
import { type Problem, readSources, report } from "./project.ts"
import { print, schemaFiles } from "./schemaFiles.ts"

const root = join(import.meta.dirname, "..")
const isCheck = process.argv[2] === "--check"
const target = process.argv[3] ?? root
const sources = (await readSources(root)).filter(({ path }) => /^packages\/[^/]+\/src\//.test(path))
const docs = readDocs(sources)
const errors = exportedErrors(docs, sources)

const find = (name: string) => docs.find((one) => one.name === name && one.base === undefined)!
const problems: Array<Problem> = [
  ...errorProblems(errors),
  ...literalProblems(find("FailureKind"), Bridge.FailureKind.literals),
  ...literalProblems(find("AbortReason"), Bridge.AbortReason.literals),
  ...literalProblems(find("Reason"), Object.keys(Reason.cases))
]

// The code that an error makes a program exit with is a field of it.
const exitCodes = new Map<string, number>()
for (const { name, path } of errors.filter(({ path }) => path.startsWith("packages/server/"))) {
  const { [name]: Class } = await import(join(root, path))
  const code = new Class({})[Runtime.errorExitCode]
  if (typeof code === "number") exitCodes.set(name, code)
}

const files = schemaFiles(docs)
const directory = "docs/schema"
const index = `# JSON Schemas

<!-- Made of the code's schemas and doc comments by \`bun run schemas\`: change those. -->

Draft 2020-12; each file stands alone. They say what [the protocol](../protocol.md) says in words. Fields that a schema doesn't
name are allowed everywhere, since whoever reads ignores them. A schema can't say all: an id in use, a host's name or a duration
is checked by the bridge.

| file | |
|---|---|
${files.map(({ about, name }) => `| [${name}](${name}) | ${about} |`).join("\n")}
`
const pages = new Map([
  ...files.map(({ name, schema }) => [`${directory}/${name}`, `${print(schema)}\n`] as const),
  [`${directory}/README.md`, index],
  ["docs/errors.md", errorsPage(docs, errors, exitCodes)]
])

const present = existsSync(join(target, directory)) ? readdirSync(join(target, directory)) : []
const stale = present.map((name) => `${directory}/${name}`).filter((path) => !pages.has(path))
const message = "isn't what the code makes of it: run `bun run schemas`"
for (const path of stale) {
  if (isCheck) problems.push({ path, line: 1, message })
  else rmSync(join(target, path))
}
for (const [path, text] of pages) {
  const file = join(target, path)
  if (existsSync(file) && readFileSync(file, "utf8") === text) continue
  if (isCheck) {
    problems.push({ path, line: 1, message })
    continue
  }
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
  console.log(path)
}
console.log(`${files.length} JSON Schemas and ${errors.length} errors`)
report(problems)
