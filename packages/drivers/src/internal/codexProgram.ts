/**
 * The program of Codex: which one is looked for, and what it must be.
 */
import { patches, type Wanted } from "./agentProgram.ts"
import { driver } from "./codexProcess.ts"

/** The last numbers of 0.171.x. */
export const supportedVersions: { readonly from: number; readonly to: number; readonly tested: string } = {
  from: 0,
  to: 99,
  tested: "0.171.0"
}

export const wanted: Wanted = {
  driver,
  title: "Codex",
  install: `@openai/codex@${supportedVersions.tested}`,
  versions: patches("0.171", supportedVersions),
  read: (printed) => printed.trim().split(" ").at(-1),
  patience: "30 seconds"
}
