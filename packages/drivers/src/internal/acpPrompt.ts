/**
 * A turn's prompt as content blocks.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { TurnFailed } from "@gangway/server/Driver"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Result from "effect/Result"
import type * as Schema from "effect/Schema"

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
  if (mediaType.startsWith("text/") || mediaType === "application/json") {
    const text = Encoding.decodeBase64String(data)
    if (Result.isSuccess(text)) {
      return Effect.succeed(
        accepted.resources
          ? {
            type: "resource",
            resource: { uri: `file:///${encodeURIComponent(fileName)}`, mimeType: mediaType, text: text.success }
          }
          : { type: "text", text: `${fileName}:\n${text.success}` }
      )
    }
  }
  return Effect.fail(
    new TurnFailed({ kind: "invalid-request", message: `The agent can't be given a file of the type ${mediaType}.` })
  )
}
