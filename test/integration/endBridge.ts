/**
 * Ends a test's bridge before its directories are removed.
 */
import { Bridge } from "@gangway/protocol"
import { Effect, FileSystem, Schedule, Schema } from "effect"
import { isRunning } from "../../packages/drivers/test/fixtures/processes.ts"

const decode = Schema.decodeEffect(Schema.fromJsonString(Bridge.ListeningFile))

/** Ends the bridge of a state directory, if it has one, which writes there until it has ended. */
export const endBridge = (stateDirectory: string): Effect.Effect<void, never, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const fs = yield* FileSystem.FileSystem
    const { pid } = yield* Effect.flatMap(fs.readFileString(Bridge.listeningFile(stateDirectory)), decode)
    yield* Effect.try(() => process.kill(pid, "SIGTERM"))
    yield* Effect.repeat(Effect.sync(() => isRunning(pid)), {
      until: (running) => !running,
      schedule: Schedule.spaced("10 millis")
    })
  }).pipe(Effect.timeout("10 seconds"), Effect.ignore)
