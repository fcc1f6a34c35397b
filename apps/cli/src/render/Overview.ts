/**
 * Bridges and their sessions as a person reads them: a line each, and what can be done where something is wrong.
 */
import type { Bridge } from "@gangway/protocol"
import type { Condition, SurveyedBridge, SurveyedSession } from "../Survey.ts"
import type { Look, Style } from "./Style.ts"
import { cut, oneLine, pad, wrap } from "./Text.ts"

const conditions: Readonly<Record<Condition, string>> = {
  "running": "running",
  "gone": "gone",
  "stopped": "its sandbox is stopped",
  "no-sandbox": "its sandbox is gone",
  "unknown": "not to be asked"
}

const advice: Partial<Record<Condition, string>> = {
  "gone": "gone: 'gangway attach' with a session launches its bridge again and continues an interrupted turn; " +
    "'gangway prune' removes what is left of them",
  "stopped": "stopped: 'gangway attach' with a session starts the sandbox again; 'gangway sandboxes prune' removes it",
  "no-sandbox": "sandbox gone: 'gangway prune' removes what is left of it here"
}

const dressOf = (style: Style, { latest }: SurveyedSession) => {
  switch (latest?.state) {
    case "running":
      return style.cyan
    case "finished":
      return style.green
    case "failed":
      return style.red
    case "aborted":
    case "interrupted":
      return style.yellow
    case undefined:
      return style.dim
  }
}

// Those first that somebody may have to look after.
const urgency = ({ latest }: SurveyedSession): number =>
  latest === undefined
    ? 4
    : (latest.waiting ?? []).length > 0
    ? 0
    : latest.state === "running"
    ? 1
    : latest.state === "interrupted"
    ? 2
    : 3

/** What is waited for, such as `approval of Bash`. */
export const waiting = ({ name = "", type }: Bridge.Waiting): string =>
  type === "approval"
    ? `approval of ${oneLine(name)}`
    : type === "question"
    ? "an answer"
    : `host tool ${oneLine(name)}`

const stateOf = ({ latest }: SurveyedSession, condition: Condition): string => {
  if (latest === undefined) return condition === "running" || condition === "gone" ? "no turn yet" : "not known"
  const attempt = latest.attempt > 1 ? `, attempt ${latest.attempt}` : ""
  const parts = latest.next === undefined ? "" : `, ${(latest.next - 1).toLocaleString("en")} parts`
  return `${latest.state}${attempt}${parts}`
}

/** The lines; of each bridge `most` sessions at most, and those that run or wait in any case. */
export const overview = (
  bridges: ReadonlyArray<SurveyedBridge>,
  most: number,
  { columns, style }: Look
): ReadonlyArray<string> => {
  const shown = bridges.map((bridge) => {
    const sessions = [...bridge.sessions].sort((a, b) => urgency(a) - urgency(b))
    return { bridge, sessions: sessions.filter((session, index) => index < most || urgency(session) < 2) }
  })
  const widthOf = (texts: ReadonlyArray<string>) => Math.max(0, ...texts.map((text) => text.length))
  const all = shown.flatMap(({ bridge: { condition }, sessions }) => sessions.map((one) => ({ ...one, condition })))
  const [sessionWidth, turnWidth, stateWidth] = [
    widthOf(all.map(({ session }) => session)),
    widthOf(all.map(({ latest }) => latest?.turn ?? "")),
    widthOf(all.map((session) => stateOf(session, session.condition)))
  ]
  const row = (session: SurveyedSession, condition: Condition): string => {
    const asked = (session.latest?.waiting ?? []).map(waiting).join(", ")
    const start = `  ${pad(session.session, sessionWidth)}  ${pad(session.latest?.turn ?? "", turnWidth)}  `
    const state = pad(stateOf(session, condition), stateWidth)
    const room = columns - start.length - state.length - 2
    const rest = asked === "" ? "" : cut(`? ${asked}`, Math.max(room, 12))
    const left = room - rest.length - (rest === "" ? 0 : 2)
    return start + dressOf(style, session)(state) + (rest === "" ? "" : `  ${style.yellow(rest)}`) +
      (left < 8 ? "" : `  ${style.dim(cut(oneLine(session.directory), left))}`)
  }
  const lines = shown.flatMap(({ bridge, sessions }) => {
    const isRunning = bridge.condition === "running"
    const words = [
      conditions[bridge.condition],
      ...(bridge.driver === undefined ? [] : [`${bridge.driver.name} ${bridge.driver.version}`]),
      ...(bridge.pid === undefined ? [] : [`pid ${bridge.pid}`]),
      ...(bridge.record?.sandbox === undefined ? [] : [`in ${bridge.record.sandbox.kind}`]),
      ...(bridge.problem === undefined ? [] : [oneLine(bridge.problem)])
    ].join(", ")
    const more = bridge.sessions.length - sessions.length
    return [
      `${isRunning ? style.green("●") : style.dim("○")} ${style.bold(bridge.bridge)}  ${
        style.dim(cut(words, columns - bridge.bridge.length - 4))
      }`,
      ...sessions.map((session) => row(session, bridge.condition)),
      ...(more === 0 ? [] : [style.dim(`  and ${more} more sessions: --all`)])
    ]
  })
  const told = [...new Set(bridges.map(({ condition }) => condition))].flatMap((condition) => advice[condition] ?? [])
  return [
    ...lines,
    ...(told.length === 0 ? [] : ["", ...told.flatMap((text) => wrap(text, columns).map((line) => style.dim(line)))])
  ]
}
