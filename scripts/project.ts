/**
 * The project's TypeScript files as syntax trees, for the checks.
 */
import { relative } from "node:path"
import type { SourceFile } from "typescript/unstable/ast"
import { API } from "typescript/unstable/async"

export interface Source {
  /** Relative to the project's root. */
  readonly path: string
  readonly text: string
  readonly tree: SourceFile
}

export interface Problem {
  readonly path: string
  readonly line: number
  readonly message: string
}

/** Reads the files that the root's tsconfig.json includes. */
export const readSources = async (root: string): Promise<ReadonlyArray<Source>> => {
  const api = new API({ cwd: root })
  try {
    const snapshot = await api.updateSnapshot({ openProjects: [`${root}/tsconfig.json`] })
    const [project] = snapshot.getProjects()
    if (project === undefined) throw new Error(`${root}/tsconfig.json can't be read`)
    const sources: Array<Source> = []
    for (const name of await project.program.getSourceFileNames()) {
      const path = relative(root, name)
      if (path.startsWith("..") || path.includes("node_modules/")) continue
      const tree = await project.program.getSourceFile(name)
      if (tree !== undefined) sources.push({ path, text: tree.text, tree })
    }
    return sources
  } finally {
    await api.close()
  }
}

/** The line of a position, from 1. */
export const lineAt = (text: string, position: number): number => text.slice(0, position).split("\n").length

/** Prints the problems and ends the process, with 1 if there are any. */
export const report = (problems: ReadonlyArray<Problem>): never => {
  for (const { line, message, path } of problems) console.log(`${path}:${line}: ${message}`)
  process.exit(problems.length > 0 ? 1 : 0)
}
