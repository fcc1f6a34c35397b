import { assert, describe, it } from "@effect/vitest"
import type { Turn } from "@gangway/client"
import { Scripted } from "@gangway/drivers"
import type { Bridge } from "@gangway/protocol"
import { Effect, Fiber, type Scope, Stream } from "effect"
import type { ChildProcess } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { toolResult } from "./Answers.ts"
import { checkTurn } from "./checkTurn.ts"
import * as ClientDriver from "./ClientDriver.ts"
import { Observed } from "./Observed.ts"
import * as Random from "./Random.ts"
import * as RawDriver from "./RawDriver.ts"
import type { RawHost, Reply } from "./RawHost.ts"
import * as W from "./World.ts"

const step = (text: number, delay: number) => ({
  actions: [{ type: "text" as const, random: { length: text }, chunk: 10, delay }],
  usage: { measured: true, inputTokens: { total: 1 } }
})
const lookup = {
  actions: [{ type: "host-tools" as const, calls: [{ name: "lookup" }] as const, echo: true }],
  usage: { measured: true, inputTokens: { total: 1 } }
}

/** A turn that asks its host in the middle. */
const asking: Scripted.Script = { steps: [step(100, 20), lookup, step(500, 20)] }
/** A turn of a few seconds that asks nobody. */
const working: Scripted.Script = { steps: [step(100, 20), step(100, 20), step(1500, 20)] }
/** The same, and its first attempt doesn't end by itself. */
const hanging: Scripted.Script = {
  steps: [...working.steps, { ...step(100, 1), actions: [{ type: "hang", attempts: [1] }, ...step(100, 1).actions] }]
}

const key = { session: W.session, turn: W.turn }

interface Place {
  readonly world: W.World
  readonly launch: (id: string) => Promise<ChildProcess>
}

const place: Effect.Effect<Place, never, Scope.Scope> = Effect.acquireRelease(
  Effect.promise(async () => {
    const directory = mkdtempSync(join(tmpdir(), "gangway-programs-"))
    return { directory, world: new W.World((await W.bundle(directory)).bridge) }
  }),
  ({ directory, world }) =>
    Effect.sync(() => {
      for (const pid of world.bridges()) process.kill(pid, "SIGCONT")
      world.close()
      rmSync(directory, { recursive: true, force: true })
    })
).pipe(Effect.map(({ world }) => ({
  world,
  launch: async (id) => {
    const child = world.launch(id, { idleTimeout: "1 minute", endInput: false })
    await W.until(`bridge ${id}`, () => world.listening()?.launch === id)
    return child
  }
})))

const exits = (child: ChildProcess, seconds: number): Promise<number> =>
  W.until("the bridge's exit", () => child.exitCode === null ? undefined : { code: child.exitCode }, seconds)
    .then(({ code }) => code)

const succeeds = (reply: Reply): any => {
  assert.strictEqual(reply._tag, "Success", JSON.stringify(reply))
  return reply._tag === "Success" ? reply.value : undefined
}

const failsWith = (reply: Reply, tag: string): any => {
  assert.deepInclude(reply, { _tag: "Failure" })
  const error = reply._tag === "Failure" ? reply.error : undefined
  assert.strictEqual(error._tag, tag)
  return error
}

const start = async (host: RawHost, world: W.World, script: Scripted.Script, attempt = 1) => {
  succeeds(await RawDriver.startSession(host, world))
  return succeeds(
    await host.call("StartTurn", { ...key, attempt, prompt: [{ type: "text", text: Scripted.toPrompt(script) }] })
  )
}

const reading = (host: RawHost, world: W.World, observed: Observed, from?: RawDriver.Cursor) => {
  const cursor = from ?? new RawDriver.Cursor(observed)
  // Answers are given by the test.
  const end = RawDriver.read(host, cursor, { world, observed, random: Random.make(1), answers: false })
  return { cursor, end }
}

const check = (world: W.World, observed: Observed, script: Scripted.Script, reasons: ReadonlyArray<string>) =>
  checkTurn({ world, observed, snapshots: [], steps: script.steps.length, reasons: reasons as never })

const test = (name: string, body: (place: Place) => Promise<void>, seconds = 60) =>
  it.live(
    name,
    () => Effect.flatMap(place, (place) => Effect.promise(() => body(place))).pipe(Effect.scoped),
    seconds * 1000
  )

describe("a bridge that a newer one replaces", { concurrent: true }, () => {
  test("finishes its turn for the hosts that read it, and exits with 0; the newer one serves the same parts", async ({ launch, world }) => {
    const older = await launch("launch-older")
    const host = await RawDriver.connect(world)
    await start(host, world, asking)
    const observed = new Observed()
    const atOlder = reading(host, world, observed)
    await W.until("a part", () => observed.highest > 0)

    await launch("launch-newer")
    const newHost = await RawDriver.connect(world)
    const seen = new Observed()
    const atNewer = reading(newHost, world, seen)
    // Nothing new is begun at the older one.
    failsWith(await RawDriver.startSession(host, world, "s2"), "Replaced")
    failsWith(
      await host.call("StartTurn", { session: W.session, turn: "t2", prompt: [{ type: "text", text: "x" }] }),
      "Replaced"
    )
    // An answer belongs where the session is.
    const asked = await W.until("the call", () => /"id":"(host-1-1-[^"]*)"/.exec(seen.frames.join(""))?.[1])
    const answer = { ...key, toolCallId: asked, ...toolResult(asked) }
    const busy = failsWith(await newHost.call("SubmitToolResult", answer), "SessionBusy")
    assert.strictEqual(busy.launch, "launch-older")
    assert.strictEqual(older.exitCode, null)
    succeeds(await host.call("SubmitToolResult", answer))
    observed.accepted.push(asked)

    const [end, alsoEnd] = await Promise.all([atOlder.end, atNewer.end])
    assert.strictEqual(end.end.type, "finished")
    assert.deepStrictEqual(alsoEnd, end)
    assert.strictEqual(await exits(older, 5), 0)
    check(world, observed, asking, [])
    check(world, seen, asking, [])

    // The session is the newer one's now, and has gone on from there.
    assert.deepStrictEqual(succeeds(await RawDriver.startSession(newHost, world)), { resumed: true })
    const repeated = succeeds(await newHost.call("StartTurn", { ...key, attempt: 1 }))
    assert.deepInclude(repeated, { attempt: 1, status: "ended" })
    succeeds(
      await newHost.call("StartTurn", { session: W.session, turn: "t2", prompt: [{ type: "text", text: "more" }] })
    )
    assert.strictEqual(world.holder(), world.listening()?.pid)
  })

  test("hands its session over to a host of the newer one, which continues the turn", async ({ launch, world }) => {
    const older = await launch("launch-older")
    const host = await RawDriver.connect(world)
    await start(host, world, working)
    const observed = new Observed()
    const atOlder = reading(host, world, observed)
    await W.until("finished steps", () => observed.highest > 30)
    const agents = world.agents()
    assert.isAbove(agents.length, 0)

    await launch("launch-newer")
    const newHost = await RawDriver.connect(world)
    const before = performance.now()
    assert.deepStrictEqual(succeeds(await RawDriver.startSession(newHost, world)), { resumed: true })
    assert.isBelow(performance.now() - before, 8000)
    const end = await atOlder.end
    assert.deepInclude(end.end, { type: "aborted", reason: "bridge-replaced" })
    // Nothing of the older one's agent is left when the newer one has the session.
    assert.deepStrictEqual(agents.filter(W.isSame), [])
    assert.strictEqual(await exits(older, 5), 0)

    const started = await start(newHost, world, working, 2)
    assert.deepInclude(started, { attempt: 2, from: end.next, status: "continued" })
    const finished = await reading(newHost, world, observed, atOlder.cursor).end
    assert.deepInclude(finished, { attempt: 2 })
    assert.strictEqual(finished.end.type, "finished")
    check(world, observed, working, ["bridge-replaced"])
  })

  test("is killed where it's stopped, and its turn is continued", async ({ launch, world }) => {
    const older = await launch("launch-older")
    const host = await RawDriver.connect(world)
    await start(host, world, working)
    const observed = new Observed()
    const atOlder = reading(host, world, observed)
    const lost = RawDriver.ifConnected(atOlder.end)
    await W.until("finished steps", () => observed.highest > 30)
    const agents = world.agents()
    older.kill("SIGSTOP")

    await launch("launch-newer")
    const newHost = await RawDriver.connect(world)
    const before = performance.now()
    assert.deepStrictEqual(succeeds(await RawDriver.startSession(newHost, world)), { resumed: true })
    const took = performance.now() - before
    assert.isAtLeast(took, 9_500)
    assert.isBelow(took, 20_000)
    assert.strictEqual(older.signalCode, "SIGKILL")
    assert.isUndefined(await lost)

    const started = await start(newHost, world, working, 2)
    assert.deepInclude(started, { attempt: 2, status: "continued" })
    assert.deepStrictEqual(agents.filter(W.isSame), [])
    const again = reading(newHost, world, observed, atOlder.cursor)
    assert.deepInclude((await again.end).end, { type: "finished" })
    check(world, observed, working, ["bridge-died"])
  })

  test("hands over all the same where it goes on before it's killed", async ({ launch, world }) => {
    const older = await launch("launch-older")
    const host = await RawDriver.connect(world)
    await start(host, world, hanging)
    const observed = new Observed()
    const atOlder = reading(host, world, observed)
    await W.until("finished steps", () => observed.highest > 30)
    older.kill("SIGSTOP")
    await launch("launch-newer")
    const newHost = await RawDriver.connect(world)
    const starting = RawDriver.startSession(newHost, world)
    await Bun.sleep(5000)
    older.kill("SIGCONT")
    assert.deepStrictEqual(succeeds(await starting), { resumed: true })
    assert.deepInclude((await atOlder.end).end, { type: "aborted", reason: "bridge-replaced" })
    assert.strictEqual(await exits(older, 5), 0)
    assert.deepInclude(await start(newHost, world, hanging, 2), { attempt: 2, status: "continued" })
    assert.deepInclude((await reading(newHost, world, observed, atOlder.cursor).end).end, { type: "finished" })
    check(world, observed, hanging, ["bridge-replaced"])
  })
})

describe("hosts with a client, one at each of two bridges", { concurrent: true }, () => {
  it.live("both read the turn to its end, each part once", () =>
    Effect.gen(function*() {
      const { launch, world } = yield* place
      const older = yield* Effect.promise(() => launch("launch-older"))
      const prompt = Scripted.toPrompt(working)
      const [one, two] = [new Observed(), new Observed()]
      const first = yield* Effect.forkScoped(ClientDriver.drive({ world, observed: one, prompt }))
      yield* Effect.promise(() => W.until("finished steps", () => one.highest > 30))
      yield* Effect.promise(() => launch("launch-newer"))
      // It starts the session where it finds the newer bridge, which takes it from the older one.
      const second = yield* Effect.forkScoped(ClientDriver.drive({ world, observed: two, prompt }))
      yield* Fiber.join(first)
      yield* Fiber.join(second)
      const { attempts } = check(world, one, working, ["bridge-replaced"])
      check(world, two, working, ["bridge-replaced"])
      assert.strictEqual(attempts, 2)
      assert.strictEqual(yield* Effect.promise(() => exits(older, 5)), 0)
    }).pipe(Effect.scoped, Effect.provide(ClientDriver.layer)), 60_000)

  it.live("an answer by hand finds its way to the older one", () =>
    Effect.gen(function*() {
      const { launch, world } = yield* place
      const older = yield* Effect.promise(() => launch("launch-older"))
      const host = yield* Effect.promise(() => RawDriver.connect(world))
      yield* Effect.promise(() => start(host, world, asking))
      const [one, two] = [new Observed(), new Observed()]
      const atOlder = reading(host, world, one)
      yield* Effect.promise(() => launch("launch-newer"))
      const handle = (yield* ClientDriver.connect(world)).session(W.session).turn(W.turn)
      const parts: Array<Turn.TurnPart> = []
      two.streams.push(parts)
      yield* Stream.runForEach(handle.parts(), (part) => {
        parts.push(part)
        const call = part.part as Bridge.KnownPart
        return call.type === "tool-call" ? handle.answer({ id: call.id, ...toolResult(call.id) }) : Effect.void
      })
      assert.strictEqual((yield* handle.end).type, "finished")
      assert.strictEqual((yield* Effect.promise(() => atOlder.end)).end.type, "finished")
      assert.strictEqual(yield* Effect.promise(() => exits(older, 5)), 0)
      check(world, one, asking, [])
      check(world, two, asking, [])
    }).pipe(Effect.scoped, Effect.provide(ClientDriver.layer)), 60_000)

  it.live(
    "a new one launches a bridge in the place of a stopped one, and both go on there",
    () =>
      Effect.gen(function*() {
        const { launch, world } = yield* place
        const older = yield* Effect.promise(() => launch("launch-older"))
        const prompt = Scripted.toPrompt(working)
        const [one, two] = [new Observed(), new Observed()]
        const first = yield* Effect.forkScoped(ClientDriver.drive({ world, observed: one, prompt }))
        yield* Effect.promise(() => W.until("finished steps", () => one.highest > 30))
        older.kill("SIGSTOP")
        const second = yield* Effect.forkScoped(ClientDriver.drive({ world, observed: two, prompt }))
        yield* Fiber.join(second)
        yield* Fiber.join(first)
        check(world, one, working, ["bridge-died"])
        check(world, two, working, ["bridge-died"])
        assert.notStrictEqual(world.listening()?.launch, "launch-older")
        assert.strictEqual(older.signalCode, "SIGKILL")
      }).pipe(Effect.scoped, Effect.provide(ClientDriver.layer)),
    120_000
  )
})
