/**
 * What a turn's agent asked of its hosts, and what they answered: host tool calls, approval requests, questions. The
 * first answer wins, and it's in the log before the agent hears it.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import { mayComeFrom } from "../Redaction.ts"
import { canonicalJson } from "./digest.ts"

export type Answer =
  | typeof Bridge.ToolResult.Type
  | typeof Bridge.ToolApprovalResponse.Type
  | typeof Bridge.QuestionAnswer.Type

export type AskedKind = "tool" | "approval" | "question"

interface Asked {
  readonly kind: AskedKind
  readonly id: string
  readonly name: string
  /** Equal where an attempt asks the same as an earlier one. */
  readonly key: string
  readonly heard: Deferred.Deferred<Answer>
  /** The answer as it's in the log. */
  logged: Answer | undefined
  /** The same as it was given, with its secrets; absent where only the log tells of it. */
  given: Answer | undefined
  /** Whether the attempt that asked it has ended. */
  earlier: boolean
  /** Whether a later attempt asked it again. */
  replaced: boolean
}

export interface Answers {
  /** Takes note of the turn's next part, which is in the log or about to be. */
  readonly observe: (part: Bridge.Part) => void
  /** The request that an earlier attempt left unanswered and that this one asks again. */
  readonly replaces: (kind: AskedKind, key: string) => string | undefined
  /** What is or was asked; not what an earlier attempt asked and its end closed. */
  readonly get: (
    kind: AskedKind,
    id: string
  ) => { readonly name: string; readonly logged: Answer | undefined } | undefined
  /** What the attempt asked and nobody answered yet, in order, no more than `most`. */
  readonly waiting: (most: number) => ReadonlyArray<Bridge.Waiting>
  /** What `allow-always` does besides: before the answer is accepted, or now, where the answer came early. */
  readonly onAllowAlways: (approvalId: string, effect: Effect.Effect<void>) => Effect.Effect<void>
  /** Logs the answer and lets the agent hear it; the first one wins. The request must be known. */
  readonly answer: (
    kind: AskedKind,
    id: string,
    answer: Answer
  ) => Effect.Effect<void, Bridge.AlreadyAnswered | Bridge.LogUnavailable>
  readonly hear: (kind: AskedKind, id: string) => Effect.Effect<Answer>
}

/** What a request is about, so that the same request of a later attempt is recognised. */
export const askedKey = (name: string, params: unknown): string => `${name} ${canonicalJson(params)}`

const isClosed = (entry: Asked) => entry.earlier && entry.logged === undefined

const isAllowAlways = (answer: Answer) => answer.type === "tool-approval-response" && answer.decision === "allow-always"

// What makes two answers equal.
const content = (answer: Answer): ReadonlyArray<Schema.Json> => {
  switch (answer.type) {
    case "tool-result":
      return [answer.result, answer.isFailure]
    case "tool-approval-response":
      return [answer.decision, answer.reason ?? null]
    case "question-answer":
      return [answer.answer, answer.isFailure]
  }
}

const isSame = ({ given, logged }: Asked, answer: Answer): boolean =>
  given === undefined
    ? mayComeFrom(content(logged!), content(answer))
    : canonicalJson(content(given)) === canonicalJson(content(answer))

/** Makes the table of a turn. `append` logs a part, synced; `redact` replaces secrets in it. */
export const make = (options: {
  readonly append: (part: Bridge.Part) => Effect.Effect<unknown, Bridge.LogUnavailable>
  readonly redact: (answer: Answer) => Answer
}): Answers => {
  const asked = new Map<string, Asked>()
  const allowing = new Map<string, Effect.Effect<void>>()
  const oneAtATime = Semaphore.makeUnsafe(1)
  const slot = (kind: AskedKind, id: string) => `${kind} ${id}`

  const note = (kind: AskedKind, id: string, name: string, key: string, replaces?: string) => {
    if (replaces !== undefined) {
      const before = asked.get(slot(kind, replaces))
      if (before !== undefined) before.replaced = true
    }
    if (asked.has(slot(kind, id))) return
    asked.set(slot(kind, id), {
      kind,
      id,
      name,
      key,
      heard: Deferred.makeUnsafe(),
      logged: undefined,
      given: undefined,
      earlier: false,
      replaced: false
    })
  }

  const noteAnswer = (kind: AskedKind, id: string, answer: Answer) => {
    const entry = asked.get(slot(kind, id))
    if (entry === undefined || entry.logged !== undefined) return
    entry.logged = answer
    Deferred.doneUnsafe(entry.heard, Effect.succeed(answer))
  }

  return {
    observe: (part) => {
      if (!Bridge.isKnown(part)) return
      switch (part.type) {
        case "turn-continued":
          return asked.forEach((entry) => {
            entry.earlier = true
          })
        case "tool-call":
          if (part.providerExecuted === false) {
            note("tool", part.id, part.name, askedKey(part.name, part.params), part.replaces)
          }
          return
        case "tool-approval-request":
          return note(
            "approval",
            part.approvalId,
            part.name,
            askedKey(part.name, part.params),
            part.replaces
          )
        case "question":
          return note("question", part.questionId, "question", askedKey("", part.questions), part.replaces)
        case "tool-result":
          return noteAnswer("tool", part.id, part)
        case "tool-approval-response":
          return noteAnswer("approval", part.approvalId, part)
        case "question-answer":
          return noteAnswer("question", part.questionId, part)
      }
    },
    replaces: (kind, key) => {
      for (const entry of asked.values()) {
        if (isClosed(entry) && !entry.replaced && entry.kind === kind && entry.key === key) return entry.id
      }
      return undefined
    },
    get: (kind, id) => {
      const entry = asked.get(slot(kind, id))
      return entry === undefined || isClosed(entry) ? undefined : entry
    },
    waiting: (most) => {
      const out: Array<Bridge.Waiting> = []
      for (const { earlier, id, kind, logged, name } of asked.values()) {
        if (out.length === most) break
        if (logged !== undefined || earlier) continue
        out.push({ type: kind, id, ...(kind === "question" ? {} : { name: name.slice(0, 200) }) })
      }
      return out
    },
    onAllowAlways: (approvalId, effect) =>
      Effect.suspend(() => {
        allowing.set(approvalId, effect)
        const early = asked.get(slot("approval", approvalId))?.logged
        return early !== undefined && isAllowAlways(early) ? effect : Effect.void
      }),
    answer: Effect.fnUntraced(function*(kind, id, answer) {
      const entry = asked.get(slot(kind, id))!
      if (entry.logged !== undefined) {
        if (isSame(entry, answer)) return
        return yield* new Bridge.AlreadyAnswered({ answer: entry.logged as never })
      }
      const redacted = options.redact(answer)
      yield* options.append(redacted)
      entry.logged = redacted
      entry.given = answer
      if (isAllowAlways(answer)) yield* allowing.get(id) ?? Effect.void
      yield* Deferred.succeed(entry.heard, answer)
    }, (effect) => oneAtATime.withPermit(Effect.uninterruptible(effect))),
    hear: (kind, id) =>
      Effect.suspend(() => {
        const entry = asked.get(slot(kind, id))
        // Asked after the attempt's end: nobody was told of it.
        return entry === undefined ? Effect.never : Deferred.await(entry.heard)
      })
  }
}
