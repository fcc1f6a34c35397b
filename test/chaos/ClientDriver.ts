/**
 * A host with the client: it launches, answers, continues and reads as the library does it by itself.
 */
import * as BunServices from "@effect/platform-bun/BunServices"
import { Launcher, TokenStore, Turn } from "@gangway/client"
import { LocalSandbox } from "@gangway/sandbox"
import { Effect, Layer, Redacted, Stream } from "effect"
import { decision, questionAnswer, tools } from "./Answers.ts"
import type { Observed } from "./Observed.ts"
import * as W from "./World.ts"

/** What a launcher needs. */
export const layer = Layer.mergeAll(LocalSandbox.layer, TokenStore.layerToken(Redacted.make(W.token))).pipe(
  Layer.provideMerge(BunServices.layer)
)

/** Connects to the place's bridge, by a launcher of its own. */
export const connect = Effect.fnUntraced(function*(world: W.World, options: { readonly idleTimeout?: string } = {}) {
  const launcher = yield* Launcher.make({ command: [process.execPath, world.program], env: world.environment })
  return yield* launcher.connect({
    bridge: W.bridge,
    stateDirectory: world.state,
    agentOptions: { agent: "scripted", home: world.home },
    // Bridges die here as often as a story says.
    maxRelaunches: 1000,
    ...(world.port === undefined ? {} : { port: world.port }),
    ...(options.idleTimeout === undefined ? {} : { idleTimeout: options.idleTimeout as "1 minute" })
  })
})

/** Starts the session and the turn, with handlers of all that is asked. */
export const start = Effect.fnUntraced(function*(
  client: Effect.Success<ReturnType<typeof connect>>,
  world: W.World,
  prompt: string
) {
  const session = yield* client.startSession({
    session: W.session,
    directory: world.work,
    settings: "none",
    tools,
    onApproval: ({ approvalId }) => Effect.succeed(decision(approvalId)),
    onQuestion: ({ questionId }) => Effect.succeed(questionAnswer(questionId))
  })
  return yield* session.startTurn({ turn: W.turn, prompt, maxContinuations: 1000 })
})

/** Leads the turn to its end, and reads all of it twice. */
export const drive = Effect.fnUntraced(function*(options: {
  readonly world: W.World
  readonly observed: Observed
  readonly prompt: string
}) {
  const { observed, prompt, world } = options
  const handle = yield* start(yield* connect(world, { idleTimeout: "1 minute" }), world, prompt)
  const read = Effect.suspend(() => {
    const parts: Array<Turn.TurnPart> = []
    observed.streams.push(parts)
    return Stream.runForEachArray(handle.parts(), (chunk) =>
      Effect.sync(() => {
        parts.push(...chunk)
        observed.highest = Math.max(observed.highest, Turn.nextNumber(chunk[chunk.length - 1]!) - 1)
      }))
  })
  yield* read
  const end = yield* handle.end
  if (end.type !== "finished") return yield* Effect.die(new Error(`the turn ended as ${JSON.stringify(end)}`))
  yield* read
}, Effect.scoped)
