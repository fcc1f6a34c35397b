/**
 * The names of the project's tests, for documents that name them: `File.test.ts › does this`.
 */
import { readFileSync } from "node:fs"
import { basename, join } from "node:path"

export interface TestNames {
  /** Whether a test of that name is in a file of that name; `…` at its end shortens it. */
  readonly has: (file: string, name: string) => boolean
}

/** Reads what may be a test's name: the strings of test files, with anything in place of what templates insert. */
export const readTestNames = (root: string): TestNames => {
  const names = new Map<string, Array<RegExp>>()
  const paths = ["packages/*/test/**/*.test.ts", "apps/*/test/**/*.test.ts", "test/**/*.test.ts"]
  for (const path of paths.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)])) {
    const patterns = names.get(basename(path)) ?? []
    const strings = readFileSync(join(root, path), "utf8").matchAll(/"([^"\n]{8,})"|`([^`\n]{8,})`/g)
    for (const [, plain, template] of strings) {
      const pieces = plain === undefined ? template!.split(/\$\{[^}]*\}/) : [plain]
      if (pieces.join("").length >= 8) patterns.push(new RegExp(`^${pieces.map(escapeRegExp).join(".+")}$`))
    }
    names.set(basename(path), patterns)
  }
  return {
    has: (file, name) => {
      const wanted = name.replaceAll(/\s+/g, " ").trim()
      return names.get(file)?.some((pattern) =>
        wanted.endsWith("…")
          ? pattern.source.startsWith(`^${escapeRegExp(wanted.slice(0, -1).trim())}`)
          : pattern.test(wanted)
      ) === true
    }
  }
}

const escapeRegExp = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")
