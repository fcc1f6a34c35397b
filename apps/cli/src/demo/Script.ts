/**
 * What the scripted agent does in the demo, and the directory that it works in.
 */
import type { Scripted } from "@gangway/drivers"
import type { Schema } from "effect"

/** The tool that the host runs. */
export const lookup = {
  name: "lookup",
  description: "Looks up an issue",
  parameters: {
    type: "object",
    properties: { issue: { type: "integer" } },
    required: ["issue"]
  } as Schema.JsonObject
}

/**
 * The check that is running when the bridge is killed. It counts its starts in the file `starts` and ends when there is
 * a file `go`, so that the kill can't come too late.
 */
export const check = `echo started >> starts
while [ ! -e go ]; do sleep 0.05; done
echo "12 checks passed"
`

const step = (input: number, output: number, ...actions: Scripted.Script["steps"][number]["actions"]) => ({
  actions,
  usage: { measured: true, inputTokens: { total: input }, outputTokens: { total: output } }
})

/** Text that's long enough for a connection to be lost in its middle. */
const report = "The importer cuts a file at 64 KiB, in the middle of a character where one is longer than a byte. " +
  "I'll cut it before the character, and check that nothing else changed."

export const script: Scripted.Script = {
  steps: [
    step(
      900,
      40,
      { type: "text", text: "I'll look the issue up first.", chunk: 10, delay: 15 },
      { type: "host-tools", calls: [{ name: lookup.name, params: { issue: 7 } }] }
    ),
    step(1_050, 60, { type: "text", text: report, chunk: 12, delay: 25 }),
    step(
      1_150,
      25,
      { type: "file", path: "importer.txt", text: "cut before the character\n" },
      {
        type: "tool",
        name: "Bash",
        params: { command: "sh check.sh" },
        command: ["sh", "check.sh"],
        approval: { reason: "it runs a program" }
      }
    ),
    step(1_250, 20, { type: "text", text: "All 12 checks pass: issue 7 is done.", chunk: 10, delay: 15 })
  ]
}
