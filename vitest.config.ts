import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.ts", "apps/*/test/**/*.test.ts", "test/**/*.test.ts"],
    exclude: ["**/node_modules/**", "test/agents/**"],
    testTimeout: 30_000,
    hookTimeout: 120_000,
    pool: "forks"
  }
})
