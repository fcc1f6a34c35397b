import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.ts", "apps/*/test/**/*.test.ts", "test/**/*.test.ts"],
    exclude: ["**/node_modules/**", "test/agents/**"],
    testTimeout: 30_000,
    hookTimeout: 120_000,
    pool: "forks",
    // Most tests wait for processes most of the time: on two cores there are two files at once, not one.
    maxWorkers: Math.max(2, availableParallelism() - 1)
  }
})
