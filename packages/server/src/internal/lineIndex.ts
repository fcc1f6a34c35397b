/**
 * Where each part's line is in a turn's file, and which attempt it belongs to: 8 bytes a part.
 */

/** An attempt; its parts are in one piece, and its end line follows them. */
export interface Attempt {
  readonly attempt: number
  /** The number of its first part, which it may not have yet. */
  readonly first: number
  /** What its `turn-continued` says: parts of earlier attempts after this number are void. */
  readonly keep: number | undefined
  /** The offset after its last part's line; `undefined` while it runs. */
  partsEnd: number | undefined
}

/** Consecutive lines of one attempt. */
export interface LineRange {
  readonly attempt: number
  readonly first: number
  readonly count: number
  readonly start: number
  /** Without the last newline. */
  readonly bytes: number
}

// No chunk is copied when the index grows, and a short turn has one.
const chunkSize = 2048

export class LineIndex {
  /** How many parts there are; their numbers are 1 to `count`. */
  count = 0
  /** The file's size, as far as it holds whole lines. */
  size = 0
  readonly attempts: Array<Attempt> = []
  private readonly chunks: Array<Float64Array> = []

  get attempt(): Attempt {
    return this.attempts[this.attempts.length - 1]!
  }

  /** Adds the next part's line, of which `size` is the end from now on. */
  push(size: number): void {
    const i = this.count % chunkSize
    if (i === 0) this.chunks.push(new Float64Array(chunkSize))
    this.chunks[this.chunks.length - 1]![i] = this.size
    this.count++
    this.size = size
  }

  /** Adds the running attempt's end line. */
  pushEnd(size: number): void {
    this.attempt.partsEnd = this.size
    this.size = size
  }

  /** Begins an attempt, with the next part. */
  begin(attempt: number, keep?: number): void {
    // An attempt whose end was lost with the file's damaged rest ends here.
    if (this.attempts.length > 0) this.attempt.partsEnd ??= this.size
    this.attempts.push({ attempt, first: this.count + 1, keep, partsEnd: undefined })
  }

  /** Where the part's line starts. */
  start(n: number): number {
    return this.chunks[Math.floor((n - 1) / chunkSize)]![(n - 1) % chunkSize]!
  }

  /** The position in `attempts` of the part's attempt. */
  attemptOf(n: number): number {
    let i = this.attempts.length - 1
    while (i > 0 && this.attempts[i]!.first > n) i--
    return i
  }

  /** The number of the attempt's last part. */
  lastOf(attempt: number): number {
    return attempt + 1 < this.attempts.length ? this.attempts[attempt + 1]!.first - 1 : this.count
  }

  /** Lines from a part on, all of its attempt; a line that's too long for `maxBytes` is alone. `n` exists. */
  range(n: number, maxParts: number, maxBytes: number): LineRange {
    const i = this.attemptOf(n)
    const { attempt, partsEnd = this.size } = this.attempts[i]!
    const lastOfAttempt = this.lastOf(i)
    const start = this.start(n)
    const bytes = (last: number) => (last === lastOfAttempt ? partsEnd : this.start(last + 1)) - start - 1
    let last = Math.min(lastOfAttempt, n + maxParts - 1)
    if (bytes(last) > maxBytes) {
      // The last part with which it still fits.
      let fits = n
      while (last - fits > 1) {
        const middle = (fits + last) >>> 1
        if (bytes(middle) > maxBytes) last = middle
        else fits = middle
      }
      last = fits
    }
    return { attempt, first: n, count: last - n + 1, start, bytes: bytes(last) }
  }
}
