/**
 * The driver of Claude Code: its CLI, found in the sandbox, spoken to in stream-json and its control protocol.
 *
 * Nothing of the agent's own is shipped. The CLI's protocol is undocumented and moves weekly, so the versions that this
 * driver takes are bounded, and one of them is what its tests run.
 *
 * **Details**
 *
 * The agent's process lives on between turns, and is started again, with the conversation it kept, where it's gone.
 * A turn lasts until all that its prompt led to is done, sub-agents in the background included. Between turns the agent
 * does nothing: what a background command tells it then waits in the conversation for the next prompt.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { Driver, DriverDefinition } from "@gangway/server/Driver"
import * as Config from "effect/Config"
import type * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import * as ChildProcess from "effect/unstable/process/ChildProcess"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import * as AgentProgram from "./internal/agentProgram.ts"
import { Options } from "./internal/claudeOptions.ts"
import { driver as name, failed } from "./internal/claudeProcess.ts"
import { wanted } from "./internal/claudeProgram.ts"
import * as Session from "./internal/claudeSession.ts"
import * as Transcript from "./internal/claudeTranscript.ts"

export {
  /**
   * The agent options of Claude Code. Without a key or token it uses what the user of the sandbox is logged in with.
   *
   * @category options
   * @since 0.1.0
   */
  Options
} from "./internal/claudeOptions.ts"

export {
  /**
   * The versions that the driver takes, as the last number of 2.1.x, and the one that its tests run.
   *
   * @category constants
   * @since 0.1.0
   */
  supportedVersions
} from "./internal/claudeProgram.ts"

/**
 * Claude Code as a bridge program's driver.
 *
 * @category drivers
 * @since 0.1.0
 */
export const ClaudeCode: DriverDefinition<
  typeof Options,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Crypto.Crypto
> = {
  name,
  options: Options,
  make: Effect.fnUntraced(function*(options) {
    const path = yield* Path.Path
    const context = yield* Effect.context<FileSystem.FileSystem | Path.Path | Crypto.Crypto>()
    const program = options.command ?? "claude"
    const version = yield* AgentProgram.versionOf(
      wanted,
      ChildProcess.make(program, ["--version"], { stdin: "ignore" })
    )
    const variable = (name: string) => Effect.option(Config.String(name))
    const inherited = {
      configDirectory: yield* variable("CLAUDE_CONFIG_DIR"),
      home: yield* variable("HOME"),
      temporaryDirectory: yield* variable("TMPDIR")
    }
    if (options.configDirectory !== undefined && !path.isAbsolute(options.configDirectory)) {
      return yield* failed("options", "the option 'configDirectory' must be an absolute path")
    }
    const home = Transcript.homeOf(path, options, inherited)
    return {
      name,
      version,
      capabilities,
      secrets: {
        ...(options.apiKey === undefined ? {} : { ANTHROPIC_API_KEY: options.apiKey }),
        ...(options.authToken === undefined ? {} : { ANTHROPIC_AUTH_TOKEN: options.authToken }),
        ...options.secretEnv
      },
      open: (session) => Effect.provideContext(Session.open({ program, options, home }, session), context),
      forget: ({ conversation, directory }) =>
        Effect.flatMap(
          home({}),
          (home) => Transcript.remove(home, { conversation: Transcript.idOf(conversation), directory })
        ).pipe(
          Effect.catchTag("PlatformError", (error) => Effect.fail(failed("unknown", error.message))),
          Effect.provideContext(context)
        )
    } satisfies Driver
  })
}

const capabilities: Bridge.Capabilities = {
  reasoning: true,
  toolParams: true,
  hostTools: true,
  approvals: true,
  questions: true,
  images: true,
  fileChanges: true,
  compaction: true,
  continuation: true,
  state: true,
  structuredOutput: true,
  mcpServers: true,
  effort: true,
  usage: true,
  steering: true
}
