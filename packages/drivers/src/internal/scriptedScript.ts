/**
 * What the scripted agent plays: a list of steps, each a list of actions.
 */
import * as Bridge from "@gangway/protocol/Bridge"
import * as Schema from "effect/Schema"

const count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const positive = Schema.Int.check(Schema.isGreaterThan(0))
const millis = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

// An action is played in these attempts only; absent, in all.
const common = { attempts: Schema.optional(Schema.Array(Schema.Int)) }

const action = <const Type extends string, const Fields extends Schema.Struct.Fields>(type: Type, fields: Fields) =>
  Schema.Struct({ type: Schema.Literal(type), ...fields, ...common })

/** Random content of `length` UTF-16 units: `unicode` has emoji and control characters, `surrogates` lone ones too. */
export const RandomContent = Schema.Struct({
  length: count,
  /** `ascii` where absent. */
  alphabet: Schema.optional(Schema.Literals(["ascii", "unicode", "surrogates"]))
})

// Given or random content. Without either it's empty.
const content = { text: Schema.optional(Schema.String), random: Schema.optional(RandomContent) }

// A block of text: a start, deltas of `chunk` UTF-16 units (24 where absent), an end.
const block = {
  ...content,
  chunk: Schema.optional(positive),
  /** Milliseconds before each delta; absent, deltas come together. */
  delay: Schema.optional(millis)
}

const Approval = Schema.Struct({
  reason: Schema.optional(Schema.String),
  /** What `allow-always` allows from then on; absent, this call only. */
  rule: Schema.optional(Schema.String)
})

const Text = action("text", block)
const Reasoning = action("reasoning", block)

// `parts` deltas of `size` UTF-16 units, as fast as the pipe takes them.
const Burst = action("burst", { parts: count, size: Schema.optional(positive) })

// A tool that the agent runs itself.
const Tool = action("tool", {
  name: Schema.String,
  params: Schema.optional(Schema.Json),
  /** The input comes piece by piece first, in pieces of so many UTF-16 units. */
  paramsChunk: Schema.optional(positive),
  approval: Schema.optional(Approval),
  /** Milliseconds from the call to its result. */
  delay: Schema.optional(millis),
  /** So many preliminary results before the result, spread over `delay`. */
  preliminary: Schema.optional(count),
  /** A program that is really run in the working directory; its output and exit code are the result. */
  command: Schema.optional(Schema.NonEmptyArray(Schema.String)),
  result: Schema.optional(Schema.Json),
  /** A random result, where neither `command` nor `result` is given. */
  random: Schema.optional(RandomContent),
  isFailure: Schema.optional(Schema.Boolean)
})

// Tools of the host, called together; `echo` says their answers as text.
const HostTools = action("host-tools", {
  calls: Schema.NonEmptyArray(Schema.Struct({ name: Schema.String, params: Schema.optional(Schema.Json) })),
  echo: Schema.optional(Schema.Boolean)
})

const Question = action("question", {
  questions: Bridge.Question.fields.questions,
  echo: Schema.optional(Schema.Boolean)
})

// Writes, or removes, a file for real; a relative path is the working directory's.
const File = action("file", {
  path: Schema.String,
  ...content,
  remove: Schema.optional(Schema.Boolean),
  approval: Schema.optional(Approval)
})

// Starts a process with `sh -c`.
const Spawn = action("spawn", {
  command: Schema.String,
  /** In a session of its own. */
  setsid: Schema.optional(Schema.Boolean),
  /** It ignores SIGTERM. */
  ignoreTerm: Schema.optional(Schema.Boolean),
  /** It's left running, as an orphan; absent, the agent waits for its end. */
  background: Schema.optional(Schema.Boolean)
})

const Wait = action("wait", { delay: millis })

// Does nothing for ever; a `stubborn` one ignores interrupts, SIGTERM and the end of its input.
const Hang = action("hang", { stubborn: Schema.optional(Schema.Boolean) })

const Fail = action("fail", {
  kind: Schema.Literals(["auth", "rate-limit", "overloaded", "context-too-long", "invalid-request", "unknown"]),
  message: Schema.String
})

// An event of the agent's own: a part where the turn asked for them.
const Raw = action("raw", { event: Schema.Json })

// Parts as they are.
const Parts = action("parts", {
  parts: Schema.Array(Schema.Union([
    Bridge.Plan,
    Bridge.Retry,
    Bridge.Notice,
    Bridge.Source,
    Bridge.File,
    Bridge.ResponseMetadata,
    Bridge.ErrorPart
  ]))
})

// From here on the conversation holds the summary instead of what came before.
const Compaction = action("compaction", {
  summary: Schema.optional(Schema.String),
  tokensBefore: Schema.optional(Schema.Finite),
  tokensAfter: Schema.optional(Schema.Finite)
})

// Says as JSON what the agent was told and what its conversation holds.
const Describe = action("describe", {})

// Prints a line that is no message.
const Print = action("print", { to: Schema.Literals(["stdout", "stderr"]), text: Schema.String })

// A sub-agent: its parts carry the call's id as their parent.
const SubAgent = action("sub-agent", {
  name: Schema.String,
  actions: Schema.Array(Schema.Union([Text, Reasoning, Tool]))
})

export const Action = Schema.Union([
  Text,
  Reasoning,
  Burst,
  Tool,
  HostTools,
  Question,
  File,
  Spawn,
  Wait,
  Hang,
  Fail,
  Raw,
  Parts,
  Compaction,
  Describe,
  Print,
  SubAgent
])

export type Action = typeof Action.Type

/** One call of the model: its actions, then `step-finished`. */
export const Step = Schema.Struct({
  actions: Schema.Array(Action),
  /** Absent, the usage isn't measured. */
  usage: Schema.optional(Bridge.Usage),
  finishReason: Schema.optional(Schema.String),
  /** How often the step is played, each time as a step of its own; once where absent. */
  repeat: Schema.optional(positive)
})

export type Step = typeof Step.Type

/** Where the agent dies. */
export const Crash = Schema.Struct({
  /** 1 where absent. */
  attempt: Schema.optional(Schema.Int),
  /** The step's index from 0, repeated ones counted each; 0 where absent. */
  step: Schema.optional(count),
  /**
   * After so many parts of the step; `prompt`: before the conversation holds the prompt; `recorded`: when it holds the
   * step finished, and before that is told.
   */
  at: Schema.Union([count, Schema.Literals(["prompt", "recorded"])]),
  /** The exit code; absent, SIGKILL. */
  exit: Schema.optional(Schema.Int),
  /** Printed to standard error before. */
  stderr: Schema.optional(Schema.String)
})

export type Crash = typeof Crash.Type

export const Script = Schema.Struct({
  /** Random content follows from it, the turn, the attempt, the step and the action; 0 where absent. */
  seed: Schema.optional(Schema.Int),
  steps: Schema.Array(Step),
  crashes: Schema.optional(Schema.Array(Crash)),
  finishReason: Schema.optional(Schema.String),
  cost: Schema.optional(Schema.Finite),
  /** The answer of a turn that asks for a `responseFormat`. */
  output: Schema.optional(Schema.Json)
})

export type Script = typeof Script.Type

/** A turn without a script: the agent repeats the prompt. */
export const echo = (prompt: string): Script => ({ steps: [{ actions: [{ type: "text", text: prompt }] }] })

/** The script that a prompt holds between `@@` and `@@`, as JSON text. */
export const inPrompt = (prompt: string): string | undefined => {
  const start = prompt.indexOf("@@{")
  const end = prompt.lastIndexOf("}@@")
  return start < 0 || end < start ? undefined : prompt.slice(start + 2, end + 1)
}

/** The steps with repeated ones written out. */
export const stepsOf = (script: Script): ReadonlyArray<Step> =>
  script.steps.flatMap((step) => Array.from({ length: step.repeat ?? 1 }, () => step))
