/**
 * A bridge's container: which one is meant, by the command line and by what's known already.
 */
import { Bridge } from "@gangway/protocol"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Path from "effect/Path"
import { type Agent, bridgeOf } from "./AgentOptions.ts"
import { UsageError } from "./Failure.ts"
import { type Container, Registry } from "./Registry.ts"

/** The bridge that's meant, with the container that it runs in; without one it runs on this machine. */
export const choose = Effect.fnUntraced(function*(options: {
  readonly agent: Agent
  readonly bridge: Option.Option<Bridge.BridgeId>
  readonly sandbox: "local" | "docker"
  readonly image: Option.Option<string>
  readonly directory: Option.Option<string>
}) {
  const { agent, image, sandbox } = options
  if (sandbox === "local" && Option.isSome(image)) {
    return yield* new UsageError({ problem: "an --image takes --sandbox docker" })
  }
  if (sandbox === "docker" && Option.isNone(image)) {
    return yield* new UsageError({ problem: "--sandbox docker takes an --image that has the agent" })
  }
  const path = yield* Path.Path
  const given = Option.getOrUndefined(
    Option.map(image, (image) => ({ image, directory: path.resolve(Option.getOrElse(options.directory, () => ".")) }))
  )
  const bridge = Option.isSome(options.bridge)
    ? options.bridge.value
    : given === undefined
    ? bridgeOf(agent)
    : Bridge.BridgeId.make(
      `${bridgeOf(agent).slice(0, 50)}-${yield* shortSum(`${given.image}\n${given.directory}`)}`
    )
  const known = Option.getOrUndefined(yield* Registry.use((registry) => registry.bridge(bridge)))
  if (known === undefined) return { bridge, container: given }
  const { container } = known
  if (given !== undefined && (container?.image !== given.image || container.directory !== given.directory)) {
    return yield* new UsageError({
      problem: `bridge ${bridge} runs ${
        container === undefined ? "on this machine" : `in a container of ${container.image} with ${container.directory}`
      }: name another one with --bridge`
    })
  }
  return { bridge, container }
})

/** Only what is in its container is there for a bridge. */
export const checkDirectory = Effect.fnUntraced(function*(
  bridge: Bridge.BridgeId,
  container: Container | undefined,
  directory: string
) {
  const path = yield* Path.Path
  if (container === undefined) return
  const inside = path.relative(container.directory, directory)
  if (inside !== ".." && !inside.startsWith(`..${path.sep}`)) return
  return yield* new UsageError({
    problem: `bridge ${bridge} has ${container.directory} in its container, and not ${directory}`
  })
})

/** Tells apart what has no short name. */
export const shortSum = (text: string) =>
  Effect.map(
    Effect.orDie(Crypto.Crypto.use((crypto) => crypto.digest("SHA-256", new TextEncoder().encode(text)))),
    (sum) => Encoding.encodeHex(sum).slice(0, 8)
  )
