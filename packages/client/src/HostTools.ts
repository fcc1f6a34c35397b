/**
 * The tools that a host runs for an agent.
 *
 * @since 0.1.0
 */
import type { HostTool } from "@gangway/protocol/Bridge"
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Tool from "effect/unstable/ai/Tool"
import type * as Toolkit from "effect/unstable/ai/Toolkit"
import { describe, failed, toJson } from "./internal/toolOutcome.ts"

/**
 * A call of a host tool.
 *
 * @category models
 * @since 0.1.0
 */
export interface Call {
  readonly id: string
  readonly name: string
  readonly params: Schema.Json
}

/**
 * What came of a call.
 *
 * @category models
 * @since 0.1.0
 */
export interface Outcome {
  readonly result: Schema.Json
  readonly isFailure: boolean
}

/**
 * Tools, and what runs them. A call has one outcome, but may be run more than once: by each host that started its turn,
 * and again after a host died before it answered.
 *
 * @category models
 * @since 0.1.0
 */
export interface HostTools {
  readonly tools: ReadonlyArray<HostTool>
  readonly handle: (call: Call) => Effect.Effect<Outcome>
}

/**
 * Takes the tools and handlers of a `Toolkit`. A handler that fails or dies is a failed outcome, which the agent is
 * told; preliminary results are not sent.
 *
 * **Example** (A tool of the host)
 *
 * ```ts
 * import { HostTools } from "@gangway/client"
 * import { Effect, Schema } from "effect"
 * import { Tool, Toolkit } from "effect/unstable/ai"
 *
 * const Lookup = Tool.make("lookup", {
 *   description: "Looks up an issue",
 *   parameters: Schema.Struct({ issue: Schema.Int }),
 *   success: Schema.String
 * })
 * const tools = Toolkit.make(Lookup)
 *
 * const hostTools = HostTools.fromToolkit(tools).pipe(
 *   Effect.provide(tools.toLayer({ lookup: ({ issue }) => Effect.succeed(`Issue ${issue} is open.`) }))
 * )
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const fromToolkit = <Tools extends Record<string, Tool.Any>, E, R>(
  toolkit: Effect.Effect<Toolkit.WithHandler<Tools>, E, R>
): Effect.Effect<HostTools, E, R | Tool.HandlerServices<Tools[keyof Tools]>> =>
  Effect.gen(function*() {
    const { handle, tools } = yield* toolkit
    const context = yield* Effect.context<Tool.HandlerServices<Tools[keyof Tools]>>()
    return {
      tools: Object.values(tools).map((tool): HostTool => ({
        name: tool.name,
        description: Tool.getDescription(tool) ?? "",
        parameters: Tool.getJsonSchema(tool) as Schema.JsonObject
      })),
      handle: ({ id, name, params }) =>
        handle(name, params as never, id).pipe(
          Effect.flatMap((results) => Stream.runLast(Stream.filter(results, (result) => !result.preliminary))),
          Effect.map(Option.match({
            onNone: () => failed("it gave no result"),
            onSome: ({ encodedResult, isFailure }) => ({ result: toJson(encodedResult), isFailure })
          })),
          Effect.catchCause((cause) => failure(tools[name], cause)),
          Effect.provideContext(context as Context.Context<never>)
        ) as Effect.Effect<Outcome>
    }
  })

const failure = (tool: Tool.Any | undefined, cause: Cause.Cause<unknown>): Effect.Effect<Outcome> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
  const error = Cause.squash(cause)
  const message = Effect.succeed(failed(describe(error)))
  if (tool === undefined || Option.isNone(Cause.findErrorOption(cause))) return message
  // A failure that the tool declares is told as it declares it.
  const encode = Schema.encodeUnknownEffect(Tool.failureResultSchema(tool)) as (
    error: unknown
  ) => Effect.Effect<unknown, Schema.SchemaError>
  return encode(error).pipe(
    Effect.map((encoded): Outcome => ({ result: toJson(encoded), isFailure: true })),
    Effect.catch(() => message)
  )
}
