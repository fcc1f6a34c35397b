/**
 * The program of Claude Code: which one is looked for, and what it must be.
 */
import { patches, type Wanted } from "./agentProgram.ts"
import { driver } from "./claudeProcess.ts"

/** The last numbers of 2.1.x. */
export const supportedVersions: { readonly from: number; readonly to: number; readonly tested: string } = {
  from: 332,
  to: 349,
  tested: "2.1.332"
}

export const wanted: Wanted = {
  driver,
  title: "Claude Code",
  install: `@anthropic-ai/claude-code@${supportedVersions.tested}`,
  versions: patches("2.1", supportedVersions),
  read: (printed) => printed.trim().split(" ")[0],
  patience: "30 seconds"
}
