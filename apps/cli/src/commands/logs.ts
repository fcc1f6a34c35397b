/**
 * `gangway logs`: prints a turn, and what comes of it while it runs.
 */
import type { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { connect, findTurn, noSuchPart } from "../Connect.ts"
import * as Flags from "../Flags.ts"
import { lookFrom } from "../render/Style.ts"
import * as Transcript from "../render/Transcript.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import * as Target from "../Target.ts"

export const logs = Command.make(
  "logs",
  {
    target: Flags.target,
    ...Flags.named,
    from: Flags.from,
    follow: Flag.Boolean("follow").pipe(
      Flag.withDescription("Goes on to the turn's end; --no-follow prints what there is now"),
      Flag.withDefault(true)
    ),
    format: Flag.Literals("format", Transcript.formats).pipe(
      Flag.withDescription("As a person reads it, as JSON lines, or as a Markdown document without what is void"),
      Flag.withDefault("text")
    ),
    json: Flags.jsonTurn,
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.logs")(function*({ bridgeCommand, follow, from, json, ...options }) {
    const screen = yield* Screen
    const format = json ? "json" : options.format
    yield* interruptible(Effect.gen(function*() {
      const found = yield* Target.find({
        named: options,
        isMeant: ({ latest }) => latest !== undefined,
        isPreferred: Target.isRunning,
        noun: "turn"
      })
      const { session } = found
      const { client } = yield* connect({ ...found, bridgeCommand, json })
      const { latest, turn } = yield* findTurn(client, session, found.turn)
      const handle = client.session(session).turn(turn)
      const transcript = Transcript.make(format, lookFrom(screen.look, found.surveyed.directory))

      const stop = follow || latest?.state !== "running" ?
        undefined :
        yield* findTurn(client, session, found.turn).pipe(
          // Another bridge may be handing it over.
          Effect.repeat({
            until: ({ latest }) => latest?.state !== "running" || latest.next !== undefined,
            schedule: Schedule.spaced("250 millis")
          }),
          Effect.map(({ latest }) => latest?.next)
        )
      const isVoid = format === "markdown" && (latest?.attempt ?? 1) > 1
        ? yield* voidParts(handle, stop ?? latest?.next)
        : () => false

      yield* until(handle.parts({ from }), from, stop).pipe(
        Stream.runForEachArray((parts) =>
          screen.write(parts.filter((part) => !isVoid(part)).map(transcript.part).join(""))
        ),
        Effect.mapError((error) => noSuchPart(error, turn, from))
      )
      if (stop === undefined) yield* screen.write(transcript.end(yield* handle.endLine))
      else if (format !== "json") yield* screen.write("\n")
    }))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Prints a turn, from any of its parts, and goes on with it to its end; it answers nothing"),
  Command.withExamples([
    { command: "gangway logs t-5e6f7a8b", description: "The turn, also while it runs" },
    { command: "gangway logs --from 42 --no-follow", description: "What there is now, from part 42 on" },
    { command: "gangway logs s-1a2b --format markdown > turn.md", description: "A session's latest turn as a document" }
  ])
)

// To a turn's end, or to what comes before a number.
const until = <E, R>(parts: Stream.Stream<Turn.TurnPart, E, R>, from: number, stop: number | undefined) =>
  stop === undefined
    ? parts
    : stop <= from
    ? Stream.empty
    : Stream.takeUntil(parts, ({ last, n }) => (last ?? n) + 1 >= stop)

// Parts that a later attempt doesn't count. Those of a turn that runs are looked through as far as there are some.
const voidParts = Effect.fnUntraced(function*(turn: Turn.Turn, stop: number | undefined) {
  const ranges: Array<readonly [after: number, before: number]> = []
  yield* Stream.runForEach(until(turn.parts(), 1, stop), ({ n, part }) =>
    Effect.sync(() => {
      if (part.type === "turn-continued") ranges.push([part.keep, n])
    }))
  return ({ n }: Bridge.NumberedPart) => ranges.some(([after, before]) => after < n && n < before)
})
