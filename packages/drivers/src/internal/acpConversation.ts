/**
 * How the bridge knows a conversation: the agent's id of it, and where its latest turn begins.
 *
 * The agent knows nothing of turns. Before a turn's prompt is sent, its place in the conversation is stored, so that a
 * bridge which has nothing else can tell whether the agent got it.
 */
import * as Hash from "effect/Hash"

/** Where a turn begins. */
export interface Place {
  readonly turn: string
  /** How many messages of the user's the conversation held before. */
  readonly before: number
  /** A fingerprint of the prompt's first text. */
  readonly text: number
}

export interface Conversation {
  readonly id: string
  readonly place: Place | undefined
}

export const fingerprint = (text: string): number => Hash.string(text)

export const toString = ({ id, place }: Conversation): string =>
  [encodeURIComponent(id), ...(place === undefined ? [] : [place.turn, place.before, place.text])].join(" ")

export const fromString = (conversation: string): Conversation => {
  const [id = "", turn, before, text] = conversation.split(" ")
  return {
    id: decodeURIComponent(id),
    place: turn === undefined ? undefined : { turn, before: Number(before), text: Number(text) }
  }
}
