import { assert, describe, it } from "@effect/vitest"
import { Bridge } from "@gangway/protocol"
import { renderEnd } from "../src/render/End.ts"
import * as Parts from "../src/render/Parts.ts"
import { coloured, type Look, plain } from "../src/render/Style.ts"
import { cut, firstLines, oneLine, printable } from "../src/render/Text.ts"
import * as Values from "../src/render/Values.ts"

const look: Look = { style: plain, columns: 60, directory: "/srv/project" }

const draw = (parts: ReadonlyArray<Bridge.Part>, how: Look = look) => {
  let state = Parts.initial
  let out = ""
  parts.forEach((part, index) => {
    const [next, text] = Parts.render(state, { n: index + 1, part }, how)
    state = next
    out += text
  })
  return { out, state }
}

const text = (id: string, ...deltas: ReadonlyArray<string>): ReadonlyArray<Bridge.KnownPart> => [
  { type: "text-start", id },
  ...deltas.map((delta) => ({ type: "text-delta", id, delta }) as const),
  { type: "text-end", id }
]

const lines = (...lines: ReadonlyArray<string>) => lines.map((line) => `${line}\n`).join("")

describe("text", () => {
  it("comes as it is, and stands apart from what isn't text", () => {
    const { out } = draw([
      ...text("1", "Let me ", "look.\n", "Now."),
      { type: "tool-call", id: "c", name: "Read", params: { file_path: "/srv/project/a.ts" } },
      { type: "tool-result", id: "c", name: "Read", result: "one\ntwo", isFailure: false },
      ...text("2", "\n\nI see.")
    ])
    assert.strictEqual(
      out,
      lines("Let me look.", "Now.", "", "→ Read  a.ts", "  ✓ one", "    two", "", "I see.")
    )
  })

  it("of reasoning is marked on every line, dim at a terminal", () => {
    const parts = [
      { type: "reasoning-start", id: "1" },
      { type: "reasoning-delta", id: "1", delta: "First this,\nth" },
      { type: "reasoning-delta", id: "1", delta: "en that." },
      { type: "reasoning-end", id: "1" }
    ] as const
    assert.strictEqual(draw(parts).out, lines("┊ First this,", "┊ then that."))
    const { out } = draw(parts, { ...look, style: coloured })
    assert.strictEqual(Bun.stripANSI(out), draw(parts).out)
    assert.include(out, "\x1b[2mFirst this,\x1b[22m")
  })

  it("of a sub-agent stands to the right, and of several at once in lines of their own", () => {
    const delta = (id: string, delta: string) => ({ type: "text-delta", id, delta, parent: `call ${id}` }) as const
    const { out } = draw([...text("0", "Go."), delta("a", "One"), delta("b", "Two"), delta("a", "more\nof it")])
    assert.strictEqual(out, "Go.\n\n  │ One\n\n  │ Two\n\n  │ more\n  │ of it")
  })

  it("of a sub-agent's sub-agents stands further to the right, down to the fifth", () => {
    const call = (id: string, parent?: string) => ({
      type: "tool-call",
      id,
      name: id,
      params: {},
      ...(parent && { parent })
    })
    const chain = ["a", "b", "c", "d", "e", "f", "g"].map((id, i, all) => call(id, all[i - 1]) as Bridge.Part)
    const { out } = draw([
      ...chain,
      { type: "text-delta", id: "1", delta: "Of c's.", parent: "c" },
      { type: "text-delta", id: "2", delta: "Of one that began before.", parent: "unknown" }
    ])
    assert.strictEqual(
      out,
      [0, 1, 2, 3, 4, 5, 5].map((depth, i) => `${"  │ ".repeat(depth)}→ ${"abcdefg"[i]}\n`).join("") +
        "\n  │   │   │ Of c's.\n\n  │ Of one that began before."
    )
  })

  it("can't command the terminal", () => {
    const { out } = draw([
      ...text("1", "\x1b[2J\x1b]0;title\x07gone\r\n", "\u202eevil\x9b"),
      { type: "tool-call", id: "c", name: "Bash\x1b[1A", params: { command: "a\x1b[8m; rm -rf ~" } },
      { type: "tool-result", id: "c", name: "Bash", result: "\x1b[1A\r", isFailure: true },
      {
        type: "tool-approval-request",
        approvalId: "a",
        toolCallId: "c",
        name: "Bash",
        params: "\x1b[1A",
        reason: "\x07"
      },
      { type: "file-change", path: "\x1b[1A", kind: "update", diff: "-\x1b[1A" },
      { type: "notice", level: "warning", message: "\x1b" },
      { type: "\x1b" } as never
    ])
    assert.notMatch(out, /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]/)
    assert.include(out, "␛[2J␛]0;title␇gone\n")
  })
})

describe("parts", () => {
  it("are told in a line or a few", () => {
    const { out } = draw([
      { type: "plan", entries: [{ content: "Look", status: "completed" }, { content: "Leap", status: "in-progress" }] },
      { type: "retry", attempt: 1, maxAttempts: 10, delay: 2000, message: "overloaded" },
      { type: "tool-call", id: "c", name: "lookup", params: { issue: 7 }, providerExecuted: false },
      { type: "tool-result", id: "c", name: "lookup", result: { preliminary: 0 }, isFailure: false, preliminary: true },
      { type: "tool-result", id: "c", name: "lookup", result: [{ type: "text", text: "no" }], isFailure: true },
      {
        type: "tool-approval-request",
        approvalId: "a",
        toolCallId: "c",
        name: "Bash",
        params: { command: "git push" },
        reason: "it leaves the machine"
      },
      { type: "tool-approval-response", approvalId: "a", decision: "deny", reason: "not today", by: "host" },
      {
        type: "question",
        questionId: "q",
        questions: [{ question: "Which?", options: [{ label: "Red", description: "warm" }, { label: "Blue" }] }]
      },
      { type: "question-answer", questionId: "q", answer: { "Which?": "Blue" }, isFailure: false, by: "host" },
      { type: "compaction", trigger: "auto", tokensBefore: 100_000, tokensAfter: 2_000 },
      { type: "source", sourceType: "url", id: "s", title: "Docs", url: "https://example.com" },
      { type: "error", error: "it broke" },
      { type: "a-later-version's" } as never
    ])
    assert.strictEqual(
      out,
      lines(
        "☑ Look",
        "◐ Leap",
        "↻ the model's call failed and is tried again in 2 s (1 of 1…",
        "→ lookup (host tool)  {\"issue\":7}",
        "  ✗ no",
        "? Bash git push",
        "  it leaves the machine",
        "  denied: not today",
        "? Which?",
        "  1. Red  warm",
        "  2. Blue",
        "  answered: Blue",
        "◇ the conversation was shortened, from 100,000 to 2,000 tokens",
        "▫ Docs https://example.com",
        "✗ it broke",
        "(a-later-version's)"
      )
    )
  })

  it("that change files are their diffs, in colours at a terminal", () => {
    const change: Bridge.KnownPart = {
      type: "file-change",
      path: "/srv/project/src/a.ts",
      kind: "update",
      diff: "--- a/src/a.ts\n+++ b/src/a.ts\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n"
    }
    assert.strictEqual(
      draw([change]).out,
      lines("± update src/a.ts", "  @@ -1,2 +1,2 @@", "  -old", "  +new", "   same")
    )
    const { out } = draw([change], { ...look, style: coloured })
    assert.include(out, "\x1b[31m-old\x1b[39m")
    assert.include(out, "\x1b[32m+new\x1b[39m")
    assert.include(out, "\x1b[36m@@ -1,2 +1,2 @@\x1b[39m")
  })

  it("that are long are cut, with a word about what's left out", () => {
    const diff = Array.from({ length: 1000 }, (_, i) => `+${i}`).join("\n")
    const { out } = draw([
      { type: "tool-result", id: "c", name: "Bash", result: "a line\n".repeat(100), isFailure: false },
      { type: "file-change", path: "big", kind: "create", diff }
    ])
    assert.include(out, "    … 96 more lines\n")
    assert.include(out, "  +199\n  … 800 more lines\n")
  })

  it("say what a continued turn voids, and their steps no longer count", () => {
    const usage = (total: number) => ({ measured: true, inputTokens: { total } })
    const { out, state } = draw([
      { type: "step-finished", usage: usage(1) },
      ...text("1", "half"),
      { type: "step-finished", usage: usage(2) },
      { type: "turn-continued", attempt: 2, keep: 1 },
      { type: "step-finished", usage: usage(3) }
    ])
    assert.include(out, "↺ the turn goes on, attempt 2: of what stands above, the parts from 2 to 5 are void\n")
    assert.deepStrictEqual(state.steps.map(({ n }) => n), [1, 7])
  })
})

describe("ends", () => {
  const usage: Bridge.Usage = {
    measured: true,
    inputTokens: { total: 12_345, cacheRead: 10_000 },
    outputTokens: { total: 678 },
    cost: 0.01234
  }
  const step = (n: number) => ({ n, usage: { measured: true, inputTokens: { total: n } } })
  const state = (...steps: ReadonlyArray<ReturnType<typeof step>>): Parts.State => ({ ...Parts.initial, steps })

  it("tell what was used, over all and by step", () => {
    assert.strictEqual(
      renderEnd(state(step(1), step(2)), { type: "finished", usage, finishReason: "stop" }, look),
      lines("✓ finished · 2 steps · 12,345 in (10,000 cached), 678 out, $0.0123", "  by step: 1 in · 2 in")
    )
    assert.include(
      renderEnd(
        state(step(1)),
        { type: "finished", usage: { ...usage, measured: false }, finishReason: "length" },
        look
      ),
      "✓ finished (length) · 1 step · at least 12,345 in"
    )
  })

  it("say why, and what to do", () => {
    const failed = { type: "failed", error: { kind: "auth", message: "401" }, usage: { measured: true } } as const
    assert.strictEqual(
      renderEnd(state(), failed, look),
      lines("✗ failed (auth): 401; check the agent's key, or log in · usage unknown")
    )
    for (const reason of Bridge.AbortReason.literals) {
      const out = renderEnd(state(), { type: "aborted", reason, usage: { measured: true } }, look)
      assert.match(out, /^■ aborted: [a-z' ]+(; 'gangway attach' continues it)? · usage unknown\n$/)
      assert.strictEqual(out.includes("attach"), ["bridge-died", "bridge-replaced", "shutdown"].includes(reason))
    }
  })

  it("stand below a line that was left open", () => {
    const { state } = draw([{ type: "text-delta", id: "1", delta: "cut in the mid" }])
    const end: Bridge.End = { type: "aborted", reason: "host", message: "Ctrl-C", usage: { measured: true } }
    assert.strictEqual(renderEnd(state, end, look), "\n\n■ aborted: a host aborted it: Ctrl-C · usage unknown\n")
  })

  it("list what the agent left running", () => {
    const background = [{ pid: 12, command: "sleep 100" }]
    assert.include(
      renderEnd(state(), { type: "finished", usage, finishReason: "stop", background }, look),
      "  left running: 12 sleep 100\n"
    )
  })
})

describe("words", () => {
  it("are cut by their width", () => {
    assert.strictEqual(cut("abcdef", 6), "abcdef")
    assert.strictEqual(cut("abcdefg", 6), "abcde…")
    assert.strictEqual(cut("日本語日本語", 6), "日本…")
    assert.strictEqual(cut("👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 5), "👩‍👩‍👧‍👦👩‍👩‍👧‍👦…")
  })

  it("of several lines fit one, or the first few", () => {
    assert.strictEqual(oneLine(" a\n\tb \r\n c\n"), "a ⏎ b ⏎ c")
    assert.deepStrictEqual(firstLines("a\nb\nc\n", 2, 9), ["a", "b", "c"])
    assert.deepStrictEqual(firstLines("a\nb\nc\nd\n", 2, 9), ["a", "b", "… 2 more lines"])
    assert.strictEqual(printable("a\tb\nc"), "a\tb\nc")
  })

  it("of tools' inputs are what tells most", () => {
    assert.strictEqual(Values.input({ description: "x", command: "ls\n-l" }, look), "ls ⏎ -l")
    assert.strictEqual(Values.input({ path: "src", pattern: "a.*b" }, look), "a.*b")
    assert.strictEqual(Values.input({ file_path: "/srv/project/x" }, look), "x")
    assert.strictEqual(Values.input({ file_path: "/srv/projects/x" }, look), "/srv/projects/x")
    assert.strictEqual(Values.input({ a: 1 }, look), "{\"a\":1}")
    assert.strictEqual(Values.input({}, look), "")
    assert.strictEqual(Values.wholeInput({ command: "ls\n-l", n: 1 }), "command:\n  ls\n  -l\nn: 1")
  })

  it("of tools' results are their text", () => {
    assert.strictEqual(Values.result({ output: "hi", exitCode: 0 }), "hi")
    assert.strictEqual(Values.result({ stdout: "", stderr: "oh" }), "oh")
    assert.strictEqual(Values.result({ content: [{ type: "text", text: "a" }, { type: "text", text: "b" }] }), "a\nb")
    assert.strictEqual(Values.result(null), "")
    assert.strictEqual(Values.result([1]), "[1]")
  })
})
