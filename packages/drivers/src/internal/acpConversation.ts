/**
 * How the bridge knows a conversation: the agent's id of it, whose directory it is, and where its latest turn begins.
 *
 * The agent knows nothing of turns. Before a turn's prompt is sent, its place in the conversation is stored, so that a
 * bridge which has nothing else can tell whether the agent got it.
 */
import * as Hash from "effect/Hash"

/** Where a turn begins. */
export interface Place {
  /** The turn's id. */
  readonly id: string
  /** How many messages of the user's the conversation held before. */
  readonly before: number
  /** The fingerprint of the prompt's first text. */
  readonly text: number
}

export interface Conversation {
  /** The agent's id. */
  readonly id: string
  /** The fingerprint of its working directory. */
  readonly directory: number
  readonly turn: Place | undefined
}

/** Tells texts apart, though not for certain. */
export const fingerprint = (text: string): number => Hash.string(text)

export const toString = ({ directory, id, turn }: Conversation): string =>
  [encodeURIComponent(id), directory, ...(turn === undefined ? [] : [turn.id, turn.before, turn.text])].join(" ")

export const fromString = (conversation: string): Conversation => {
  const [id = "", directory, turn, before, text] = conversation.split(" ")
  return {
    id: decodeURIComponent(id),
    directory: Number(directory),
    turn: turn === undefined ? undefined : { id: turn, before: Number(before), text: Number(text) }
  }
}
