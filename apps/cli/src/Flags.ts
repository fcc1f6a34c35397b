/**
 * The flags that several commands have.
 */
import { Bridge } from "@gangway/protocol"
import * as Option from "effect/Option"
import * as Argument from "effect/unstable/cli/Argument"
import * as Flag from "effect/unstable/cli/Flag"

export const bridge = Flag.String("bridge").pipe(
  Flag.withSchema(Bridge.BridgeId),
  Flag.withDescription("The bridge's id"),
  Flag.withMetavar("id"),
  Flag.optional
)

export const bridgeCommand = Flag.String("bridge-command").pipe(
  Flag.withDescription("The bridge program: a path, or a JSON array of a program and its arguments"),
  Flag.withMetavar("command"),
  Flag.optional
)

/** The bridge program as a flag again, for a command line that goes on from this one. */
export const bridgeCommandAgain = (given: Option.Option<string>): ReadonlyArray<string> =>
  Option.match(given, { onNone: () => [], onSome: (command) => ["--bridge-command", command] })

export const session = Flag.String("session").pipe(
  Flag.withSchema(Bridge.SessionId),
  Flag.withDescription("The session's id"),
  Flag.withMetavar("id")
)

/** What a command is about, for whoever doesn't name it by `--session` or `--turn`. */
export const target = Argument.String("session-or-turn").pipe(
  Argument.withDescription(
    "A session or its latest turn, by its id or how that begins; not needed where there's only one"
  ),
  Argument.optional
)

/** The flags that name a session exactly. */
export const namedSession = {
  session: Flag.optional(session),
  bridge: bridge.pipe(Flag.withDescription("The bridge's id; by default any"))
}

/** The flags that name a turn exactly. */
export const named = {
  ...namedSession,
  turn: Flag.String("turn").pipe(
    Flag.withSchema(Bridge.TurnId),
    Flag.withDescription("The turn's id; by default the session's latest"),
    Flag.withMetavar("id"),
    Flag.optional
  )
}

export const turn = Flag.String("turn").pipe(
  Flag.withSchema(Bridge.TurnId),
  Flag.withDescription("The turn's id"),
  Flag.withMetavar("id"),
  Flag.optional
)

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("Prints JSON, an object a line"),
  Flag.withDefault(false)
)

/** The same for what prints a turn. */
export const jsonTurn = json.pipe(
  Flag.withDescription("Prints one JSON object a line: the parts with their numbers, then the end")
)

/** Where to read a turn from. */
export const from = Flag.Int("from").pipe(
  Flag.filter((from) => from > 0, () => "Expected a number from 1 on"),
  Flag.withDescription("The number of the first part; 1"),
  Flag.withMetavar("number"),
  Flag.withDefault(1)
)

/** Who decides on what the agent asks. */
export type Approvals = "ask" | "deny" | "wait"

export const approvals = Flag.Literals("approvals", ["ask", "deny", "wait"]).pipe(
  Flag.withDescription("What the agent asks is asked at the terminal, denied, or left to other hosts"),
  Flag.optional
)
