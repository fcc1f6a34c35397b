/**
 * Asks the bridge program which agents are on this machine.
 */
import { FoundAgent } from "@gangway/drivers/FoundAgent"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import type * as BridgeProgram from "./BridgeProgram.ts"
import { UsageError } from "./Failure.ts"
import { Registry } from "./Registry.ts"

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(FoundAgent))

/** The agents: the program that drives them is the one that knows which of them are here. */
export const ask = Effect.fnUntraced(
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
