/**
 * The driver of any agent that speaks the Agent Client Protocol on its standard input and output.
 *
 * **Details**
 *
 * The protocol leaves much open, and agents differ in it: whether they ask before they act, what they say of their
 * tools, whether they tell what they used, what they keep. What is known of an agent is in its profile; any other
 * command is driven by the protocol alone, and gets files and terminals from the sandbox if it asks for them.
 *
 * The agent's process lives on between turns, and is started again, with the conversation it kept, where it's gone.
 * The agent is only ever told that the call it asks about is allowed: what was allowed for good is remembered by the
 * bridge. A host's reason for a denial reaches nobody, because the protocol has no place for it.
 *
 * @since 0.1.0
 */
import { type Driver, type DriverDefinition, noCapabilities } from "@gangway/server/Driver"
import type * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import type * as FileSystem from "effect/FileSystem"
import * as Path from "effect/Path"
import type { ChildProcessSpawner } from "effect/unstable/process/ChildProcessSpawner"
import { driver as name, failed } from "./internal/acpConnection.ts"
import * as Conversation from "./internal/acpConversation.ts"
import * as Inspect from "./internal/acpInspect.ts"
import type { Agent } from "./internal/acpLaunch.ts"
import { Options } from "./internal/acpOptions.ts"
import { type Profile, profiles } from "./internal/acpProfiles.ts"
import * as Session from "./internal/acpSession.ts"
import type { LoopbackServer } from "./LoopbackServer.ts"

export {
  /**
   * The agent options of the ACP driver.
   *
   * @category options
   * @since 0.1.0
   */
  Options
} from "./internal/acpOptions.ts"

export {
  /**
   * The names of the agents that the driver knows.
   *
   * @category constants
   * @since 0.1.0
   */
  profileNames
} from "./internal/acpProfiles.ts"

/**
 * Agents of the Agent Client Protocol as a bridge program's driver.
 *
 * @category drivers
 * @since 0.1.0
 */
export const Acp: DriverDefinition<
  typeof Options,
  FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Crypto.Crypto | LoopbackServer
> = {
  name,
  options: Options,
  make: Effect.fnUntraced(function*(options) {
    const path = yield* Path.Path
    const context = yield* Effect.context<
      FileSystem.FileSystem | Path.Path | ChildProcessSpawner | Crypto.Crypto | LoopbackServer
    >()
    const profile: Profile | undefined = options.profile === undefined ? undefined : profiles[options.profile]
    const command = options.command ?? profile?.command
    if (command === undefined) {
      return yield* failed("options", "one of the options 'profile' and 'command' is needed")
    }
    if (options.home !== undefined && !path.isAbsolute(options.home)) {
      return yield* failed("options", "the option 'home' must be an absolute path")
    }
    const agent: Agent = { options, profile, command, title: profile?.title ?? command[0] }
    const { capabilities, version } = profile === undefined
      ? yield* Inspect.ask(agent)
      : {
        version: yield* Inspect.versionOf(agent, profile),
        capabilities: { ...noCapabilities, ...profile.capabilities }
      }
    const forget = profile?.forget
    return {
      name,
      version,
      capabilities,
      ...(options.secretEnv === undefined ? {} : { secrets: options.secretEnv }),
      open: (session) =>
        Effect.provideContext(Session.open({ ...agent, continues: capabilities.continuation }, session), context),
      ...(forget === undefined ? {} : {
        forget: ({ conversation, directory }: { readonly conversation: string; readonly directory: string }) =>
          Effect.provideContext(
            Inspect.run(agent, forget(Conversation.fromString(conversation).id), directory),
            context
          )
      })
    } satisfies Driver
  })
}
