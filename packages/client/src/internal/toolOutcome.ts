/**
 * What the agent is told of a tool's run.
 */
import * as Inspectable from "effect/Inspectable"
import type * as Schema from "effect/Schema"
import type { Outcome } from "../HostTools.ts"

export const failed = (problem: string): Outcome => ({ result: `The tool failed: ${problem}.`, isFailure: true })

/** What a tool failed with, without its stack: that's nothing for an agent. */
export const describe = (error: unknown): string =>
  error instanceof Error ? error.message : Inspectable.toStringUnknown(error)

/** Results may hold what JSON hasn't, such as `undefined`. */
export const toJson = (value: unknown): Schema.Json => JSON.parse(JSON.stringify(value) ?? "null")
