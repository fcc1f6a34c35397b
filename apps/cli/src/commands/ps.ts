/**
 * `gangway ps`: which bridges there are, their sessions and turns, and what waits for an answer.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import * as Flags from "../Flags.ts"
import { live } from "../Live.ts"
import { overview } from "../render/Overview.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import { survey, type SurveyedBridge } from "../Survey.ts"
import * as Target from "../Target.ts"

// Without --all.
const maxSessions = 10

export const ps = Command.make(
  "ps",
  {
    all: Flag.Boolean("all").pipe(
      Flag.withDescription(`Lists every session; by default ${maxSessions} of each bridge, and all that run or wait`),
      Flag.withDefault(false)
    ),
    watch: Flag.Boolean("watch").pipe(
      Flag.withDescription(
        "Shows it until Ctrl-C, anew every 2 seconds; where that's no terminal, whenever it changes"
      ),
      Flag.withDefault(false)
    ),
    json: Flags.json.pipe(Flag.withDescription("Prints one JSON object a line, a bridge each")),
    bridge: Flags.named.bridge
  },
  Effect.fn("gangway.ps")(function*({ all, bridge, json, watch }) {
    const { look, note, write } = yield* Screen
    const bridges = Effect.flatMap(Target.bridges(bridge), survey)
    const lines = (bridges: ReadonlyArray<SurveyedBridge>) =>
      json
        ? bridges.map((bridge) => JSON.stringify(toJson(bridge)))
        : overview(bridges, all ? Number.POSITIVE_INFINITY : maxSessions, look)
    if (watch) return yield* live(Effect.map(bridges, lines), "2 seconds")
    const found = yield* interruptible(bridges)
    if (found.length === 0) return yield* note("gangway: no bridge is known yet: 'gangway run' launches one\n")
    yield* write(`${lines(found).join("\n")}\n`)
  })
).pipe(
  Command.withDescription("Lists bridges, their sessions and turns, and what waits for an answer"),
  Command.withExamples([
    { command: "gangway ps", description: "What runs, what waits, what is left" },
    { command: "gangway ps --watch", description: "The same, live" },
    {
      command: "gangway ps --json | jq -r '.sessions[] | select(.latest.waiting[0]).session'",
      description: "The sessions that wait for an answer"
    }
  ])
)

const toJson = ({ bridge, condition, driver, pid, problem, record, sessions }: SurveyedBridge) => ({
  bridge,
  condition,
  problem,
  ...record,
  driver,
  pid,
  sessions
})
