/**
 * The driver of Codex: its app-server, found in the sandbox, spoken to in JSON-RPC on standard input and output.
 *
 * The app-server's protocol is marked experimental, so the versions that this driver takes are bounded, and one of them
 * is what its tests run.
 *
 * **Details**
 *
 * The app-server lives on between turns, and is started again, with the conversation it kept, where it's gone. Codex
 * asks the host before every command and every change of files, unless the session's permissions are `all`; its own
 * sandbox is not used. What is in its home counts for every session: `config.toml`, its login, and `AGENTS.md`.
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
import { Options } from "./internal/codexOptions.ts"
import { driver as name, failed } from "./internal/codexProcess.ts"
import { wanted } from "./internal/codexProgram.ts"
import * as Rollout from "./internal/codexRollout.ts"
import * as Session from "./internal/codexSession.ts"

export {
  /**
   * The agent options of Codex. Without a key or another provider it uses what the user of the sandbox is logged in
   * with.
   *
   * @category options
   * @since 0.1.0
   */
  Options
} from "./internal/codexOptions.ts"

export {
  /**
   * The versions that the driver takes, as the last number of 0.171.x, and the one that its tests run.
   *
   * @category constants
   * @since 0.1.0
   */
  supportedVersions
} from "./internal/codexProgram.ts"

/**
 * Codex as a bridge program's driver.
 *
 * @category drivers
 * @since 0.1.0
 */
export const Codex: DriverDefinition<
  typeof Options,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Crypto.Crypto
> = {
  name,
  options: Options,
  make: Effect.fnUntraced(function*(options) {
    const path = yield* Path.Path
    const context = yield* Effect.context<FileSystem.FileSystem | Path.Path | Crypto.Crypto>()
    const program = options.command ?? "codex"
    const version = yield* AgentProgram.versionOf(
      wanted,
      ChildProcess.make(program, ["--version"], { stdin: "ignore" })
    )
    const variable = (name: string) => Effect.option(Config.String(name))
    if (options.home !== undefined && !path.isAbsolute(options.home)) {
      return yield* failed("options", "the option 'home' must be an absolute path")
    }
    const home = Rollout.homeOf(path, options, {
      codexHome: yield* variable("CODEX_HOME"),
      home: yield* variable("HOME")
    })
    return {
      name,
      version,
      capabilities,
      secrets: {
        ...(options.apiKey === undefined ? {} : { OPENAI_API_KEY: options.apiKey }),
        ...options.secretEnv
      },
      open: (session) => Effect.provideContext(Session.open({ program, options, home }, session), context),
      forget: ({ conversation }) =>
        Effect.flatMap(home({}), (home) => Rollout.remove(home, Rollout.toName(conversation))).pipe(
          Effect.catchTag("PlatformError", (error) => Effect.fail(failed("unknown", error.message))),
          Effect.provideContext(context)
        )
    } satisfies Driver
  })
}

const capabilities: Bridge.Capabilities = {
  reasoning: true,
  toolParams: false,
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
