/**
 * One turn whose bridge is killed again and again, and what's checked at its end.
 */
import { Scripted } from "@gangway/drivers"
import { Effect, Fiber } from "effect"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { isRunning } from "../../packages/server/test/fixtures/processes.ts"
import { checkSession, checkTurn } from "./checkTurn.ts"
import * as ClientDriver from "./ClientDriver.ts"
import * as Faults from "./Faults.ts"
import { Observed } from "./Observed.ts"
import * as Random from "./Random.ts"
import * as RawDriver from "./RawDriver.ts"
import * as Scripts from "./Scripts.ts"
import * as W from "./World.ts"

/** How a bridge dies: by itself inside a write, or from outside, some time after it was launched or said something. */
export type Plan =
  | { readonly by: "fault"; readonly fault: Faults.Fault }
  | { readonly by: "signal"; readonly after: "launch" | "part"; readonly delay: number }

/** A bridge that was killed before the turn had ended. */
export type Kill =
  | { readonly by: "fault"; readonly hit: Faults.Hit }
  | {
    readonly by: "signal"
    /** Whether an attempt was running as far as its file tells, had ended, or the turn wasn't there yet. */
    readonly moment: "in an attempt" | "between attempts" | "before the turn"
    /** Whether the file ended in the middle of a line. */
    readonly torn: boolean
  }

export interface Options {
  readonly seed: number
  readonly program: string
  /** Who leads the turn: a host without the client, one with it, or two with it. */
  readonly hosts: "raw" | "client" | "clients"
  readonly plans: ReadonlyArray<Plan>
  /** Whether all bridges are given the same port. */
  readonly hasPort: boolean
  /** Whether the bridges that kill themselves do without their kernel. */
  readonly isPortable: boolean
}

export interface Told {
  readonly kills: ReadonlyArray<Kill>
  readonly attempts: number
  readonly parts: number
  readonly problem: string | undefined
}

// Longer than the longest script and the ends of bridges take.
const patience = 90_000

/** Plays a turn to its end. */
export const play = Effect.fnUntraced(function*(options: Options) {
  const { hosts, plans, seed } = options
  const random = Random.make(seed)
  const world = new W.World(options.program, options)
  const observed = new Observed()
  const script = Scripts.make(random, seed)
  const prompt = `Do it. ${Scripted.toPrompt(script)}`
  plans.forEach((plan, index) => Faults.plan(world.faults, index, plan.by === "fault" ? plan.fault : undefined))

  const killer = new Killer(world, observed, plans)
  const raw = (seed: number) => ({ world, observed, random: Random.make(seed) })
  const client = ClientDriver.drive({ world, observed, prompt })
  const drivers = hosts === "raw"
    ? [Effect.promise(() => RawDriver.drive({ ...raw(seed + 1), prompt, patience: 150, idleTimeout: "1 minute" }))]
    : hosts === "client"
    ? [client]
    : [client, client]

  const story = Effect.gen(function*() {
    const killing = yield* Effect.forkScoped(Effect.promise(() => killer.run()))
    const observing = yield* Effect.forkScoped(
      Effect.promise(() => RawDriver.observe({ ...raw(seed + 2), isOver: () => killer.isOver }))
    )
    yield* Effect.raceFirst(
      Effect.all(drivers, { concurrency: "unbounded" }),
      // They only end before the turn where they fail.
      Effect.andThen(Effect.all([Fiber.join(killing), Fiber.join(observing)]), Effect.never)
    )
    killer.isOver = true
    yield* Fiber.join(killing)
    yield* Fiber.join(observing)
    const kills = killer.kills()
    const checked = checkTurn({
      world,
      observed,
      snapshots: killer.snapshots,
      steps: script.steps.length,
      reasons: hosts === "clients" ? ["bridge-died", "bridge-replaced"] : ["bridge-died"]
    })
    yield* Effect.promise(() => stop({ ...raw(seed + 3), patience: 0, idleTimeout: "1 minute" }))
    checkSession(world)
    return { kills, ...checked }
  }).pipe(
    Effect.scoped,
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.die(new Error(`the turn didn't end within ${patience} ms`))
    }),
    Effect.exit
  )
  const exit = yield* story
  killer.isOver = true
  const told = exit._tag === "Success"
    ? { ...exit.value, problem: undefined }
    : {
      kills: killer.kills(),
      attempts: 0,
      parts: 0,
      problem: describe(options, world, killer.kills(), exit.cause.toString())
    }
  world.close({ keep: told.problem !== undefined })
  return told satisfies Told
})

const describe = (options: Options, world: W.World, kills: ReadonlyArray<Kill>, cause: string): string => {
  const log = (() => {
    try {
      return readFileSync(join(world.root, "bridge.log"), "utf8").slice(-2000)
    } catch {
      return ""
    }
  })()
  const stands = {
    kills: kills.length,
    bridges: world.bridges(),
    holder: world.holder(),
    listening: world.listening()?.pid,
    agents: world.agents().map(({ pid }) => pid),
    lastLine: world.wholeLines().trimEnd().split("\n").at(-1)?.slice(0, 200)
  }
  return [JSON.stringify(options), world.root, cause, JSON.stringify(stands), log].join("\n")
}

// After the session was stopped nothing of its agent runs, and a bridge that's asked to ends. It may have a fault yet.
const stop = async (options: RawDriver.LaunchOptions) => {
  const { random, world } = options
  while (true) {
    const host = await RawDriver.ifConnected(RawDriver.connect(world)) ?? await RawDriver.launch(options)
    const reply = await RawDriver.ifConnected(host.call("StopSession", { session: W.session }))
    host.close()
    if (reply === undefined) continue
    if (reply._tag === "Failure") throw new Error(`StopSession: ${JSON.stringify(reply.error)}`)
    if (reply.value.left.length > 0) throw new Error(`StopSession left ${JSON.stringify(reply.value.left)}`)
    const left = world.agents()
    if (left.length > 0) throw new Error(`StopSession left ${JSON.stringify(left)} without a word`)
    break
  }
  if (!random.chance(0.2)) return
  const bridges = world.bridges()
  for (const pid of bridges) process.kill(pid, "SIGTERM")
  await W.until("the bridge's exit", () => bridges.every((pid) => !isRunning(pid)), 10)
}

/** Kills bridges as they come, and keeps what was there when it did. */
class Killer {
  isOver = false
  readonly snapshots: Array<string> = []
  private readonly signals: Array<Kill> = []
  private readonly reaped: Array<{ readonly lines: number; readonly agents: ReadonlyArray<W.Seen> }> = []
  private readonly world: W.World
  private readonly observed: Observed
  private readonly plans: ReadonlyArray<Plan>

  constructor(world: W.World, observed: Observed, plans: ReadonlyArray<Plan>) {
    this.world = world
    this.observed = observed
    this.plans = plans
  }

  kills(): ReadonlyArray<Kill> {
    const hits = this.plans.flatMap((_, index) => Faults.hit(this.world.faults, index) ?? [])
    return [...this.signals, ...hits.map((hit): Kill => ({ by: "fault", hit }))]
  }

  async run(): Promise<void> {
    const seen = new Set<number>()
    const pending = new Set<Promise<void>>()
    const hasFaults = this.plans.some(({ by }) => by === "fault")
    let next = 0
    while (!this.isOver) {
      for (const pid of this.world.bridges()) {
        if (seen.has(pid)) continue
        const index = hasFaults ? Faults.takenBy(this.world.faults, pid) : next
        // It hasn't come to that yet.
        if (index === undefined && seen.size < this.plans.length) continue
        seen.add(pid)
        this.snapshots.push(this.world.wholeLines())
        next++
        const plan = index === undefined ? undefined : this.plans[index]
        if (plan?.by === "signal") pending.add(this.kill(pid, plan))
      }
      this.checkReaped()
      await Bun.sleep(20)
    }
    this.checkReaped()
    await Promise.all(pending)
  }

  private async kill(pid: number, { after, delay }: Extract<Plan, { readonly by: "signal" }>): Promise<void> {
    const { highest } = this.observed
    const due = () => this.isOver || !isRunning(pid) || (after === "launch" || this.observed.highest > highest)
    await W.until("something to kill after", due, 60)
    await Bun.sleep(delay)
    if (this.isOver || !this.world.bridges().includes(pid)) return
    const before = this.observed.highest
    const holds = this.world.holder() === pid
    process.kill(pid, "SIGKILL")
    await W.until("the killed bridge's end", () => !isRunning(pid))
    const text = this.world.wholeLines()
    const lines = text.split("\n").slice(0, -1)
    const parts = lines.filter((line) => line.startsWith("{\"n\":")).length
    if (before > parts) throw new Error(`a host has read ${before} parts, the file has ${parts}`)
    this.snapshots.push(text)
    if (holds) this.reaped.push({ lines: parts, agents: this.world.agents() })
    const last = lines.at(-1)
    if (last?.startsWith("{\"end\":{\"type\":\"finished\"") === true) return
    this.signals.push({
      by: "signal",
      moment: last === undefined
        ? "before the turn"
        : last.startsWith("{\"end\":")
        ? "between attempts"
        : "in an attempt",
      torn: readTail(this.world)
    })
  }

  // Once a host has read something of a later attempt, nothing runs of the agent before.
  private checkReaped(): void {
    for (const { agents, lines } of this.reaped) {
      if (this.observed.highest <= lines) continue
      const left = agents.filter(W.isSame)
      if (left.length > 0) throw new Error(`an agent of the attempt before still runs: ${JSON.stringify(left)}`)
    }
  }
}

const readTail = (world: W.World): boolean => {
  try {
    return !readFileSync(world.turnFile(), "utf8").endsWith("\n")
  } catch {
    return false
  }
}
