/**
 * `gangway run`: starts a turn and follows it.
 */
import { Bridge } from "@gangway/protocol"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import * as Argument from "effect/unstable/cli/Argument"
import * as Command from "effect/unstable/cli/Command"
import * as Flag from "effect/unstable/cli/Flag"
import { Agent, names } from "../AgentOptions.ts"
import { checkDirectory, choose } from "../ChosenSandbox.ts"
import { connect } from "../Connect.ts"
import { UsageError } from "../Failure.ts"
import * as Flags from "../Flags.ts"
import * as Policy from "../Policy.ts"
import { Registry, type SessionRecord } from "../Registry.ts"
import { Screen } from "../Screen.ts"
import { interruptible } from "../Signals.ts"
import { decideWho, exitWith, watch } from "../Watch.ts"

const text = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

export const run = Command.make(
  "run",
  {
    prompt: Argument.String("prompt").pipe(
      Argument.withDescription("What the agent is to do; '-' reads it from standard input")
    ),
    agent: Flag.String("agent").pipe(
      Flag.withSchema(Agent),
      Flag.withDescription(
        `The agent that works: ${names.join(", ")}, or acp:COMMAND for any that speaks ACP; claude-code by default`
      ),
      Flag.withDefault("claude-code" as const)
    ),
    directory: text("directory", "Where it works; by default where the session did, or the current directory"),
    session: Flag.optional(Flags.session).pipe(
      Flag.withDescription("The session to go on in, or a new one's id; by default a new one")
    ),
    turn: Flags.turn.pipe(
      Flag.withDescription("The turn's id: the same one again takes the turn up as it stands; by default a new one")
    ),
    model: text("model", "The model, in the agent's own words"),
    effort: text("effort", "How much the agent thinks, in its own words"),
    permissions: Flag.Literals("permissions", Bridge.Permissions.literals).pipe(
      Flag.withDescription("What the agent may do without asking: nothing that asks, edits of files, or all; ask"),
      Flag.optional
    ),
    agentUser: text("agent-user", "The user that the agent of a new bridge runs as, by name or uid; needs root"),
    instructions: text("instructions", "Added to the agent's system prompt"),
    approvals: Flags.approvals.pipe(
      Flag.withDescription(
        "What the agent asks is asked at the terminal, denied (the default without one), or left to other hosts"
      )
    ),
    ...Policy.flags,
    json: Flags.jsonTurn,
    sandbox: Flag.Literals("sandbox", ["local", "docker", "daytona"]).pipe(
      Flag.withDescription(
        "Where a new bridge runs: on this machine, in a Docker container that has the directory, or in a Daytona sandbox"
      ),
      Flag.withDefault("local")
    ),
    image: text("image", "The sandbox's image, which has the agent"),
    snapshot: text("snapshot", "The Daytona snapshot that it's made of; by default Daytona's own"),
    sandboxId: text("sandbox-id", "A container or Daytona sandbox that exists, by its name or id"),
    copy: Flag.Boolean("copy").pipe(
      Flag.withDescription(
        "Copies the directory in, for 'diff' and 'pull', in place of a mount; Daytona has a copy anyway"
      ),
      Flag.withDefault(false)
    ),
    bridge: Flags.bridge.pipe(
      Flag.withDescription(
        "The bridge's id; by default the agent's name, in a sandbox one for what it's made of and the directory"
      )
    ),
    bridgeCommand: Flags.bridgeCommand
  },
  Effect.fn("gangway.run")(function*(options) {
    const { agent, bridgeCommand, json } = options
    const registry = yield* Registry
    const screen = yield* Screen
    const prompt = options.prompt === "-" ? yield* readPrompt : options.prompt
    if (prompt.trim() === "") return yield* new UsageError({ problem: "the prompt is empty" })
    const approvals = yield* decideWho({
      given: options.approvals,
      otherwise: "deny",
      stdinIsTaken: options.prompt === "-"
    })

    const { bridge, sandbox } = yield* choose(options)
    const session = Option.isSome(options.session) ? options.session.value : Bridge.SessionId.make(yield* randomId("s"))
    const turnId = Option.isSome(options.turn) ? options.turn.value : Bridge.TurnId.make(yield* randomId("t"))
    const known = Option.getOrUndefined(yield* registry.session(bridge, session))
    const given = yield* localDirectory(options.directory, known)
    if (given !== undefined) yield* checkDirectory(bridge, sandbox, given)

    // Until here nothing runs that a signal would leave alone.
    const { client, record, started } = yield* interruptible(Effect.gen(function*() {
      const { client, directoryOf, env } = yield* connect({
        bridge,
        agent,
        agentUser: Option.getOrUndefined(options.agentUser),
        bridgeCommand,
        sandbox,
        json
      })
      const record = sessionRecord(options, known, given === undefined ? undefined : directoryOf(given))
      const started = yield* client.startSession({ session, ...record, env })
      yield* registry.keepSession(bridge, session, record)
      return { client, record, started }
    }))
    yield* screen.note(screen.noteLook.style.dim(
      `gangway: ${agent} in ${record.directory}; bridge ${bridge}, session ${session}, turn ${turnId}\n`
    ))

    const { end } = yield* watch({
      names: { bridge, session, turn: turnId, flags: Flags.bridgeCommandAgain(bridgeCommand) },
      turn: started.startTurn({ turn: turnId, prompt }),
      handle: client.session(session).turn(turnId),
      from: 1,
      directory: record.directory,
      json,
      approvals,
      policy: options
    })
    yield* exitWith(end)
  }, Effect.scoped)
).pipe(
  Command.withDescription("Starts a turn and follows it to its end"),
  Command.withExamples([
    {
      command: "gangway run \"Make the tests pass.\" --permissions edits",
      description: "Lets the agent edit files here"
    },
    {
      command: "gangway run \"Make the tests pass.\" --sandbox docker --image my-agents --directory .",
      description: "Works in a container"
    },
    {
      command: "gangway run \"Tidy up.\" --allow Read --allow Edit --deny Bash",
      description: "Decides by tool, and asks about the rest"
    },
    { command: "git diff | gangway run - --json", description: "Reads the prompt, prints JSON" },
    { command: "gangway run \"And now the docs.\" --session s-1a2b3c4d", description: "Goes on in a session" }
  ])
)

const readPrompt = Effect.gen(function*() {
  const { stdin, stdinIsTerminal } = yield* Stdio.Stdio
  if (yield* stdinIsTerminal) yield* (yield* Screen).note("gangway: type the prompt, and end it with Ctrl-D\n")
  return yield* Stream.mkString(Stream.decodeText(stdin)).pipe(
    Effect.mapError(({ message }) => new UsageError({ problem: `the prompt can't be read: ${message}` }))
  )
}).pipe(interruptible)

const randomId = (prefix: string) =>
  Effect.map(
    Effect.orDie(Effect.flatMap(Crypto.Crypto, (crypto) => crypto.randomBytes(8))),
    (bytes) => `${prefix}-${[...bytes].map((byte) => (byte % 36).toString(36)).join("")}`
  )

// Where a session is to work, as it's told here; nowhere else than it did, where that's known and nothing else is asked for.
const localDirectory = Effect.fnUntraced(function*(given: Option.Option<string>, known: SessionRecord | undefined) {
  if (Option.isNone(given) && known !== undefined) return undefined
  const path = yield* Path.Path
  const fs = yield* FileSystem.FileSystem
  const directory = yield* Effect.try({
    try: () => path.resolve(Option.getOrElse(given, () => ".")),
    catch: () => new UsageError({ problem: "the current directory is gone: name one with --directory" })
  })
  const isDirectory = yield* fs.stat(directory).pipe(
    Effect.map(({ type }) => type === "Directory"),
    Effect.orElseSucceed(() => false)
  )
  if (!isDirectory) return yield* new UsageError({ problem: `there is no directory ${directory}` })
  return directory
})

// A session that's known is what it was, where nothing else is asked for.
const sessionRecord = (
  options: {
    readonly permissions: Option.Option<Bridge.Permissions>
    readonly instructions: Option.Option<string>
    readonly model: Option.Option<string>
    readonly effort: Option.Option<string>
  },
  known: SessionRecord | undefined,
  directory = known?.directory ?? "/"
): SessionRecord => {
  const optional = <K extends "instructions" | "model" | "effort">(key: K) => {
    const value = Option.getOrUndefined(options[key]) ?? known?.[key]
    return value === undefined ? {} : { [key]: value } as { [P in K]: string }
  }
  return {
    directory,
    permissions: Option.getOrUndefined(options.permissions) ?? known?.permissions ?? "ask",
    ...optional("instructions"),
    ...optional("model"),
    ...optional("effort")
  }
}
