/**
 * What drivers make of a turn's prompt alike: what is said in its place, and its files.
 */
import type * as Bridge from "@gangway/protocol/Bridge"
import { TurnFailed } from "@gangway/server/Driver"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"

type File = Extract<Bridge.PromptPart, { readonly type: "file" }>

/** What is said in place of the prompt where the conversation holds it already. */
export const nudge =
  "The session was interrupted and has been resumed. Carry on with the task from where it stopped. " +
  "If a tool call was open then, its outcome is unknown: look whether it took effect before you repeat it."

/** The types of images that the models' APIs take. */
export const imageTypes: ReadonlySet<string> = new Set(["image/gif", "image/jpeg", "image/png", "image/webp"])

/** The content of a file of text or JSON; of others there's none. */
export const textOf = ({ data, mediaType }: File): string | undefined =>
  mediaType.startsWith("text/") || mediaType === "application/json"
    ? Option.getOrUndefined(Option.getSuccess(Encoding.decodeBase64String(data)))
    : undefined

/** The failure of a turn whose prompt holds a file that the agent has no place for. */
export const unfit = (agent: string, { mediaType }: File): TurnFailed =>
  new TurnFailed({ kind: "invalid-request", message: `${agent} can't be given a file of the type ${mediaType}.` })
