/**
 * `gangway agents`: which agents are here, whether they fit, and what each can do.
 */
import * as Effect from "effect/Effect"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import * as BridgeProgram from "../BridgeProgram.ts"
import * as Flags from "../Flags.ts"
import { ask } from "../FoundAgents.ts"
import { foundAgents } from "../render/Agents.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"

export const agents = Command.make(
  "agents",
  {
    json: Flags.json.pipe(Flag.withDescription("Prints one JSON object a line, an agent each")),
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.agents")(function*({ bridgeCommand, json }) {
    const { look, write } = yield* Screen
    const found = yield* interruptible(ask(yield* BridgeProgram.find(bridgeCommand)))
    yield* write(json ? found.map((agent) => `${JSON.stringify(agent)}\n`).join("") : foundAgents(found, look))
  })
).pipe(
  Command.withDescription("Says which agents are on this machine, whether their versions fit, and what each can do"),
  Command.withExamples([
    { command: "gangway agents", description: "A line each; what is missing says how it's installed" },
    {
      command: "gangway agents --json | jq -r 'select(.status == \"ready\").agent'",
      description: "Those that are ready"
    }
  ])
)
