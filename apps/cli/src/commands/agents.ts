/**
 * `gangway agents`: which agents are here, whether they fit, and what each can do.
 */
import { FoundAgent } from "@gangway/drivers/FoundAgent"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as BridgeProgram from "../BridgeProgram.ts"
import { UsageError } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { Registry } from "../Registry.ts"
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
  Command.withDescription("Says which agents are on this machine, whether their versions fit, and what each can do")
)

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(FoundAgent))

// The program that drives agents is the one that knows which of them are here.
const ask = Effect.fnUntraced(
  function*([program, ...args]: BridgeProgram.BridgeCommand) {
    const { root } = yield* Registry
    const spawner = yield* ChildProcessSpawner
    const child = yield* spawner.spawn(
      ChildProcess.make(program, [...args, "agents"], { cwd: root, extendEnv: true, stdin: "ignore" })
    )
    const said = yield* Effect.forkChild(Stream.mkString(Stream.decodeText(child.stderr)))
    const lines = yield* Stream.runCollect(Stream.splitLines(Stream.decodeText(child.stdout)))
    const exitCode = yield* child.exitCode
    if (exitCode !== 0) {
      return yield* unusable(program, (yield* Fiber.join(said)).trim() || `it exited with ${exitCode}`)
    }
    return yield* Effect.forEach(lines, (line) => decode(line))
  },
  Effect.scoped,
  (effect, [program]) =>
    Effect.catchTag(effect, ["PlatformError", "SchemaError"], ({ message }) => unusable(program, message))
)

const unusable = (program: string, problem: string) =>
  Effect.fail(
    new UsageError({
      problem: `${program} can't say which agents are here (${problem}): name another with --bridge-command`
    })
  )
