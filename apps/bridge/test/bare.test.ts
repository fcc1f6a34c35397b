import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync, spawnSync } from "node:child_process"
import { copyFileSync, mkdirSync } from "node:fs"
import { dirname, join } from "node:path"
import { eventually } from "../../../packages/server/test/fixtures/processes.ts"
import { connect, launch, launchLine, listening, place } from "./fixtures/bridgeProgram.ts"

// A container without an engine: its own root, processes and mounts. Needs root on Linux.
const contained = (root: string, ...command: ReadonlyArray<string>) => [
  "unshare",
  "--mount",
  "--pid",
  "--fork",
  "--kill-child",
  "--root",
  root,
  "--mount-proc",
  ...command
]

const [program, ...args] = contained("/", "true")
const canContain = spawnSync(program!, args).status === 0

const options = canContain ? {} : { skip: true, meta: { skipped: "it takes root, and the program unshare" } }

describe("the compiled gangway-bridge, in a bare container", options, () => {
  it.live("plays a turn where there's nothing but the C library", () =>
    Effect.gen(function*() {
      const where = yield* place
      const root = join(where.root, "container")
      for (const directory of ["proc", "tmp", "work"]) mkdirSync(join(root, directory), { recursive: true })
      const build = new URL("../../../scripts/build.ts", import.meta.url).pathname
      execFileSync(process.execPath, [build, "compile", "--outdir", root])
      const libraries = execFileSync("ldd", [join(root, "gangway-bridge")], { encoding: "utf8" }).match(/\/\S+/g) ?? []
      for (const library of libraries) {
        mkdirSync(join(root, dirname(library)), { recursive: true })
        copyFileSync(library, join(root, library))
      }

      const inside = { root: "/tmp", state: "/state", work: "/work" }
      const running = yield* launch(`${launchLine(inside)}\n`, { command: contained(root, "/gangway-bridge") })
      const outside = { ...where, state: join(root, "state") }
      const file = yield* eventually(`the listening file (${running.stderr()})`, Effect.sync(() => listening(outside)))
      const host = yield* connect(file)
      yield* host.startSession("s1", inside.work)
      yield* host.startTurn("s1", "t1", "Good morning, gangway")
      const { end } = yield* host.readTurn("s1", "t1")
      assert.strictEqual(end.type, "finished", JSON.stringify(end))
      assert.strictEqual(running.stderr(), "")
    }).pipe(Effect.scoped), 60_000)
})
