/**
 * What is decided on an agent's requests before anybody is asked, by the names of its tools.
 */
import type { Turn } from "@gangway/client"
import type { Bridge } from "@gangway/protocol"
import * as Flag from "effect/unstable/cli/Flag"
import type { Asked } from "./Answer.ts"

/** The tools that are allowed each time, and those that are denied: a tool in both is. */
export interface Policy {
  readonly allow: ReadonlyArray<string>
  readonly deny: ReadonlyArray<string>
}

const tools = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.withMetavar("tool"), Flag.atLeast(0))

export const flags = {
  allow: tools("allow", "A tool that's allowed each time it's asked for, by its name; may be given several times"),
  deny: tools("deny", "A tool that's denied each time it's asked for; may be given several times")
}

/** What the policy says of a request; nothing of what is left to others. */
export const decide = ({ allow, deny }: Policy, asked: Asked): {
  readonly request: typeof Bridge.ToolApprovalRequest.Type
  readonly approval: Turn.Approval
} | undefined => {
  if (asked.type === "question") return undefined
  if (deny.includes(asked.name)) {
    return { request: asked, approval: { decision: "deny", reason: "This tool isn't to be used here." } }
  }
  return allow.includes(asked.name) ? { request: asked, approval: { decision: "allow" } } : undefined
}
