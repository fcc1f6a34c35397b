/**
 * `gangway doctor`: says what this machine lacks, and how to get it.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { examine } from "../Doctor.ts"
import { ExitCode, ExitWith } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import { checks } from "../render/Checks.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"

export const doctor = Command.make(
  "doctor",
  {
    agent: Flag.String("agent").pipe(
      Flag.withDescription("The agent that's to work, as 'gangway agents' names it; by default any"),
      Flag.optional
    ),
    sandbox: Flag.Literals("sandbox", ["local", "docker", "daytona"]).pipe(
      Flag.withDescription("Where it's to work"),
      Flag.withDefault("local")
    ),
    json: Flags.json.pipe(Flag.withDescription("Prints one JSON object a line, a check each")),
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.doctor")(function*({ agent, bridgeCommand, json, sandbox }) {
    const { look, write } = yield* Screen
    const found = yield* interruptible(examine({ agent: Option.getOrUndefined(agent), sandbox }, bridgeCommand))
    yield* write(json ? found.map((check) => `${JSON.stringify(check)}\n`).join("") : checks(found, look))
    if (found.some(({ status }) => status === "failed")) return yield* new ExitWith({ exitCode: ExitCode.turnFailed })
  })
).pipe(
  Command.withDescription(
    "Says what this machine lacks, and how to get it; exits with 1 where something needed is missing"
  ),
  Command.withExamples([
    { command: "gangway doctor", description: "Whether any agent can work here" },
    { command: "gangway doctor --agent codex --sandbox docker", description: "Whether that one can, in a container" }
  ])
)
