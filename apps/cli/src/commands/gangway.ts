/**
 * `gangway`, the command that the others are commands of.
 */
import * as Command from "effect/unstable/cli/Command"
import * as Registry from "../Registry.ts"
import { abort } from "./abort.ts"
import { agents } from "./agents.ts"
import { answer } from "./answer.ts"
import { approve } from "./approve.ts"
import { attach } from "./attach.ts"
import { compact } from "./compact.ts"
import { demo } from "./demo.ts"
import { destroy } from "./destroy.ts"
import { diff } from "./diff.ts"
import { doctor } from "./doctor.ts"
import { logs } from "./logs.ts"
import { prune } from "./prune.ts"
import { ps } from "./ps.ts"
import { pull } from "./pull.ts"
import { run } from "./run.ts"
import { sandboxes } from "./sandboxes.ts"
import { send } from "./send.ts"
import { stop } from "./stop.ts"

export const gangway = Command.make("gangway").pipe(
  Command.withDescription("Runs coding agents behind bridges that outlive connections, hosts and themselves"),
  Command.withExamples([
    { command: "gangway run \"Make the tests pass.\"", description: "Gives an agent something to do, here" },
    { command: "gangway ps --watch", description: "Sees what runs, and what waits for you" },
    { command: "gangway approve", description: "Answers it, from any terminal" },
    { command: "gangway attach", description: "Follows what runs" },
    { command: "gangway logs s-1a2b --format markdown > turn.md", description: "Keeps what an agent did" },
    { command: "gangway doctor", description: "Says what is missing here, and how to get it" }
  ]),
  Command.withSubcommands([
    demo,
    Command.provide(run, Registry.layer),
    Command.provide(attach, Registry.layer),
    Command.provide(ps, Registry.layer),
    Command.provide(logs, Registry.layer),
    Command.provide(approve, Registry.layer),
    Command.provide(answer, Registry.layer),
    Command.provide(send, Registry.layer),
    Command.provide(abort, Registry.layer),
    Command.provide(compact, Registry.layer),
    Command.provide(stop, Registry.layer),
    Command.provide(destroy, Registry.layer),
    Command.provide(prune, Registry.layer),
    Command.provide(doctor, Registry.layer),
    Command.provide(agents, Registry.layer),
    Command.provide(diff, Registry.layer),
    Command.provide(pull, Registry.layer),
    Command.provide(sandboxes, Registry.layer)
  ])
)
