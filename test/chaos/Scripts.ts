/**
 * Random scripts: turns of about a second, with all that an agent does in them.
 */
import type { Scripted } from "@gangway/drivers"
import type { Random } from "./Random.ts"

type Step = Scripted.Script["steps"][number]
type Action = Step["actions"][number]

/** Makes a script of several steps; each action says something that only it says. */
export const make = (random: Random, seed: number): Scripted.Script => {
  const steps = Array.from({ length: random.integer(4, 9) }, (_, index): Step => {
    const actions = Array.from({ length: random.integer(1, 3) }, () => action(random))
    // What's left running is ended with its bridge, and with the session.
    if (index < 2 && random.chance(0.15)) {
      actions.push({
        type: "spawn",
        command: "exec sleep 1000",
        setsid: random.chance(0.5),
        ignoreTerm: random.chance(0.1),
        background: true
      })
    }
    return {
      actions,
      usage: { measured: true, inputTokens: { total: 10 + index }, outputTokens: { total: 1 } }
    }
  })
  return { seed, steps, finishReason: "stop" }
}

const text = (random: Random, type: "text" | "reasoning", length: number): Action => ({
  type,
  random: { length, alphabet: random.pick(["ascii", "unicode", "surrogates"]) },
  chunk: random.integer(1, 40),
  ...(random.chance(0.7) ? { delay: random.integer(0, 5) } : {})
})

const action = (random: Random): Action => {
  const kind = random.integer(0, 99)
  if (kind < 40) return text(random, random.pick(["text", "text", "reasoning"]), random.integer(1, 500))
  if (kind < 55) {
    return {
      type: "tool",
      name: "bash",
      params: { command: "x".repeat(random.integer(0, 100)) },
      ...(random.chance(0.5) ? { paramsChunk: random.integer(1, 20) } : {}),
      ...(random.chance(0.3) ? { approval: {} } : {}),
      ...(random.chance(0.3) ? { preliminary: 2 } : {}),
      delay: random.integer(0, 40),
      random: { length: random.integer(0, 3000), alphabet: "unicode" }
    }
  }
  if (kind < 70) {
    return {
      type: "host-tools",
      calls: [{ name: "lookup", params: { word: "one" } }, ...(random.chance(0.4) ? [{ name: "lookup" }] : [])],
      echo: true
    }
  }
  if (kind < 76) {
    return {
      type: "question",
      questions: [{ question: "Which one?", options: [{ label: "this" }, { label: "that" }] }],
      echo: true
    }
  }
  if (kind < 82) {
    return { type: "file", path: `file-${random.integer(0, 3)}`, random: { length: random.integer(0, 400) } }
  }
  if (kind < 87) {
    return {
      type: "sub-agent",
      name: "explore",
      actions: [
        { type: "text", random: { length: 100 }, chunk: 10, delay: 1 },
        { type: "tool", name: "grep", random: { length: 50 } }
      ]
    }
  }
  if (kind < 92) return { type: "burst", parts: random.integer(100, 3000), size: 60 }
  // Longer than a line may be.
  if (kind < 94) return { type: "tool", name: "cat", random: { length: random.integer(1_000_000, 2_500_000) } }
  if (kind < 97) {
    return {
      type: "parts",
      parts: [
        { type: "plan", entries: [{ content: "one", status: "pending" }] },
        { type: "notice", level: "info", message: "a notice of the agent's" }
      ]
    }
  }
  return { type: "compaction", summary: "what came before" }
}
