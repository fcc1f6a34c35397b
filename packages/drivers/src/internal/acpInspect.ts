/**
 * What an agent says of itself before any session: its version, and what it can do.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { noCapabilities } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import { driver, failed } from "./acpConnection.ts"
import { type Agent, environment, initialize, variableOf } from "./acpLaunch.ts"
import { Initialized } from "./acpMessages.ts"
import type { Profile } from "./acpProfiles.ts"
import * as AgentProgram from "./agentProgram.ts"

/** How long a program may take to say what it is: some that Node runs need seconds on a busy machine. */
const patience = "60 seconds"

// Its command without the arguments that make it an agent of the protocol.
const plain = ({ command: [program, ...given], profile }: Agent): readonly [string, ReadonlyArray<string>] => {
  const [, ...known] = profile?.command ?? ["" as string]
  const isKnown = known.every((arg, at) => given[given.length - known.length + at] === arg)
  return [program, isKnown ? given.slice(0, given.length - known.length) : given]
}

const processOptions = ({ options }: Agent, directory?: string): ChildProcess.CommandOptions => {
  const given = environment(options, { env: {} })
  const variable = variableOf(given)
  return {
    stdin: "ignore",
    forceKillAfter: "1 second",
    extendEnv: true,
    env: Object.fromEntries(Object.keys(given).map((name) => [name, variable(name)])),
    ...(directory === undefined ? {} : { cwd: directory })
  }
}

const notStarted = (agent: Agent) => (error: { readonly reason: { readonly _tag: string } } & Error) =>
  error.reason._tag === "NotFound"
    ? failed("not-installed", `there is no ${agent.title} at '${agent.command[0]}'`)
    : failed("start", `'${agent.command[0]}' can't be run: ${error.message}`)

/** The version of a known agent, which must be one that fits. */
export const versionOf = (
  agent: Agent,
  { install, title, versions }: Profile
): Effect.Effect<string, Bridge.DriverError, ChildProcessSpawner> => {
  const [program, args] = plain(agent)
  return AgentProgram.versionOf({
    driver,
    title,
    install,
    versions: { fits: (version) => versions.pattern.test(version), words: versions.words },
    read: (printed) => /\d+\.\d+\.\d+\S*/.exec(printed)?.[0],
    patience
  }, ChildProcess.make(program, [...args, "--version"], processOptions(agent)))
}

/** Runs the agent's program for something other than a session. What it fails at is taken for done already. */
export const run = Effect.fnUntraced(function*(
  agent: Agent,
  args: ReadonlyArray<string>,
  directory: string
): Effect.fn.Return<void, Bridge.DriverError, ChildProcessSpawner> {
  const spawner = yield* ChildProcessSpawner
  const [program, before] = plain(agent)
  yield* spawner.exitCode(ChildProcess.make(program, [...before, ...args], {
    ...processOptions(agent, directory),
    stdout: "ignore",
    stderr: "ignore"
  })).pipe(
    Effect.catchTag("PlatformError", (error) => Effect.fail(notStarted(agent)(error)))
  )
})

const Answer = Schema.fromJsonString(Schema.Struct({ id: Schema.Literal(0), result: Initialized }))
const decodeAnswer = Schema.decodeUnknownOption(Answer)

/** Starts an unknown agent once, to ask what it can do. */
export const ask = Effect.fnUntraced(function*(agent: Agent): Effect.fn.Return<
  { readonly version: string; readonly capabilities: Bridge.Capabilities },
  Bridge.DriverError,
  ChildProcessSpawner
> {
  const spawner = yield* ChildProcessSpawner
  const [program, ...args] = agent.command
  const message = `${JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params: initialize(undefined) })}\n`
  const answer = yield* Effect.gen(function*() {
    const process = yield* spawner.spawn(ChildProcess.make(program, args, {
      ...processOptions(agent),
      stdin: { stream: Stream.concat(Stream.make(new TextEncoder().encode(message)), Stream.never), endOnDone: false },
      stderr: "ignore"
    }))
    return yield* process.stdout.pipe(
      Stream.decodeText(),
      Stream.splitLines,
      Stream.map((line) => Option.getOrUndefined(decodeAnswer(line))),
      Stream.filter((answer) => answer !== undefined),
      Stream.runHead
    )
  }).pipe(
    Effect.scoped,
    Effect.timeoutOption(patience),
    Effect.map(Option.flatten),
    Effect.catchTag("PlatformError", (error) => Effect.fail(notStarted(agent)(error)))
  )
  if (Option.isNone(answer)) {
    return yield* failed("protocol", `'${agent.command.join(" ")}' doesn't speak the Agent Client Protocol`)
  }
  const { agentCapabilities, agentInfo } = answer.value.result
  return {
    version: [agentInfo?.name, agentInfo?.version].filter((part) => typeof part === "string").join(" ") || "unknown",
    capabilities: {
      ...noCapabilities,
      reasoning: true,
      approvals: true,
      fileChanges: true,
      mcpServers: true,
      hostTools: agentCapabilities?.mcpCapabilities?.http === true,
      images: agentCapabilities?.promptCapabilities?.image === true,
      continuation: agentCapabilities?.loadSession === true
    }
  }
})
