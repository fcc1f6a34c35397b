/**
 * The commands of `gangway` that the documentation shows: each is one, with flags that it has.
 */
import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { codeBlocks } from "../../scripts/codeBlocks.ts"

const root = join(import.meta.dirname, "../..")
const execute = promisify(execFile)

const shown = ["README.md", "docs/*.md", "packages/*/README.md", "apps/*/README.md"]
  .flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)])
  .flatMap((path) =>
    codeBlocks(readFileSync(join(root, path), "utf8"))
      .filter(({ info }) => info === "sh")
      .flatMap(({ text }) => text.replaceAll("\\\n", " ").split("\n"))
      .flatMap((line) => {
        const [, words] = /(?:^|\| )gangway(?= )(.*)/.exec(line.replace(/\s#.*$/, "")) ?? []
        return words === undefined ? [] : [{ path, words: words.replace(/"[^"]*"/g, "…").trim().split(/\s+/) }]
      })
  )

const help = new Map<string, Promise<string>>()
const helpOf = (command: string): Promise<string> => {
  const known = help.get(command)
  if (known !== undefined) return known
  const args = [join(root, "apps/cli/src/main.ts"), ...command.split(" ").filter((word) => word !== ""), "--help"]
  const printed = execute(process.execPath, args, { env: { ...process.env, NO_COLOR: "1" } })
    .then(({ stdout }) => stdout)
  help.set(command, printed)
  return printed
}

describe("the commands that the documentation shows", () => {
  it("exist, and have the flags that they're shown with", async () => {
    assert.isAbove(shown.length, 10)
    for (const { path, words } of shown) {
      const command = words[0]!.startsWith("--")
        ? ""
        : words[0] === "sandboxes"
        ? words.slice(0, 2).join(" ")
        : words[0]!
      const text = await helpOf(command)
      assert.match(text, new RegExp(`gangway ?${command}\\b`), `${path}: gangway ${command}`)
      for (const flag of words.filter((word) => word.startsWith("--"))) {
        assert.match(text, new RegExp(`${flag}\\b`), `${path}: gangway ${words.join(" ")}`)
      }
    }
  }, 180_000)
})
