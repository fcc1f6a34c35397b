import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import * as Ask from "../src/Ask.ts"
import { plain } from "../src/render/Style.ts"

const look = { style: plain, columns: 80 }

const request = (rule?: string): typeof Bridge.ToolApprovalRequest.Type => ({
  type: "tool-approval-request",
  approvalId: "a",
  toolCallId: "c",
  name: "Write",
  params: { file_path: "a.txt", content: "one\ntwo\x1b" },
  ...(rule === undefined ? {} : { rule })
})

describe("an approval", () => {
  it("is a letter or a word, and a reason after a no", () => {
    const read = (line: string) => Ask.readApproval(line, request("all edits"))
    assert.deepStrictEqual(read(" Y "), { _tag: "Decision", approval: { decision: "allow" } })
    assert.deepStrictEqual(read("yes"), { _tag: "Decision", approval: { decision: "allow" } })
    assert.deepStrictEqual(read("a"), { _tag: "Decision", approval: { decision: "allow-always" } })
    assert.deepStrictEqual(read("n"), { _tag: "Decision", approval: { decision: "deny" } })
    assert.deepStrictEqual(read("no not  today"), {
      _tag: "Decision",
      approval: { decision: "deny", reason: "not today" }
    })
    assert.deepStrictEqual(read("v"), { _tag: "View" })
  })

  it("is never guessed", () => {
    for (const line of ["", "yy", "yes but", "maybe", "a a", "ja", "1", "v x"]) {
      assert.deepStrictEqual(Ask.readApproval(line, request("all edits")), { _tag: "Unclear" }, line)
    }
  })

  it("can be given for always only where the agent says for what", () => {
    assert.deepStrictEqual(Ask.readApproval("a", request()), { _tag: "Unclear" })
    assert.notInclude(Ask.approvalPrompt(request(), look), "always")
    assert.include(Ask.approvalPrompt(request("all edits"), look), "a always (all edits)")
  })

  it("can be preceded by a look at all of it", () => {
    assert.strictEqual(
      Ask.viewApproval(request()),
      "    Write\n    file_path: a.txt\n    content:\n      one\n      two␛\n"
    )
  })
})

describe("an answer", () => {
  const one = { question: "Which?", options: [{ label: "Red" }, { label: "Blue" }] }
  const many = { ...one, multiple: true }

  it("is a number, or words", () => {
    assert.strictEqual(Ask.readAnswer("2", one), "Blue")
    assert.strictEqual(Ask.readAnswer(" Green, please ", one), "Green, please")
    assert.strictEqual(Ask.readAnswer("3", one), "3")
    assert.isUndefined(Ask.readAnswer("  ", one))
  })

  it("is several of them where the question takes several", () => {
    assert.deepStrictEqual(Ask.readAnswer("1, 2,Green", many), ["Red", "Blue", "Green"])
  })
})
