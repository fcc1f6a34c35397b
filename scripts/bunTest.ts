/**
 * What `bun test` loads first: Bun's own runner can't run these tests.
 */
console.error("the tests run under vitest: bun run test")
process.exit(1)
