/**
 * What changes while it's looked at: drawn anew on a screen of its own at a terminal, written again elsewhere.
 */
import * as Effect from "effect/Effect"
import { type OutputClosed, Screen } from "./Screen.ts"
import { Interrupted, Signals } from "./Signals.ts"

// The terminal's other screen, and no cursor; then as it was.
const enter = "\x1b[?1049h\x1b[?25l"
const leave = "\x1b[?25h\x1b[?1049l"

/** Draws lines again and again, until Ctrl-C. Each drawing comes so long after the one before. */
export const live = Effect.fnUntraced(function*<E, R>(
  lines: Effect.Effect<ReadonlyArray<string>, E, R>,
  interval: "2 seconds"
): Effect.fn.Return<void, E | Interrupted | OutputClosed, R | Screen | Signals> {
  const { isTerminal, look, rows, write } = yield* Screen
  const { next } = yield* Signals
  let shown = ""
  const draw = Effect.gen(function*() {
    const now = yield* lines
    if (isTerminal) {
      const frame = now.slice(0, rows() - 1).map((line) => `${Bun.sliceAnsi(line, 0, look.columns)}\x1b[K\r\n`).join("")
      return yield* write(`\x1b[H${frame}\x1b[J`)
    }
    const text = now.join("\n")
    if (text === shown) return
    const isFirst = shown === ""
    shown = text
    yield* write(`${isFirst ? "" : "\n"}${text}\n`)
  })
  const drawing = Effect.forever(Effect.andThen(draw, Effect.sleep(interval)))
  const signal = yield* Effect.raceFirst(drawing, next).pipe(
    isTerminal
      ? (drawing) => Effect.acquireUseRelease(write(enter), () => drawing, () => Effect.ignore(write(leave)))
      : (drawing) => drawing
  )
  // It's how one leaves.
  if (signal !== "SIGINT") return yield* new Interrupted({ signal })
})
