import { assert, describe, it } from "@effect/vitest"
import type { Bridge } from "@gangway/protocol"
import type { Notification } from "../src/internal/codexMessages.ts"
import { turnFailed } from "../src/internal/codexOutcome.ts"
import { makeParts } from "../src/internal/codexParts.ts"
import { scriptOf, scriptOfWords } from "../src/internal/codexShell.ts"

const parts = () => makeParts({ usages: new Map(), thread: () => "main", trigger: "auto" })

const at = { threadId: "main", turnId: "turn" }

describe("the parts of Codex", () => {
  it("tell its plan", () => {
    const plan: Notification = {
      method: "turn/plan/updated",
      params: {
        ...at,
        plan: [
          { step: "Look", status: "completed" },
          { step: "Leap", status: "inProgress" },
          { step: "Land", status: "pending" }
        ]
      }
    }
    assert.deepStrictEqual(parts().take(plan), [{
      type: "plan",
      entries: [
        { content: "Look", status: "completed" },
        { content: "Leap", status: "in-progress" },
        { content: "Land", status: "pending" }
      ]
    }])
  })

  it("keep the paragraphs of a reasoning apart", () => {
    const made = parts()
    const told = [0, 0, 1].flatMap((summaryIndex) =>
      made.take({
        method: "item/reasoning/summaryTextDelta",
        params: { ...at, itemId: "r", delta: `${summaryIndex}`, summaryIndex }
      })
    )
    const text = told.map((part) => part.type === "reasoning-delta" ? part.delta : "").join("")
    assert.strictEqual(text, "00\n\n1")
    assert.strictEqual(told.filter(({ type }) => type === "reasoning-start").length, 1)
    assert.deepStrictEqual(made.close(true), [{ type: "reasoning-end", id: "r" }])
  })

  it("tell what came whole, and what a thread had used before only once", () => {
    const made = parts()
    const message = { type: "agentMessage", id: "m", text: "Whole." } as const
    assert.deepStrictEqual(
      made.take({ method: "item/completed", params: { ...at, item: message } }).map(({ type }) => type),
      ["text-start", "text-delta", "text-end"]
    )
    const total = {
      totalTokens: 110,
      inputTokens: 100,
      cachedInputTokens: 60,
      cacheWriteInputTokens: 30,
      outputTokens: 10,
      reasoningOutputTokens: 4
    }
    const usage: Notification = { method: "thread/tokenUsage/updated", params: { ...at, tokenUsage: { total } } }
    const [step] = made.take(usage) as ReadonlyArray<typeof Bridge.StepFinished.Type>
    assert.deepStrictEqual(step!.usage, {
      measured: true,
      inputTokens: { total: 100, uncached: 10, cacheRead: 60, cacheWrite: 30 },
      outputTokens: { total: 10, reasoning: 4 }
    })
    assert.deepStrictEqual(made.take(usage), [])
  })
})

describe("a command of Codex", () => {
  const commands = [
    ["/bin/bash -lc 'echo hi > r.txt'", "echo hi > r.txt"],
    ["bash -c ls", "ls"],
    ["/usr/bin/zsh -lc \"echo \\\"a\\\" '\\$x'\"", "echo \"a\" '$x'"],
    ["/bin/bash -lc \"echo it's \"'\"$HOME\"'", "echo it's \"$HOME\""],
    ["/bin/bash -lc 'one' two", "/bin/bash -lc 'one' two"],
    ["git status", "git status"],
    ["/bin/bash -lc 'open", "/bin/bash -lc 'open"]
  ] as const
  for (const [command, script] of commands) {
    it(`is read as its script: ${command}`, () => assert.strictEqual(scriptOf(command), script))
  }

  it("is read the same from its words", () => {
    assert.strictEqual(scriptOfWords(["/bin/bash", "-lc", "echo 'a b'"]), "echo 'a b'")
    assert.strictEqual(scriptOfWords(["git", "status"]), "git status")
  })
})

describe("a failure of Codex", () => {
  const failures = [
    [{ message: "m", codexErrorInfo: "contextWindowExceeded" }, "context-too-long"],
    [{ message: "m", codexErrorInfo: "usageLimitExceeded" }, "rate-limit"],
    [{ message: "m", codexErrorInfo: "serverOverloaded" }, "overloaded"],
    [{ message: "m", codexErrorInfo: "unauthorized" }, "auth"],
    [{ message: "m", codexErrorInfo: "badRequest" }, "invalid-request"],
    [{ message: "m", codexErrorInfo: { httpConnectionFailed: { httpStatusCode: 403 } } }, "auth"],
    [{ message: "m", codexErrorInfo: { responseStreamDisconnected: { httpStatusCode: null } } }, "overloaded"],
    [{ message: "m", codexErrorInfo: { responseTooManyFailedAttempts: { httpStatusCode: 429 } } }, "rate-limit"],
    [{ message: "m", codexErrorInfo: "something new" }, "unknown"],
    [{ message: "m" }, "unknown"],
    [undefined, "unknown"]
  ] as const
  for (const [error, kind] of failures) {
    it(`is '${kind}' where it says ${JSON.stringify(error)}`, () => assert.strictEqual(turnFailed(error).kind, kind))
  }

  it("is told in the provider's words", () => {
    const message = JSON.stringify({ error: { type: "invalid_request_error", code: null, message: "No such thing." } })
    assert.deepInclude(turnFailed({ message, codexErrorInfo: "other" }), {
      kind: "invalid-request",
      message: "No such thing."
    })
  })
})
