/**
 * The newest lines of a turn, in memory for the readers that keep up.
 */
import type { LineRange } from "./lineIndex.ts"

export class LineTail {
  // A ring: the line of part n is at (n - 1) % maxParts.
  private readonly ring: Array<string> = []
  private readonly sizes: Array<number> = []
  private first = 1
  private next = 1
  private bytes = 0
  private readonly maxParts: number
  private readonly maxBytes: number

  /** `next` is the number of the first part that will be pushed. */
  constructor(next: number, maxParts: number, maxBytes: number) {
    this.first = next
    this.next = next
    this.maxParts = maxParts
    this.maxBytes = maxBytes
  }

  push(line: string, bytes: number): void {
    if (this.next - this.first === this.maxParts) this.drop()
    const i = (this.next - 1) % this.maxParts
    this.ring[i] = line
    this.sizes[i] = bytes
    this.next++
    this.bytes += bytes
    while (this.bytes > this.maxBytes) this.drop()
  }

  private drop(): void {
    const i = (this.first - 1) % this.maxParts
    this.bytes -= this.sizes[i]!
    this.ring[i] = ""
    this.first++
  }

  /** The lines joined by commas, if all of them are here. */
  join({ count, first }: LineRange): string | undefined {
    if (first < this.first) return undefined
    const start = (first - 1) % this.maxParts
    if (count === 1) return this.ring[start]
    const end = start + count
    return end <= this.maxParts
      ? this.ring.slice(start, end).join(",")
      : `${this.ring.slice(start).join(",")},${this.ring.slice(0, end - this.maxParts).join(",")}`
  }
}
