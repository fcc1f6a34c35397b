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

/**
 * Host and bridge speak different versions of the protocol.
 *
 * @remedy Use the same release of the host's packages and of the bridge program.
 * @client It is `BridgeUnavailable` with the reason `ProtocolMismatch`, and final.
 * @category errors
 * @since 0.1.0
 */
export class ProtocolMismatch extends Schema.TaggedError<ProtocolMismatch>()("ProtocolMismatch", {
  host: Schema.Int,
  bridge: Schema.Int
}) {
  override get message() {
    return `The host speaks protocol ${this.host}, the bridge ${this.bridge}: use the same release of both.`
  }
}

/**
 * The session exists, and one of its options that must not change is another.
 *
 * @remedy Start it with the same value as before, or use another id. What must stay the same is in docs/protocol.md,
 *   "StartSession".
 * @category errors
 * @since 0.1.0
 */
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
 * @remedy Send an answer to the bridge that the error names, with the same token. For any other command, start the
 *   session at the newest bridge, the one that the listening file names: that takes the session.
 * @client It looks for a newer bridge and asks there; an answer goes to the bridge that the error names, and where
 *   that can't be reached within 5 s the session is taken over. Only then it is passed on.
 * @category errors
 * @since 0.1.0
 */
export class SessionBusy extends Schema.TaggedError<SessionBusy>()("SessionBusy", {
  session: SessionId,
  port: Schema.optionalKey(Schema.Int),
  launch: Schema.optionalKey(Schema.String)
}) {
  override get message() {
    return `Session ${this.session} is held by another bridge: send the command there, or start the session again here.`
  }
}

/**
 * The session was destroyed less than a day ago.
 *
 * @remedy Use another id; this one is free again after a day.
 * @category errors
 * @since 0.1.0
 */
export class SessionDestroyed extends Schema.TaggedError<SessionDestroyed>()("SessionDestroyed", {
  session: SessionId
}) {
  override get message() {
    return `Session ${this.session} was destroyed: use another id (this one is free a day after).`
  }
}

/**
 * The bridge has no session of that id: it was never started, or was destroyed.
 *
 * @remedy Start the session. If it should be there, look whether the bridge has the right state directory.
 * @category errors
 * @since 0.1.0
 */
export class SessionNotFound extends Schema.TaggedError<SessionNotFound>()("SessionNotFound", {
  session: SessionId
}) {
  override get message() {
    return `There is no session ${this.session}: start it with StartSession.`
  }
}

/**
 * The session is dormant: its bridge was started again, or the session was stopped.
 *
 * @remedy Call `StartSession` with the session's options, then repeat the command.
 * @client A session that this host started is started again, where it's dormant because its bridge is a new one. One
 *   that was stopped is passed on.
 * @category errors
 * @since 0.1.0
 */
export class SessionNotStarted extends Schema.TaggedError<SessionNotStarted>()("SessionNotStarted", {
  session: SessionId
}) {
  override get message() {
    return `Session ${this.session} is dormant since its bridge restarted or it was stopped: call StartSession first.`
  }
}

/**
 * The session has had as many turns as one can have.
 *
 * @remedy Go on in another session; `ReadState` of this one, given as its `state`, carries the conversation on where
 *   the agent can.
 * @category errors
 * @since 0.1.0
 */
export class SessionFull extends Schema.TaggedError<SessionFull>()("SessionFull", {
  session: SessionId,
  turns: Schema.Int
}) {
  override get message() {
    return `Session ${this.session} has had its ${this.turns} turns: go on in another session.`
  }
}

/**
 * The working directory can't be used.
 *
 * @remedy Name an absolute path of a directory that exists in the sandbox, and neither holds the state directory nor
 *   lies in it.
 * @category errors
 * @since 0.1.0
 */
export class DirectoryInvalid extends Schema.TaggedError<DirectoryInvalid>()("DirectoryInvalid", {
  directory: Schema.String,
  problem: Schema.String
}) {
  override get message() {
    return `The directory ${this.directory} can't be a session's: ${this.problem}.`
  }
}

/**
 * A newer bridge serves the state directory: this one only runs its turns to their end.
 *
 * @remedy Read the listening file, and send the command to the bridge that it names.
 * @client It goes to the newer bridge by itself. `BridgeUnavailable` with the reason `Retired` says that it met
 *   nothing else, 10 times in a row.
 * @category errors
 * @since 0.1.0
 */
export class Replaced extends Schema.TaggedError<Replaced>()("Replaced", {}) {
  override get message() {
    return "A newer bridge serves this state directory: read the listening file and connect there."
  }
}

/**
 * The bridge has been idle for its `idleTimeout`, or was told to stop, and is about to exit.
 *
 * @remedy Launch another bridge, and send the command there.
 * @client It launches another bridge by itself, as for `Replaced`.
 * @category errors
 * @since 0.1.0
 */
export class Closing extends Schema.TaggedError<Closing>()("Closing", {}) {
  override get message() {
    return "The bridge is about to exit: launch another."
  }
}

/**
 * The agent's conversation is gone or damaged, or is another driver's, so it can't be carried on.
 *
 * @remedy Start a new session. The working directory is as the agent left it, so a prompt that says what was done lets
 *   another conversation go on.
 * @category errors
 * @since 0.1.0
 */
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
 * @remedy By `kind`: `not-installed` and `wrong-version`: install what `problem` says; `options`: change the agent
 *   options of the launch line; `start` and `exit`: read the log of the bridge, and try the agent by hand in the
 *   sandbox; `protocol` and `unknown`: repeat the command once, then report it with the log.
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

/**
 * The request is longer than a bridge takes.
 *
 * @remedy Send less, or put it in a file of the sandbox and name that.
 * @client A host tool's result that is too large is answered by a failure that says so to the agent; anything else is
 *   passed on.
 * @category errors
 * @since 0.1.0
 */
export class TooLarge extends Schema.TaggedError<TooLarge>()("TooLarge", { limit: Schema.Int }) {
  override get message() {
    return `The request is longer than ${this.limit} bytes: send less, or put it in a file of the sandbox.`
  }
}

/**
 * The request holds JSON that is nested deeper than a bridge takes.
 *
 * @remedy Send it flatter, or put it in a file of the sandbox and name that. A schema that holds itself can name itself
 *   by `$ref`.
 * @client A host tool's result that is too deep is answered by a failure that says so to the agent; anything else is
 *   passed on.
 * @category errors
 * @since 0.1.0
 */
export class TooDeep extends Schema.TaggedError<TooDeep>()("TooDeep", { limit: Schema.Int }) {
  override get message() {
    return `The request holds JSON that is nested more than ${this.limit} deep: send it flatter, or as text.`
  }
}

/**
 * The state directory can't be read or written: it's full, damaged, or another user's.
 *
 * @remedy Make room, or mend the disk or the permissions of the state directory, and repeat the call.
 * @category errors
 * @since 0.1.0
 */
export class LogUnavailable extends Schema.TaggedError<LogUnavailable>()("LogUnavailable", {
  problem: Schema.String
}) {
  override get message() {
    return `The state directory can't be read or written: ${this.problem}.`
  }
}

/**
 * The session never had the turn, or no longer has its parts: it keeps those of its latest turn only.
 *
 * @remedy Read the latest turn. A host that needs all parts of each turn reads it to its end before it starts the next
 *   one.
 * @client A read that has had parts of the turn fails with `PartsLost`; otherwise it is passed on.
 * @category errors
 * @since 0.1.0
 */
export class TurnNotFound extends Schema.TaggedError<TurnNotFound>()("TurnNotFound", {
  session: SessionId,
  turn: TurnId,
  /** The session's latest turn, the only one whose parts are kept. */
  latest: Schema.optionalKey(TurnId),
  /** How this turn ended, if the session had it: its parts are no longer kept. */
  end: Schema.optionalKey(End)
}) {
  override get message() {
    return this.end === undefined
      ? `Session ${this.session} never had a turn ${this.turn}.`
      : `The parts of turn ${this.turn} are gone: session ${this.session} keeps those of its latest turn only.`
  }
}

/**
 * The turn is over, and another came after it: it never runs again.
 *
 * @remedy Use a new id for a new turn. How this one ended is in `end`.
 * @client A read that would have continued the turn gives the end that it knows.
 * @category errors
 * @since 0.1.0
 */
export class TurnSuperseded extends Schema.TaggedError<TurnSuperseded>()("TurnSuperseded", {
  turn: TurnId,
  latest: TurnId,
  end: End
}) {
  override get message() {
    return `Turn ${this.turn} is over (${this.end.type}) and turn ${this.latest} came after it: use a new id.`
  }
}

/**
 * The prompt, the format or the attempt doesn't fit the turn as it is.
 *
 * @remedy Send the turn's own prompt and format, or none. To continue an aborted turn, send one more than its
 *   `attempt`; to begin another, use a new id.
 * @client A start without an attempt of its own joins the turn at the attempt that the error names.
 * @category errors
 * @since 0.1.0
 */
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

/**
 * The command needs a session without a running turn.
 *
 * @remedy Wait for the turn's end, or abort it, and repeat the command.
 * @category errors
 * @since 0.1.0
 */
export class TurnRunning extends Schema.TaggedError<TurnRunning>()("TurnRunning", { turn: TurnId }) {
  override get message() {
    return `Turn ${this.turn} is running: wait for its end, or abort it.`
  }
}

/**
 * The turn has ended, and its end closed what was to be answered.
 *
 * @remedy There's nothing to do: the agent no longer waits. A continued turn asks again, under a new id.
 * @client The handlers of tools, approvals and questions take it as settled.
 * @category errors
 * @since 0.1.0
 */
export class TurnEnded extends Schema.TaggedError<TurnEnded>()("TurnEnded", { turn: TurnId, end: End }) {
  override get message() {
    return `Turn ${this.turn} has ended (${this.end.type}): there is nothing left to answer.`
  }
}

/**
 * The log has no such part for this reader, or has another attempt's there; `next` is the number to read from.
 *
 * @remedy Drop the parts from `next` on, and read from there.
 * @client The read fails with `PartsLost`, which has `next`.
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

/**
 * The turn's file is damaged after a part.
 *
 * @remedy Take the parts up to `readable`; the turn can be continued from there. The damaged file is kept beside the
 *   turn's, as `damaged`. Look after the disk.
 * @category errors
 * @since 0.1.0
 */
export class TurnDamaged extends Schema.TaggedError<TurnDamaged>()("TurnDamaged", {
  turn: TurnId,
  /** The number of the last readable part. */
  readable: Schema.Int
}) {
  override get message() {
    return `The file of turn ${this.turn} is damaged after part ${this.readable}.`
  }
}

/**
 * A newer bridge wrote the file, in a format that this one doesn't know.
 *
 * @remedy Use a bridge of the newer release: nothing was changed.
 * @category errors
 * @since 0.1.0
 */
export class UnsupportedFormat extends Schema.TaggedError<UnsupportedFormat>()("UnsupportedFormat", {
  found: Schema.Int,
  known: Schema.Int
}) {
  override get message() {
    return `The state directory was written in format ${this.found}, this bridge knows up to ${this.known}: use a newer bridge.`
  }
}

/**
 * The connection reads as many turns at once as it may.
 *
 * @remedy End a read, or open another connection.
 * @category errors
 * @since 0.1.0
 */
export class TooManyStreams extends Schema.TaggedError<TooManyStreams>()("TooManyStreams", { limit: Schema.Int }) {
  override get message() {
    return `This connection already reads ${this.limit} turns: end one, or open another connection.`
  }
}

/**
 * The turn has no such call of a host tool and no such question.
 *
 * @remedy Answer with the `id` of a `tool-call` part that has `"providerExecuted": false`, or the `questionId` of a
 *   `question`, of this turn.
 * @client The handlers of tools and questions take it as settled: the call was closed by an attempt's end.
 * @category errors
 * @since 0.1.0
 */
export class ToolCallNotFound extends Schema.TaggedError<ToolCallNotFound>()("ToolCallNotFound", {
  turn: TurnId,
  toolCallId: Schema.String
}) {
  override get message() {
    return `Turn ${this.turn} has no host tool call or question '${this.toolCallId}'.`
  }
}

/**
 * The turn has no such approval request.
 *
 * @remedy Answer with the `approvalId` of a `tool-approval-request` of this turn.
 * @client The handler of approvals takes it as settled: the request was closed by an attempt's end.
 * @category errors
 * @since 0.1.0
 */
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
 * @remedy There's nothing to do: show the answer that counts.
 * @client The handlers of tools, approvals and questions take it as settled.
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
 * @remedy Choose a new id for each message, and repeat it only as it was.
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
 * @remedy Send it again once the agent has taken some, which `user-message-delivered` tells.
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

/**
 * The conversation's state is larger than an answer may be.
 *
 * @remedy Compact the session first, then read its state.
 * @category errors
 * @since 0.1.0
 */
export class StateTooLarge extends Schema.TaggedError<StateTooLarge>()("StateTooLarge", {
  bytes: Schema.Int,
  limit: Schema.Int
}) {
  override get message() {
    return `The conversation's state has ${this.bytes} bytes, at most ${this.limit} can be carried: compact it first.`
  }
}

/**
 * The agent can't do what was asked for.
 *
 * @remedy Look at the `capabilities` that `Hello` answers before asking for it, or use another agent.
 * @category errors
 * @since 0.1.0
 */
export class Unsupported extends Schema.TaggedError<Unsupported>()("Unsupported", {
  driver: Schema.String,
  capability: Schema.String
}) {
  override get message() {
    return `The agent '${this.driver}' can't do '${this.capability}'.`
  }
}
