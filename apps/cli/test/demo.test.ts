import { assert } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { processesOf, run, start, test, until } from "./fixtures/Gangway.ts"

const ofDemo = (names: ReadonlyArray<string>) => names.filter((name) => name.startsWith("gangway-demo-"))

test("the demo loses its connection and its bridge, counts nothing lost or doubled, and leaves nothing behind", (user) =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const env = { TMPDIR: user.root }
    const { exitCode, stderr, stdout } = yield* run(user, ["demo"], { env })
    assert.strictEqual(stderr, "")
    assert.strictEqual(exitCode, 0, stdout)
    // In this order: it tells what happens as it happens.
    const told = [
      /launches a bridge, process (\d+), and starts a turn/,
      /tool-call +lookup \{"issue":7\}, run by the host\n/,
      /connection is cut after part \d+/,
      /connected again, and reads on from part \d+/,
      /tool-approval-request +Bash sh check\.sh, it runs a program\n +\d+ +tool-approval-response allowed\n/,
      /process (\d+), is killed with SIGKILL/,
      /Bridge (\d+) has taken over/,
      /turn-continued +attempt 2/,
      /tool-result +Bash: 12 checks passed/,
      /turn has finished, in 2 attempts and over [3-9] connections/,
      /tool ran once/,
      /check was started twice/,
      /\n\d+ parts read, 0 lost, 0 doubled\n$/
    ]
    let rest = stdout
    const pids = told.flatMap((pattern) => {
      const found = pattern.exec(rest)
      assert.isNotNull(found, `${pattern} in:\n${rest}`)
      rest = rest.slice(found!.index + found![0].length)
      return found!.slice(1)
    })
    assert.strictEqual(pids[0], pids[1])
    assert.notStrictEqual(pids[1], pids[2])
    // Each number is told once, and none is left out.
    const numbers = [...stdout.matchAll(/^ {2}(\d+)(?:-(\d+))? /gm)].map((
      [, from, to]
    ) => [Number(from), Number(to ?? from)])
    numbers.forEach(([from], index) => assert.strictEqual(from, index === 0 ? 1 : numbers[index - 1]![1]! + 1))
    assert.include(stdout, `\n${numbers.at(-1)![1]} parts read`)

    assert.deepStrictEqual(processesOf(user), [])
    assert.deepStrictEqual(ofDemo(yield* fs.readDirectory(user.root)), [])
    assert.isFalse(yield* fs.exists(user.state), "it keeps nothing in the user's state directory")
  }))

test("the demo prints what was counted as JSON", (user) =>
  Effect.gen(function*() {
    const { exitCode, stdout } = yield* run(user, ["demo", "--json"], { env: { TMPDIR: user.root } })
    assert.strictEqual(exitCode, 0, stdout)
    const { connections, parts, ...counted } = JSON.parse(stdout)
    assert.deepStrictEqual(counted, { end: "finished", attempts: 2, lost: 0, doubled: 0 })
    assert.isAbove(parts, 30)
    assert.isAbove(connections, 2)
  }))

test("a demo that is interrupted leaves nothing behind either", (user) =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const demo = yield* start(user, ["demo"], { env: { TMPDIR: user.root } })
    yield* until(() => demo.stdout().includes("killed with SIGKILL"))
    process.kill(demo.pid, "SIGINT")
    const { exitCode } = yield* demo.ended
    assert.strictEqual(exitCode, 130)
    yield* until(() => processesOf(user).length === 0)
    assert.deepStrictEqual(ofDemo(yield* fs.readDirectory(user.root)), [])
  }))
