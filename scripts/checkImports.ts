/**
 * Checks in which direction the packages know each other.
 *
 *   bun scripts/checkImports.ts [root]
 */
import { readFileSync } from "node:fs"
import { dirname, join, normalize, resolve } from "node:path"
import type { StringLiteral } from "typescript/unstable/ast"
import { lineAt, type Problem, readSources, report } from "./project.ts"

const scope = "@gangway/"

/** Which packages each one may know. Whoever isn't listed, an app, may know every package, and no app. */
const arrows: Record<string, ReadonlyArray<string>> = {
  protocol: [],
  sandbox: [],
  server: ["protocol"],
  client: ["protocol", "sandbox"],
  drivers: ["protocol", "server"]
}

/** They run wherever Effect does: on Node, on Bun, and the protocol in a browser too. */
const portable = ["client", "protocol"]
const platform = /^(node:|bun$|bun:|@effect\/platform-)/

/** What only a bridge program on Bun may load, and nothing that is loaded with the rest of its package. */
const kernel = { module: "packages/server/src/Kernel.ts", folder: "packages/server/src/internal/kernel/" }

/** What only Node and Bun may load: the client without Effect, for whom nobody chooses a platform. */
const plain = { module: "packages/client/src/Promise.ts", folder: "packages/client/src/internal/promise/" }

const mayKnow = (from: string, to: string): boolean => arrows[from]?.includes(to) ?? Object.hasOwn(arrows, to)

/** What is wrong with an import of `specifier` in the file at `path`, if anything is. */
const judge = (path: string, specifier: string): string | undefined => {
  const [, unit, from] = /^((?:packages|apps)\/([^/]+)\/src)\//.exec(path) ?? []
  // Tests and scripts may know everything.
  if (unit === undefined || from === undefined) return undefined
  if (specifier.startsWith(".")) {
    const target = normalize(join(dirname(path), specifier))
    // Its manifest knows its version.
    if (target === join(unit, "../package.json")) return undefined
    if (target === normalize(join(unit, "../package.json"))) return undefined
    if (!target.startsWith(`${unit}/`)) return `${specifier} leaves ${unit}: import the package by its name`
    if (!/\.(ts|json)$/.test(specifier)) return `${specifier} must end in .ts`
    const inside = path === kernel.module || path.startsWith(kernel.folder)
    if (!inside && (target === kernel.module || target.startsWith(kernel.folder))) {
      return `${specifier} is for programs on Bun: nothing else of ${from} loads it`
    }
    const isPlain = path === plain.module || path.startsWith(plain.folder)
    if (!isPlain && (target === plain.module || target.startsWith(plain.folder))) {
      return `${specifier} is for Node and Bun: nothing else of ${from} loads it`
    }
    return undefined
  }
  if (specifier.startsWith(scope)) {
    const [to, ...rest] = specifier.slice(scope.length).split("/")
    if (to === from) return `${specifier} is the package itself: import the file by its relative path`
    if (!mayKnow(from, to!)) return `${from} must not know ${to}`
    if (`${to}/${rest.join("/")}` === "server/Kernel" && unit.startsWith("packages/")) {
      return `${specifier} is for programs on Bun: apps choose it`
    }
    if (rest.includes("internal")) return `${specifier} is private to ${to}`
  }
  if (portable.includes(from) && platform.test(specifier) && path !== `${plain.folder}platform.ts`) {
    return `${from} runs everywhere: no ${specifier}`
  }
  return undefined
}

const root = resolve(process.argv[2] ?? ".")
const problems: Array<Problem> = []
for (const { path, text, tree } of await readSources(root)) {
  for (const node of tree.imports) {
    const specifier = (node as StringLiteral).text
    const message = judge(path, specifier)
    if (message !== undefined) problems.push({ path, line: lineAt(text, text.indexOf(specifier, node.pos)), message })
  }
}
for (const path of new Bun.Glob("{packages,apps}/*/package.json").scanSync(root)) {
  const name = path.split("/")[1]!
  const text = readFileSync(join(root, path), "utf8")
  const { dependencies = {}, peerDependencies = {} } = JSON.parse(text)
  for (const dependency of Object.keys({ ...dependencies, ...peerDependencies })) {
    if (!dependency.startsWith(scope) || mayKnow(name, dependency.slice(scope.length))) continue
    const line = lineAt(text, text.indexOf(`"${dependency}"`))
    problems.push({ path, line, message: `${name} must not depend on ${dependency}` })
  }
}
report(problems)
