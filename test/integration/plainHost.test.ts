/**
 * The client of plain TypeScript under each runtime that it's for, with a real bridge.
 */
import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { installAgent } from "../installAgent.ts"

const bun = process.execPath
const bridgeProgram = join(import.meta.dirname, "../../apps/bridge/src/main.ts")
const runtimes = {
  Bun: { program: bun, skipped: undefined },
  "Node 22": await installAgent("node-22"),
  "Node 24": await installAgent("node-24")
}

const killBridge = (root: string) => {
  try {
    process.kill(JSON.parse(readFileSync(Bridge.listeningFile(`${root}/state`), "utf8")).pid, "SIGKILL")
  } catch {
    // It has ended, or never began.
  }
}

describe("a host in plain TypeScript", () => {
  for (const [name, { program, skipped }] of Object.entries(runtimes)) {
    const title = `runs tools, answers, and reads each part once over its bridge's death, on ${name}`
    it.skipIf(program === undefined)(skipped === undefined ? title : `${title} (${skipped})`, () => {
      const root = mkdtempSync(join(tmpdir(), "gangway-plain-"))
      try {
        const { status, stderr, stdout } = spawnSync(
          program!,
          [join(import.meta.dirname, "plainHost.ts"), root, bun, bridgeProgram],
          { encoding: "utf8", timeout: 60_000 }
        )
        assert.strictEqual(status, 0, stderr)
        const { types, ...rest } = JSON.parse(stdout)
        assert.deepStrictEqual(rest, {
          bridges: 2,
          isGapless: true,
          waiting: "TimeoutError",
          aborted: "aborted",
          missing: "TurnNotFound",
          resumed: true
        })
        for (
          const type of [
            "tool-call",
            "tool-result",
            "tool-approval-response",
            "question-answer",
            "turn-continued",
            "finished"
          ]
        ) {
          assert.include(types, type)
        }
      } finally {
        killBridge(root)
        rmSync(root, { recursive: true, force: true })
      }
    }, 90_000)
  }
})
