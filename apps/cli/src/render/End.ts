/**
 * The end of a turn as a person reads it, with what it used.
 */
import type { Bridge } from "@gangway/protocol"
import type { State } from "./Parts.ts"
import type { Look } from "./Style.ts"
import { cut, oneLine, printable } from "./Text.ts"
import * as Values from "./Values.ts"

const reasons: Readonly<Record<Bridge.AbortReason, string>> = {
  "host": "a host aborted it",
  "replaced": "another turn of its session was started",
  "stopped": "its session was stopped",
  "destroyed": "its session was destroyed",
  "bridge-replaced": "a newer bridge took its session over",
  "bridge-died": "its bridge died",
  "shutdown": "its bridge was shut down",
  "log-damaged": "its file was damaged",
  "timeout": "its time was up",
  "limit": "it reached a limit"
}

// What a host that has the session's options goes on with by itself.
const continued: ReadonlySet<Bridge.AbortReason> = new Set(["bridge-replaced", "bridge-died", "shutdown"])

const advice: Partial<Record<Bridge.FailureKind, string>> = {
  "auth": "check the agent's key, or log in",
  "rate-limit": "try again later",
  "overloaded": "try again later",
  "context-too-long": "go on in another session",
  "disk-full": "make room on the disk of the state directory"
}

const maxSteps = 12

/** How a turn ended, such as `aborted: its time was up`. */
export const ending = (end: Bridge.End): string => {
  switch (end.type) {
    case "finished":
      return end.finishReason === "stop" || end.finishReason === "end_turn"
        ? "finished"
        : `finished (${end.finishReason})`
    case "aborted": {
      const limit = end.limit === undefined ? "" : ` (${end.limit})`
      const message = end.message === undefined ? "" : `: ${oneLine(end.message)}`
      const todo = continued.has(end.reason) ? "; 'gangway attach' continues it" : ""
      return `aborted: ${reasons[end.reason]}${limit}${message}${todo}`
    }
    case "failed": {
      const { kind, message } = end.error
      const todo = advice[kind]
      return `failed (${kind}): ${oneLine(message)}${todo === undefined ? "" : `; ${todo}`}`
    }
  }
}

/** The last lines of a turn. */
export const renderEnd = ({ above, fresh, steps }: State, end: Bridge.End, { columns, style }: Look): string => {
  const dress = end.type === "finished" ? style.green : end.type === "failed" ? style.red : style.yellow
  const mark = end.type === "finished" ? "✓" : end.type === "failed" ? "✗" : "■"
  const each = steps.slice(0, maxSteps).map(({ usage }) => Values.usage(usage)).join(" · ")
  const lines = [
    dress(`${mark} ${printable(ending(end))}`) +
    style.dim(`${steps.length === 0 ? "" : ` · ${many(steps.length, "step")}`} · ${Values.usage(end.usage)}`)
  ]
  if (steps.length > 1) {
    const more = steps.length > maxSteps ? ` · and ${steps.length - maxSteps} more` : ""
    lines.push(style.dim(cut(`  by step: ${each}${more}`, columns)))
  }
  if (end.type === "finished") {
    for (const { command, pid } of end.background ?? []) {
      lines.push(style.yellow(cut(`  left running: ${pid} ${oneLine(command)}`, columns)))
    }
    if (end.output !== undefined) lines.push(printable(JSON.stringify(end.output, undefined, 2)))
  }
  return `${fresh ? "" : "\n"}${above === "nothing" ? "" : "\n"}${lines.join("\n")}\n`
}

const many = (count: number, word: string) => `${count} ${word}${count === 1 ? "" : "s"}`
