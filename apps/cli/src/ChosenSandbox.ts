/**
 * A bridge's sandbox: which one is meant, by the command line and by what's known already.
 */
import { Bridge } from "@gangway/protocol"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import { type Agent, bridgeOf } from "./AgentOptions.ts"
import { UsageError } from "./Failure.ts"
import { Registry, type SandboxRecord } from "./Registry.ts"

/** The command line's words for it. */
export interface Given {
  readonly sandbox: "local" | SandboxRecord["kind"]
  readonly image: Option.Option<string>
  readonly snapshot: Option.Option<string>
  readonly sandboxId: Option.Option<string>
  readonly copy: boolean
  readonly directory: Option.Option<string>
}

/** The bridge that's meant, with the sandbox that it runs in; without one it runs on this machine. */
export const choose = Effect.fnUntraced(function*(
  options: Given & { readonly agent: Agent; readonly bridge: Option.Option<Bridge.BridgeId> }
) {
  const { agent } = options
  const given = yield* recordOf(options)
  const bridge = Option.isSome(options.bridge)
    ? options.bridge.value
    : given === undefined
    ? bridgeOf(agent)
    : Bridge.BridgeId.make(`${bridgeOf(agent).slice(0, 50)}-${yield* shortSum(sumOf(given))}`)
  const known = Option.getOrUndefined(yield* Registry.use((registry) => registry.bridge(bridge)))
  if (known === undefined) return { bridge, sandbox: given }
  const { sandbox } = known
  if (given !== undefined && (sandbox === undefined || sumOf(sandbox) !== sumOf(given))) {
    return yield* new UsageError({
      problem: `bridge ${bridge} runs ${
        sandbox === undefined ? "on this machine" : describe(sandbox)
      }: name another one with --bridge`
    })
  }
  return { bridge, sandbox }
})

const recordOf = Effect.fnUntraced(
  function*({ copy, directory, image, sandbox, sandboxId, snapshot }: Given) {
    const path = yield* Path.Path
    const usage = (problem: string) => new UsageError({ problem })
    const [from, ...others] = [
      ...Option.toArray(Option.map(image, (image) => ({ image }))),
      ...Option.toArray(Option.map(snapshot, (snapshot) => ({ snapshot }))),
      ...Option.toArray(Option.map(sandboxId, (sandbox) => ({ sandbox })))
    ]
    if (sandbox === "local") {
      if (from !== undefined || copy) {
        return yield* usage(
          `${
            Option.isSome(image)
              ? "an --image"
              : Option.isSome(snapshot)
              ? "a --snapshot"
              : copy
              ? "--copy"
              : "--sandbox-id"
          } takes --sandbox docker or daytona`
        )
      }
      return undefined
    }
    if (others.length > 0) return yield* usage("--image, --snapshot and --sandbox-id exclude each other")
    if (sandbox === "docker" && Option.isSome(snapshot)) return yield* usage("a --snapshot takes --sandbox daytona")
    if (sandbox === "docker" && from === undefined) {
      return yield* usage("--sandbox docker takes an --image that has the agent, or the --sandbox-id of a container")
    }
    const record: SandboxRecord = {
      kind: sandbox,
      ...(from === undefined ? {} : { from }),
      directory: path.resolve(Option.getOrElse(directory, () => ".")),
      // What was there before has no mount of it, and what's elsewhere can have none.
      copy: copy || sandbox === "daytona" || Option.isSome(sandboxId)
    }
    return record
  }
)

const sumOf = ({ copy, directory, from = {}, kind }: SandboxRecord) =>
  [kind, from.image ?? "", from.snapshot ?? "", from.sandbox ?? "", directory, copy].join("\n")

const describe = ({ copy, directory, from, kind }: SandboxRecord) => {
  const noun = kind === "docker" ? "container" : "Daytona sandbox"
  const of = from?.image ?? from?.snapshot
  const which = from?.sandbox === undefined
    ? `a ${noun}${of === undefined ? "" : ` of ${of}`}`
    : `${noun} ${from.sandbox}`
  return `in ${which} with ${copy ? "a copy of " : ""}${directory}`
}

/** Only what is in its sandbox is there for a bridge. */
export const checkDirectory = Effect.fnUntraced(function*(
  bridge: Bridge.BridgeId,
  sandbox: SandboxRecord | undefined,
  directory: string
) {
  const path = yield* Path.Path
  if (sandbox === undefined) return
  const inside = path.relative(sandbox.directory, directory)
  if (inside !== ".." && !inside.startsWith(`..${path.sep}`)) return
  return yield* new UsageError({
    problem: `bridge ${bridge} has ${sandbox.directory} in its ${
      sandbox.kind === "docker" ? "container" : "sandbox"
    }, and not ${directory}`
  })
})

/** Tells apart what has no short name. */
export const shortSum = (text: string) =>
  Effect.map(
    Effect.orDie(Crypto.Crypto.use((crypto) => crypto.digest("SHA-256", new TextEncoder().encode(text)))),
    (sum) => Encoding.encodeHex(sum).slice(0, 8)
  )
