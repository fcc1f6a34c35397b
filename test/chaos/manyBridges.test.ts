import { assert, describe, it } from "@effect/vitest"
import { type BridgeClient, Turn } from "@gangway/client"
import { Scripted, type ScriptedAgent } from "@gangway/drivers"
import { Effect, Fiber, Stream } from "effect"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { checkTurn } from "./checkTurn.ts"
import * as ClientDriver from "./ClientDriver.ts"
import { Observed } from "./Observed.ts"
import * as RawDriver from "./RawDriver.ts"
import * as W from "./World.ts"

const count = 50

const place = Effect.acquireRelease(
  Effect.promise(async () => {
    const directory = mkdtempSync(join(tmpdir(), "gangway-programs-"))
    return { directory, world: new W.World((await W.bundle(directory)).bridge) }
  }),
  ({ directory, world }) =>
    Effect.sync(() => {
      world.close()
      rmSync(directory, { recursive: true, force: true })
    })
).pipe(Effect.map(({ world }) => world))

const script: Scripted.Script = {
  steps: [
    { actions: [{ type: "text", random: { length: 300 }, chunk: 10, delay: 5 }] },
    { actions: [{ type: "host-tools", calls: [{ name: "lookup", params: { word: "one" } }], echo: true }] },
    { actions: [{ type: "text", random: { length: 600, alphabet: "unicode" }, chunk: 10, delay: 5 }] }
  ].map((step, index) => ({
    ...step,
    usage: { measured: true, inputTokens: { total: index } }
  })) as Scripted.Script["steps"]
}
const prompt = Scripted.toPrompt(script)

// Its first attempts don't end by themselves.
const hanging: Scripted.Script = {
  steps: [...script.steps, {
    actions: [{ type: "hang", attempts: [1, 2, 3] }, { type: "text", random: { length: 500 }, chunk: 10, delay: 10 }],
    usage: { measured: true, inputTokens: { total: 3 } }
  }]
}

const journal = (world: W.World): ReadonlyArray<ScriptedAgent.JournalEntry> =>
  readdirSync(join(world.home, "journal")).flatMap((name) =>
    readFileSync(join(world.home, "journal", name), "utf8").trimEnd().split("\n").map((line) => JSON.parse(line))
  )

// Starts sessions wherever a bridge takes them, until it's told to stop.
const lookForBridges = async (world: W.World, isOver: () => boolean) => {
  const accepted = new Set<string>()
  let problem: string | undefined
  const look = async (session: string) => {
    while (!isOver()) {
      await RawDriver.ifConnected((async () => {
        const host = await RawDriver.connect(world)
        const file = world.listening()
        const reply = await RawDriver.startSession(host, world, session)
        host.close()
        if (reply._tag === "Success") accepted.add(file!.launch)
        else if (!["Replaced", "Closing", "SessionBusy"].includes(reply.error._tag)) {
          problem ??= JSON.stringify(reply.error)
        }
      })())
      await Bun.sleep(50)
    }
  }
  await Promise.all(["look-1", "look-2", "look-3", "look-3"].map(look))
  return { accepted, problem }
}

describe("50 bridges at once", () => {
  it.live("end as one that takes sessions, and the others exit with 0, again and again", () =>
    Effect.gen(function*() {
      const world = yield* place
      yield* Effect.promise(async () => {
        let older: Array<ReturnType<W.World["launch"]>> = []
        for (const round of [1, 2]) {
          let isOver = false
          const looking = lookForBridges(world, () => isOver)
          const launched = Array.from({ length: count }, (_, i) =>
            world.launch(`launch-${round}-${i}`, { idleTimeout: "5 minutes", endInput: i % 2 === 0 }))
          const running = () =>
            [...older, ...launched].filter((child) =>
              child.exitCode === null && child.signalCode === null
            )
          const listened = new Set<string>()
          const started = performance.now()
          // The last one that comes to listen has all of them find out within a second.
          await W.until("one of them alone", () => {
            const launch = world.listening()?.launch
            if (launch !== undefined) listened.add(launch)
            return running().length === 1
          }, 120)
          const [winner] = running()
          console.log(
            `round ${round}: one of ${count} after ${
              Math.round(performance.now() - started)
            } ms; the file named at least ${listened.size}`
          )
          for (const child of [...older, ...launched]) {
            if (child !== winner) assert.strictEqual(child.exitCode, 0)
          }
          const file = world.listening()!
          assert.strictEqual(file.pid, winner!.pid)
          assert.include(file.launch, `launch-${round}-`)
          isOver = true
          const { problem } = await looking
          assert.isUndefined(problem)
          const host = await RawDriver.connect(world)
          assert.strictEqual((await RawDriver.startSession(host, world))._tag, "Success")
          host.close()
          older = [winner!]
        }
        assert.strictEqual(older[0]!.exitCode, null)
      })
    }).pipe(Effect.scoped), 300_000)

  const launchOf = (client: BridgeClient.BridgeClient["Service"]) => Effect.map(client.hello, ({ launch }) => launch)

  it.live(
    "through 50 clients: all use the same one, and a turn that all of them start runs once",
    () =>
      Effect.gen(function*() {
        for (const round of [1, 2]) {
          yield* Effect.gen(function*() {
            const world = yield* place
            const clients = yield* Effect.forEach(
              Array.from({ length: count }),
              () => ClientDriver.connect(world, { idleTimeout: "5 minutes" }),
              { concurrency: "unbounded" }
            )
            yield* Effect.promise(() => W.until("one bridge", () => world.bridges().length === 1, 120))
            const handles = yield* Effect.forEach(clients, (client) => ClientDriver.start(client, world, prompt), {
              concurrency: "unbounded"
            })
            const launches = new Set(yield* Effect.forEach(clients, launchOf, { concurrency: "unbounded" }))
            assert.deepStrictEqual([...launches], [world.listening()!.launch])
            const observed = new Observed()
            observed.streams.push(
              ...(yield* Effect.forEach(handles, (handle) => Stream.runCollect(handle.parts()), {
                concurrency: "unbounded"
              })).map((parts) => [...parts])
            )
            assert.deepStrictEqual(handles.filter(({ started }) => started?.status === "started").length, 1)
            assert.deepStrictEqual(new Set(handles.map(({ started }) => started?.attempt)), new Set([1]))
            for (const stream of observed.streams) assert.deepStrictEqual(stream, observed.streams[0])
            const runs = journal(world).filter(({ type }) => type === "turn")
            assert.deepStrictEqual(runs, [{ type: "turn", turn: W.turn, attempt: 1, nudged: false }])
            checkTurn({ world, observed, snapshots: [], steps: script.steps.length, reasons: [] })
            console.log(
              `round ${round}: ${Turn.toText(observed.streams[0]!).length} characters of text for each of ${count}`
            )
          }).pipe(Effect.scoped)
        }
      }).pipe(Effect.provide(ClientDriver.layer)),
    300_000
  )

  it.live(
    "through 50 clients that come while bridges replace each other: each step once, for all of them",
    () =>
      Effect.gen(function*() {
        const world = yield* place
        const observed = new Observed()
        const drive = Effect.gen(function*() {
          const client = yield* ClientDriver.connect(world, { idleTimeout: "5 minutes" })
          const handle = yield* ClientDriver.start(client, world, Scripted.toPrompt(hanging))
          const parts = yield* Stream.runCollect(handle.parts())
          assert.strictEqual((yield* handle.end).type, "finished")
          observed.streams.push([...parts])
        })
        const bridges = 4
        const clients = [yield* Effect.forkScoped(drive)]
        for (let i = 0; i < bridges; i++) {
          const launch = `launch-${i}`
          yield* Effect.promise(async () => {
            // The one before has the turn by now.
            await W.until(`attempt ${i + 1}`, () => world.sessionFile()?.latest?.attempt > i)
            world.launch(launch, { idleTimeout: "5 minutes" })
            await W.until(launch, () => world.listening()?.launch === launch)
          })
          // Whoever starts the session where it's newest takes it from the bridge before.
          for (let k = 0; k < (count - 2) / bridges; k++) {
            clients.push(yield* Effect.forkScoped(Effect.delay(drive, k * 30)))
          }
        }
        yield* Fiber.joinAll(clients)
        const { attempts } = checkTurn({
          world,
          observed,
          snapshots: [],
          steps: hanging.steps.length,
          reasons: ["bridge-replaced"]
        })
        console.log(`the turn took ${attempts} attempts`)
        assert.isAtLeast(attempts, 4)
        assert.strictEqual(observed.streams.length, count - 1)
        yield* Effect.promise(() => W.until("one bridge", () => world.bridges().length === 1, 60))
      }).pipe(Effect.scoped, Effect.provide(ClientDriver.layer)),
    300_000
  )
})
