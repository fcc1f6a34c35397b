/**
 * What an agent is at while nothing is heard of it.
 */
import { Bridge } from "@gangway/protocol"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Look } from "./render/Style.ts"
import { cut, oneLine } from "./render/Text.ts"
import * as Values from "./render/Values.ts"
import { Screen } from "./Screen.ts"

// What is sooner over isn't worth a line.
const patience = "2 seconds"
const interval = "1 second"

/** Makes what takes note of a turn's parts, and shows a line while it's waited for the next one. */
export const make = Effect.fnUntraced(function*(look: Look) {
  const screen = yield* Screen
  const clock = yield* Clock.Clock
  const running = new Map<string, { readonly words: string; readonly since: number }>()
  let heard = clock.currentTimeMillisUnsafe()

  const see = (part: Bridge.Part): void => {
    heard = clock.currentTimeMillisUnsafe()
    if (!Bridge.isKnown(part)) return
    if (part.type === "tool-call") {
      running.set(part.id, { words: `${oneLine(part.name)}  ${Values.input(part.params, look)}`.trim(), since: heard })
    } else if (part.type === "tool-result" && part.preliminary !== true) running.delete(part.id)
    else if (part.type === "turn-continued") running.clear()
  }

  const line = Effect.suspend(() => {
    const latest = [...running.values()].at(-1)
    const since = latest?.since ?? heard
    const time = ` · ${duration(clock.currentTimeMillisUnsafe() - since)}`
    return screen.progress(
      look.style.dim(cut(`… ${latest?.words ?? "working"}`, look.columns - time.length - 1) + time)
    )
  })

  return {
    see,
    /** Shows it, ever anew. */
    show: Effect.andThen(
      Effect.sleep(patience),
      Effect.forever(Effect.andThen(line, Effect.sleep(interval)))
    )
  }
})

const duration = (milliseconds: number): string => {
  const seconds = Math.floor(milliseconds / 1000)
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`
}
