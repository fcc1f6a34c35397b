/**
 * The program that checks types: Effect's, or TypeScript's own where a platform lacks it.
 */
import { spawnSync } from "node:child_process"
import { join } from "node:path"

export interface TypeChecker {
  readonly command: readonly [string, ...Array<string>]
  /** Whether it knows Effect's rules too. */
  readonly effect: boolean
}

const modules = join(import.meta.dirname, "../node_modules")

export const typeChecker = (): TypeChecker => {
  const found = spawnSync(process.execPath, [join(modules, "@effect/tsgo/dist/effect-tsgo.cjs"), "get-exe-path"], {
    encoding: "utf8"
  })
  return found.status === 0
    ? { command: [found.stdout.trim()], effect: true }
    : { command: [process.execPath, join(modules, "typescript/bin/tsc")], effect: false }
}
