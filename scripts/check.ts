/**
 * Runs the checks named as arguments, or all of them, and says which failed.
 *
 *   bun scripts/check.ts [types] [lint] [format] [imports] [house] [docs] [protocol] [reliability] [generated]
 */
import { spawnSync } from "node:child_process"
import { typeChecker } from "./typeChecker.ts"

const bun = process.execPath

const types = () => {
  const { command, effect } = typeChecker()
  if (!effect) console.log("notice: @effect/tsgo lacks this platform; tsc checks the types, without Effect's rules")
  return [...command, "--noEmit", "-p", "."]
}

const checks: Record<string, () => ReadonlyArray<string>> = {
  types,
  lint: () => [bun, "node_modules/oxlint/bin/oxlint"],
  format: () => [bun, "node_modules/dprint/bin.cjs", "check"],
  imports: () => [bun, "scripts/checkImports.ts"],
  house: () => [bun, "scripts/checkHouse.ts"],
  docs: () => [bun, "scripts/checkDocs.ts"],
  protocol: () => [bun, "scripts/checkProtocol.ts"],
  reliability: () => [bun, "scripts/checkReliability.ts"],
  generated: () => [bun, "scripts/generate.ts", "--check"]
}

const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(checks)
const failed: Array<string> = []
for (const name of names) {
  const check = checks[name]
  if (check === undefined) {
    console.error(`no check is named ${name}: there are ${Object.keys(checks).join(", ")}`)
    process.exit(2)
  }
  const started = performance.now()
  const [command, ...args] = check()
  const { status } = spawnSync(command!, args, { stdio: "inherit" })
  if (status !== 0) failed.push(name)
  console.log(`${name}: ${status === 0 ? "ok" : "failed"} (${((performance.now() - started) / 1000).toFixed(1)} s)`)
}
if (failed.length > 0) console.log(`check failed: ${failed.join(", ")}`)
process.exit(failed.length > 0 ? 1 : 0)
