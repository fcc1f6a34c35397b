/**
 * A turn's prompt in the form that Codex takes.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { TurnFailed } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import type { UserInput } from "./codexMessages.ts"
import { imageTypes, textOf, unfit } from "./prompts.ts"

/**
 * The id of the message that brings a turn's prompt, or its nudge, in one of its attempts, or what a host sent into the
 * turn. The conversation's file keeps it, so it tells what is meant.
 */
export const messageId = (thread: string, turn: Bridge.TurnId, of: number | Bridge.MessageId): string =>
  `${thread}:${turn}:${typeof of === "number" ? of : `message:${of}`}`

export const text = (text: string): UserInput => ({ type: "text", text, text_elements: [] })

/** The inputs that a prompt is. */
export const inputs = (prompt: ReadonlyArray<Bridge.PromptPart>): Effect.Effect<Array<UserInput>, TurnFailed> =>
  Effect.forEach(prompt, inputOf)

// There are no documents but images: a file of text becomes text that names it.
const inputOf = (part: Bridge.PromptPart): Effect.Effect<UserInput, TurnFailed> => {
  if (part.type === "text") return Effect.succeed(text(part.text))
  const { data, fileName = "a file", mediaType } = part
  if (imageTypes.has(mediaType)) return Effect.succeed({ type: "image", url: `data:${mediaType};base64,${data}` })
  const content = textOf(part)
  return content === undefined
    ? Effect.fail(unfit("Codex", part))
    : Effect.succeed(text(`The content of ${fileName}:\n\n${content}`))
}
