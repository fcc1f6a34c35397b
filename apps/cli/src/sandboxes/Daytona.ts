/**
 * Daytona sandboxes that bridges run in: one each, kept until it's removed.
 */
import * as DaytonaSandbox from "@gangway/sandbox/DaytonaSandbox"
import type { SandboxError } from "@gangway/sandbox/Sandbox"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { UsageError } from "../Failure.ts"
import { Registry } from "../Registry.ts"
import { Screen } from "../Screen.ts"
import { isNotFound, type Kind, labelsOf } from "./Kind.ts"

/** Which Daytona, and whose, by the variables that its own programs read; `None` where there's no key. */
export const account = Effect.gen(function*() {
  const apiKey = yield* Effect.option(Config.Redacted("DAYTONA_API_KEY"))
  if (Option.isNone(apiKey) || Redacted.value(apiKey.value) === "") return Option.none<DaytonaSandbox.ClientOptions>()
  const variable = (name: string) =>
    Effect.map(Effect.option(Config.String(name)), Option.filter((text) => text !== ""))
  return Option.some<DaytonaSandbox.ClientOptions>({
    apiKey: apiKey.value,
    apiUrl: Option.getOrUndefined(yield* variable("DAYTONA_API_URL")),
    target: Option.getOrUndefined(yield* variable("DAYTONA_TARGET"))
  })
})

const needed = Effect.flatMap(
  account,
  Option.match({
    onNone: () => Effect.fail(new UsageError({ problem: "a Daytona sandbox takes its key in DAYTONA_API_KEY" })),
    onSome: Effect.succeed
  })
)

// The package is an optional one.
const explained = <A, E, R>(effect: Effect.Effect<A, E | SandboxError, R>) =>
  Effect.mapError(
    effect,
    (error) =>
      (error as SandboxError)._tag === "SandboxError" && (error as SandboxError).reason._tag === "Unsupported" &&
        (error as SandboxError).reason.problem.includes("@daytona/sdk isn't installed")
        ? new UsageError({
          problem: "a Daytona sandbox takes the package @daytona/sdk beside gangway: bun add @daytona/sdk@0.216.0"
        })
        : error
  )

const find: Kind["find"] = Effect.fnUntraced(function*({ bridge, record }) {
  const options = yield* needed
  const given = record.from?.sandbox
  if (given !== undefined) {
    return Option.some(yield* explained(DaytonaSandbox.attach({ ...options, sandbox: given })))
  }
  const claimed = yield* Registry.use(({ sandboxOf }) => sandboxOf(bridge))
  if (Option.isNone(claimed)) return Option.none()
  return yield* explained(DaytonaSandbox.attach({ ...options, sandbox: claimed.value })).pipe(
    Effect.asSome,
    Effect.catchIf(
      (error) => error._tag === "SandboxError" && isNotFound(error),
      () => Effect.succeedNone
    )
  )
})

export const daytona: Kind = {
  find,
  enter: Effect.fnUntraced(function*(wanted) {
    const { bridge, record } = wanted
    const found = yield* find(wanted)
    if (Option.isSome(found)) return found.value
    const options = yield* needed
    const registry = yield* Registry
    const gone = yield* registry.sandboxOf(bridge)
    const { note, noteLook } = yield* Screen
    const { image, snapshot } = record.from ?? {}
    const of = image ?? snapshot
    yield* note(noteLook.style.dim(`gangway: creating a Daytona sandbox${of === undefined ? "" : ` of ${of}`}\n`))
    const sandbox = yield* explained(DaytonaSandbox.make({
      ...options,
      ...(image !== undefined ? { from: { image } } : snapshot !== undefined ? { from: { snapshot } } : {}),
      labels: labelsOf(wanted),
      keep: true
    }))
    const claimed = yield* registry.claimSandbox(bridge, sandbox.id, gone)
    if (claimed === sandbox.id) return sandbox
    // Another one was quicker.
    yield* DaytonaSandbox.remove(sandbox.id, options)
    return yield* DaytonaSandbox.attach({ ...options, sandbox: claimed })
  }),
  // Where nobody is promised any place, the user's home is one that's kept.
  root: Effect.fnUntraced(function*(sandbox) {
    const { stdout } = yield* sandbox.run({
      command: ["sh", "-c", `if [ -n "$HOME" ] && [ "$HOME" != / ] && [ -w "$HOME" ]; then printf %s "$HOME"; fi`],
      timeout: "30 seconds"
    })
    return stdout === "" ? "/var/tmp/gangway" : `${stdout}/.gangway`
  }),
  // Others with the same organization have sandboxes of theirs, with the same label.
  list: Effect.gen(function*() {
    const options = yield* account
    if (Option.isNone(options)) return []
    const registry = yield* Registry
    const own = new Set<string>()
    for (const bridge of yield* registry.bridges) {
      const claimed = yield* registry.sandboxOf(bridge)
      if (Option.isSome(claimed)) own.add(claimed.value)
    }
    const sandboxes = yield* explained(DaytonaSandbox.list(options.value))
    return sandboxes.filter(({ id }) => own.has(id)).map(({ created, id, labels, name, state }) => ({
      id,
      name,
      words: ["Daytona", state],
      labels,
      created,
      state: state === "started" ? "running" : ["stopped", "archived"].includes(state) ? "stopped" : "other",
      attach: DaytonaSandbox.attach({ ...options.value, sandbox: id }),
      remove: DaytonaSandbox.remove(id, options.value)
    }))
  })
}
