/**
 * A turn's prompt in the form that Codex takes.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { TurnFailed } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Result from "effect/Result"
import type { UserInput } from "./codexMessages.ts"

/** What is said in place of the prompt where the conversation holds it already. */
export const nudge =
  "The session was interrupted and has been resumed. Carry on with the task from where it stopped. " +
  "If a tool call was open then, its outcome is unknown: look whether it took effect before you repeat it."

/**
 * The id of the message that brings a turn's prompt, or its nudge, in one of its attempts. The conversation's file
 * keeps it, so it tells which turn is meant.
 */
export const messageId = (thread: string, turn: Bridge.TurnId, attempt: number): string =>
  `${thread}:${turn}:${attempt}`

const imageTypes = new Set(["image/gif", "image/jpeg", "image/png", "image/webp"])

export const text = (text: string): UserInput => ({ type: "text", text, text_elements: [] })

/** The inputs that a prompt is. */
export const inputs = (prompt: ReadonlyArray<Bridge.PromptPart>): Effect.Effect<Array<UserInput>, TurnFailed> =>
  Effect.forEach(prompt, inputOf)

// There are no documents but images: a file of text becomes text that names it.
const inputOf = (part: Bridge.PromptPart): Effect.Effect<UserInput, TurnFailed> => {
  if (part.type === "text") return Effect.succeed(text(part.text))
  const { data, fileName = "a file", mediaType } = part
  if (imageTypes.has(mediaType)) return Effect.succeed({ type: "image", url: `data:${mediaType};base64,${data}` })
  if (mediaType.startsWith("text/") || mediaType === "application/json") {
    const content = Encoding.decodeBase64String(data)
    if (Result.isSuccess(content)) return Effect.succeed(text(`The content of ${fileName}:\n\n${content.success}`))
  }
  return Effect.fail(
    new TurnFailed({ kind: "invalid-request", message: `Codex can't be given a file of the type ${mediaType}.` })
  )
}
