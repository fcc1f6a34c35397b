/**
 * What the scripted model plays, whatever API an agent speaks.
 *
 * A prompt holds a script between `@@` and `@@`: a JSON array of steps. Step `i` answers the model call that has `i`
 * turns of the assistant after that prompt, so the server keeps no state, and a resumed agent shows by the step it
 * asks for what it kept of the conversation. After the last step the model says `done`. Of a step that was cut between
 * its items the model says the rest, as a turn of its own.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

const call = {
  /** A shell command. */
  bash: Schema.optional(Schema.String),
  /** Writes a file: path and content. */
  write: Schema.optional(Schema.Tuple([Schema.String, Schema.String])),
  /** Edits a file: path, old text, new text. */
  edit: Schema.optional(Schema.Tuple([Schema.String, Schema.String, Schema.String])),
  /** Reads a file. */
  read: Schema.optional(Schema.String),
  /** Calls any tool: name and input. */
  tool: Schema.optional(Schema.Tuple([Schema.String, Schema.JsonObject]))
}

/** One answer of the model. */
export const Step = Schema.Struct({
  think: Schema.optional(Schema.String),
  text: Schema.optional(Schema.String),
  /** Says that many words, each a delta of its own. */
  words: Schema.optional(Schema.Int),
  /** Milliseconds before each delta. */
  delay: Schema.optional(Schema.Finite),
  ...call,
  /** Several tool calls in one answer. */
  calls: Schema.optional(Schema.Array(Schema.Struct(call))),
  /** Answers with that HTTP status instead. */
  err: Schema.optional(Schema.Int),
  /** The error's message. */
  message: Schema.optional(Schema.String),
  /** How often `err`, `hang` or `cut` happen before the step succeeds; absent, always. */
  times: Schema.optional(Schema.Int),
  /** Says what the step says, then neither ends nor continues. */
  hang: Schema.optional(Schema.Literal(1)),
  /** Cuts the connection after that many frames of the stream. */
  cut: Schema.optional(Schema.Int),
  /** Why the model stops, in the API's own word. */
  stop: Schema.optional(Schema.String),
  usage: Schema.optional(Schema.Struct({
    input: Schema.optional(Schema.Int),
    output: Schema.optional(Schema.Int),
    cacheRead: Schema.optional(Schema.Int),
    cacheWrite: Schema.optional(Schema.Int)
  }))
})

export type Step = typeof Step.Type

/** Puts a script into a prompt. */
export const script = (...steps: ReadonlyArray<Step>): string => `@@${JSON.stringify(steps)}@@`

/** A tool call; each API's side gives the shell and file tools the names and inputs of the agent that asks. */
export type Call =
  | { readonly _tag: "bash"; readonly command: string }
  | { readonly _tag: "write"; readonly path: string; readonly content: string }
  | { readonly _tag: "edit"; readonly path: string; readonly from: string; readonly to: string }
  | { readonly _tag: "read"; readonly path: string }
  | { readonly _tag: "tool"; readonly name: string; readonly params: Schema.JsonObject }

export interface Usage {
  readonly input: number
  readonly output: number
  readonly cacheRead: number
  readonly cacheWrite: number
}

/** What the model answers, before an API's side gives it its form. */
export interface Reply {
  readonly think: string | undefined
  readonly text: ReadonlyArray<string>
  readonly calls: ReadonlyArray<Call>
  readonly stop: string | undefined
  readonly usage: Usage
  readonly delay: number
  readonly hang: boolean
  /** Frames after which the connection is cut. */
  readonly cut: number | undefined
}

export type Played =
  | { readonly _tag: "Reply"; readonly reply: Reply }
  | { readonly _tag: "Failure"; readonly status: number; readonly message: string }

/**
 * A conversation as an agent sent it: each text of the user, and each turn of the assistant, whose consecutive messages
 * are one. Tool results are left out, so a turn's text may be empty.
 */
export type Conversation = ReadonlyArray<{
  readonly role: "user" | "assistant"
  readonly text: string
  /** How many tools a turn of the assistant called, where an API's side tells it: it may be a part of a step then. */
  readonly calls?: number
}>

export const defaultUsage: Usage = { input: 100, output: 10, cacheRead: 0, cacheWrite: 0 }

/** The reply that says a text. */
export const say = (text: string): Reply => ({
  think: undefined,
  text: [text],
  calls: [],
  stop: undefined,
  usage: defaultUsage,
  delay: 0,
  hang: false,
  cut: undefined
})

/**
 * Plays the scripts of all agents of a server. Only `times` needs memory.
 */
export const makePlayer = () => {
  const seen = new Map<string, number>()
  return (conversation: Conversation): Played => {
    const found = findScript(conversation)
    if (found === undefined) return { _tag: "Reply", reply: say("ok") }
    const step = found.steps[found.index]
    if (step === undefined) return { _tag: "Reply", reply: say("done") }
    const key = `${found.index}:${found.text}`
    const before = seen.get(key) ?? 0
    seen.set(key, before + 1)
    const faulty = step.times === undefined || before < step.times
    if (step.err !== undefined && faulty) {
      return { _tag: "Failure", status: step.err, message: step.message ?? `scripted error ${step.err}` }
    }
    return {
      _tag: "Reply",
      reply: {
        think: step.think,
        text: found.said.text === "" ? texts(step) : [],
        calls: allCallsOf(step).slice(found.said.calls),
        stop: step.stop,
        usage: {
          input: step.usage?.input ?? defaultUsage.input,
          output: step.usage?.output ?? defaultUsage.output,
          cacheRead: step.usage?.cacheRead ?? 0,
          cacheWrite: step.usage?.cacheWrite ?? 0
        },
        delay: step.delay ?? 0,
        hang: faulty && step.hang !== undefined,
        cut: faulty ? step.cut : undefined
      }
    }
  }
}

const decodeSteps = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Array(Step)))

// The last user text that holds a script, how many steps the assistant has finished since, and what it said of the next.
const findScript = (conversation: Conversation) => {
  for (let i = conversation.length - 1; i >= 0; i--) {
    const turn = conversation[i]!
    if (turn.role === "assistant") continue
    const start = turn.text.indexOf("@@[")
    // A script may hold another one, for a sub-agent: the right end is the first with which it parses.
    for (let end = start; start >= 0;) {
      end = turn.text.indexOf("]@@", end + 1)
      if (end < 0) break
      const text = turn.text.slice(start + 2, end + 1)
      const steps = decodeSteps(text)
      if (Option.isSome(steps)) return { text, steps: steps.value, ...progress(conversation.slice(i), steps.value) }
    }
  }
  return undefined
}

const nothing = { text: "", calls: 0 }

const progress = (conversation: Conversation, steps: ReadonlyArray<Step>) => {
  let index = 0
  let said = nothing
  for (const { calls, role, text } of conversation) {
    if (role === "user") continue
    const step = steps[index]
    said = { text: said.text + text, calls: said.calls + (calls ?? 0) }
    const isCut = calls !== undefined && step !== undefined &&
      (said.calls < allCallsOf(step).length || said.text.length < texts(step).join("").length)
    if (isCut) continue
    index++
    said = nothing
  }
  return { index, said }
}

const texts = (step: Step): ReadonlyArray<string> => {
  if (step.words !== undefined) return Array.from({ length: step.words }, (_, i) => `word${i} `)
  if (step.text === undefined) return []
  // Cut at code points into a few deltas.
  const points = [...step.text]
  const size = Math.max(1, Math.ceil(points.length / 4))
  return Array.from(
    { length: Math.ceil(points.length / size) },
    (_, i) => points.slice(i * size, (i + 1) * size).join("")
  )
}

const allCallsOf = (step: Step): ReadonlyArray<Call> => [step, ...(step.calls ?? [])].flatMap(callsOf)

const callsOf = (from: Pick<Step, "bash" | "write" | "edit" | "read" | "tool">): ReadonlyArray<Call> => [
  ...(from.bash === undefined ? [] : [{ _tag: "bash", command: from.bash } as const]),
  ...(from.write === undefined ? [] : [{ _tag: "write", path: from.write[0], content: from.write[1] } as const]),
  ...(from.edit === undefined
    ? []
    : [{ _tag: "edit", path: from.edit[0], from: from.edit[1], to: from.edit[2] } as const]),
  ...(from.read === undefined ? [] : [{ _tag: "read", path: from.read } as const]),
  ...(from.tool === undefined ? [] : [{ _tag: "tool", name: from.tool[0], params: from.tool[1] } as const])
]
