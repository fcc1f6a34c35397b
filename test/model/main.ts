/**
 * The scripted model as a process: prints its address as one line, and serves until it's ended. `GET /requests`
 * answers what it has recorded.
 */
import * as BunRuntime from "@effect/platform-bun/BunRuntime"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as ModelServer from "./ModelServer.ts"

ModelServer.start.pipe(
  Effect.flatMap((server) => Console.log(server.url)),
  Effect.andThen(Effect.never),
  Effect.scoped,
  BunRuntime.runMain
)
