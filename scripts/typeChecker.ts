/**
 * The program that checks types: Effect's, or TypeScript's own where a platform lacks it.
 */
import { spawnSync } from "node:child_process"

export interface TypeChecker {
  readonly command: readonly [string, ...Array<string>]
  /** Whether it knows Effect's rules too. */
  readonly effect: boolean
}

export const typeChecker = (): TypeChecker => {
  const found = spawnSync(process.execPath, ["node_modules/@effect/tsgo/dist/effect-tsgo.cjs", "get-exe-path"], {
    encoding: "utf8"
  })
  return found.status === 0
    ? { command: [found.stdout.trim()], effect: true }
    : { command: [process.execPath, "node_modules/typescript/bin/tsc"], effect: false }
}
