/**
 * How a command ends that didn't do what was asked: one line that says what to do, and an exit code.
 */
import { type BridgeUnavailable, describeReason, lastLine } from "@gangway/client/BridgeUnavailable"
import * as Turn from "@gangway/client/Turn"
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Exit from "effect/Exit"
import * as CliError from "effect/unstable/cli/CliError"
import { printable } from "./render/Text.ts"

/** What `gangway` exits with; see docs/cli.md. A signal's code is 128 and its number. */
export const ExitCode = {
  done: 0,
  turnFailed: 1,
  usage: 2,
  turnAborted: 3,
  unavailable: 4,
  unexpected: 70,
  outputClosed: 141
} as const

/** The command can't do that; `problem` says what to do. */
export class UsageError extends Data.TaggedError("UsageError")<{ readonly problem: string }> {
  override get message() {
    return this.problem
  }
}

/** The command did its work, and exits with a code of its own. All has been said. */
export class ExitWith extends Data.TaggedError("ExitWith")<{ readonly exitCode: number }> {
  override get message() {
    return `Exits with ${this.exitCode}.`
  }
}

// What another command line would mend.
const usageTags: ReadonlySet<string> = new Set([
  "UsageError",
  "AlreadyAnswered",
  "ApprovalNotFound",
  "DirectoryInvalid",
  "MessageConflict",
  "SessionConflict",
  "SessionDestroyed",
  "SessionFull",
  "SessionNotFound",
  "SessionNotStarted",
  "ToolCallNotFound",
  "TurnConflict",
  "TurnEnded",
  "TurnNotFound",
  "TurnRunning",
  "TurnSuperseded",
  "TooDeep",
  "TooLarge",
  "Unsupported"
])

/** How the program ends: its exit code, and what it says on standard error. */
export const ending = (exit: Exit.Exit<unknown, unknown>): { readonly exitCode: number; readonly message?: string } => {
  if (Exit.isSuccess(exit)) return { exitCode: ExitCode.done }
  const error = Cause.squash(exit.cause)
  if (Cause.findErrorOption(exit.cause)._tag === "None") {
    const problem = error instanceof Error ? error.message : String(error)
    return { exitCode: ExitCode.unexpected, message: `this should not happen, please report it: ${problem}` }
  }
  if (CliError.isCliError(error)) {
    const problems = error._tag === "ShowHelp" ? error.errors : [error]
    return problems.length === 0
      ? { exitCode: ExitCode.done }
      : { exitCode: ExitCode.usage, message: `${problems.map(problemOf).join("; ")}; see --help` }
  }
  const { _tag, message } = error as { readonly _tag: string; readonly message: string }
  if (error instanceof ExitWith) return { exitCode: error.exitCode }
  if (_tag === "Interrupted") return { exitCode: (error as { exitCode: number }).exitCode, message: "interrupted" }
  if (_tag === "OutputClosed") return { exitCode: ExitCode.outputClosed }
  if (_tag === "BridgeUnavailable") {
    return { exitCode: ExitCode.unavailable, message: unavailable(error as BridgeUnavailable) }
  }
  if (error instanceof Turn.ContinueFailed && lacksPrompt(error)) {
    return {
      exitCode: ExitCode.usage,
      message: `turn ${error.turn} ended before its agent had the prompt: ` +
        `run the same prompt again, with this --session and --turn ${error.turn}`
    }
  }
  return {
    exitCode: usageTags.has(_tag) ? ExitCode.usage : ExitCode.unavailable,
    message: _tag === "DirectoryInvalid" && message.includes("state directory")
      ? `${message.replace(/\.$/, "")}: work in another one, or keep gangway's state elsewhere with XDG_STATE_HOME`
      : message
  }
}

// Who attaches doesn't know the prompt, and needn't where the agent's conversation holds it.
const lacksPrompt = ({ reason }: Turn.ContinueFailed): boolean =>
  reason._tag === "TurnConflict" && reason.field === "prompt"

const problemOf = ({ message }: CliError.CliError): string =>
  message.replace("Expected: Schema validation failed: ", "").replace(/\.$/, "")

const unavailable = ({ bridge, message, reason }: BridgeUnavailable): string => {
  switch (reason._tag) {
    case "LaunchFailed": {
      const last = lastLine(reason.log)
      if (reason.exitCode === 127 || reason.exitCode === 126) {
        // A shell says first where it read what it can't run.
        const problem = last.replace(/^.*: \d+: /, "")
        return `the bridge program can't be run (${problem}): name it with --bridge-command or GANGWAY_BRIDGE`
      }
      // What a bridge says at its own end is for people. One that was killed has said nothing of it.
      if (reason.launches === 1 && last !== "") return `bridge ${bridge} can't be launched: ${last}`
      return `bridge ${bridge} can't be launched: ${describeReason(reason)}`
    }
    case "TokenMismatch":
      return `bridge ${bridge} has another token: use another --bridge, or end the process that its listening file names`
    default:
      return message
  }
}

/** What is said of an ending. */
export const line = (message: string): string =>
  `gangway: ${printable(message).replace(/\s*\n\s*/g, " ").replace(/\.$/, "")}\n`
