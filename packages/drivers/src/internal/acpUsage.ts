/**
 * What the agent's model calls used, as far as the agent says.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { TokenCounts } from "./acpMessages.ts"

/** Of what the figures at a prompt's end are: its last model call, or all of them. */
export type Told = "last-step" | "turn"

const known = (counts: TokenCounts | null | undefined): counts is TokenCounts =>
  Predicate.isNotNullish(counts) && Object.values(counts).some((count) => Predicate.isNumber(count) && count > 0)

/** Tokens as usage; `undefined` where nothing is told, or nothing but noughts. */
export const usageOf = (counts: TokenCounts | null | undefined): Bridge.Usage | undefined => {
  if (!known(counts)) return undefined
  const cacheRead = counts.cachedReadTokens ?? 0
  const cacheWrite = counts.cachedWriteTokens ?? 0
  const told = counts.inputTokens ?? 0
  // Some count what came from the cache as input, some beside it: the sum tells which.
  const isWhole = counts.totalTokens === told + (counts.outputTokens ?? 0) && told >= cacheRead + cacheWrite
  const input = isWhole ? told : told + cacheRead + cacheWrite
  const uncached = input - cacheRead - cacheWrite
  const output = Predicate.isNumber(counts.totalTokens) && counts.totalTokens >= input
    ? counts.totalTokens - input
    : (counts.outputTokens ?? 0) + (counts.thoughtTokens ?? 0)
  return {
    measured: true,
    inputTokens: { total: input, uncached, cacheRead, cacheWrite },
    outputTokens: {
      total: output,
      ...(Predicate.isNumber(counts.thoughtTokens) ? { reasoning: counts.thoughtTokens } : {})
    }
  }
}

const decodeCounts = Schema.decodeUnknownOption(TokenCounts)

/** The usage of a model call that a chunk of its answer carries. */
export const usageOfMeta = (meta: Readonly<Record<string, Schema.Json>> | null | undefined): Bridge.Usage | undefined =>
  Predicate.isNotNullish(meta) ? usageOf(Option.getOrUndefined(decodeCounts(meta["usage"]))) : undefined

const Quota = Schema.Struct({
  token_count: Schema.Struct({ input_tokens: Schema.Finite, output_tokens: Schema.Finite })
})
const decodeQuota = Schema.decodeUnknownOption(Quota)

/** The usage of a prompt that its answer carries beside the protocol's own place for it. */
export const usageOfQuota = (
  meta: Readonly<Record<string, Schema.Json>> | null | undefined
): Bridge.Usage | undefined => {
  const quota = Option.getOrUndefined(decodeQuota(meta?.["quota"]))
  if (quota === undefined) return undefined
  return {
    measured: true,
    inputTokens: { total: quota.token_count.input_tokens },
    outputTokens: { total: quota.token_count.output_tokens }
  }
}

const finishReasons: Readonly<Record<string, string>> = {
  end_turn: "stop",
  max_tokens: "length",
  max_turn_requests: "length",
  refusal: "content-filter"
}

/** The agent's word for why it stopped, as a finish reason. */
export const finishReason = (stopReason: string): string => finishReasons[stopReason] ?? "other"
