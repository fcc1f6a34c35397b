/**
 * The agents that were found, a line each, as a person reads them.
 */
import type { FoundAgent } from "@gangway/drivers/FoundAgent"
import type { Look } from "./Style.ts"
import { oneLine } from "./Text.ts"

/** The agents in columns: which it is, its version or what's wrong, and what it can do or what to do about it. */
export const foundAgents = (found: ReadonlyArray<FoundAgent>, { style }: Look): string => {
  const widthOf = (texts: ReadonlyArray<string>) => Math.max(...texts.map((text) => text.length))
  const nameWidth = widthOf(found.map(({ agent }) => agent))
  const stateWidth = widthOf(found.map(stateOf))
  return found.map((agent) => {
    const isReady = agent.status === "ready"
    const mark = isReady ? style.green("✓") : agent.status === "missing" ? style.dim("·") : style.red("✗")
    const state = stateOf(agent).padEnd(stateWidth)
    return `${mark} ${style.bold(agent.agent.padEnd(nameWidth))}  ${isReady ? state : style.dim(state)}  ${
      rest(agent)
    }\n`
  }).join("")
}

const stateOf = (agent: FoundAgent): string => {
  switch (agent.status) {
    case "ready":
      return oneLine(agent.version)
    case "missing":
      return "not found"
    case "wrong-version":
      return "doesn't fit"
    case "failed":
      return "fails"
  }
}

const rest = (agent: FoundAgent): string => {
  if (agent.status === "missing") return agent.install
  if (agent.status !== "ready") return oneLine(agent.problem)
  const capabilities = Object.entries(agent.capabilities)
  const of = (can: boolean) => capabilities.filter(([, value]) => value === can).map(([name]) => name).join(", ")
  const [can, cannot] = [of(true), of(false)]
  if (cannot === "") return "all capabilities"
  return cannot.length < can.length ? `all capabilities but ${cannot}` : can
}
