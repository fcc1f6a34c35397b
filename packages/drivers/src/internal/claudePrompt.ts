/**
 * A turn's prompt in the form that Claude Code takes.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { TurnFailed } from "@gangway/server/Driver"
import * as Crypto from "effect/Crypto"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import type * as Schema from "effect/Schema"
import { imageTypes, textOf, unfit } from "./prompts.ts"

/**
 * The id of the message that brings a turn's prompt, or its nudge, in one of its attempts, or what a host sent into the
 * turn. The transcript holds it, so it tells what is meant; the CLI takes a message of an id that it knows only once.
 */
export const messageId = Effect.fnUntraced(function*(
  conversation: string,
  turn: Bridge.TurnId,
  of: number | Bridge.MessageId
) {
  const crypto = yield* Crypto.Crypto
  const name = `${conversation} ${turn} ${typeof of === "number" ? of : `message ${of}`}`
  const digest = yield* crypto.digest("SHA-256", new TextEncoder().encode(name)).pipe(Effect.orDie)
  const bytes = digest.slice(0, 16)
  // A UUID of version 8: made by a rule of one's own.
  bytes[6] = (bytes[6]! & 0x0f) | 0x80
  bytes[8] = (bytes[8]! & 0x3f) | 0x80
  const hex = Encoding.encodeHex(bytes)
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-")
})

/**
 * The content of the message.
 *
 * **Details**
 *
 * A prompt is for the model: Claude Code would take a last text that begins with `/` and a command's name for that
 * command, so such a text gets a space in front.
 */
export const content = Effect.fnUntraced(function*(prompt: ReadonlyArray<Bridge.PromptPart>) {
  const blocks: Array<Schema.JsonObject> = []
  for (const part of prompt) blocks.push(yield* blockOf(part))
  const last = blocks.findLastIndex((block) => block["type"] === "text")
  const text = blocks[last]?.["text"]
  if (typeof text === "string" && text.startsWith("/")) blocks[last] = { type: "text", text: ` ${text}` }
  return blocks
})

const blockOf = (part: Bridge.PromptPart): Effect.Effect<Schema.JsonObject, TurnFailed> => {
  if (part.type === "text") return Effect.succeed({ type: "text", text: part.text })
  const { data, fileName, mediaType } = part
  const source = { type: "base64", media_type: mediaType, data }
  if (imageTypes.has(mediaType)) return Effect.succeed({ type: "image", source })
  const named = fileName === undefined ? {} : { title: fileName }
  if (mediaType === "application/pdf") return Effect.succeed({ type: "document", source, ...named })
  const text = textOf(part)
  return text === undefined
    ? Effect.fail(unfit("Claude Code", part))
    : Effect.succeed({ type: "document", source: { type: "text", media_type: "text/plain", data: text }, ...named })
}
