/**
 * Follows a turn at the terminal: Ctrl-C leaves it running, a second one aborts it.
 */
import type { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { ExitCode, ExitWith, UsageError } from "./Failure.ts"
import type { Approvals } from "./Flags.ts"
import { follow } from "./Follow.ts"
import * as Invocation from "./Invocation.ts"
import { Keyboard } from "./Keyboard.ts"
import type { Policy } from "./Policy.ts"
import { renderEnd } from "./render/End.ts"
import * as Parts from "./render/Parts.ts"
import { oneLine } from "./render/Text.ts"
import { Screen } from "./Screen.ts"
import { Interrupted, Signals } from "./Signals.ts"

/** Where a turn is, in words that other commands take. */
export interface Names {
  readonly bridge: Bridge.BridgeId
  readonly session: Bridge.SessionId
  readonly turn: Bridge.TurnId
  /** Flags that those commands need too. */
  readonly flags: ReadonlyArray<string>
}

/** How long after a first Ctrl-C a second one aborts the turn. */
const secondChance = "1500 millis"

const codes = {
  finished: ExitCode.done,
  failed: ExitCode.turnFailed,
  aborted: ExitCode.turnAborted
} as const

/** Ends the command as a turn ended. */
export const exitWith = (end: Bridge.End) =>
  end.type === "finished" ? Effect.void : Effect.fail(new ExitWith({ exitCode: codes[end.type] }))

/** What is asked is asked at the terminal where there's one, and otherwise what the command does by itself. */
export const decideWho = Effect.fnUntraced(function*(options: {
  readonly given: Option.Option<Approvals>
  readonly otherwise: Approvals
  /** Whether standard input isn't the person's to answer by, but the terminal behind it may be. */
  readonly stdinIsTaken: boolean
}) {
  const { given, otherwise, stdinIsTaken } = options
  if (Option.isSome(given) && given.value !== "ask") return given.value
  const keyboard = yield* Keyboard
  const { isSeen } = yield* Screen
  if (isSeen && (stdinIsTaken ? yield* keyboard.open : keyboard.isThere)) return "ask"
  if (Option.isNone(given)) return otherwise
  return yield* new UsageError({ problem: "there's no terminal to ask at: use --approvals deny, or wait" })
})

/** Prints how a turn was ended by an abort. */
export const printAborted = Effect.fnUntraced(function*(
  { end, left }: { readonly end: Bridge.End; readonly left: ReadonlyArray<Bridge.ProcessInfo> }
) {
  const screen = yield* Screen
  yield* screen.note(renderEnd(Parts.initial, end, screen.noteLook))
  yield* printProcesses({ ended: [], left })
})

/** Prints which processes of an agent were ended, and which could not be. */
export const printProcesses = Effect.fnUntraced(function*({ ended, left }: {
  readonly ended: ReadonlyArray<Bridge.ProcessInfo>
  readonly left: ReadonlyArray<Bridge.ProcessInfo>
}) {
  const { note, noteLook } = yield* Screen
  for (const { command, pid } of ended) yield* note(noteLook.style.dim(`  ended: ${pid} ${oneLine(command)}\n`))
  for (const { command, pid } of left) {
    yield* note(noteLook.style.yellow(`  could not be ended: ${pid} ${oneLine(command)}\n`))
  }
})

/** Starts a turn, or takes one up, and follows it to its end. */
export const watch = <E, R>(options: {
  readonly names: Names
  readonly turn: Effect.Effect<Turn.Turn, E, R>
  /** A handle of the turn by which it's aborted before its start was answered. */
  readonly handle: Turn.Turn
  readonly from: number
  readonly directory: string | undefined
  readonly json: boolean
  readonly approvals: Approvals
  readonly policy: Policy
}) =>
  Effect.gen(function*() {
    const { approvals, directory, from, handle, json, names, policy } = options
    const signals = yield* Signals
    const screen = yield* Screen
    let printed = from

    const following = Effect.gen(function*() {
      const turn = yield* options.turn
      return yield* follow({
        turn,
        from,
        directory,
        json,
        approvals,
        policy,
        onPrinted: (next) => {
          printed = next
        }
      })
    })
    const outcome = yield* Effect.raceFirst(following, signals.next)
    if (typeof outcome !== "string") return outcome

    // The terminal is gone with SIGHUP, and who sends SIGTERM wants no conversation.
    if (outcome !== "SIGINT") return yield* new Interrupted({ signal: outcome })
    const address = ["--bridge", names.bridge, "--session", names.session, "--turn", names.turn, ...names.flags]
    const attach = Invocation.commandLine(["attach", ...address, ...(printed > 1 ? ["--from", `${printed}`] : [])])
    const { style } = screen.noteLook
    yield* screen.note(
      `\n${style.bold(`Detached: turn ${names.turn} goes on.`)} Ctrl-C again aborts it.\n` +
        `  to follow it:  ${attach}\n` +
        `  to abort it:   ${Invocation.commandLine(["abort", ...address])}\n`
    )
    const second = yield* Effect.timeoutOption(signals.next, secondChance)
    if (Option.isNone(second)) return yield* new ExitWith({ exitCode: 130 })
    yield* screen.note("Aborting the turn.\n")
    const aborted = yield* handle.abort({ reason: "Ctrl-C" })
    yield* printAborted(aborted)
    return yield* new ExitWith({ exitCode: codes[aborted.end.type] })
  })
