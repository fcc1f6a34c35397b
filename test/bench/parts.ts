/**
 * What both sides of a comparison send: the same parts, at the same pace.
 */
import { percentile } from "./figures.ts"

/** A part's line of 120 bytes at number 100,000. */
export interface BenchPart {
  readonly type: "text-delta"
  readonly id: string
  /** When it was emitted, and a filler. */
  readonly delta: string
}

/** A part as it's numbered on the wire. */
export interface NumberedBenchPart {
  readonly n: number
  readonly part: BenchPart
}

/** What is played: `parts` of them, so many a second, or as fast as it goes. */
export interface Play {
  readonly parts: number
  /** Parts a second; absent, as fast as it goes. */
  readonly rate?: number | undefined
  /** Milliseconds before the first part, in which the reader gets ready. */
  readonly wait?: number | undefined
  /** Whether the turn goes on after its last part, until it's aborted. */
  readonly hold?: boolean | undefined
}

/** Milliseconds of a clock that all processes of the machine share, to the microsecond. */
export const now = (): number => performance.timeOrigin + performance.now()

const stampLength = 17

// Text differs from part to part, as an agent's does.
const fillers = Array.from({ length: 1024 }, (_, i) => {
  let text = ""
  for (let word = i + 1; text.length < 60 - stampLength; word = Math.imul(word, 48_271) >>> 0) {
    text += ` ${word.toString(36)}`
  }
  return text.slice(0, 60 - stampLength)
})

/** The time as a part carries it. */
export const toStamp = (time: number): string => time.toFixed(3).padStart(stampLength, "0")

/** The part of a number, which says when it was emitted. */
export const makePart = (n: number, stamp: string): BenchPart => ({
  type: "text-delta",
  id: "msg_0001",
  delta: stamp + fillers[n % fillers.length]!
})

/** When the part was emitted. */
export const emittedAt = (part: BenchPart): number => Number(part.delta.slice(0, stampLength))

/**
 * How many parts are due, and how long to wait for the next: both sides ask after each of their timers, so both emit
 * what has become due since the last one.
 */
export const makePace = (rate: number) => {
  const start = now()
  return {
    due: () => Math.floor((now() - start) * rate / 1000) + 1,
    wait: (emitted: number) => Math.max(1, start + emitted * 1000 / rate - now())
  }
}

/** Takes what arrives: checks each number, and how long it took. */
export class Arrivals {
  private next = 1
  private firstEmitted = 0
  private last = 0
  private readonly latencies: Array<number> = []
  private readonly timed: boolean

  constructor(options: { readonly timed: boolean }) {
    this.timed = options.timed
  }

  get count(): number {
    return this.next - 1
  }

  take(parts: ReadonlyArray<NumberedBenchPart>): void {
    if (this.next === 1 && parts.length > 0) this.firstEmitted = emittedAt(parts[0]!.part)
    for (const { n } of parts) {
      if (n !== this.next) throw new Error(`number ${n} came where ${this.next} was due`)
      this.next++
    }
    this.last = now()
    if (!this.timed) return
    for (const { part } of parts) this.latencies.push(this.last - emittedAt(part))
  }

  /** Milliseconds from the first one's emission to the last one's arrival. */
  get elapsed(): number {
    return this.last - this.firstEmitted
  }

  /** Of the latencies, in milliseconds. */
  percentiles(): { readonly p50: number; readonly p99: number } {
    return { p50: percentile(this.latencies, 0.5), p99: percentile(this.latencies, 0.99) }
  }
}
