/**
 * What is measured, by the numbers of the rows in the report.
 */
import { Child } from "./Child.ts"
import type { Delay } from "./delay.ts"
import { type Figure, percentile, type Samples, toFigure } from "./figures.ts"
import { build, forget, type Program, startUp } from "./startUp.ts"
import type { Pair, World } from "./World.ts"

/** How long a run takes. */
export interface Extent {
  readonly rounds: number
  /** The parts of a replay and of a burst. */
  readonly replayed: number
  readonly burst: number
  /** Seconds of a round at a rate. */
  readonly seconds: number
  /** Seconds for which a host takes nothing. */
  readonly stalled: number
  readonly lengths: ReadonlyArray<number>
}

/** Measures the figures of a row or of several. */
export interface Row {
  readonly rows: ReadonlyArray<number>
  readonly measure: (world: World, extent: Extent) => Promise<ReadonlyArray<Figure>>
}

// How long a reader has to get ready before the first part.
const wait = 300

// The first rounds warm up and don't count. The one that begins changes from round to round.
const interleave = async <A, B>(
  { rounds, warmUp = 1 }: { readonly rounds: number; readonly warmUp?: number },
  ours: (round: number) => Promise<A>,
  bare: () => Promise<B>
) => {
  const results: { readonly ours: Array<A>; readonly bare: Array<B> } = { ours: [], bare: [] }
  for (let round = 0; round < warmUp + rounds; round++) {
    if (round % 2 === 0) results.bare.push(await bare())
    results.ours.push(await ours(round))
    if (round % 2 === 1) results.bare.push(await bare())
  }
  return { ours: results.ours.slice(warmUp), bare: results.bare.slice(warmUp) }
}

const replay: Row = {
  rows: [1],
  measure: async (world, { replayed: parts, rounds }) => {
    const [{ host }, bare] = [await world.pair(), await world.barePair()]
    await host.call("live", { turn: "replayed", play: { parts } })
    await bare.host.call("prepare", { parts, batch: 256 })
    const results = await interleave(
      { rounds: rounds * 3, warmUp: rounds },
      () => host.call("replay", { turn: "replayed", parts }),
      () => bare.host.call("replay", { parts, batch: 256 })
    )
    const perPart = ({ elapsed }: { readonly elapsed: number }) => elapsed * 1000 / parts
    return [toFigure({
      row: 1,
      name: "replay, against 256 parts a message",
      unit: "µs/part",
      ours: results.ours.map(perPart),
      bare: results.bare.map(perPart),
      comparison: "ratio",
      bound: 1.79 * 1.2,
      goal: 1.4
    })]
  }
}

const burst: Row = {
  rows: [2],
  measure: async (world, { burst: parts, rounds }) => {
    const [{ host }, bare] = [await world.pair(), await world.barePair()]
    const results = await interleave(
      { rounds },
      (round) => host.call("live", { turn: `burst-${round}`, play: { parts, wait } }),
      () => bare.host.call("live", { parts, wait })
    )
    const perSecond = ({ elapsed }: { readonly elapsed: number }) => parts / elapsed
    return [toFigure({
      row: 2,
      name: "live, as fast as it goes",
      unit: "thousand parts/s",
      ours: results.ours.map(perSecond),
      bare: results.bare.map(perSecond),
      comparison: "ratio",
      bound: 1.84 / 1.2,
      goal: 1.8,
      greater: true
    })]
  }
}

interface Bounds {
  readonly bound: number
  readonly goal: number
}

const atRate = async (
  { host }: Pair,
  bare: Awaited<ReturnType<World["barePair"]>>,
  options: {
    readonly row: number
    readonly name: string
    readonly rate: number
    readonly seconds: number
    readonly rounds: number
    readonly p50: Bounds
    readonly p99: Bounds
  }
): Promise<ReadonlyArray<Figure>> => {
  const { name, p50, p99, rate, rounds, row, seconds } = options
  const play = { parts: rate * seconds, rate, wait }
  const results = await interleave(
    { rounds },
    (round) => host.call("live", { turn: `row-${row}-${rate}-${round}`, play }),
    () => bare.host.call("live", play)
  )
  const at = (share: "p50" | "p99") => ({
    ours: results.ours.map((latency) => latency[share]),
    bare: results.bare.map((latency) => latency[share])
  })
  return [
    toFigure({ row, name: `${name}, p50`, unit: "ms", ...at("p50"), comparison: "added", ...p50 }),
    toFigure({ row, name: `${name}, p99`, unit: "ms", ...at("p99"), comparison: "ratio", ...p99 })
  ]
}

const live: Row = {
  rows: [3, 4, 5],
  measure: async (world, { rounds, seconds }) => {
    const [pair, bare] = [await world.pair(), await world.barePair()]
    // First the faster rate: by then both sides' code has run for a while, as a bridge's has.
    const fast = await atRate(pair, bare, {
      row: 4,
      name: "5,000 parts/s",
      rate: 5000,
      seconds: seconds / 2,
      rounds,
      p50: { bound: 0.13 * 1.2, goal: 0.15 },
      p99: { bound: 4.3 * 1.2, goal: 3 }
    })
    const slow = await atRate(pair, bare, {
      row: 3,
      name: "200 parts/s",
      rate: 200,
      seconds,
      // So few parts say little of the slowest percent.
      rounds: rounds * 2,
      p50: { bound: 0.3 * 1.2, goal: 0.3 },
      p99: { bound: 1.7 * 1.2, goal: 1.7 }
    })
    const far = async (port: number) => world.start(new Child<Delay>("delay.ts")).call("listen", { port, delay: 25 })
    await world.connect(pair, await far(pair.port))
    await bare.host.call("connect", await far(bare.port))
    const bounds = { p50: { bound: 0.3 * 1.2, goal: 1 }, p99: { bound: 1.05 * 1.2, goal: 1.1 } }
    const name = "50 ms round trip"
    return [
      ...slow,
      ...fast,
      ...await atRate(pair, bare, { row: 5, name: `${name}, 200 parts/s`, rate: 200, seconds, rounds, ...bounds }),
      ...await atRate(pair, bare, {
        row: 5,
        name: `${name}, 5,000 parts/s`,
        rate: 5000,
        seconds: seconds / 2,
        rounds,
        ...bounds
      })
    ]
  }
}

const megabyte = 1e6

// How much a bridge's memory has grown at the most, in MB. A look takes garbage collections, which stop all else in the
// bridge, so there are few.
const growth = async <A>({ bridge }: Pair, during: () => Promise<A>, interval: number) => {
  // What went before leaves pages that go back to the system a while after they're free.
  await bridge.call("memory", undefined)
  await Bun.sleep(2000)
  const before = await bridge.call("memory", undefined)
  let most = before
  let isOver = false
  const over = during().finally(() => isOver = true)
  while (!isOver) {
    await Promise.race([over, Bun.sleep(interval)])
    most = Math.max(most, await bridge.call("memory", undefined))
  }
  return { grown: (most - before) / megabyte, result: await over }
}

const stalled: Row = {
  rows: [7],
  measure: async (world, extent) => {
    const parts = Math.round(100 * megabyte / 120)
    const seconds = extent.stalled
    // A turn like it went before, so that what any turn takes counts for nothing.
    const warmPair = async () => {
      const pair = await world.pair()
      await pair.host.call("live", { turn: "warm", play: { parts } })
      await pair.host.call("replay", { turn: "warm", parts })
      return pair
    }
    const stop = async ({ host }: Pair) => {
      const reading = host.told("reading")
      const followed = host.call("follow", { turn: "stopped", play: { parts } })
      await reading
      host.signal("SIGSTOP")
      await Bun.sleep(seconds * 1000)
      host.signal("SIGCONT")
      return followed
    }
    const [slow, frozen] = [await warmPair(), await warmPair()]
    const stopping = growth(frozen, () => stop(frozen), seconds * 500)
    // One burst after the other.
    await Bun.sleep(10_000)
    const stalling = growth(
      slow,
      () => slow.host.call("stall", { turn: "stalled", play: { parts }, milliseconds: seconds * 1000 }),
      seconds * 500
    )
    const [stopped, stalled] = await Promise.all([stopping, stalling])
    const itself = (name: string, unit: string, value: number, bound: number) =>
      toFigure({ row: 7, name, unit, ours: [value], comparison: "itself", bound, goal: bound })
    const { calls } = stalled.result
    return [
      itself(`a stream not taken for ${seconds} s during 100 MB: the bridge's memory`, "MB more", stalled.grown, 20),
      itself("its host's other calls, p50", "ms", percentile(calls, 0.5), 50),
      itself("its host's other calls, p99", "ms", percentile(calls, 0.99), 50),
      itself("its parts that were lost", "parts", parts - stalled.result.received, 0),
      itself(`a host stopped for ${seconds} s during 100 MB: the bridge's memory`, "MB more", stopped.grown, 20),
      itself("its parts that were lost", "parts", parts - stopped.result.received, 0)
    ]
  }
}

const memory: Row = {
  rows: [8],
  measure: async (world, { lengths }) => {
    const figures: Array<Figure> = []
    for (const parts of lengths) {
      const pair = await world.pair()
      await pair.host.call("live", { turn: "warm", play: { parts: 10_000 } })
      const before = await pair.bridge.call("heap", undefined)
      await pair.host.call("fill", { turn: "long", parts })
      const after = await pair.bridge.call("heap", undefined)
      await pair.host.call("abort", "long")
      await world.end(pair.bridge)
      await world.end(pair.host)
      const limits = parts > 100_000 ? { bound: 14 * 1.2, goal: 15 } : { bound: 24 * 1.2, goal: 25 }
      figures.push(toFigure({
        row: 8,
        name: `heap of a turn of ${parts.toLocaleString("en")} parts`,
        unit: "bytes/part",
        ours: [(after - before) / parts],
        comparison: "itself",
        ...limits
      }))
    }
    return figures
  }
}

const start: Row = {
  rows: [10],
  measure: async (world, { rounds }) => {
    const programs = await build(world)
    const timesOf = (
      name: string,
      { bare, ours }: Awaited<ReturnType<typeof start>>,
      limits: Pick<Samples, "comparison" | "bound" | "goal">
    ) =>
      toFigure({
        row: 10,
        name,
        unit: "ms",
        ours: ours.map(({ milliseconds }) => milliseconds),
        bare: bare.map(({ milliseconds }) => milliseconds),
        ...limits
      })
    const ratio = { comparison: "ratio", bound: 2.2 * 1.2, goal: 2.2 } as const
    // A bare start from memory takes a few milliseconds, so what ours adds is told beside the ratio. The limits are what
    // the ratio's add to a bare start of 47 ms, of which it was made.
    const added = { comparison: "added", bound: 55 * 1.2, goal: 55 } as const
    const start = (rounds: number, bare: Program, before: (program: Program) => unknown) =>
      interleave(
        { rounds },
        () => (before(programs.bridge), startUp(world, programs.bridge)),
        () => (before(bare), startUp(world, bare))
      )
    // A file that was just written is mapped in larger pieces than one that was read from the disk, as an installed
    // program is: so the first starts come first.
    const canForget = forget(programs.bridge)
    const first = canForget
      ? [timesOf("compiled, from its first start to listening", await start(rounds, programs.bare, forget), ratio)]
      : []
    const again = await start(rounds * 2, programs.bare, () => {})
    const besideStock = await start(rounds * 2, programs.stock, () => {})
    const { bare, ours } = again
    return [
      ...first,
      timesOf("compiled, from a later start to listening", again, ratio),
      timesOf("what ours adds to it", again, added),
      timesOf("the same, against Effect's RPC server alone", besideStock, {
        comparison: "ratio",
        bound: 1.5,
        goal: 1.25
      }),
      toFigure({
        row: 10,
        name: "its resident memory then",
        unit: "MB",
        ours: ours.map(({ resident }) => resident / megabyte),
        bare: bare.map(({ resident }) => resident / megabyte),
        comparison: "itself",
        bound: 46 * 1.2,
        goal: 50
      })
    ]
  }
}

/** Everything that is measured, in its order. */
export const rows: ReadonlyArray<Row> = [replay, burst, live, stalled, memory, start]
