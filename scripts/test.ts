/**
 * Runs the tests and ends with one plain line: `N passed, N failed`, and `, N skipped` where some were skipped.
 *
 *   bun run test [filters and options of vitest]
 *
 * A file that doesn't load and a hook that fails count as failures, and a run without a single test is one. Skipped
 * suites are listed with their reason, which a suite gives as `meta: { skipped: "why" }` and a test as `skip("why")`.
 * With CI=true nothing may be skipped but what says `isOptional` there: it asks for what isn't in the repository and can't
 * be had by everyone. The run may then take 28 minutes. TEST_NOTICE is printed before the last line.
 */
import { relative } from "node:path"
import { parseCLI, startVitest, type TestCase, type TestModule, type TestSuite, type Vitest } from "vitest/node"

declare module "vitest" {
  interface TaskMeta {
    /** Why a suite or a test is skipped. */
    skipped?: string | undefined
    /** Whether that's no failure with CI=true. */
    isOptional?: boolean | undefined
  }
}

const ci = process.env.CI === "true"
const deadline = 28 * 60_000

const { filter, options } = parseCLI(["vitest", ...process.argv.slice(2)])
// With a name pattern all other tests are skipped on purpose.
const selected = options.testNamePattern !== undefined

let vitest: Vitest | undefined
const overdue = setTimeout(() => {
  finish(vitest?.state.getTestModules() ?? [], [`The tests did not end within ${deadline / 60_000} minutes.`])
}, ci ? deadline : 0x7fffffff)

const instance = await startVitest("test", filter, {
  ...options,
  watch: false,
  reporters: [...(options.reporters === undefined ? ["default"] : [options.reporters].flat()), {
    onInit: (started: Vitest) => {
      vitest = started
    }
  }]
})
clearTimeout(overdue)
finish(
  instance.state.getTestModules(),
  instance.state.getUnhandledErrors().map((error) => `Unhandled: ${(error as Error).message}`)
)

function finish(modules: ReadonlyArray<TestModule>, failures: ReadonlyArray<string>): never {
  const failed = [...failures]
  const skipped = new Map<string, string>()
  const count = { passed: 0, failed: 0, skipped: 0 }
  let notOptional = 0
  for (const module of modules) {
    const file = relative(process.cwd(), module.moduleId)
    for (const owner of [module, ...module.children.allSuites()]) {
      for (const error of owner.errors()) failed.push(`${nameOf(file, owner)}: ${error.message}`)
    }
    for (const test of module.children.allTests()) {
      const result = test.result()
      if (result.state === "passed") count.passed++
      else if (result.state !== "skipped") count.failed++
      else if (!selected) {
        count.skipped++
        const [name, reason, isOptional] = skipOf(file, test)
        skipped.set(name, reason)
        if (!isOptional) notOptional++
      }
    }
  }
  if (count.passed + count.failed === 0) failed.push("No test ran.")
  for (const [name, reason] of skipped) console.log(`skipped: ${name}: ${reason}`)
  for (const failure of failed) console.log(`failed: ${failure}`)
  if (process.env.TEST_NOTICE !== undefined) console.log(process.env.TEST_NOTICE)
  if (ci && notOptional > 0) console.log("failed: with CI=true nothing may be skipped that isn't optional")
  count.failed += failed.length
  console.log(
    `${count.passed} passed, ${count.failed} failed` + (count.skipped === 0 ? "" : `, ${count.skipped} skipped`)
  )
  process.exit(count.failed > 0 || (ci && notOptional > 0) || process.exitCode ? 1 : 0)
}

function nameOf(file: string, task: TestCase | TestSuite | TestModule): string {
  return task.type === "module" ? file : `${file} > ${task.fullName}`
}

// A whole suite that is skipped is listed once: by the outermost task that says why.
function skipOf(file: string, test: TestCase): readonly [name: string, reason: string, isOptional: boolean] {
  const result = test.result()
  const note = result.state === "skipped" ? result.note : undefined
  let found: readonly [string, string, boolean] = [nameOf(file, test), note ?? "without a reason", false]
  for (let task: TestCase | TestSuite | TestModule = test;; task = task.parent) {
    const { isOptional = false, skipped } = task.meta()
    if (skipped !== undefined) found = [nameOf(file, task), skipped, isOptional]
    if (task.type === "module") return found
  }
}
