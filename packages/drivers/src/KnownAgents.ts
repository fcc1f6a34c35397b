/**
 * The agents that drivers are tested with, and how each is found and checked in a sandbox.
 *
 * @since 0.1.0
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { Driver } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { FoundAgent } from "./FoundAgent.ts"
import { profileNames, profiles } from "./internal/acpProfiles.ts"
import { installCommand } from "./internal/agentProgram.ts"
import { wanted as claude } from "./internal/claudeProgram.ts"
import { wanted as codex } from "./internal/codexProgram.ts"

/**
 * An agent that a driver knows.
 *
 * @category models
 * @since 0.1.0
 */
export type KnownAgent = Pick<FoundAgent, "agent" | "title" | "agentOptions" | "versions" | "install">

/**
 * The agents that drivers know, by their names' order. Any other that speaks the Agent Client Protocol can be driven by
 * its command, but not looked for.
 *
 * @category constants
 * @since 0.1.0
 */
export const knownAgents: ReadonlyArray<KnownAgent> = [
  ...[claude, codex].map((wanted) => ({
    agent: wanted.driver,
    title: wanted.title,
    agentOptions: { agent: wanted.driver },
    versions: wanted.versions.words,
    install: installCommand(wanted)
  })),
  ...profileNames.map((profile) => ({
    agent: profile,
    title: profiles[profile].title,
    agentOptions: { agent: "acp", profile },
    versions: profiles[profile].versions.words,
    install: installCommand(profiles[profile])
  }))
].toSorted((one, other) => one.agent < other.agent ? -1 : 1)

/**
 * How long one agent may take to say what it is. They are asked side by side, and Node starts some of them in seconds.
 *
 * @category constants
 * @since 0.1.0
 */
export const patience = "20 seconds"

/**
 * Looks for the known agents, all at once, as a bridge would that's launched for them: `make` makes the driver that agent
 * options ask for.
 *
 * @category constructors
 * @since 0.1.0
 */
export const find = <E extends { readonly message: string }, R>(
  make: (options: Bridge.AgentOptions) => Effect.Effect<Driver, Bridge.DriverError | E, R>
): Effect.Effect<ReadonlyArray<FoundAgent>, never, R> =>
  Effect.forEach(knownAgents, (known) =>
    make(known.agentOptions).pipe(
      Effect.match({
        onSuccess: ({ capabilities, version }): FoundAgent => ({ ...known, status: "ready", version, capabilities }),
        onFailure: (error): FoundAgent => ({ ...known, ...problemOf(error) })
      }),
      answersInTime({ ...known, status: "failed", problem: `it didn't say its version within ${patience}` })
    ), { concurrency: "unbounded" })

const answersInTime = (otherwise: FoundAgent) => <R>(looking: Effect.Effect<FoundAgent, never, R>) =>
  Effect.gen(function*() {
    // Detached, since a program that doesn't end when it's told to would be waited for.
    const fiber = yield* Effect.forkDetach(looking)
    return yield* Fiber.join(fiber).pipe(
      Effect.onInterrupt(() => Effect.sync(() => fiber.interruptUnsafe())),
      Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.succeed(otherwise) })
    )
  })

const statuses: Partial<Record<Bridge.DriverError["kind"], "missing" | "wrong-version">> = {
  "not-installed": "missing",
  "wrong-version": "wrong-version"
}

const problemOf = (error: Bridge.DriverError | { readonly message: string }) =>
  "kind" in error
    ? { status: statuses[error.kind] ?? "failed" as const, problem: error.problem }
    : { status: "failed" as const, problem: error.message }
