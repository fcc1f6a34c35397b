/**
 * Which session and turn a command is about: one that's named by flags, with whole ids, for scripts; by a word that's an
 * id or how one begins, for people; or the only one that there is.
 */
import type { Bridge } from "@gangway/protocol"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { UsageError } from "./Failure.ts"
import { Registry } from "./Registry.ts"
import * as Survey from "./Survey.ts"

/** The command line's words for it. */
export interface Named {
  /** A session or its latest turn, by its id or how that begins. */
  readonly target?: Option.Option<string>
  readonly session: Option.Option<Bridge.SessionId>
  readonly turn?: Option.Option<Bridge.TurnId>
  readonly bridge: Option.Option<Bridge.BridgeId>
}

/** A session of a bridge, as it was when it was looked at. */
export interface Candidate {
  readonly bridge: Survey.SurveyedBridge
  readonly session: Survey.SurveyedSession
}

/** The bridges that are meant: the named one, or all. */
export const bridges = Effect.fnUntraced(function*(named: Option.Option<Bridge.BridgeId>) {
  const { bridges } = yield* Registry
  const known = yield* bridges
  if (Option.isNone(named)) return known
  if (known.includes(named.value)) return [named.value]
  return yield* new UsageError({
    problem: `no bridge ${named.value} is known${known.length === 0 ? "" : `: there are ${known.join(", ")}`}`
  })
})

/** The sessions that are named, of those that a command can be about. */
export const candidates = Effect.fnUntraced(function*(
  named: Named,
  isMeant: (session: Survey.SurveyedSession) => boolean = () => true
) {
  const among = yield* bridges(named.bridge)
  if (among.length === 0) {
    return yield* new UsageError({ problem: "no bridge is known yet: 'gangway run' launches one" })
  }
  const surveyed = yield* Survey.survey(among)
  const all = surveyed.flatMap((bridge) => bridge.sessions.map((session): Candidate => ({ bridge, session })))
  const sessionOf = ({ session }: Candidate) => session.session
  const turnOf = ({ session }: Candidate) => session.latest?.turn
  const { session, target = Option.none(), turn = Option.none() } = named
  const bySession = all.filter((one) => Option.isNone(session) || sessionOf(one) === session.value)
  if (Option.isSome(session) && bySession.length === 0) {
    const where = surveyed.length === 1 ? `bridge ${surveyed[0]!.bridge} has` : "there is"
    return yield* new UsageError({ problem: `${where} no session ${session.value}` })
  }
  // Of a session that's named an earlier turn may be asked for: its bridge knows what became of it.
  const byTurn = bySession.filter((one) => Option.isSome(session) || Option.isNone(turn) || turnOf(one) === turn.value)
  const found = Option.match(target, {
    onNone: () => byTurn,
    onSome: (target) => or(beginning(byTurn, target, sessionOf), beginning(byTurn, target, turnOf))
  })
  return { named: found, meant: found.filter(({ session }) => isMeant(session)) }
})

/** The one session that a command is about. */
export const find = Effect.fnUntraced(function*(options: {
  readonly named: Named
  /** Which sessions the command can be about; all. */
  readonly isMeant?: (session: Survey.SurveyedSession) => boolean
  /** Which of several it's about, where that's one; none. */
  readonly isPreferred?: (session: Survey.SurveyedSession) => boolean
  /** What it is about, such as `running turn`; `session`. */
  readonly noun?: string
}) {
  const { isMeant, isPreferred = () => false, named, noun = "session" } = options
  const found = yield* candidates(named, isMeant)
  // What is named is meant, whatever state it's in: then the bridge says what is wrong with that.
  const meant = found.meant.length === 0 && isNamed(named) ? found.named : found.meant
  const preferred = meant.filter(({ session }) => isPreferred(session))
  const [first, ...others] = preferred.length === 1 ? preferred : meant
  if (first === undefined) {
    const { target = Option.none(), turn = Option.none() } = named
    const what = Option.isSome(target)
      ? `session or turn ${target.value}`
      : Option.isSome(turn)
      ? `turn ${turn.value}`
      : noun
    return yield* new UsageError({ problem: `there is no ${what}: 'gangway ps' lists what there is` })
  }
  if (others.length > 0) {
    const listed = [first, ...others].slice(0, maxListed).map(nameOf).join(", ")
    const more = others.length >= maxListed ? `, and ${others.length + 1 - maxListed} more` : ""
    return yield* new UsageError({ problem: `several could be meant, so name one: ${listed}${more}` })
  }
  const { bridge, session } = first
  if (bridge.record === undefined) {
    return yield* new UsageError({
      problem: `bridge ${bridge.bridge} isn't known any more: 'gangway prune' removes it`
    })
  }
  return {
    bridge: bridge.bridge,
    agent: bridge.record.agent,
    record: bridge.record,
    session: session.session,
    /** The turn that's named, or the latest. */
    turn: Option.getOrUndefined(named.turn ?? Option.none()) ?? session.latest?.turn,
    surveyed: session
  }
})

const isNamed = ({ session, target = Option.none(), turn = Option.none() }: Named) =>
  Option.isSome(session) || Option.isSome(target) || Option.isSome(turn)

const maxListed = 8

const nameOf = ({ bridge: { bridge }, session: { latest, session } }: Candidate) =>
  `${session} of ${bridge}${latest === undefined ? "" : ` (turn ${latest.turn}, ${latest.state})`}`

const or = <A>(first: ReadonlyArray<A>, second: ReadonlyArray<A>) => first.length > 0 ? first : second

/** Those with the id, or else those whose id begins so. */
export const beginning = <A>(
  all: ReadonlyArray<A>,
  id: string,
  idOf: (one: A) => string | undefined
): ReadonlyArray<A> => {
  const exact = all.filter((one) => idOf(one) === id)
  return exact.length > 0 ? exact : all.filter((one) => idOf(one)?.startsWith(id) === true)
}

/** Whether a session's turn runs. */
export const isRunning = ({ latest }: Survey.SurveyedSession): boolean => latest?.state === "running"
