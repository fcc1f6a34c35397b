/**
 * A turn's prompt as content blocks.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import type { TurnFailed } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import { textOf, unfit } from "./prompts.ts"

/** What the agent can be given besides text. */
export interface Accepted {
  readonly images: boolean
  readonly resources: boolean
}

/** The blocks; `instructions` stand before all else, where they are given. */
export const content = Effect.fnUntraced(function*(
  prompt: ReadonlyArray<Bridge.PromptPart>,
  accepted: Accepted,
  instructions: string | undefined
): Effect.fn.Return<ReadonlyArray<Schema.JsonObject>, TurnFailed> {
  const blocks: Array<Schema.JsonObject> = []
  if (instructions !== undefined) {
    blocks.push({ type: "text", text: `<instructions>\n${instructions}\n</instructions>` })
  }
  for (const [index, part] of prompt.entries()) blocks.push(yield* blockOf(part, index, accepted))
  return blocks
})

const blockOf = (
  part: Bridge.PromptPart,
  index: number,
  accepted: Accepted
): Effect.Effect<Schema.JsonObject, TurnFailed> => {
  if (part.type === "text") return Effect.succeed({ type: "text", text: part.text })
  const { data, fileName = `file-${index + 1}`, mediaType } = part
  if (mediaType.startsWith("image/") && accepted.images) {
    return Effect.succeed({ type: "image", mimeType: mediaType, data })
  }
  const text = textOf(part)
  if (text === undefined) return Effect.fail(unfit("The agent", part))
  return Effect.succeed(
    accepted.resources
      ? {
        type: "resource",
        resource: { uri: `file:///${encodeURIComponent(fileName)}`, mimeType: mediaType, text }
      }
      : { type: "text", text: `${fileName}:\n${text}` }
  )
}
