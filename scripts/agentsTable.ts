/**
 * Writes the tables of docs/agents.md and docs/acp.md: what each agent can do, from what its suite expects of it and its
 * driver.
 *
 *   bun scripts/agentsTable.ts
 */
import { knownAgents } from "@gangway/drivers/KnownAgents"
import type { Bridge } from "@gangway/protocol"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Untold } from "../test/conformance/driverWorld.ts"
import * as Expected from "../test/conformance/expectations.ts"

const begin = "<!-- Made by `bun scripts/agentsTable.ts` of test/conformance/expectations.ts: change that. -->\n"
const end = "<!-- end -->"

/** The file of an agent's suite, and what it's expected to do. */
const suites: Readonly<Record<string, readonly [file: string, Expected.Expectations | Expected.Shorter]>> = {
  "claude-code": ["claude-code.test.ts", Expected.claudeCode],
  "codex": ["codex.test.ts", Expected.codex],
  "opencode": ["acp-opencode.test.ts", Expected.opencode],
  "gemini": ["acp-others.test.ts", Expected.gemini],
  "qwen": ["acp-others.test.ts", Expected.qwen],
  "claude-agent-acp": ["acp-others.test.ts", Expected.claudeAgentAcp]
}

/** Which of them stand in which document. */
const documents: Readonly<Record<string, ReadonlyArray<string>>> = {
  "docs/agents.md": Object.keys(suites),
  "docs/acp.md": Object.keys(suites).filter((agent) => "tellsInput" in suites[agent]![1])
}

/** The documents that have a table. */
export const paths = Object.keys(documents)

const capabilities: Readonly<Record<keyof Bridge.Capabilities, string>> = {
  reasoning: "reasoning as it comes",
  toolParams: "a tool's input piece by piece",
  hostTools: "the host's tools",
  approvals: "asks before it acts",
  questions: "asks the user",
  images: "images in prompts",
  fileChanges: "changes of files as diffs",
  compaction: "`Compact`",
  continuation: "a turn that was cut goes on in its conversation",
  state: "`ReadState`, and going on from it elsewhere",
  structuredOutput: "an answer in a given form",
  mcpServers: "the session's MCP servers",
  effort: "`effort`",
  usage: "usage by step",
  steering: "takes messages while it works"
}

/** Those that a host asks for in a command, which the bridge then refuses. */
const refused: ReadonlySet<string> = new Set<keyof Bridge.Capabilities>([
  "compaction",
  "continuation",
  "effort",
  "images",
  "state",
  "steering",
  "structuredOutput"
])

const untold: Readonly<Record<Untold, string>> = {
  "cache-writes": "tells tokens written to a cache",
  "denials": "hears why the host denied a call",
  "failures": "tells the kind of any failure of its model",
  "retries": "tells that its model is called again"
}

const table = (names: ReadonlyArray<string>): string => {
  const agents = names.map((agent) => {
    const [file, expected] = suites[agent]!
    const { install } = knownAgents.find((known) => known.agent === agent)!
    return { agent, file, expected, version: install.split("@").at(-1) }
  })
  const row = (title: string, cell: (agent: (typeof agents)[number]) => string) =>
    `| ${[title, ...agents.map(cell)].join(" | ")} |\n`
  const manner = (title: string, has: (expected: Expected.Expectations) => boolean) =>
    row(title, ({ expected }) => "untold" in expected ? has(expected) ? "yes" : "no" : "–")
  return [
    row("", ({ agent }) => `\`${agent}\``),
    row("---", () => "---").replaceAll(" ", ""),
    row("version", ({ version }) => `${version}`),
    row("shown by", ({ file }) => `[${file}](../test/drivers/${file})`),
    ...Object.entries(capabilities).map(([capability, title]) =>
      row(
        `\`${capability}\`: ${title}`,
        ({ expected }) =>
          expected.capabilities[capability as keyof Bridge.Capabilities]
            ? "yes"
            : refused.has(capability)
            ? "`Unsupported`"
            : "no"
      )
    ),
    ...(agents.some(({ expected }) => !("tellsInput" in expected)) ? [] : [
      row("a command is its call's input", ({ expected }) => (expected as Expected.Commands).tellsInput ? "yes" : "no"),
      row("what it prints is the result", ({ expected }) => (expected as Expected.Commands).tellsOutput ? "yes" : "no")
    ]),
    manner("tells what a cut call of its model used", ({ tellsCutSteps }) => tellsCutSteps),
    manner("a host says what `Compact` keeps", ({ compactsAsTold }) => compactsAsTold),
    ...Object.entries(untold).map(([name, title]) => manner(title, ({ untold }) => !untold.has(name as Untold)))
  ].join("")
}

/** The document as it should be; it has a place for the table. */
export const withTable = (path: string, document: string): string => {
  const [from, to] = [document.indexOf(begin), document.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`${path} has no place for the table`)
  return `${document.slice(0, from)}${begin}\n${table(documents[path]!)}\n${document.slice(to)}`
}

if (import.meta.main) {
  for (const path of paths) {
    const file = join(import.meta.dirname, "..", path)
    writeFileSync(file, withTable(path, readFileSync(file, "utf8")))
  }
}
