/**
 * The file in which an agent keeps a conversation: JSON, a line for each thing that happened.
 */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

const parse = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.JsonObject))

/** The lines. A torn one, and one that a later line was fused with, is one that the agent doesn't read either. */
export const read = Effect.fnUntraced(function*(file: string) {
  const fs = yield* FileSystem.FileSystem
  const lines: Array<Schema.JsonObject> = []
  for (const text of (yield* fs.readFileString(file)).split("\n")) {
    const line = Option.getOrUndefined(parse(text))
    if (line !== undefined) lines.push(line)
  }
  return lines
})

/** Writes it whole or not at all: a bridge that dies here leaves no half conversation under the name. */
export const write = Effect.fnUntraced(function*(file: string, text: string) {
  const fs = yield* FileSystem.FileSystem
  yield* fs.writeFileString(`${file}.new`, text, { mode: 0o600 })
  yield* fs.rename(`${file}.new`, file)
})
