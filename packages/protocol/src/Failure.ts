/**
 * The errors that commands answer with. Each says what to do.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { End } from "./End.ts"
import { MessageId, SessionId, TurnId } from "./Id.ts"

/**
 * How a turn stands.
 *
 * @category schemas
 * @since 0.1.0
 */
export const TurnState = Schema.Literals(["running", "finished", "failed", "aborted"])

/** @category models @since 0.1.0 */
export type TurnState = typeof TurnState.Type

/** @category errors @since 0.1.0 */
export class ProtocolMismatch extends Schema.TaggedError<ProtocolMismatch>()("ProtocolMismatch", {
  host: Schema.Int,
  bridge: Schema.Int
}) {
  override get message() {
    return `The host speaks protocol ${this.host}, the bridge ${this.bridge}: use the same release of both.`
  }
}

/** @category errors @since 0.1.0 */
export class SessionConflict extends Schema.TaggedError<SessionConflict>()("SessionConflict", {
  session: SessionId,
  field: Schema.Literals(["directory", "instructions", "tools", "permissions", "mcpServers"])
}) {
  override get message() {
    return `Session ${this.session} exists with another '${this.field}': start it with the same, or use another id.`
  }
}

/**
 * Another bridge has the session: the one that listens on `port` with `launch`, where that's known.
 *
 * @category errors
 * @since 0.1.0
 */
export class SessionBusy extends Schema.TaggedError<SessionBusy>()("SessionBusy", {
  session: SessionId,
  port: Schema.optional(Schema.Int),
  launch: Schema.optional(Schema.String)
}) {
  override get message() {
    return `Session ${this.session} is held by another bridge: send the command there, or start the session again here.`
  }
}

/** @category errors @since 0.1.0 */
export class SessionDestroyed extends Schema.TaggedError<SessionDestroyed>()("SessionDestroyed", {
  session: SessionId
}) {
  override get message() {
    return `Session ${this.session} was destroyed: use another id (this one is free a day after).`
  }
}

/** @category errors @since 0.1.0 */
export class SessionNotFound extends Schema.TaggedError<SessionNotFound>()("SessionNotFound", {
  session: SessionId
}) {
  override get message() {
    return `There is no session ${this.session}: start it with StartSession.`
  }
}

/** @category errors @since 0.1.0 */
export class SessionNotStarted extends Schema.TaggedError<SessionNotStarted>()("SessionNotStarted", {
  session: SessionId
}) {
  override get message() {
    return `Session ${this.session} is dormant since its bridge restarted or it was stopped: call StartSession first.`
  }
}

/** @category errors @since 0.1.0 */
export class SessionFull extends Schema.TaggedError<SessionFull>()("SessionFull", {
  session: SessionId,
  turns: Schema.Int
}) {
  override get message() {
    return `Session ${this.session} has had its ${this.turns} turns: go on in another session.`
  }
}

/** @category errors @since 0.1.0 */
export class DirectoryInvalid extends Schema.TaggedError<DirectoryInvalid>()("DirectoryInvalid", {
  directory: Schema.String,
  problem: Schema.String
}) {
  override get message() {
    return `The directory ${this.directory} can't be a session's: ${this.problem}.`
  }
}

/** @category errors @since 0.1.0 */
export class Replaced extends Schema.TaggedError<Replaced>()("Replaced", {}) {
  override get message() {
    return "A newer bridge serves this state directory: read the listening file and connect there."
  }
}

/** @category errors @since 0.1.0 */
export class Closing extends Schema.TaggedError<Closing>()("Closing", {}) {
  override get message() {
    return "The bridge is about to exit: launch another."
  }
}

/** @category errors @since 0.1.0 */
export class ContextLost extends Schema.TaggedError<ContextLost>()("ContextLost", {
  session: SessionId,
  problem: Schema.String
}) {
  override get message() {
    return `The agent's conversation of session ${this.session} can't be carried on: ${this.problem}.`
  }
}

/**
 * The driver couldn't do its part: the agent is missing, of a version that doesn't fit, or broke.
 *
 * @category errors
 * @since 0.1.0
 */
export class DriverError extends Schema.TaggedError<DriverError>()("DriverError", {
  driver: Schema.String,
  kind: Schema.Literals(["not-installed", "wrong-version", "start", "exit", "protocol", "options", "unknown"]),
  problem: Schema.String
}) {
  override get message() {
    return `${this.driver}: ${this.problem}`
  }
}

/** @category errors @since 0.1.0 */
export class TooLarge extends Schema.TaggedError<TooLarge>()("TooLarge", { limit: Schema.Int }) {
  override get message() {
    return `The request is longer than ${this.limit} bytes: send less, or put it in a file of the sandbox.`
  }
}

/** @category errors @since 0.1.0 */
export class LogUnavailable extends Schema.TaggedError<LogUnavailable>()("LogUnavailable", {
  problem: Schema.String
}) {
  override get message() {
    return `The state directory can't be read or written: ${this.problem}.`
  }
}

/** @category errors @since 0.1.0 */
export class TurnNotFound extends Schema.TaggedError<TurnNotFound>()("TurnNotFound", {
  session: SessionId,
  turn: TurnId,
  /** The session's latest turn, the only one whose parts are kept. */
  latest: Schema.optional(TurnId),
  /** How this turn ended, if the session had it: its parts are no longer kept. */
  end: Schema.optional(End)
}) {
  override get message() {
    return this.end === undefined
      ? `Session ${this.session} never had a turn ${this.turn}.`
      : `The parts of turn ${this.turn} are gone: session ${this.session} keeps those of its latest turn only.`
  }
}

/** @category errors @since 0.1.0 */
export class TurnSuperseded extends Schema.TaggedError<TurnSuperseded>()("TurnSuperseded", {
  turn: TurnId,
  latest: TurnId,
  end: End
}) {
  override get message() {
    return `Turn ${this.turn} is over (${this.end.type}) and turn ${this.latest} came after it: use a new id.`
  }
}

/** @category errors @since 0.1.0 */
export class TurnConflict extends Schema.TaggedError<TurnConflict>()("TurnConflict", {
  turn: TurnId,
  field: Schema.Literals(["prompt", "format", "attempt"]),
  attempt: Schema.Int,
  state: TurnState
}) {
  override get message() {
    return `Turn ${this.turn} is at attempt ${this.attempt} (${this.state}), and the '${this.field}' doesn't fit it.`
  }
}

/** @category errors @since 0.1.0 */
export class TurnRunning extends Schema.TaggedError<TurnRunning>()("TurnRunning", { turn: TurnId }) {
  override get message() {
    return `Turn ${this.turn} is running: wait for its end, or abort it.`
  }
}

/** @category errors @since 0.1.0 */
export class TurnEnded extends Schema.TaggedError<TurnEnded>()("TurnEnded", { turn: TurnId, end: End }) {
  override get message() {
    return `Turn ${this.turn} has ended (${this.end.type}): there is nothing left to answer.`
  }
}

/**
 * The log has no such part for this reader, or has another attempt's there; `next` is the number to read from.
 *
 * @category errors
 * @since 0.1.0
 */
export class PartNotFound extends Schema.TaggedError<PartNotFound>()("PartNotFound", {
  turn: TurnId,
  next: Schema.Int
}) {
  override get message() {
    return `Turn ${this.turn} doesn't hold the parts that this reader already has: what holds ends before number ${this.next}.`
  }
}

/** @category errors @since 0.1.0 */
export class TurnDamaged extends Schema.TaggedError<TurnDamaged>()("TurnDamaged", {
  turn: TurnId,
  /** The number of the last readable part. */
  readable: Schema.Int
}) {
  override get message() {
    return `The file of turn ${this.turn} is damaged after part ${this.readable}.`
  }
}

/** @category errors @since 0.1.0 */
export class UnsupportedFormat extends Schema.TaggedError<UnsupportedFormat>()("UnsupportedFormat", {
  found: Schema.Int,
  known: Schema.Int
}) {
  override get message() {
    return `The state directory was written in format ${this.found}, this bridge knows up to ${this.known}: use a newer bridge.`
  }
}

/** @category errors @since 0.1.0 */
export class TooManyStreams extends Schema.TaggedError<TooManyStreams>()("TooManyStreams", { limit: Schema.Int }) {
  override get message() {
    return `This connection already reads ${this.limit} turns: end one, or open another connection.`
  }
}

/** @category errors @since 0.1.0 */
export class ToolCallNotFound extends Schema.TaggedError<ToolCallNotFound>()("ToolCallNotFound", {
  turn: TurnId,
  toolCallId: Schema.String
}) {
  override get message() {
    return `Turn ${this.turn} has no host tool call or question '${this.toolCallId}'.`
  }
}

/** @category errors @since 0.1.0 */
export class ApprovalNotFound extends Schema.TaggedError<ApprovalNotFound>()("ApprovalNotFound", {
  turn: TurnId,
  approvalId: Schema.String
}) {
  override get message() {
    return `Turn ${this.turn} has no approval request '${this.approvalId}'.`
  }
}

/**
 * Another answer came first; `answer` is that one, as its part in the log.
 *
 * @category errors
 * @since 0.1.0
 */
export class AlreadyAnswered extends Schema.TaggedError<AlreadyAnswered>()("AlreadyAnswered", {
  answer: Schema.Json
}) {
  override get message() {
    return "Another answer came first: the agent has that one."
  }
}

/**
 * The turn has another message of that id: one id is one message.
 *
 * @category errors
 * @since 0.1.0
 */
export class MessageConflict extends Schema.TaggedError<MessageConflict>()("MessageConflict", {
  turn: TurnId,
  messageId: MessageId,
  field: Schema.Literals(["prompt", "delivery"])
}) {
  override get message() {
    return `Turn ${this.turn} has another message '${this.messageId}': its '${this.field}' is another.`
  }
}

/**
 * As many messages wait for the agent as may.
 *
 * @category errors
 * @since 0.1.0
 */
export class TooManyMessages extends Schema.TaggedError<TooManyMessages>()("TooManyMessages", {
  turn: TurnId,
  limit: Schema.Int
}) {
  override get message() {
    return `At most ${this.limit} messages, of 16 MiB, can wait for the agent of turn ${this.turn}: send it later.`
  }
}

/** @category errors @since 0.1.0 */
export class StateTooLarge extends Schema.TaggedError<StateTooLarge>()("StateTooLarge", {
  bytes: Schema.Int,
  limit: Schema.Int
}) {
  override get message() {
    return `The conversation's state has ${this.bytes} bytes, at most ${this.limit} can be carried: compact it first.`
  }
}

/** @category errors @since 0.1.0 */
export class Unsupported extends Schema.TaggedError<Unsupported>()("Unsupported", {
  driver: Schema.String,
  capability: Schema.String
}) {
  override get message() {
    return `The agent '${this.driver}' can't do '${this.capability}'.`
  }
}
